//! The operators of the expression language, one row each. Sorted by name, for binary search.

use super::{
    arithmetic, arity, arrange, array, bit_operators, conditional, convert, date, date_math,
    functions, logic, object,
    operator::{
        Argument, Arguments, Folding, Join, Operator, Rest, conversion, counted, date_part, list,
        named, optional, own, required, special,
    },
    parse::{arguments, operand},
    regex::{self, Kind},
    scoped, set,
    special::{self, Special},
    stats, string, vector,
};
use crate::{Release, value::Value};

const MANY: usize = usize::MAX;

pub(super) static OPERATORS: &[Operator] = &[
    list("$abs", 1, 1, functions::op_abs),
    own("$accumulator", special::no_javascript),
    list("$acos", 1, 1, functions::op_acos),
    list("$acosh", 1, 1, functions::op_acosh),
    list("$add", 0, MANY, arithmetic::op_add).one_by_one(Rest::Nothing).joining(Join::Front),
    list("$allElementsTrue", 1, 1, set::op_all_elements_true).not_pushed(),
    special("$and", |v, scope| Ok(Special::And(arguments(v, scope)?))),
    list("$anyElementTrue", 1, 1, set::op_any_element_true),
    list("$arrayElemAt", 2, 2, array::op_array_elem_at).not_pushed(),
    list("$arrayToObject", 1, 1, array::op_array_to_object),
    list("$asin", 1, 1, functions::op_asin),
    list("$asinh", 1, 1, functions::op_asinh),
    list("$atan", 1, 1, functions::op_atan),
    list("$atan2", 2, 2, functions::op_atan2).one_by_one(Rest::Filled(2, Value::Int32(0))),
    list("$atanh", 1, 1, functions::op_atanh),
    list("$avg", 0, MANY, stats::op_avg).not_pushed(),
    list("$binarySize", 1, 1, string::op_binary_size).not_pushed(),
    list("$bitAnd", 0, MANY, bit_operators::op_bit_and)
        .since(Release::V7_0)
        .one_by_one(Rest::Nothing)
        .joining(Join::All)
        .not_pushed(),
    list("$bitNot", 1, 1, bit_operators::op_bit_not).since(Release::V7_0).not_pushed(),
    list("$bitOr", 0, MANY, bit_operators::op_bit_or)
        .since(Release::V7_0)
        .one_by_one(Rest::Nothing)
        .joining(Join::All)
        .not_pushed(),
    list("$bitXor", 0, MANY, bit_operators::op_bit_xor)
        .since(Release::V7_0)
        .one_by_one(Rest::Nothing)
        .joining(Join::All)
        .not_pushed(),
    list("$bsonSize", 1, 1, string::op_bson_size),
    list("$ceil", 1, 1, functions::op_ceil),
    list("$cmp", 2, 2, logic::op_cmp).right_first(),
    list("$concat", 0, MANY, string::op_concat).one_by_one(Rest::Nothing).joining(Join::Neighbours),
    list("$concatArrays", 0, MANY, array::op_concat_arrays)
        .one_by_one(Rest::Nothing)
        .joining(Join::Neighbours),
    special("$cond", conditional::cond),
    own("$const", special::literal),
    named("$convert", &CONVERT, convert::op_convert).not_pushed(),
    list("$cos", 1, 1, functions::op_cos),
    list("$cosh", 1, 1, functions::op_cosh),
    named("$dateAdd", &DATE_ADD, date_math::op_date_add)
        .since(Release::V5_0)
        .one_by_one(Rest::Nothing)
        .checked(date_math::check_add),
    named("$dateDiff", &DATE_DIFF, date_math::op_date_diff)
        .since(Release::V5_0)
        .one_by_one(Rest::Nothing)
        .checked(date_math::check_diff),
    named("$dateFromParts", &DATE_FROM_PARTS, date_math::op_date_from_parts)
        .one_by_one(Rest::Nothing)
        .checked(date_math::check_zone::<10>),
    named("$dateFromString", &DATE_FROM_STRING, date_math::op_date_from_string)
        .checked(date_math::check_zone::<2>),
    named("$dateSubtract", &DATE_ADD, date_math::op_date_subtract)
        .since(Release::V5_0)
        .one_by_one(Rest::Nothing)
        .checked(date_math::check_add),
    named("$dateToParts", &DATE_TO_PARTS, date::op_date_to_parts)
        .checked(date_math::check_zone::<1>),
    named("$dateToString", &DATE_TO_STRING, date::op_date_to_string)
        .checked(date_math::check_zone::<2>),
    named("$dateTrunc", &DATE_TRUNC, date_math::op_date_trunc)
        .since(Release::V5_0)
        .one_by_one(Rest::Nothing)
        .checked(date_math::check_trunc),
    date_part("$dayOfMonth", date::op_day_of_month),
    date_part("$dayOfWeek", date::op_day_of_week),
    date_part("$dayOfYear", date::op_day_of_year),
    list("$degreesToRadians", 1, 1, functions::op_degrees_to_radians),
    list("$divide", 2, 2, arithmetic::op_divide),
    list("$eq", 2, 2, logic::op_eq).right_first(),
    list("$exp", 1, 1, functions::op_exp),
    own("$expr", |_, v, scope| operand(v, scope)).since(Release::V6_0),
    special("$filter", scoped::filter).not_pushed(),
    list("$first", 1, 1, array::op_first).not_pushed(),
    named("$firstN", &FIRST_N, array::op_first_n)
        .since(Release::V6_0)
        .folding(Folding::Nothing)
        .not_pushed(),
    list("$floor", 1, 1, functions::op_floor),
    own("$function", special::no_javascript),
    own("$getField", object::get_field)
        .since(Release::V5_0)
        .one_by_one(Rest::Nothing)
        .folding(Folding::Nothing)
        .not_pushed()
        .reading_document(),
    list("$gt", 2, 2, logic::op_gt).right_first(),
    list("$gte", 2, 2, logic::op_gte).right_first(),
    date_part("$hour", date::op_hour),
    special("$ifNull", conditional::if_null),
    list("$in", 2, 2, array::op_in).membership(),
    list("$indexOfArray", 2, 4, array::op_index_of_array)
        .one_by_one(Rest::BoundsFirst)
        .checked(array::check_index_of)
        .not_pushed(),
    list("$indexOfBytes", 2, 4, string::op_index_of_bytes)
        .one_by_one(Rest::Filled(2, Value::String(b""))),
    list("$indexOfCP", 2, 4, string::op_index_of_cp)
        .one_by_one(Rest::Filled(2, Value::String(b""))),
    list("$isArray", 1, 1, array::op_is_array),
    list("$isNumber", 1, 1, convert::op_is_number),
    date_part("$isoDayOfWeek", date::op_iso_day_of_week),
    date_part("$isoWeek", date::op_iso_week),
    date_part("$isoWeekYear", date::op_iso_week_year),
    list("$last", 1, 1, array::op_last).not_pushed(),
    named("$lastN", &FIRST_N, array::op_last_n)
        .since(Release::V6_0)
        .folding(Folding::Nothing)
        .not_pushed(),
    special("$let", scoped::let_in),
    own("$literal", special::literal),
    list("$ln", 1, 1, functions::op_ln),
    list("$log", 2, 2, functions::op_log).not_pushed(),
    list("$log10", 1, 1, functions::op_log10),
    list("$lt", 2, 2, logic::op_lt).right_first(),
    list("$lte", 2, 2, logic::op_lte).right_first(),
    named("$ltrim", &TRIM, string::op_ltrim).one_by_one(Rest::Nothing),
    special("$map", scoped::map).not_pushed(),
    list("$max", 0, MANY, stats::op_max).joining(Join::Last).not_pushed(),
    named("$maxN", &MAX_N, array::op_max_n)
        .since(Release::V6_0)
        .folding(Folding::Nothing)
        .not_pushed(),
    special("$median", special::median).since(Release::V7_0).not_pushed(),
    list("$mergeObjects", 0, MANY, object::op_merge_objects)
        .one_by_one(Rest::OneMore(Value::Null))
        .not_pushed(),
    own("$meta", special::meta),
    date_part("$millisecond", date::op_millisecond),
    list("$min", 0, MANY, stats::op_min).joining(Join::Last).not_pushed(),
    named("$minN", &MAX_N, array::op_min_n)
        .since(Release::V6_0)
        .folding(Folding::Nothing)
        .not_pushed(),
    date_part("$minute", date::op_minute),
    list("$mod", 2, 2, arithmetic::op_mod).right_first(),
    date_part("$month", date::op_month),
    list("$multiply", 0, MANY, arithmetic::op_multiply)
        .one_by_one(Rest::Nothing)
        .joining(Join::Front),
    list("$ne", 2, 2, logic::op_ne).right_first(),
    list("$not", 1, 1, logic::op_not),
    list("$objectToArray", 1, 1, array::op_object_to_array),
    special("$or", |v, scope| Ok(Special::Or(arguments(v, scope)?))),
    special("$percentile", special::percentile).since(Release::V7_0).not_pushed(),
    list("$pow", 2, 2, functions::op_pow),
    list("$radiansToDegrees", 1, 1, functions::op_radians_to_degrees),
    special("$rand", special::rand),
    list("$range", 2, 3, array::op_range).one_by_one(Rest::FromTwo),
    special("$reduce", scoped::reduce).not_pushed(),
    special("$regexFind", |v, scope| regex::parse(Kind::Find, v, scope)),
    special("$regexFindAll", |v, scope| regex::parse(Kind::FindAll, v, scope)),
    special("$regexMatch", |v, scope| regex::parse(Kind::Match, v, scope)),
    named("$replaceAll", &REPLACE, string::op_replace_all).folding(Folding::Arguments).not_pushed(),
    named("$replaceOne", &REPLACE, string::op_replace_one).folding(Folding::Arguments),
    list("$reverseArray", 1, 1, array::op_reverse_array),
    list("$round", 1, 2, functions::op_round).one_by_one(Rest::Nothing),
    named("$rtrim", &TRIM, string::op_rtrim).one_by_one(Rest::Nothing),
    date_part("$second", date::op_second),
    list("$setDifference", 2, 2, set::op_set_difference),
    counted("$setEquals", 2, MANY, set::op_set_equals, arity::miscounted_set_equals)
        .one_by_one(Rest::UntilDifferent)
        .joining(Join::First)
        .checked(set::check_equals),
    named("$setField", &SET_FIELD, object::op_set_field)
        .since(Release::V5_0)
        .one_by_one(Rest::Nothing)
        .folding(Folding::Nothing)
        .not_pushed(),
    list("$setIntersection", 0, MANY, set::op_set_intersection)
        .one_by_one(Rest::Nothing)
        .joining(Join::All),
    list("$setIsSubset", 2, 2, set::op_set_is_subset)
        .one_by_one(Rest::Filled(2, Value::Array(&[5, 0, 0, 0, 0])))
        .checked(set::check_is_subset),
    list("$setUnion", 0, MANY, set::op_set_union).one_by_one(Rest::Nothing).joining(Join::All),
    own("$sigmoid", vector::sigmoid).since(Release::V8_1).folding(Folding::Arguments),
    own("$similarityCosine", |row, v, scope| vector::parse(row, vector::op_cosine, v, scope))
        .since(Release::V8_2)
        .folding(Folding::Nothing)
        .not_pushed(),
    own("$similarityDotProduct", |row, v, scope| {
        vector::parse(row, vector::op_dot_product, v, scope)
    })
    .since(Release::V8_2)
    .folding(Folding::Nothing)
    .not_pushed(),
    own("$similarityEuclidean", |row, v, scope| vector::parse(row, vector::op_euclidean, v, scope))
        .since(Release::V8_2)
        .folding(Folding::Nothing)
        .not_pushed(),
    list("$sin", 1, 1, functions::op_sin),
    list("$sinh", 1, 1, functions::op_sinh),
    list("$size", 1, 1, array::op_size).not_pushed(),
    list("$slice", 2, 3, array::op_slice).one_by_one(Rest::FromTwo).not_pushed(),
    special("$sortArray", arrange::sort_array).since(Release::V6_0),
    list("$split", 2, 2, string::op_split).not_pushed(),
    list("$sqrt", 1, 1, functions::op_sqrt),
    list("$stdDevPop", 0, MANY, stats::op_std_dev_pop).not_pushed(),
    list("$stdDevSamp", 0, MANY, stats::op_std_dev_samp).not_pushed(),
    list("$strLenBytes", 1, 1, string::op_str_len_bytes),
    list("$strLenCP", 1, 1, string::op_str_len_cp),
    list("$strcasecmp", 2, 2, string::op_strcasecmp),
    counted("$substr", 3, 3, string::op_substr_bytes, arity::miscounted_substr),
    list("$substrBytes", 3, 3, string::op_substr_bytes),
    list("$substrCP", 3, 3, string::op_substr_cp),
    list("$subtract", 2, 2, arithmetic::op_subtract),
    list("$sum", 0, MANY, stats::op_sum).not_pushed(),
    special("$switch", conditional::switch),
    list("$tan", 1, 1, functions::op_tan),
    list("$tanh", 1, 1, functions::op_tanh),
    conversion("$toBool", convert::op_to_bool),
    conversion("$toDate", convert::op_to_date),
    conversion("$toDecimal", convert::op_to_decimal),
    conversion("$toDouble", convert::op_to_double),
    own("$toHashedIndexKey", convert::to_hashed_index_key).folding(Folding::Nothing).not_pushed(),
    conversion("$toInt", convert::op_to_int),
    conversion("$toLong", convert::op_to_long),
    list("$toLower", 1, 1, string::op_to_lower),
    conversion("$toObjectId", convert::op_to_object_id),
    conversion("$toString", convert::op_to_string),
    conversion("$toUUID", convert::op_to_uuid).since(Release::V8_0),
    list("$toUpper", 1, 1, string::op_to_upper),
    named("$trim", &TRIM, string::op_trim).one_by_one(Rest::Nothing),
    list("$trunc", 1, 2, functions::op_trunc).one_by_one(Rest::Nothing),
    list("$tsIncrement", 1, 1, date::op_ts_increment).since(Release::V6_0),
    list("$tsSecond", 1, 1, date::op_ts_second).since(Release::V6_0),
    list("$type", 1, 1, convert::op_type).not_pushed(),
    named("$unsetField", &UNSET_FIELD, object::op_unset_field)
        .since(Release::V5_0)
        .folding(Folding::Nothing)
        .not_pushed(),
    date_part("$week", date::op_week),
    date_part("$year", date::op_year),
    special("$zip", arrange::zip).not_pushed(),
];

