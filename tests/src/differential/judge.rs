//! Sends a case to both servers and compares the answers.

use std::fmt::Write;

use anyhow::{Result, anyhow};
use bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::sync::Client;

use super::{Case, Order};

/// The answer of a server.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The documents of all batches, or the whole reply of a command without a cursor.
    Documents(Vec<Vec<u8>>),
    /// A refusal.
    Refused {
        /// Its code.
        code: i32,
        /// The code's name.
        name: String,
        /// Its text.
        text: String,
    },
    /// A reply that the driver cannot parse: mongod truncates quoted text in the middle of a UTF-8 character.
    Unreadable,
}

impl Answer {
    /// Sends the case to one server. An error means that it did not answer.
    pub fn of(client: &Client, db: &str, case: &Case) -> Result<Self> {
        let asked = match case.command.keys().next().map(String::as_str) {
            Some("find" | "aggregate") => documents(client, db, &case.command),
            _ => reply(client, db, &case.command),
        };
        match asked {
            Ok(documents) => Ok(Self::Documents(documents)),
            Err(error) => match error.kind.as_ref() {
                ErrorKind::Command(refused) => Ok(Self::Refused {
                    code: refused.code,
                    name: refused.code_name.clone(),
                    text: without_tree(&refused.message),
                }),
                ErrorKind::BsonDeserialization(_) | ErrorKind::InvalidResponse { .. } => {
                    Ok(Self::Unreadable)
                }
                _ => Err(anyhow!(error)),
            },
        }
    }

    /// True if both answers agree, as far as the order is specified.
    pub fn agrees(&self, other: &Self, order: Order) -> bool {
        match (self, other) {
            (Self::Documents(a), Self::Documents(b)) => match order {
                Order::Exact => a == b,
                Order::Set => {
                    let (mut a, mut b) = (a.clone(), b.clone());
                    a.sort_unstable();
                    b.sort_unstable();
                    a == b
                }
                Order::Count => a.len() == b.len(),
            },
            (Self::Unreadable, _) => true,
            _ => self == other,
        }
    }

    /// A printable form: the first documents, or the error.
    pub fn shown(&self) -> String {
        match self {
            Self::Refused { code, name, text } => format!("{code} {name}: {text}"),
            Self::Unreadable => "something that the driver cannot read".to_owned(),
            Self::Documents(documents) => {
                let mut shown = format!("{} documents", documents.len());
                for bytes in documents.iter().take(100) {
                    let raw = RawDocumentBuf::from_bytes(bytes.clone());
                    let text = raw.map_or_else(|e| e.to_string(), |raw| format!("{:?}", Raw(&raw)));
                    let _ = write!(shown, "\n      {text}");
                }
                shown
            }
        }
    }
}

impl Answer {
    /// A copy with decimals rounded to the precision of a double.
    #[must_use]
    pub fn without_last_digits(&self) -> Self {
        let Self::Documents(documents) = self else { return self.clone() };
        let rounded = |bytes: &Vec<u8>| {
            let document = bson::deserialize_from_slice::<Document>(bytes).ok()?;
            rounded(&Bson::Document(document)).as_document()?.to_vec().ok()
        };
        Self::Documents(
            documents.iter().map(|bytes| rounded(bytes).unwrap_or_else(|| bytes.clone())).collect(),
        )
    }
}

fn rounded(value: &Bson) -> Bson {
    match value {
        Bson::Decimal128(n) => {
            n.to_string().parse().map_or(value.clone(), |n: f64| Bson::Double(n))
        }
        Bson::Array(items) => Bson::Array(items.iter().map(rounded).collect()),
        Bson::Document(inner) => inner
            .iter()
            .map(|(name, value)| (name.clone(), rounded(value)))
            .collect::<Document>()
            .into(),
        other => other.clone(),
    }
}

