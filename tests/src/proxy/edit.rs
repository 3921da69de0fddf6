//! Modifies replies in the proxy.

use bson::{Document, RawDocumentBuf};

/// What happens to a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Forward it unchanged.
    Keep,
    /// Forward the changed reply.
    Change,
    /// Forward its first half, then break the connection.
    BreakOff,
}

/// Sees every reply and may change it.
pub(super) type Editor = Box<dyn FnMut(&mut Document) -> Edit + Send>;

/// Extracts whole messages from a byte stream.
#[derive(Debug, Default)]
pub(super) struct Messages(Vec<u8>);

impl Messages {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        let length = self.0.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes))?;
        let length = usize::try_from(length).ok()?;
        let rest = (length <= self.0.len()).then(|| self.0.split_off(length))?;
        Some(std::mem::replace(&mut self.0, rest))
    }
}

/// The edited message, or `Err` with the part to forward before the connection breaks.
pub(super) fn edited(message: Vec<u8>, editor: &mut Editor) -> Result<Vec<u8>, Vec<u8>> {
    let Some(mut body) = body(&message) else { return Ok(message) };
    match editor(&mut body) {
        Edit::Keep => Ok(message),
        Edit::Change => Ok(with_body(&message, &body).unwrap_or(message)),
        Edit::BreakOff => Err(message.get(..message.len() / 2).unwrap_or_default().to_vec()),
    }
}

/// The body of an OP_MSG that has only a body.
fn body(message: &[u8]) -> Option<Document> {
    let op_code = message.get(12..16)?;
    if op_code != 2013u32.to_le_bytes() || *message.get(KIND)? != 0 {
        return None;
    }
    let length = message.get(BODY..)?.first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let bytes = message.get(BODY..BODY + length)?;
    Document::try_from(RawDocumentBuf::from_bytes(bytes.to_vec()).ok()?).ok()
}

/// Replaces the body and removes the checksum, which would be wrong.
fn with_body(message: &[u8], body: &Document) -> Option<Vec<u8>> {
    let body = RawDocumentBuf::try_from(body).ok()?;
    let flags = u32::from_le_bytes(*message.get(16..)?.first_chunk::<4>()?) & !HAS_CHECKSUM;
    let length = u32::try_from(BODY + body.as_bytes().len()).ok()?;
    let mut out = length.to_le_bytes().to_vec();
    out.extend_from_slice(message.get(4..16)?);
    out.extend_from_slice(&flags.to_le_bytes());
    out.push(0);
    out.extend_from_slice(body.as_bytes());
    Some(out)
}

const KIND: usize = 20;
const BODY: usize = 21;
const HAS_CHECKSUM: u32 = 1;

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn message(body: &Document) -> Vec<u8> {
        let body = RawDocumentBuf::try_from(body).unwrap();
        let length = u32::try_from(BODY + body.as_bytes().len() + 4).unwrap();
        let mut out = length.to_le_bytes().to_vec();
        out.extend_from_slice(&[7; 8]);
        out.extend_from_slice(&2013u32.to_le_bytes());
        out.extend_from_slice(&HAS_CHECKSUM.to_le_bytes());
        out.push(0);
        out.extend_from_slice(body.as_bytes());
        out.extend_from_slice(&[9; 4]);
        out
    }

    #[test]
    fn a_reply_is_changed_kept_or_broken_off() {
        let whole = message(&doc! { "n": 1 });
        let mut messages = Messages::default();
        messages.push(&whole[..9]);
        assert_eq!(messages.next(), None);
        messages.push(&whole[9..]);
        messages.push(&whole);
        let mut change: Editor = Box::new(|body| {
            body.insert("n", 2);
            Edit::Change
        });
        let changed = edited(messages.next().unwrap(), &mut change).unwrap();
        assert_eq!(body(&changed), Some(doc! { "n": 2 }));
        assert_eq!(changed.len(), whole.len() - 4, "its checksum is gone");
        let mut keep: Editor = Box::new(|_| Edit::Keep);
        assert_eq!(edited(messages.next().unwrap(), &mut keep), Ok(whole.clone()));
        assert_eq!(messages.next(), None);
        let mut break_off: Editor = Box::new(|_| Edit::BreakOff);
        assert_eq!(edited(whole.clone(), &mut break_off), Err(whole[..whole.len() / 2].to_vec()));
    }
}