static CONVERT: Arguments = Arguments::new(
    &[
        required("input", 9, "Missing 'input' parameter to {op}"),
        required("to", 9, "Missing 'to' parameter to {op}"),
        optional("onError"),
        optional("onNull"),
        optional("format").since(Release::V8_0),
        optional("byteOrder").since(Release::V8_0),
    ],
    (9, "{op} expects an object of named arguments but found: {type}"),
    (9, "{op} found an unknown argument: {field}"),
);

const ADD_NEEDS: &str = "{op} requires startDate, unit, and amount to be present";

static DATE_ADD: Arguments = Arguments::new(
    &[
        required("startDate", 5_166_402, ADD_NEEDS),
        required("unit", 5_166_402, ADD_NEEDS),
        required("amount", 5_166_402, ADD_NEEDS),
        optional("timezone"),
    ],
    (5_166_400, "{op} expects an object as its argument"),
    (
        5_166_401,
        "Unrecognized argument to {op}: {field}. Expected arguments are startDate, unit, amount, \
         and optionally timezone.",
    ),
);

static DATE_DIFF: Arguments = Arguments::new(
    &[
        required("startDate", 5_166_303, "Missing 'startDate' parameter to {op}"),
        required("endDate", 5_166_304, "Missing 'endDate' parameter to {op}"),
        required("unit", 5_166_305, "Missing 'unit' parameter to {op}"),
        optional("timezone"),
        optional("startOfWeek"),
    ],
    (5_166_301, "{op} only supports an object as its argument"),
    (5_166_302, "Unrecognized argument to {op}: {field}"),
)
.missed_in_order();

