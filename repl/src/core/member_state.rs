//! The states of a member.
//!
//! ```text
//!  STARTUP --config names us--> STARTUP2 --initial sync done--> RECOVERING --> SECONDARY <--> ROLLBACK
//!     ^  \                                                          ^--------------'
//!     |   `--store is complete---------------------------------------> SECONDARY    maintenance, too stale, halted
//!     `--- any --config drops us--> REMOVED --config names us again--> as at start
//! ```

use std::fmt;

/// A member state, with MongoDB's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "MongoDB documents them")]
pub enum MemberState {
    Startup,
    Primary,
    Secondary,
    Recovering,
    Startup2,
    Unknown,
    Arbiter,
    Down,
    Rollback,
    Removed,
}

impl MemberState {
    const ALL: [(Self, i32, &'static str); 10] = [
        (Self::Startup, 0, "STARTUP"),
        (Self::Primary, 1, "PRIMARY"),
        (Self::Secondary, 2, "SECONDARY"),
        (Self::Recovering, 3, "RECOVERING"),
        (Self::Startup2, 5, "STARTUP2"),
        (Self::Unknown, 6, "UNKNOWN"),
        (Self::Arbiter, 7, "ARBITER"),
        (Self::Down, 8, "DOWN"),
        (Self::Rollback, 9, "ROLLBACK"),
        (Self::Removed, 10, "REMOVED"),
    ];

    fn row(self) -> (Self, i32, &'static str) {
        Self::ALL.into_iter().find(|(state, ..)| *state == self).unwrap_or((
            Self::Unknown,
            6,
            "UNKNOWN",
        ))
    }

    /// The number on the wire.
    pub fn code(self) -> i32 {
        self.row().1
    }

    /// The name in `stateStr`.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// The state with this number; 4 is unused.
    pub fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known, _)| i64::from(*known) == code).map(|row| row.0)
    }

    /// True for PRIMARY and SECONDARY: reads are served and others may sync from it.
    pub fn is_readable(self) -> bool {
        matches!(self, Self::Primary | Self::Secondary)
    }
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_mongods() {
        for (state, code, _) in MemberState::ALL {
            assert_eq!(MemberState::from_code(i64::from(code)), Some(state));
            assert_eq!(state.code(), code);
        }
        assert_eq!(MemberState::Startup2.code(), 5);
        assert_eq!(MemberState::from_code(4), None);
        assert_eq!(MemberState::Removed.to_string(), "REMOVED");
    }
}
