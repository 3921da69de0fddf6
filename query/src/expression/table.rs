//! The operators, with their arguments and functions. Sorted by name: they are searched.

use super::{
    Fun, arithmetic, array, bit_operators, convert, date, date_math, functions, logic, object, set,
    stats, string,
};

/// An operator whose arguments stand in an array.
#[derive(Debug)]
pub(super) struct Positional {
    pub(super) name: &'static str,
    pub(super) min: usize,
    pub(super) max: usize,
    pub(super) fun: Fun,
}

/// An operator whose arguments have names.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: &'static str,
    pub(super) fun: Fun,
    pub(super) fields: &'static [Field],
    /// Code and text for an argument that is no object.
    pub(super) not_object: (i32, &'static str),
    /// Code and text for a name that is none of the fields; `{}` is the name.
    pub(super) unknown: (i32, &'static str),
}

/// A named argument; what mongod says when it is missing, if it must be there.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) required: Option<(i32, &'static str)>,
}

const MANY: usize = usize::MAX;

/// The row of a positional operator.
pub(super) fn positional(name: &[u8]) -> Option<&'static Positional> {
    let at = POSITIONAL.binary_search_by(|row| row.name.as_bytes().cmp(name)).ok()?;
    POSITIONAL.get(at)
}

/// The row of an operator with named arguments.
pub(super) fn named(name: &[u8]) -> Option<&'static Named> {
    let at = NAMED.binary_search_by(|row| row.name.as_bytes().cmp(name)).ok()?;
    NAMED.get(at)
}

