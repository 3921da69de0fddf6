//! How much history is kept: `--historyWindow`, and the parameter of that name.
//!
//! ```text
//!   24h          that long, whatever its size          24h,20GB    that long, and never more than that
//!   20GB         as long as it fits                    24h,half    that long, at most half the size of the data
//!   0            only what a rollback may need         (default)   24h,half
//! ```
//! Dropped collections are part of the history. `half` limits only old versions: dropped collections are kept for the
//! whole time.

use std::{fmt, str::FromStr, time::Duration};

use storage::Store;

/// The limits of history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryWindow {
    /// Limit by time; `None` for no limit.
    pub length: Option<Duration>,
    /// Limit by size.
    pub size: SizeBound,
}

/// A limit by size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeBound {
    /// No limit.
    Unbounded,
    /// Half of the size of all documents, but at least [`HALF_MIN`].
    HalfOfData,
    /// This many bytes.
    Bytes(u64),
}

/// Below this size history is not worth trimming.
pub(crate) const HALF_MIN: u64 = 256 << 20;

/// At this share of the limit a warning says that the size is about to shorten the time.
const WARN_AT_PERCENT: u64 = 90;

impl Default for HistoryWindow {
    fn default() -> Self {
        Self { length: Some(Duration::from_secs(24 * 3600)), size: SizeBound::HalfOfData }
    }
}

/// An invalid history window.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("historyWindow '{0}' is not like 24h, 90m, 3600s, 20GB, '24h,20GB', '24h,half' or 0")]
pub struct WindowError(String);

impl FromStr for HistoryWindow {
    type Err = WindowError;

    fn from_str(text: &str) -> Result<Self, WindowError> {
        let wrong = || WindowError(text.to_owned());
        let mut window = Self { length: None, size: SizeBound::Unbounded };
        for part in text.split(',').map(str::trim) {
            if part == "half" && window.size == SizeBound::Unbounded {
                window.size = SizeBound::HalfOfData;
                continue;
            }
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            let (number, unit) = part.split_at_checked(digits).ok_or_else(wrong)?;
            let number: u64 = number.parse().map_err(|_| wrong())?;
            let times = |by: u64| number.checked_mul(by).ok_or_else(wrong);
            match (unit, window.length, window.size) {
                ("" | "s", None, _) => window.length = Some(Duration::from_secs(number)),
                ("m", None, _) => window.length = Some(Duration::from_secs(times(60)?)),
                ("h", None, _) => window.length = Some(Duration::from_secs(times(3600)?)),
                ("d", None, _) => window.length = Some(Duration::from_secs(times(86_400)?)),
                ("MB", _, SizeBound::Unbounded) => window.size = SizeBound::Bytes(times(1 << 20)?),
                ("GB", _, SizeBound::Unbounded) => window.size = SizeBound::Bytes(times(1 << 30)?),
                ("TB", _, SizeBound::Unbounded) => window.size = SizeBound::Bytes(times(1 << 40)?),
                _ => return Err(wrong()),
            }
        }
        Ok(window)
    }
}

impl fmt::Display for HistoryWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match self.length.map(|length| length.as_secs()) {
            None => {}
            Some(0) => parts.push("0".to_owned()),
            Some(secs) if secs % 3600 == 0 => parts.push(format!("{}h", secs / 3600)),
            Some(secs) if secs % 60 == 0 => parts.push(format!("{}m", secs / 60)),
            Some(secs) => parts.push(format!("{secs}s")),
        }
        match self.size {
            SizeBound::Unbounded => {}
            SizeBound::HalfOfData => parts.push("half".to_owned()),
            SizeBound::Bytes(n) if n % (1 << 30) == 0 => parts.push(format!("{}GB", n >> 30)),
            SizeBound::Bytes(n) => parts.push(format!("{}MB", n >> 20)),
        }
        f.write_str(&parts.join(","))
    }
}

