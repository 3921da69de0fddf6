//! Reusable buffers for large replies: their pages are already mapped, and many concurrent readers do not leave
//! half-grown buffers behind.
//!
//! B1 A small reply never uses a shared buffer.
//! B2 Buffers that were unused for a while are freed, and the total size of idle buffers is limited.

use std::sync::Arc;

use bson::RawDocumentBuf;
use bytes::Bytes;
use parking_lot::Mutex;
use protocol::RawDoc;

/// Replies up to this length have their own memory (B1).
pub(crate) const OWN_MAX: usize = 4 << 10;

/// The buffer sizes. The last one holds the largest batch with its overhead.
const SIZES: [usize; 6] =
    [32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20, (16 << 20) + (64 << 10)];

/// Maximum total size of idle buffers.
const IDLE_BYTES_MAX: usize = 32 << 20;

/// Buffers that no reply uses now.
#[derive(Default)]
pub struct ReplyBuffers(Mutex<Idle>);

#[derive(Default)]
struct Idle {
    /// By size, see [`SIZES`].
    buffers: [Vec<Vec<u8>>; SIZES.len()],
    bytes: usize,
    /// Minimum number of idle buffers since the last trim: that many are not needed.
    fewest: [usize; SIZES.len()],
}

impl ReplyBuffers {
    /// An empty buffer with this capacity.
    pub fn take(&self, bytes: usize) -> Vec<u8> {
        let Some(at) = SIZES.iter().position(|size| *size >= bytes) else {
            return Vec::with_capacity(bytes);
        };
        let mut idle = self.0.lock();
        let found = idle.buffers.get_mut(at).and_then(Vec::pop);
        idle.note_fewest(at);
        if let Some(buffer) = found {
            idle.bytes -= buffer.capacity();
            return buffer;
        }
        drop(idle);
        Vec::with_capacity(SIZES.get(at).copied().unwrap_or(bytes))
    }

    /// Returns a buffer, unless it has another size or there are enough (B2).
    pub fn give(&self, mut buffer: Vec<u8>) {
        let Some(at) = SIZES.iter().position(|size| *size == buffer.capacity()) else { return };
        buffer.clear();
        let mut idle = self.0.lock();
        if idle.bytes + buffer.capacity() <= IDLE_BYTES_MAX {
            idle.bytes += buffer.capacity();
            if let Some(buffers) = idle.buffers.get_mut(at) {
                buffers.push(buffer);
            }
        }
    }

    /// Converts a reply for sending. Its buffer is returned when it was sent.
    pub(crate) fn lend(self: &Arc<Self>, reply: RawDocumentBuf) -> RawDoc {
        let buffer = reply.into_bytes();
        if buffer.capacity() <= OWN_MAX {
            return RawDoc::new(buffer.into()).expect("it was a document");
        }
        let lent = Lent { buffer, home: Arc::clone(self) };
        RawDoc::new(Bytes::from_owner(lent)).expect("it was a document")
    }

    /// Frees the buffers that were idle all the time since the last call (B2).
    pub fn trim(&self) {
        let mut unused = Vec::new();
        let mut idle = self.0.lock();
        let Idle { buffers, bytes, fewest } = &mut *idle;
        for (buffers, fewest) in buffers.iter_mut().zip(fewest) {
            unused.extend(buffers.drain(..(*fewest).min(buffers.len())));
            *fewest = buffers.len();
        }
        *bytes -= unused.iter().map(Vec::capacity).sum::<usize>();
    }
}

impl Idle {
    fn note_fewest(&mut self, at: usize) {
        if let (Some(buffers), Some(fewest)) = (self.buffers.get(at), self.fewest.get_mut(at)) {
            *fewest = (*fewest).min(buffers.len());
        }
    }
}

/// A buffer while its reply is sent.
struct Lent {
    buffer: Vec<u8>,
    home: Arc<ReplyBuffers>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.give(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(buffers: &ReplyBuffers) -> usize {
        buffers.0.lock().bytes
    }

    #[test]
    fn a_buffer_comes_back_when_its_reply_is_sent() {
        let buffers = Arc::new(ReplyBuffers::default());
        let mut buffer = buffers.take(OWN_MAX + 1);
        let (at, room) = (buffer.as_ptr(), buffer.capacity());
        buffer.extend_from_slice(bson::rawdoc! { "ok": 1.0 }.as_bytes());
        let reply = buffers.lend(RawDocumentBuf::from_bytes(buffer).unwrap());
        assert_eq!(idle(&buffers), 0);
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0);
        drop(reply);
        assert_eq!(idle(&buffers), room);
        let again = buffers.take(room);
        assert_eq!((again.as_ptr(), again.len(), idle(&buffers)), (at, 0, 0));
    }

    #[test]
    fn what_is_not_used_is_given_back() {
        let buffers = ReplyBuffers::default();
        let three: Vec<_> = (0..3).map(|_| buffers.take(2 << 20)).collect();
        three.into_iter().for_each(|buffer| buffers.give(buffer));
        // They were in use since the last trim.
        buffers.trim();
        assert_eq!(idle(&buffers), 6 << 20);
        let one = buffers.take(2 << 20);
        buffers.give(one);
        buffers.trim();
        assert_eq!(idle(&buffers), 2 << 20);
        buffers.trim();
        assert_eq!(idle(&buffers), 0);
    }

    #[test]
    fn idle_buffers_are_bounded_and_strange_ones_are_not_kept() {
        let buffers = ReplyBuffers::default();
        let many: Vec<_> = (0..40).map(|_| buffers.take(2 << 20)).collect();
        many.into_iter().for_each(|buffer| buffers.give(buffer));
        assert_eq!(idle(&buffers), IDLE_BYTES_MAX);
        buffers.give(Vec::with_capacity(12_345));
        buffers.give(buffers.take(100 << 20));
        assert_eq!(idle(&buffers), IDLE_BYTES_MAX);
    }
}