static POSITIONAL: &[Positional] = &[
    Positional { name: "$abs", min: 1, max: 1, fun: functions::op_abs },
    Positional { name: "$acos", min: 1, max: 1, fun: functions::op_acos },
    Positional { name: "$acosh", min: 1, max: 1, fun: functions::op_acosh },
    Positional { name: "$add", min: 0, max: MANY, fun: arithmetic::op_add },
    Positional { name: "$allElementsTrue", min: 1, max: 1, fun: set::op_all_elements_true },
    Positional { name: "$anyElementTrue", min: 1, max: 1, fun: set::op_any_element_true },
    Positional { name: "$arrayElemAt", min: 2, max: 2, fun: array::op_array_elem_at },
    Positional { name: "$arrayToObject", min: 1, max: 1, fun: array::op_array_to_object },
    Positional { name: "$asin", min: 1, max: 1, fun: functions::op_asin },
    Positional { name: "$asinh", min: 1, max: 1, fun: functions::op_asinh },
    Positional { name: "$atan", min: 1, max: 1, fun: functions::op_atan },
    Positional { name: "$atan2", min: 2, max: 2, fun: functions::op_atan2 },
    Positional { name: "$atanh", min: 1, max: 1, fun: functions::op_atanh },
    Positional { name: "$avg", min: 0, max: MANY, fun: stats::op_avg },
    Positional { name: "$binarySize", min: 1, max: 1, fun: string::op_binary_size },
    Positional { name: "$bitAnd", min: 0, max: MANY, fun: bit_operators::op_bit_and },
    Positional { name: "$bitNot", min: 1, max: 1, fun: bit_operators::op_bit_not },
    Positional { name: "$bitOr", min: 0, max: MANY, fun: bit_operators::op_bit_or },
    Positional { name: "$bitXor", min: 0, max: MANY, fun: bit_operators::op_bit_xor },
    Positional { name: "$bsonSize", min: 1, max: 1, fun: string::op_bson_size },
    Positional { name: "$ceil", min: 1, max: 1, fun: functions::op_ceil },
    Positional { name: "$cmp", min: 2, max: 2, fun: logic::op_cmp },
    Positional { name: "$concat", min: 0, max: MANY, fun: string::op_concat },
    Positional { name: "$concatArrays", min: 0, max: MANY, fun: array::op_concat_arrays },
    Positional { name: "$cos", min: 1, max: 1, fun: functions::op_cos },
    Positional { name: "$cosh", min: 1, max: 1, fun: functions::op_cosh },
    Positional { name: "$dayOfMonth", min: 1, max: 1, fun: date::op_day_of_month },
    Positional { name: "$dayOfWeek", min: 1, max: 1, fun: date::op_day_of_week },
    Positional { name: "$dayOfYear", min: 1, max: 1, fun: date::op_day_of_year },
    Positional { name: "$degreesToRadians", min: 1, max: 1, fun: functions::op_degrees_to_radians },
    Positional { name: "$divide", min: 2, max: 2, fun: arithmetic::op_divide },
    Positional { name: "$eq", min: 2, max: 2, fun: logic::op_eq },
    Positional { name: "$exp", min: 1, max: 1, fun: functions::op_exp },
    Positional { name: "$first", min: 1, max: 1, fun: array::op_first },
    Positional { name: "$floor", min: 1, max: 1, fun: functions::op_floor },
    Positional { name: "$gt", min: 2, max: 2, fun: logic::op_gt },
    Positional { name: "$gte", min: 2, max: 2, fun: logic::op_gte },
    Positional { name: "$hour", min: 1, max: 1, fun: date::op_hour },
    Positional { name: "$in", min: 2, max: 2, fun: array::op_in },
    Positional { name: "$indexOfArray", min: 2, max: 4, fun: array::op_index_of_array },
    Positional { name: "$indexOfBytes", min: 2, max: 4, fun: string::op_index_of_bytes },
    Positional { name: "$indexOfCP", min: 2, max: 4, fun: string::op_index_of_cp },
    Positional { name: "$isArray", min: 1, max: 1, fun: array::op_is_array },
    Positional { name: "$isNumber", min: 1, max: 1, fun: convert::op_is_number },
    Positional { name: "$isoDayOfWeek", min: 1, max: 1, fun: date::op_iso_day_of_week },
    Positional { name: "$isoWeek", min: 1, max: 1, fun: date::op_iso_week },
    Positional { name: "$isoWeekYear", min: 1, max: 1, fun: date::op_iso_week_year },
    Positional { name: "$last", min: 1, max: 1, fun: array::op_last },
    Positional { name: "$ln", min: 1, max: 1, fun: functions::op_ln },
    Positional { name: "$log", min: 2, max: 2, fun: functions::op_log },
    Positional { name: "$log10", min: 1, max: 1, fun: functions::op_log10 },
    Positional { name: "$lt", min: 2, max: 2, fun: logic::op_lt },
    Positional { name: "$lte", min: 2, max: 2, fun: logic::op_lte },
    Positional { name: "$max", min: 0, max: MANY, fun: stats::op_max },
    Positional { name: "$mergeObjects", min: 0, max: MANY, fun: object::op_merge_objects },
    Positional { name: "$millisecond", min: 1, max: 1, fun: date::op_millisecond },
    Positional { name: "$min", min: 0, max: MANY, fun: stats::op_min },
    Positional { name: "$minute", min: 1, max: 1, fun: date::op_minute },
    Positional { name: "$mod", min: 2, max: 2, fun: arithmetic::op_mod },
    Positional { name: "$month", min: 1, max: 1, fun: date::op_month },
    Positional { name: "$multiply", min: 0, max: MANY, fun: arithmetic::op_multiply },
    Positional { name: "$ne", min: 2, max: 2, fun: logic::op_ne },
    Positional { name: "$not", min: 1, max: 1, fun: logic::op_not },
    Positional { name: "$objectToArray", min: 1, max: 1, fun: array::op_object_to_array },
    Positional { name: "$pow", min: 2, max: 2, fun: functions::op_pow },
    Positional { name: "$radiansToDegrees", min: 1, max: 1, fun: functions::op_radians_to_degrees },
    Positional { name: "$range", min: 2, max: 3, fun: array::op_range },
    Positional { name: "$reverseArray", min: 1, max: 1, fun: array::op_reverse_array },
    Positional { name: "$round", min: 1, max: 2, fun: functions::op_round },
    Positional { name: "$second", min: 1, max: 1, fun: date::op_second },
    Positional { name: "$setDifference", min: 2, max: 2, fun: set::op_set_difference },
    Positional { name: "$setEquals", min: 2, max: MANY, fun: set::op_set_equals },
    Positional { name: "$setIntersection", min: 0, max: MANY, fun: set::op_set_intersection },
    Positional { name: "$setIsSubset", min: 2, max: 2, fun: set::op_set_is_subset },
    Positional { name: "$setUnion", min: 0, max: MANY, fun: set::op_set_union },
    Positional { name: "$sin", min: 1, max: 1, fun: functions::op_sin },
    Positional { name: "$sinh", min: 1, max: 1, fun: functions::op_sinh },
    Positional { name: "$size", min: 1, max: 1, fun: array::op_size },
    Positional { name: "$slice", min: 2, max: 3, fun: array::op_slice },
    Positional { name: "$split", min: 2, max: 2, fun: string::op_split },
    Positional { name: "$sqrt", min: 1, max: 1, fun: functions::op_sqrt },
    Positional { name: "$stdDevPop", min: 0, max: MANY, fun: stats::op_std_dev_pop },
    Positional { name: "$stdDevSamp", min: 0, max: MANY, fun: stats::op_std_dev_samp },
    Positional { name: "$strLenBytes", min: 1, max: 1, fun: string::op_str_len_bytes },
    Positional { name: "$strLenCP", min: 1, max: 1, fun: string::op_str_len_cp },
    Positional { name: "$strcasecmp", min: 2, max: 2, fun: string::op_strcasecmp },
    Positional { name: "$substr", min: 3, max: 3, fun: string::op_substr_bytes },
    Positional { name: "$substrBytes", min: 3, max: 3, fun: string::op_substr_bytes },
    Positional { name: "$substrCP", min: 3, max: 3, fun: string::op_substr_cp },
    Positional { name: "$subtract", min: 2, max: 2, fun: arithmetic::op_subtract },
    Positional { name: "$sum", min: 0, max: MANY, fun: stats::op_sum },
    Positional { name: "$tan", min: 1, max: 1, fun: functions::op_tan },
    Positional { name: "$tanh", min: 1, max: 1, fun: functions::op_tanh },
    Positional { name: "$toBool", min: 1, max: 1, fun: convert::op_to_bool },
    Positional { name: "$toDate", min: 1, max: 1, fun: convert::op_to_date },
    Positional { name: "$toDecimal", min: 1, max: 1, fun: convert::op_to_decimal },
    Positional { name: "$toDouble", min: 1, max: 1, fun: convert::op_to_double },
    Positional { name: "$toInt", min: 1, max: 1, fun: convert::op_to_int },
    Positional { name: "$toLong", min: 1, max: 1, fun: convert::op_to_long },
    Positional { name: "$toLower", min: 1, max: 1, fun: string::op_to_lower },
    Positional { name: "$toObjectId", min: 1, max: 1, fun: convert::op_to_object_id },
    Positional { name: "$toString", min: 1, max: 1, fun: convert::op_to_string },
    Positional { name: "$toUUID", min: 1, max: 1, fun: convert::op_to_uuid },
    Positional { name: "$toUpper", min: 1, max: 1, fun: string::op_to_upper },
    Positional { name: "$trunc", min: 1, max: 2, fun: functions::op_trunc },
    Positional { name: "$tsIncrement", min: 1, max: 1, fun: date::op_ts_increment },
    Positional { name: "$tsSecond", min: 1, max: 1, fun: date::op_ts_second },
    Positional { name: "$type", min: 1, max: 1, fun: convert::op_type },
    Positional { name: "$week", min: 1, max: 1, fun: date::op_week },
    Positional { name: "$year", min: 1, max: 1, fun: date::op_year },
];