static DATE_FROM_PARTS: Arguments = Arguments::new(
    &[
        optional("year"),
        optional("month"),
        optional("day"),
        optional("isoWeekYear"),
        optional("isoWeek"),
        optional("isoDayOfWeek"),
        optional("hour"),
        optional("minute"),
        optional("second"),
        optional("millisecond"),
        optional("timezone"),
    ],
    (40_519, "{op} only supports an object as its argument"),
    (40_518, "Unrecognized argument to {op}: {field}"),
)
.before(date_math::check_parts)
.missed_in_order();

static DATE_FROM_STRING: Arguments = Arguments::new(
    &[
        required("dateString", 40_542, "Missing 'dateString' parameter to {op}"),
        optional("format"),
        optional("timezone"),
        optional("onNull"),
        optional("onError"),
    ],
    (40_540, "{op} only supports an object as an argument, found: {type}"),
    (40_541, "Unrecognized argument to {op}: {field}"),
)
.missed_in_order();

static DATE_TO_PARTS: Arguments = Arguments::new(
    &[
        required("date", 40_522, "Missing 'date' parameter to {op}"),
        optional("timezone"),
        optional("iso8601"),
    ],
    (40_524, "{op} only supports an object as its argument"),
    (40_520, "Unrecognized argument to {op}: {field}"),
)
.missed_in_order();

