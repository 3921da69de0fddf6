//! The collation of a read: what the command asks for, or what the collection has.

use std::sync::Arc;

use protocol::{ErrorCode, RawDoc};
use query::collation::{CollationSpec, Collator};
use storage::Collection;

use crate::error::Failure;

/// The collator of a read of a collection.
pub(super) fn of_collection(
    asked: Option<&RawDoc>,
    collection: Option<&Collection>,
) -> Result<Option<Arc<Collator>>, Failure> {
    let collator = match asked {
        Some(spec) => CollationSpec::parse(spec)?.map(Collator::new).transpose()?,
        None => collection
            .and_then(Collection::collator)
            .map(|own| Collator::new(own.spec().clone()))
            .transpose()?,
    };
    Ok(collator.map(Arc::new))
}

/// The collator of a read of a view, which has one of its own and takes no other.
pub(super) fn of_view(
    asked: Option<&RawDoc>,
    own: Option<&RawDoc>,
) -> Result<Option<Arc<Collator>>, Failure> {
    let parse = |spec: Option<&RawDoc>| -> Result<Option<CollationSpec>, Failure> {
        Ok(match spec {
            Some(spec) => CollationSpec::parse(spec)?,
            None => None,
        })
    };
    let (own, other) = (parse(own)?, parse(asked)?);
    if asked.is_some() && own != other {
        let text = "Cannot override a view's default collation";
        return Err(Failure::said(ErrorCode::OptionNotSupportedOnView, text));
    }
    Ok(own.map(Collator::new).transpose()?.map(Arc::new))
}
