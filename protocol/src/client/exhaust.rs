//! A request with many replies (an exhaust stream).
//!
//! ```text
//!  us   getMore (id 7, exhaustAllowed)
//!  peer                                 reply (id 41, to 7, moreToCome)
//!  peer                                 reply (id 42, to 41, moreToCome)
//!  peer                                 reply (id 43, to 42)             the end
//! ```
//! The `responseTo` of each reply is the id of the reply before it. The only way to stop such a stream early is to
//! close the connection, so dropping a stream before its end leaves its connection broken.

use std::time::Duration;

use super::{ClientError, Connection};
use crate::RawDoc;

/// The replies of an exhaust request.
#[derive(Debug)]
pub struct Exhaust<'a> {
    connection: &'a mut Connection,
    expected: i32,
    finished: bool,
}

impl<'a> Exhaust<'a> {
    pub(super) fn new(connection: &'a mut Connection, request_id: i32) -> Self {
        Self { connection, expected: request_id, finished: false }
    }

    /// The next reply, or `None` after the last one. `within` limits each period of silence: a long reply over a slow
    /// network may take longer in total.
    ///
    /// A timeout leaves the stream intact: `next` may be called again. The future is cancel-safe, so it can be used
    /// in `select!`.
    pub async fn next(&mut self, within: Duration) -> Result<Option<RawDoc>, ClientError> {
        if self.finished {
            return Ok(None);
        }
        let reply = self.connection.receive(within).await?;
        let (body, more) = self.connection.take_reply(&reply, self.expected)?;
        self.expected = reply.request_id;
        if !more {
            self.finished = true;
            self.connection.finish_exchange();
        }
        self.connection.or_command_error(body).map(Some)
    }

    /// True after the last reply; the connection can then be used again.
    pub fn is_finished(&self) -> bool {
        self.finished
    }
}