/// The first difference between two answers.
pub fn parting(want: &Answer, got: &Answer, order: Order) -> String {
    let (Answer::Documents(want), Answer::Documents(got)) = (want, got) else {
        let cut = |text: String| text.chars().take(1200).collect::<String>();
        return format!("    mongod: {}\n    ours:   {}", cut(want.shown()), cut(got.shown()));
    };
    let only = |a: &[Vec<u8>], b: &[Vec<u8>]| {
        let missing: Vec<_> = a.iter().filter(|doc| !b.contains(doc)).take(3).cloned().collect();
        Answer::Documents(missing).shown()
    };
    let how = if order == Order::Exact && only(want, got).starts_with('0') {
        " in another order"
    } else {
        ""
    };
    format!(
        "    {} and {} documents{how}\n    only mongod: {}\n    only ours:   {}",
        want.len(),
        got.len(),
        only(want, got),
        only(got, want)
    )
}

/// mongod's planner errors quote the query as rewritten by its optimiser, with its own order of predicates. That part
/// is removed; the error itself is in the text before and after it.
fn without_tree(text: &str) -> String {
    const HEAD: &str = "error processing query: ns=";
    const TAIL: &str = " planner returned error";
    const TYPES: &str = "expected types '[";
    // Which of several unsortable documents is reported is unspecified.
    const ARRAY: &str = " for array: ";
    if let Some((head, _)) =
        text.split_once(ARRAY).filter(|(head, _)| head.contains("Ambiguous field"))
    {
        return head.to_owned();
    }
    // mongod keeps the allowed types of a field in an unordered set, so their order varies between processes.
    if let Some((head, types)) = text.split_once(TYPES) {
        let mut types: Vec<&str> = types.trim_end_matches(['\'', ']']).split(", ").collect();
        types.sort_unstable();
        return format!("{head}{TYPES}{}", types.join(", "));
    }
    match (text.strip_prefix(HEAD), text.find(TAIL)) {
        (Some(_), Some(tail)) => format!("{HEAD}...{}", text.get(tail..).unwrap_or_default()),
        _ => text.to_owned(),
    }
}

fn documents(client: &Client, db: &str, command: &Document) -> Result<Vec<Vec<u8>>, Error> {
    let mut cursor = client.database(db).run_cursor_command(command.clone()).run()?;
    let mut documents = Vec::new();
    while cursor.advance()? {
        documents.push(cursor.current().as_bytes().to_vec());
    }
    Ok(documents)
}

fn reply(client: &Client, db: &str, command: &Document) -> Result<Vec<Vec<u8>>, Error> {
    let mut reply = client.database(db).run_command(command.clone()).run()?;
    for volatile in ["$clusterTime", "operationTime", "ok"] {
        reply.remove(volatile);
    }
    // The values of a distinct are compared as a set, too.
    let documents = match reply.get_array("values") {
        Ok(values) => values.iter().map(|value| doc! { "": untyped(value) }).collect(),
        Err(_) => vec![reply],
    };
    documents.iter().map(|doc| Ok(doc.to_vec()?)).collect()
}

/// distinct treats 1, 1.0 and NumberLong(1) as one value; which one is returned depends on which was read first.
fn untyped(value: &Bson) -> Bson {
    match value {
        Bson::Int32(n) => Bson::Double(f64::from(*n)),
        #[allow(clippy::cast_precision_loss, reason = "both sides lose the same")]
        Bson::Int64(n) => Bson::Double(*n as f64),
        Bson::Decimal128(n) => {
            // Likewise, either of the two zeros may have been read first.
            n.to_string().parse().map_or(value.clone(), |n: f64| Bson::Double(n + 0.0))
        }
        Bson::Double(n) => Bson::Double(n + 0.0),
        Bson::Array(items) => Bson::Array(items.iter().map(untyped).collect()),
        Bson::Document(inner) => inner
            .iter()
            .map(|(name, value)| (name.clone(), untyped(value)))
            .collect::<Document>()
            .into(),
        other => other.clone(),
    }
}

/// Displays raw bytes, including duplicate fields.
struct Raw<'a>(&'a bson::RawDocument);

impl std::fmt::Debug for Raw<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("{")?;
        for (n, element) in self.0.iter().enumerate() {
            let Ok((name, value)) = element else { return f.write_str("?}") };
            let comma = if n == 0 { "" } else { "," };
            let value = Bson::try_from(value).unwrap_or(Bson::Null);
            write!(f, "{comma} {}: {value:?}", name.as_str())?;
        }
        f.write_str(" }")
    }
}
