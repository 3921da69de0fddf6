//! Finds the end of a component of a key.
//!
//! Keys of several fields are concatenated components. A scan that skips ranges of keys must know where the first
//! field ends to look at the second; the values need not be decoded for that.

use super::{DEPTH_MAX, ty};

/// The remaining bytes of a component, read as if it were ascending.
struct Bytes<'k> {
    rest: &'k [u8],
    mask: u8,
}

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first ^ self.mask)
    }

    fn skip(&mut self, n: usize) -> Option<()> {
        self.rest = self.rest.get(n..)?;
        Some(())
    }

    /// Skips to after the next zero.
    fn name(&mut self) -> Option<()> {
        while self.next()? != 0 {}
        Some(())
    }

    /// Skips text: a zero inside is followed by FF, the last one is not.
    fn text(&mut self) -> Option<()> {
        loop {
            self.name()?;
            if self.next()? != 0xFF {
                return Some(());
            }
        }
    }

    fn len(&mut self) -> Option<usize> {
        match self.next()? {
            u8::MAX => {
                let mut len = 0_usize;
                for _ in 0..4 {
                    len = len << 8 | usize::from(self.next()?);
                }
                Some(len)
            }
            len => Some(usize::from(len)),
        }
    }

    fn elements(&mut self, names: bool, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        loop {
            let first = self.rest.first()? ^ self.mask;
            if first == 0 {
                return self.skip(1);
            }
            if names {
                self.skip(1)?;
                self.name()?;
            }
            self.value(depth)?;
        }
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        let lead = self.next()?;
        match lead {
            ty::STRING | ty::CODE => self.text(),
            ty::OBJECT => self.elements(true, depth),
            ty::ARRAY => self.elements(false, depth),
            ty::BINARY => {
                let len = self.len()?;
                self.skip(len.checked_add(1)?)
            }
            ty::OBJECT_ID => self.skip(12),
            ty::DATE | ty::TIMESTAMP => self.skip(8),
            ty::REGEX => self.name().and_then(|()| self.name()),
            ty::DB_POINTER => {
                let len = self.len()?;
                self.skip(len)
            }
            ty::CODE_WITH_SCOPE => {
                self.text()?;
                self.elements(true, depth)
            }
            lead if (ty::NUMBER..ty::STRING).contains(&lead) => self.number(lead),
            _ => Some(()),
        }
    }

    /// Skips a number; see `number` for its encoding.
    fn number(&mut self, lead: u8) -> Option<()> {
        use super::number::{FRACTION, HUGE, INFINITY, NAN, NEGATIVE_INFINITY, ZERO};
        if [NAN, NEGATIVE_INFINITY, ZERO, INFINITY].contains(&lead) {
            return Some(());
        }
        let outer = self.mask;
        if lead < ZERO {
            self.mask = !self.mask;
        }
        let size = lead.abs_diff(ZERO);
        if size == FRACTION || size == HUGE {
            self.part()?;
        } else {
            self.skip(usize::from(size - FRACTION))?;
            if self.next()? != 0 {
                self.part()?;
            }
        }
        self.mask = outer;
        Some(())
    }

    fn part(&mut self) -> Option<()> {
        self.skip(8)?;
        if self.next()? != 0 {
            self.skip(2)?;
            self.name()?;
        }
        Some(())
    }
}

/// Length of the first component of a key; `None` if the bytes are invalid.
pub fn component_len(key: &[u8], descending: bool) -> Option<usize> {
    let mut bytes = Bytes { rest: key, mask: if descending { 0xFF } else { 0 } };
    bytes.value(DEPTH_MAX + 1)?;
    Some(key.len() - bytes.rest.len())
}
