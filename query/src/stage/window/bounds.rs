//! Determines the frame of documents that a window function uses.

use crate::{
    error::QueryError,
    expression::{Unit, add, as_f64, moved_in_utc},
    matcher::operands::integer,
    value::{Element, Elements, OwnedValue, Shown, Value, compare_values},
};

/// The bounds of a frame.
#[derive(Debug, Clone)]
pub(super) enum Bounds {
    /// By position relative to the current document.
    Documents(Option<i64>, Option<i64>),
    /// By the value of the sort field relative to the current document's.
    Range { low: Option<Edge>, high: Option<Edge>, unit: Option<Unit> },
}

/// One end of a range.
#[derive(Debug, Clone)]
pub(super) enum Edge {
    /// The current document itself, even if others have the same value.
    Current,
    /// This distance from the current document's value.
    At(OwnedValue),
}

/// The positions of a frame within its partition.
pub(super) type Frame = std::ops::Range<usize>;

impl Bounds {
    /// The whole partition.
    pub(super) const ALL: Self = Self::Documents(None, None);

    pub(super) fn starts_at_first(&self) -> bool {
        match self {
            Self::Documents(low, _) => low.is_none(),
            Self::Range { low, .. } => low.is_none(),
        }
    }

    /// Checks that the current document is always within the frame; the error names the wrong end.
    pub(super) fn check_holds_current(&self, function: &str) -> Result<(), QueryError> {
        #[allow(clippy::cast_precision_loss, reason = "only shown")]
        let place = |n: &Option<i64>| n.map(|n| n as f64);
        let value = |edge: &Option<Edge>| match edge {
            Some(Edge::At(value)) => Some(as_f64(value.get())),
            _ => None,
        };
        let (low, high) = match self {
            Self::Documents(low, high) => (place(low), place(high)),
            Self::Range { low, high, .. } => (value(low), value(high)),
        };
        let refuse = |end: &str, than: &str, n: f64| {
            Err(QueryError::failed_to_parse(format!(
                "{end} specified bound cannot be {than} than 0 (the current doc), as {function} must \
                 ensure that the current document being processed is always within the configured \
                 window. {end} specified bound = {n:.6}"
            )))
        };
        match (low, high) {
            (Some(n), _) if n > 0.0 => refuse("Lower", "greater", n),
            (_, Some(n)) if n < 0.0 => refuse("Upper", "less", n),
            _ => Ok(()),
        }
    }

    /// Parses the `window` of a function. `sort` are the directions of `sortBy`, true for ascending.
    pub(super) fn parse(
        window: Option<&Element<'_>>,
        sort: Option<&[bool]>,
    ) -> Result<Self, QueryError> {
        let refuse = |text: &str| Err(QueryError::failed_to_parse(text));
        let Some(window) = window else { return Ok(Self::ALL) };
        let Value::Document(doc) = window.value() else {
            return refuse("'window' field must be an object");
        };
        let part = |name: &[u8]| Elements::of_bytes(doc).find(name);
        let (documents, range, unit) = (part(b"documents"), part(b"range"), part(b"unit"));
        if documents.is_some() && range.is_some() {
            return refuse("Window bounds can specify either 'documents' or 'unit', not both.");
        }
        if unit.is_some() && range.is_none() {
            return refuse("Window bounds can only specify 'unit' with range-based bounds.");
        }
        let count = Elements::of_bytes(doc).count();
        let parsed = match (documents, range) {
            (Some(documents), _) => {
                if count > 1 {
                    return refuse(
                        "'window' field that specifies documents cannot have other fields",
                    );
                }
                Self::documents(&documents)?
            }
            (None, Some(range)) => {
                if count > 1 + usize::from(unit.is_some()) {
                    return refuse(match unit {
                        Some(_) => {
                            "'window' field that specifies unit cannot have other fields besides \
                             'range'"
                        }
                        None => {
                            "'window' field that specifies range cannot have other fields besides \
                             'unit'"
                        }
                    });
                }
                Self::range(&range, unit.as_ref())?
            }
            (None, None) if count > 0 => {
                return refuse(
                    "'window' field can only contain 'documents' as the only argument or 'range' \
                     with an optional 'unit' field",
                );
            }
            (None, None) => Self::ALL,
        };
        parsed.check(sort)?;
        Ok(parsed)
    }

