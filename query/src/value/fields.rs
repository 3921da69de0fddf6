//! Finds several fields of a document in one pass.

use super::{Elements, Value, elements::is_named};

/// Maximum number of fields.
const MAX: usize = 8;

/// The names of the fields.
#[derive(Debug, Default)]
pub(crate) struct Fields(Vec<Box<[u8]>>);

impl Fields {
    /// The position of a field, adding it if there is room.
    pub(crate) fn place(&mut self, name: &[u8]) -> Option<usize> {
        let known = self.0.iter().position(|known| **known == *name);
        known.or_else(|| {
            let place = self.0.len();
            (place < MAX).then(|| {
                self.0.push(name.into());
                place
            })
        })
    }

    /// Finds the fields; the first one of each name counts.
    pub(crate) fn find<'a>(&self, doc: &'a [u8]) -> Found<'a> {
        let mut found = Found([Value::Missing; MAX]);
        let (mut walk, mut left) = (Elements::of_bytes(doc), self.0.len());
        while left > 0 {
            let next = walk.find_chosen(|named| {
                let open = |place: &usize| matches!(found.at(*place), Value::Missing);
                let names = self.0.iter().enumerate();
                names.filter(|(_, name)| is_named(named, name)).map(|(at, _)| at).find(open)
            });
            let Some((place, element)) = next else { break };
            if let Some(slot) = found.0.get_mut(place) {
                *slot = element.value();
            }
            left -= 1;
        }
        found
    }
}

/// The values that were found, by position.
pub(crate) struct Found<'a>([Value<'a>; MAX]);

impl<'a> Found<'a> {
    /// The value at a position; missing if there was none.
    pub(crate) fn at(&self, place: usize) -> Value<'a> {
        self.0.get(place).copied().unwrap_or(Value::Missing)
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn fields_are_found_wherever_they_stand() {
        let mut fields = Fields::default();
        let names: [&[u8]; 4] = [b"c", b"a", b"", b"ab"];
        let places: Vec<_> = names.iter().map(|name| fields.place(name)).collect();
        assert_eq!(places, [Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!(fields.place(b"a"), Some(1));
        let doc = rawdoc! { "b": [1, 2], "ab": "x", "a": 5, "d": {}, "": true, "a": 6 };
        let found = fields.find(doc.as_bytes());
        assert!(matches!(found.at(0), Value::Missing));
        assert!(matches!(found.at(1), Value::Int32(5)), "the first one counts");
        assert!(matches!(found.at(2), Value::Bool(true)));
        assert!(matches!(found.at(3), Value::String(b"x")));
        assert!(matches!(found.at(99), Value::Missing));
    }

    #[test]
    fn there_is_room_for_some() {
        let mut fields = Fields::default();
        let places = (b'a'..=b'z').map(|name| fields.place(&[name]));
        assert_eq!(places.flatten().count(), MAX);
    }
}
