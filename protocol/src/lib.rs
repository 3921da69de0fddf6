//! MongoDB's wire protocol, as two nodes speak it.
//!
//! ```text
//!  socket bytes -> framing (Frame) -> message (Message: OP_MSG, OP_QUERY, OP_REPLY, compressed or not)
//!                                        |
//!            raw BSON (RawDoc, shares the frame) -> fields, oplog_entry, repl_metadata
//! ```
//! Everything except [`client`] is synchronous and owns no socket. Documents stay raw BSON: a document that is only
//! passed on, compared or partly read is never decoded into a tree.

mod bson_check;
pub mod client;
mod codec;
mod elements;
mod error;
mod error_code;
pub mod fields;
mod framing;
pub mod header;
mod host;
mod message;
pub mod moment;
mod namespace;
mod op_compressed;
mod op_msg;
mod op_query;
pub mod oplog_entry;
mod optime;
mod raw_doc;
pub mod release;
pub mod repl_metadata;
pub mod scram;
mod wire;

pub use bson_check::{DEPTH_MAX, InvalidBson, Reason, check as check_bson};
pub use codec::{BadMessage, CodecError, MessageCodec};
pub use error::{EncodeError, FrameError, ParseError};
pub use error_code::{ErrorCategory, ErrorCode};
pub use fields::{FieldError, Fields};
pub use framing::{Frame, Framing};
pub use header::Header;
pub use host::{DEFAULT_PORT, HostAndPort, HostParseError};
pub use message::{Accept, Message, MessageBuf, Op};
pub use namespace::Namespace;
pub use op_compressed::{Compressor, Compressors};
pub use op_msg::{DocRun, DocSequence, MsgFlags, OpMsg};
pub use op_query::{OpQuery, OpReply};
pub use oplog_entry::{OplogEntry, OplogEntryError};
pub use optime::{OpTime, OpTimeAndWall, Timestamp};
pub use raw_doc::RawDoc;
pub use release::{Profile, Release};
pub use repl_metadata::{ClusterTime, OplogQueryMetadata, ReplSetMetadata};