    fn documents(field: &Element<'_>) -> Result<Self, QueryError> {
        let whole = |value: Value<'_>| {
            integer("", value).map_err(|_| {
                QueryError::failed_to_parse("Numeric document-based bounds must be an integer")
            })
        };
        let [low, high] = ends(field, false)?;
        let low = low.end(whole)?;
        let high = high.end(whole)?;
        if let (Some(low), Some(high)) = (low, high)
            && low > high
        {
            return Err(exceeds(Value::Int64(low), Value::Int64(high)));
        }
        Ok(Self::Documents(low, high))
    }

    fn range(field: &Element<'_>, unit: Option<&Element<'_>>) -> Result<Self, QueryError> {
        let unit = unit.map(|unit| super::unit(unit.value())).transpose()?;
        let whole = |value: Value<'_>| match (unit, integer("", value)) {
            (None, _) => Ok(OwnedValue::from(value)),
            (Some(_), Ok(n)) => Ok(Value::Int64(n).into()),
            (Some(_), Err(_)) => Err(QueryError::failed_to_parse(
                "With 'unit', range-based bounds must be an integer",
            )),
        };
        let [low, high] = ends(field, unit.is_some())?;
        let (low_current, high_current) = (low.is_current(), high.is_current());
        let low = low.end(whole)?;
        let high = high.end(whole)?;
        if let (Some(low), Some(high)) = (&low, &high)
            && compare_values(low.get(), high.get(), None).is_gt()
        {
            return Err(exceeds(low.get(), high.get()));
        }
        let edge = |current: bool, at: Option<OwnedValue>| {
            at.map(|at| if current { Edge::Current } else { Edge::At(at) })
        };
        Ok(Self::Range { low: edge(low_current, low), high: edge(high_current, high), unit })
    }

    fn check(&self, sort: Option<&[bool]>) -> Result<(), QueryError> {
        match self {
            Self::Documents(None, None) => Ok(()),
            Self::Documents(..) if sort.is_some() => Ok(()),
            Self::Documents(..) => {
                Err(QueryError::location(5_339_901, "Document-based bounds require a sortBy"))
            }
            Self::Range { .. } => match sort {
                Some([true]) => Ok(()),
                Some([_]) => Err(QueryError::location(
                    8_947_401,
                    "Range-based bounds require an ascending sortBy",
                )),
                _ => Err(QueryError::location(
                    5_339_902,
                    "Range-based bounds require sortBy a single field",
                )),
            },
        }
    }

    /// The frame of every document of a partition; `by` are the values of the sort field.
    pub(super) fn frames(&self, count: usize, by: &[OwnedValue]) -> Result<Vec<Frame>, QueryError> {
        match self {
            Self::Documents(low, high) => Ok((0..count)
                .map(|at| {
                    let from = low.map_or(0, |by| moved(at, by, count));
                    let end = high.map_or(count, |by| moved(at, by.saturating_add(1), count));
                    from..end.max(from)
                })
                .collect()),
            Self::Range { low, high, unit } => {
                by.iter().try_for_each(|value| check_type(value.get(), *unit))?;
                let (mut from, mut end) = (0, 0);
                let mut frames = Vec::with_capacity(count);
                for (at, value) in by.iter().enumerate() {
                    match low {
                        None => {}
                        Some(Edge::Current) => from = at,
                        Some(Edge::At(low)) => {
                            let edge = edge(value.get(), low.get(), *unit)?;
                            let below =
                                |v: &&OwnedValue| compare_values(v.get(), edge, None).is_lt();
                            from += by.iter().skip(from).take_while(below).count();
                        }
                    }
                    match high {
                        None => end = count,
                        Some(Edge::Current) => end = at + 1,
                        Some(Edge::At(high)) => {
                            let edge = edge(value.get(), high.get(), *unit)?;
                            let within =
                                |v: &&OwnedValue| compare_values(v.get(), edge, None).is_le();
                            end += by.iter().skip(end).take_while(within).count();
                        }
                    }
                    frames.push(from..end.max(from));
                }
                Ok(frames)
            }
        }
    }
}