static NAMED: &[Named] = &[
    Named {
        name: "$convert",
        fun: convert::op_convert,
        fields: &[
            Field { name: "input", required: Some((9, "Missing 'input' parameter to $convert")) },
            Field { name: "to", required: Some((9, "Missing 'to' parameter to $convert")) },
            Field { name: "onError", required: None },
            Field { name: "onNull", required: None },
            Field { name: "format", required: None },
            Field { name: "byteOrder", required: None },
        ],
        not_object: (9, "$convert expects an object of named arguments but found: {}"),
        unknown: (9, "$convert found an unknown argument: {}"),
    },
    Named {
        name: "$dateAdd",
        fun: date_math::op_date_add,
        fields: &[
            Field {
                name: "startDate",
                required: Some((
                    5166402,
                    "$dateAdd requires startDate, unit, and amount to be present",
                )),
            },
            Field {
                name: "unit",
                required: Some((
                    5166402,
                    "$dateAdd requires startDate, unit, and amount to be present",
                )),
            },
            Field {
                name: "amount",
                required: Some((
                    5166402,
                    "$dateAdd requires startDate, unit, and amount to be present",
                )),
            },
            Field { name: "timezone", required: None },
        ],
        not_object: (5166400, "$dateAdd expects an object as its argument"),
        unknown: (
            5166401,
            "Unrecognized argument to $dateAdd: {}. Expected arguments are startDate, unit, amount, and optionally timezone.",
        ),
    },
    Named {
        name: "$dateDiff",
        fun: date_math::op_date_diff,
        fields: &[
            Field {
                name: "startDate",
                required: Some((5166303, "Missing 'startDate' parameter to $dateDiff")),
            },
            Field {
                name: "endDate",
                required: Some((5166304, "Missing 'endDate' parameter to $dateDiff")),
            },
            Field {
                name: "unit",
                required: Some((5166305, "Missing 'unit' parameter to $dateDiff")),
            },
            Field { name: "timezone", required: None },
            Field { name: "startOfWeek", required: None },
        ],
        not_object: (5166301, "$dateDiff only supports an object as its argument"),
        unknown: (5166302, "Unrecognized argument to $dateDiff: {}"),
    },
    Named {
        name: "$dateFromParts",
        fun: date_math::op_date_from_parts,
        fields: &[
            Field { name: "year", required: None },
            Field { name: "month", required: None },
            Field { name: "day", required: None },
            Field { name: "isoWeekYear", required: None },
            Field { name: "isoWeek", required: None },
            Field { name: "isoDayOfWeek", required: None },
            Field { name: "hour", required: None },
            Field { name: "minute", required: None },
            Field { name: "second", required: None },
            Field { name: "millisecond", required: None },
            Field { name: "timezone", required: None },
        ],
        not_object: (40519, "$dateFromParts only supports an object as its argument"),
        unknown: (40518, "Unrecognized argument to $dateFromParts: {}"),
    },
    Named {
        name: "$dateFromString",
        fun: date_math::op_date_from_string,
        fields: &[
            Field {
                name: "dateString",
                required: Some((40542, "Missing 'dateString' parameter to $dateFromString")),
            },
            Field { name: "format", required: None },
            Field { name: "timezone", required: None },
            Field { name: "onNull", required: None },
            Field { name: "onError", required: None },
        ],
        not_object: (40540, "$dateFromString only supports an object as an argument, found: {}"),
        unknown: (40541, "Unrecognized argument to $dateFromString: {}"),
    },
    Named {
        name: "$dateSubtract",
        fun: date_math::op_date_subtract,
        fields: &[
            Field {
                name: "startDate",
                required: Some((
                    5166402,
                    "$dateSubtract requires startDate, unit, and amount to be present",
                )),
            },
            Field {
                name: "unit",
                required: Some((
                    5166402,
                    "$dateSubtract requires startDate, unit, and amount to be present",
                )),
            },
            Field {
                name: "amount",
                required: Some((
                    5166402,
                    "$dateSubtract requires startDate, unit, and amount to be present",
                )),
            },
            Field { name: "timezone", required: None },
        ],
        not_object: (5166400, "$dateSubtract expects an object as its argument"),
        unknown: (
            5166401,
            "Unrecognized argument to $dateSubtract: {}. Expected arguments are startDate, unit, amount, and optionally timezone.",
        ),
    },
    Named {
        name: "$dateToParts",
        fun: date::op_date_to_parts,
        fields: &[
            Field {
                name: "date",
                required: Some((40522, "Missing 'date' parameter to $dateToParts")),
            },
            Field { name: "timezone", required: None },
            Field { name: "iso8601", required: None },
        ],
        not_object: (40524, "$dateToParts only supports an object as its argument"),
        unknown: (40520, "Unrecognized argument to $dateToParts: {}"),
    },
    Named {
        name: "$dateToString",
        fun: date::op_date_to_string,
        fields: &[
            Field {
                name: "date",
                required: Some((18628, "Missing 'date' parameter to $dateToString")),
            },
            Field { name: "format", required: None },
            Field { name: "timezone", required: None },
            Field { name: "onNull", required: None },
        ],
        not_object: (18629, "$dateToString only supports an object as its argument"),
        unknown: (18534, "Unrecognized argument to $dateToString: {}"),
    },
    Named {
        name: "$dateTrunc",
        fun: date_math::op_date_trunc,
        fields: &[
            Field {
                name: "date",
                required: Some((5439009, "Missing 'date' parameter to $dateTrunc")),
            },
            Field {
                name: "unit",
                required: Some((5439010, "Missing 'unit' parameter to $dateTrunc")),
            },
            Field { name: "binSize", required: None },
            Field { name: "timezone", required: None },
            Field { name: "startOfWeek", required: None },
        ],
        not_object: (5439007, "$dateTrunc only supports an object as its argument"),
        unknown: (
            5439008,
            "Unrecognized argument to $dateTrunc: {}. Expected arguments are date, unit, and optionally, binSize, timezone, startOfWeek",
        ),
    },
    Named {
        name: "$firstN",
        fun: array::op_first_n,
        fields: &[
            Field { name: "n", required: Some((5787906, "Missing value for 'n'")) },
            Field { name: "input", required: Some((5787907, "Missing value for 'input'")) },
        ],
        not_object: (5787801, "specification must be an object; found $firstN: {shown}"),
        unknown: (5787901, "Unknown argument for 'n' operator: {}"),
    },
    Named {
        name: "$lastN",
        fun: array::op_last_n,
        fields: &[
            Field { name: "n", required: Some((5787906, "Missing value for 'n'")) },
            Field { name: "input", required: Some((5787907, "Missing value for 'input'")) },
        ],
        not_object: (5787801, "specification must be an object; found $lastN: {shown}"),
        unknown: (5787901, "Unknown argument for 'n' operator: {}"),
    },
    Named {
        name: "$ltrim",
        fun: string::op_ltrim,
        fields: &[
            Field { name: "input", required: Some((50695, "$ltrim requires an 'input' field")) },
            Field { name: "chars", required: None },
        ],
        not_object: (50696, "$ltrim only supports an object as an argument, found {}"),
        unknown: (50694, "$ltrim found an unknown argument: {}"),
    },
    Named {
        name: "$maxN",
        fun: array::op_max_n,
        fields: &[
            Field { name: "n", required: Some((5787906, "Missing value for 'n'")) },
            Field { name: "input", required: Some((5787907, "Missing value for 'input'")) },
        ],
        not_object: (5787900, "specification must be an object; found $maxN: {shown}"),
        unknown: (5787901, "Unknown argument for 'n' operator: {}"),
    },
    Named {
        name: "$minN",
        fun: array::op_min_n,
        fields: &[
            Field { name: "n", required: Some((5787906, "Missing value for 'n'")) },
            Field { name: "input", required: Some((5787907, "Missing value for 'input'")) },
        ],
        not_object: (5787900, "specification must be an object; found $minN: {shown}"),
        unknown: (5787901, "Unknown argument for 'n' operator: {}"),
    },
    Named {
        name: "$replaceAll",
        fun: string::op_replace_all,
        fields: &[
            Field {
                name: "input",
                required: Some((51749, "$replaceAll requires 'input' to be specified")),
            },
            Field {
                name: "find",
                required: Some((51748, "$replaceAll requires 'find' to be specified")),
            },
            Field {
                name: "replacement",
                required: Some((51747, "$replaceAll requires 'replacement' to be specified")),
            },
        ],
        not_object: (51751, "$replaceAll requires an object as an argument, found: {}"),
        unknown: (51750, "$replaceAll found an unknown argument: {}"),
    },
    Named {
        name: "$replaceOne",
        fun: string::op_replace_one,
        fields: &[
            Field {
                name: "input",
                required: Some((51749, "$replaceOne requires 'input' to be specified")),
            },
            Field {
                name: "find",
                required: Some((51748, "$replaceOne requires 'find' to be specified")),
            },
            Field {
                name: "replacement",
                required: Some((51747, "$replaceOne requires 'replacement' to be specified")),
            },
        ],
        not_object: (51751, "$replaceOne requires an object as an argument, found: {}"),
        unknown: (51750, "$replaceOne found an unknown argument: {}"),
    },
    Named {
        name: "$rtrim",
        fun: string::op_rtrim,
        fields: &[
            Field { name: "input", required: Some((50695, "$rtrim requires an 'input' field")) },
            Field { name: "chars", required: None },
        ],
        not_object: (50696, "$rtrim only supports an object as an argument, found {}"),
        unknown: (50694, "$rtrim found an unknown argument: {}"),
    },
    Named {
        name: "$setField",
        fun: object::op_set_field,
        fields: &[
            Field {
                name: "field",
                required: Some((4161102, "$setField requires 'field' to be specified")),
            },
            Field {
                name: "input",
                required: Some((4161109, "$setField requires 'input' to be specified")),
            },
            Field {
                name: "value",
                required: Some((4161103, "$setField requires 'value' to be specified")),
            },
        ],
        not_object: (4161100, "$setField only supports an object as its argument"),
        unknown: (4161101, "$setField found an unknown argument: {}"),
    },
    Named {
        name: "$trim",
        fun: string::op_trim,
        fields: &[
            Field { name: "input", required: Some((50695, "$trim requires an 'input' field")) },
            Field { name: "chars", required: None },
        ],
        not_object: (50696, "$trim only supports an object as an argument, found {}"),
        unknown: (50694, "$trim found an unknown argument: {}"),
    },
    Named {
        name: "$unsetField",
        fun: object::op_unset_field,
        fields: &[
            Field {
                name: "field",
                required: Some((4161102, "$unsetField requires 'field' to be specified")),
            },
            Field {
                name: "input",
                required: Some((4161109, "$unsetField requires 'input' to be specified")),
            },
        ],
        not_object: (4161100, "$unsetField only supports an object as its argument"),
        unknown: (4161101, "$unsetField found an unknown argument: {}"),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_by_name() {
        assert!(POSITIONAL.is_sorted_by_key(|row| row.name));
        assert!(NAMED.is_sorted_by_key(|row| row.name));
    }
}