impl HistoryWindow {
    /// The size limit for this much data.
    pub fn bytes_max(&self, data_bytes: u64) -> Option<u64> {
        match self.size {
            SizeBound::Unbounded => None,
            SizeBound::HalfOfData => Some((data_bytes / 2).max(HALF_MIN)),
            SizeBound::Bytes(bytes) => Some(bytes),
        }
    }

    /// The size of the history to which the size limit applies.
    fn bounded_bytes(&self, store: &Store) -> u64 {
        match self.size {
            SizeBound::Bytes(_) => store.history_bytes(),
            _ => store.history_bytes().saturating_sub(store.dropped_bytes()),
        }
    }

    /// Sets the window in the store.
    pub fn set(&self, store: &Store) {
        let length = self.length.unwrap_or(Duration::from_secs(u64::from(u32::MAX)));
        // With a length of zero the store would also drop what a rollback to the stable point needs.
        let length = length.max(Duration::from_secs(1));
        // A limit in bytes is never exceeded. The default must not drop a large collection, because undoing its drop
        // is what history is for.
        let dropped_too = matches!(self.size, SizeBound::Bytes(_));
        store.set_history_window(length, self.bytes_max(store.data_bytes()), dropped_too);
    }
}

/// Warns when the size is about to shorten the time; once, and again after the situation had improved.
#[derive(Debug, Default)]
pub struct Warner {
    warned: bool,
    warned_of_dropped: bool,
}

impl Warner {
    /// Called periodically.
    pub fn look(&mut self, window: &HistoryWindow, store: &Store) {
        self.look_at_dropped(window, store);
        let Some(max) = window.bytes_max(store.data_bytes()) else { return };
        let bytes = window.bounded_bytes(store);
        let marks = store.watermarks();
        let (oldest, applied) = (marks.oldest(), marks.applied().op_time.ts);
        let reach = u64::from(applied.secs().saturating_sub(oldest.secs()));
        let whole = window.length.is_some_and(|length| reach >= length.as_secs());
        let near = bytes.saturating_mul(100) >= max.saturating_mul(WARN_AT_PERCENT) && !whole;
        if near && !self.warned {
            tracing::warn!(target: "STORAGE", ctx = "history", bytes, bytesMax = max, window = %window,
                oldestReadable = protocol::moment::shown(oldest), reachSecs = reach,
                "The history window is about to be cut by its size; raise the size by setParameter historyWindow to keep more");
        }
        self.warned = near;
    }
}

impl Warner {
    /// Warns once when dropped collections take more space than the present data.
    fn look_at_dropped(&mut self, window: &HistoryWindow, store: &Store) {
        let (dropped, data) = (store.dropped_bytes(), store.data_bytes());
        let bounded = matches!(window.size, SizeBound::Bytes(_));
        let large = !bounded && dropped > data.max(HALF_MIN);
        if large && !self.warned_of_dropped {
            tracing::warn!(target: "STORAGE", ctx = "history", droppedBytes = dropped, dataBytes = data,
                window = %window,
                "Dropped collections that can still be read take more than the data; lower the time, or set a number of bytes, by setParameter historyWindow to let them go sooner");
        }
        self.warned_of_dropped = large;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_bounds_by_time_and_by_size_and_shows_them_again() {
        for text in ["24h", "90m", "59s", "20GB", "24h,20GB", "24h,half", "half", "1500MB", "0"] {
            assert_eq!(text.parse::<HistoryWindow>().unwrap().to_string(), text);
        }
        assert_eq!(HistoryWindow::default().to_string(), "24h,half");
        assert_eq!("2d".parse::<HistoryWindow>().unwrap().to_string(), "48h");
        for text in [
            "",
            "x",
            "24h,24h",
            "1GB,2GB",
            "half,1GB",
            "-1h",
            "24hours",
            "24h,",
            "99999999999999999999h",
        ] {
            assert!(text.parse::<HistoryWindow>().is_err(), "{text}");
        }
    }

    #[test]
    fn half_of_the_data_has_a_floor() {
        let window = HistoryWindow::default();
        assert_eq!(window.bytes_max(0), Some(HALF_MIN));
        assert_eq!(window.bytes_max(10 << 30), Some(5 << 30));
    }
}