/// A position some documents away, limited to the partition.
fn moved(at: usize, by: i64, count: usize) -> usize {
    let by_abs = usize::try_from(by.unsigned_abs()).unwrap_or(usize::MAX);
    if by < 0 { at.saturating_sub(by_abs) } else { at.saturating_add(by_abs).min(count) }
}

fn edge<'a>(value: Value<'a>, by: Value<'a>, unit: Option<Unit>) -> Result<Value<'a>, QueryError> {
    match (unit, value, by) {
        (Some(unit), Value::Date(ms), Value::Int64(n)) => {
            moved_in_utc(ms, unit, n).map(Value::Date).ok_or_else(|| {
                QueryError::new(protocol::ErrorCode::Overflow, "date overflow in a window's range")
            })
        }
        _ => Ok(add(value, by)),
    }
}

fn check_type(value: Value<'_>, unit: Option<Unit>) -> Result<(), QueryError> {
    let refuse =
        |code, text: String| Err(QueryError::location(code, format!("Invalid range: {text}")));
    match (unit, value) {
        (Some(_), Value::Date(_)) => Ok(()),
        (Some(_), other) => refuse(
            5_429_513,
            format!("Expected the sortBy field to be a Date, but it was {}", other.type_name()),
        ),
        (None, Value::Date(_)) => refuse(
            5_429_413,
            "For windows that involve date or time ranges, a unit must be provided.".into(),
        ),
        (None, other) if other.is_number() => Ok(()),
        (None, other) => refuse(
            5_429_414,
            format!("Expected the sortBy field to be a number, but it was {}", other.type_name()),
        ),
    }
}

/// One end of a frame, as written.
enum End<'a> {
    Unbounded,
    Current,
    At(Value<'a>),
}

impl<'a> End<'a> {
    fn end<T>(
        self,
        of: impl Fn(Value<'a>) -> Result<T, QueryError>,
    ) -> Result<Option<T>, QueryError> {
        match self {
            Self::Unbounded => Ok(None),
            Self::Current => of(Value::Int32(0)).map(Some),
            Self::At(value) => of(value).map(Some),
        }
    }

    fn is_current(&self) -> bool {
        matches!(self, Self::Current)
    }
}

fn ends<'a>(field: &Element<'a>, with_unit: bool) -> Result<[End<'a>; 2], QueryError> {
    let mut elements = field.value().elements().map(|e| e.value());
    let (Value::Array(_), Some(low), Some(high), None) =
        (field.value(), elements.next(), elements.next(), elements.next())
    else {
        return Err(QueryError::failed_to_parse(format!(
            "Window bounds must be a 2-element array: {}: {}",
            String::from_utf8_lossy(field.key),
            Shown(field.value())
        )));
    };
    let end = |value: Value<'a>| match value {
        Value::String(b"unbounded") => Ok(End::Unbounded),
        Value::String(b"current") => Ok(End::Current),
        number if number.is_number() => Ok(End::At(number)),
        Value::String(_) => Err("Window bounds must be 'unbounded', 'current', or a number."),
        _ if field.key == b"documents" => Err("Numeric document-based bounds must be an integer"),
        _ if with_unit => Err("With 'unit', range-based bounds must be an integer"),
        _ => Err("Range-based bounds expression must be a number"),
    };
    let end = |value| end(value).map_err(QueryError::failed_to_parse);
    Ok([end(low)?, end(high)?])
}

fn exceeds(low: Value<'_>, high: Value<'_>) -> QueryError {
    QueryError::location(
        5_339_900,
        format!("Lower bound must not exceed upper bound: [{}, {}]", Shown(low), Shown(high)),
    )
}
