//! Signed cluster times: the signature proves that a member of the cluster issued the time.
//!
//! A time is signed with a key of `admin.system.keys`, which is replicated like any other collection. As in mongod,
//! 65,536 consecutive times share a signature, so it is not computed for each reply. Without access control nothing
//! is signed and every time is accepted.

use std::ops::Bound;

use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use protocol::{
    ClusterTime, ErrorCode, Namespace, OpTime, Profile, Timestamp, repl_metadata::Signature,
};
use sha1::Sha1;
use storage::{Direction, ReadAt, StorageError, Store};
use subtle::ConstantTimeEq;

use crate::error::Failure;

/// Signs and verifies cluster times.
#[derive(Default)]
pub struct Signer(Mutex<State>);

#[derive(Default)]
struct State {
    keys: Vec<Key>,
    /// The applied position at which the keys were last read: they cannot have changed if it is the same.
    read_at: OpTime,
    last: Option<(u64, Signature)>,
}

#[derive(Clone)]
struct Key {
    id: i64,
    secret: Vec<u8>,
    expires: Timestamp,
}

/// Times that differ only in these bits have the same signature.
const SAME_SIGNATURE: u64 = 0xffff;

impl Signer {
    /// The signature of a time; `None` if there is no key for it yet.
    pub fn sign(&self, store: &Store, time: Timestamp) -> Result<Option<Signature>, StorageError> {
        let range = time.as_u64() | SAME_SIGNATURE;
        if let Some((of, signature)) = self.0.lock().last
            && of == range
        {
            return Ok(Some(signature));
        }
        let valid = |key: &Key| key.expires > time;
        let Some(key) = self.key(store, valid)? else { return Ok(None) };
        let signature = Signature { hash: proof(&key, range), key_id: key.id };
        self.0.lock().last = Some((range, signature));
        Ok(Some(signature))
    }

    /// Fails if the signature of a time is invalid.
    pub fn check(
        &self,
        store: &Store,
        profile: &Profile,
        time: &ClusterTime,
    ) -> Result<(), Failure> {
        let signature = time.signature.unwrap_or(Signature::DUMMY);
        let fits = |key: &Key| key.id == signature.key_id && key.expires > time.time;
        let Some(key) = self.key(store, fits)? else {
            let reader = if profile.cache_reader_refuses_keys { "Cache Reader " } else { "" };
            let text = format!(
                "{reader}No keys found for HMAC that is valid for time: {{ ts: {} }} with id: {}",
                time.time, signature.key_id
            );
            return Err(Failure::said(ErrorCode::KeyNotFound, text));
        };
        let expected = proof(&key, time.time.as_u64() | SAME_SIGNATURE);
        if bool::from(expected.ct_eq(&signature.hash)) {
            return Ok(());
        }
        let text = "Proof does not match the cluster time";
        Err(Failure::said(ErrorCode::TimeProofMismatch, text))
    }

    /// The first key to expire that satisfies `fits`; if there is none, the keys are read again.
    fn key(&self, store: &Store, fits: impl Fn(&Key) -> bool) -> Result<Option<Key>, StorageError> {
        let applied = store.watermarks().applied().op_time;
        {
            let state = self.0.lock();
            let found = state.keys.iter().find(|key| fits(key)).cloned();
            if found.is_some() || state.read_at == applied {
                return Ok(found);
            }
        }
        let keys = read(store)?;
        let found = keys.iter().find(|key| fits(key)).cloned();
        let mut state = self.0.lock();
        (state.keys, state.read_at) = (keys, applied);
        Ok(found)
    }
}

fn proof(key: &Key, range: u64) -> [u8; 20] {
    let mac = Hmac::<Sha1>::new_from_slice(&key.secret).expect("a key of any length will do");
    mac.chain_update(range.to_le_bytes()).finalize().into_bytes().into()
}

fn read(store: &Store) -> Result<Vec<Key>, StorageError> {
    let view = store.view(ReadAt::Newest)?;
    let ns = Namespace::new("admin", "system.keys");
    let Some(collection) = view.catalog().collection(&ns) else { return Ok(Vec::new()) };
    let mut keys = Vec::new();
    for record in view.scan(&collection, Bound::Unbounded, Direction::Forward) {
        let (_, doc) = record?;
        if let (Ok(id), Ok(secret), Ok(expires), Ok("HMAC")) = (
            doc.get_i64("_id"),
            doc.get_binary("key"),
            doc.get_timestamp("expiresAt"),
            doc.get_str("purpose"),
        ) {
            keys.push(Key { id, secret: secret.bytes.to_vec(), expires: expires.into() });
        }
    }
    keys.sort_by_key(|key| key.expires);
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A signature made by a real 8.2 server.
    #[test]
    fn a_signature_of_a_real_member() {
        let secret = b":>\xda\xe2\xa7]%\xd4\xc1\xcb\xc9\xb9\x8f\xba\xf64\xc2\x070f".to_vec();
        let key = Key {
            id: 7_708_796_268_536_922_119,
            secret,
            expires: Timestamp::new(1_802_619_997, 0),
        };
        let time = Timestamp::new(1_794_843_997, 20);
        let expected = *b"\xb2\x0bQQj\xece\x9b\xcb;\x00\xdb\xfc\xec\xcf\xe1c\xba\x0e\xd2";
        assert_eq!(proof(&key, time.as_u64() | SAME_SIGNATURE), expected);
    }
}