static DATE_TO_STRING: Arguments = Arguments::new(
    &[
        required("date", 18_628, "Missing 'date' parameter to {op}"),
        optional("format"),
        optional("timezone"),
        optional("onNull"),
    ],
    (18_629, "{op} only supports an object as its argument"),
    (18_534, "Unrecognized argument to {op}: {field}"),
)
.missed_in_order();

static DATE_TRUNC: Arguments = Arguments::new(
    &[
        required("date", 5_439_009, "Missing 'date' parameter to {op}"),
        required("unit", 5_439_010, "Missing 'unit' parameter to {op}"),
        optional("binSize"),
        optional("timezone"),
        optional("startOfWeek"),
    ],
    (5_439_007, "{op} only supports an object as its argument"),
    (
        5_439_008,
        "Unrecognized argument to {op}: {field}. Expected arguments are date, unit, and \
         optionally, binSize, timezone, startOfWeek",
    ),
)
.missed_in_order();

static FIRST_N: Arguments = n_of(5_787_801);
static MAX_N: Arguments = n_of(5_787_900);

const fn n_of(not_object: i32) -> Arguments {
    const FIELDS: &[Argument] = &[
        required("n", 5_787_906, "Missing value for 'n'"),
        required("input", 5_787_907, "Missing value for 'input'"),
    ];
    Arguments::new(
        FIELDS,
        (not_object, "specification must be an object; found {op}: {shown}"),
        (5_787_901, "Unknown argument for 'n' operator: {field}"),
    )
}

