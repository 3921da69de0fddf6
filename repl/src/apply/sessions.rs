//! Rows of `config.transactions`, which the oplog does not contain: every member derives them from the `lsid` and
//! `txnNumber` of the entries it applies.
//!
//! ```text
//! retryable write               {_id, [parentLsid], txnNum, lastWriteOpTime, lastWriteDate}
//! first part of a large one     ... startOpTime ... state: "inProgress"
//! prepare                       ... startOpTime ... state: "prepared"
//! commit, implicit or explicit  ... state: "committed"       abort  ... state: "aborted"
//! ```

use bson::{RawDocument, RawDocumentBuf, raw::cstr};
use protocol::{OpTime, OpTimeAndWall, oplog_entry::Session};

/// The state of a session's transaction; a retryable write has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TxnState {
    InProgress,
    Prepared,
    Committed,
    Aborted,
}

impl TxnState {
    fn name(self) -> &'static str {
        match self {
            Self::InProgress => "inProgress",
            Self::Prepared => "prepared",
            Self::Committed => "committed",
            Self::Aborted => "aborted",
        }
    }
}

/// What an entry tells about its session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionWrite<'a> {
    pub(crate) session: Session<'a>,
    pub(crate) at: OpTimeAndWall,
    pub(crate) start: Option<OpTime>,
    pub(crate) state: Option<TxnState>,
}

impl SessionWrite<'_> {
    /// The row, with fields in mongod's order.
    pub(crate) fn row(&self) -> Result<RawDocumentBuf, bson::error::Error> {
        let mut row = RawDocumentBuf::new();
        row.append(cstr!("_id"), self.session.lsid.to_owned());
        if let Some(parent) = parent_lsid(self.session.lsid)? {
            row.append(cstr!("parentLsid"), parent);
        }
        row.append(cstr!("txnNum"), self.session.txn_number);
        if let Some(counter) = self.session.txn_retry_counter {
            row.append(cstr!("txnRetryCounter"), counter);
        }
        if let Some(start) = self.start {
            row.append(cstr!("startOpTime"), start.to_raw());
        }
        row.append(cstr!("lastWriteOpTime"), self.at.op_time.to_raw());
        row.append(cstr!("lastWriteDate"), self.at.wall);
        if let Some(state) = self.state {
            row.append(cstr!("state"), state.name());
        }
        Ok(row)
    }
}

/// The session whose retryable write (`txnNumber`) an internal session (`txnUUID`) executes. An internal session for
/// a command such as dropRole has none.
fn parent_lsid(lsid: &RawDocument) -> Result<Option<RawDocumentBuf>, bson::error::Error> {
    if lsid.get("txnUUID")?.is_none() || lsid.get("txnNumber")?.is_none() {
        return Ok(None);
    }
    let mut parent = RawDocumentBuf::new();
    for name in ["id", "uid"] {
        if let Some(value) = lsid.get(name)? {
            super::options::append(&mut parent, name, value)?;
        }
    }
    Ok(Some(parent))
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;
    use protocol::Timestamp;

    use super::*;

    #[test]
    fn a_row_has_the_field_order_of_the_server() {
        let lsid = rawdoc! { "id": 1, "txnNumber": 7_i64, "txnUUID": 2, "uid": 3 };
        let op_time = OpTime::new(Timestamp::new(5, 1), 1);
        let at = OpTimeAndWall { op_time, wall: bson::DateTime::from_millis(9) };
        let write = SessionWrite {
            session: Session { lsid: &lsid, txn_number: 7, txn_retry_counter: None },
            at,
            start: Some(op_time),
            state: Some(TxnState::Prepared),
        };
        let names: Vec<String> =
            write.row().unwrap().iter().map(|field| field.unwrap().0.to_string()).collect();
        assert_eq!(
            names,
            [
                "_id",
                "parentLsid",
                "txnNum",
                "startOpTime",
                "lastWriteOpTime",
                "lastWriteDate",
                "state"
            ]
        );
        assert_eq!(
            write.row().unwrap().get_document("parentLsid").unwrap().to_owned(),
            rawdoc! { "id": 1, "uid": 3 }
        );
        let lsid = rawdoc! { "id": 1, "txnUUID": 2, "uid": 3 };
        assert_eq!(parent_lsid(&lsid).unwrap(), None);
    }
}