static REPLACE: Arguments = Arguments::new(
    &[
        required("input", 51_749, "{op} requires 'input' to be specified"),
        required("find", 51_748, "{op} requires 'find' to be specified"),
        required("replacement", 51_747, "{op} requires 'replacement' to be specified"),
    ],
    (51_751, "{op} requires an object as an argument, found: {type}"),
    (51_750, "{op} found an unknown argument: {field}"),
);

static SET_FIELD: Arguments = Arguments::new(
    &[
        required("field", 4_161_102, "{op} requires 'field' to be specified"),
        required("input", 4_161_109, "{op} requires 'input' to be specified"),
        required("value", 4_161_103, "{op} requires 'value' to be specified"),
    ],
    (4_161_100, "{op} only supports an object as its argument"),
    (4_161_101, "{op} found an unknown argument: {field}"),
)
.before(object::check_set_field);

static UNSET_FIELD: Arguments = Arguments::new(
    &[
        required("field", 4_161_102, "{op} requires 'field' to be specified"),
        required("input", 4_161_109, "{op} requires 'input' to be specified"),
    ],
    (4_161_100, "{op} only supports an object as its argument"),
    (4_161_101, "{op} found an unknown argument: {field}"),
)
.before(object::check_field_name);

static TRIM: Arguments = Arguments::new(
    &[required("input", 50_695, "{op} requires an 'input' field"), optional("chars")],
    (50_696, "{op} only supports an object as an argument, found {type}"),
    (50_694, "{op} found an unknown argument: {field}"),
);

#[cfg(test)]
mod tests {
    use super::{super::Scope, *};

    #[test]
    fn rows_are_sorted_by_name() {
        assert!(OPERATORS.is_sorted_by_key(|row| row.name));
    }

    #[test]
    fn a_release_has_what_came_before_it() {
        let takes = |release, doc: bson::RawDocumentBuf| {
            operand(Value::from(&*doc), &mut Scope::of_release(release)).is_ok()
        };
        let bits = || bson::rawdoc! { "$bitAnd": [1, 2] };
        assert!(takes(Release::NEWEST, bits()) && !takes(Release::V6_0, bits()));
        let limited = || bson::rawdoc! { "$filter": { "input": [], "cond": 1, "limit": 1 } };
        assert!(takes(Release::V6_0, limited()) && !takes(Release::V5_0, limited()));
        assert!(takes(Release::V5_0, bson::rawdoc! { "$filter": { "input": [], "cond": 1 } }));
        let formatted = || bson::rawdoc! { "$convert": { "input": 1, "to": 2, "format": "hex" } };
        assert!(takes(Release::V8_0, formatted()) && !takes(Release::V7_0, formatted()));
    }
}
