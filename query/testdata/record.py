#!/usr/bin/env python3
"""Records what a real mongod answers into the fixtures beside this file.

    record.py compare mongodb://host:port      order of values           -> compare.bson
    record.py updates mongodb://host:port OUT  update entries and images -> OUT (primary of a replica set)
    record.py filters mongodb://host:port      those of cases.py and random ones, with the matches or the error -> filters.bson
    record.py expressions mongodb://host:port  operators over many values, and those of cases.py -> expressions.bson
    record.py finds   mongodb://host:port      projections and sorts -> finds.bson
    record.py pipelines mongodb://host:port    the pipelines of cases.py -> pipelines.bson
    record.py geo     mongodb://host:port      places, within and meeting -> geo.bson
    record.py near    mongodb://host:port      documents by their distance -> near.bson
    record.py windows mongodb://host:port      $setWindowFields, $densify, $fill, $percentile, $bucketAuto -> windows.bson
    record.py timeseries mongodb://host:port OUT  buckets with their measurements, and filters -> OUT

A fixture is a plain sequence of BSON documents. Needs pymongo. The same SEED gives the same cases.
"""
import itertools, json, os, random, struct, sys
from pathlib import Path

import bson
from bson import Decimal128, Int64, ObjectId, Timestamp, json_util
from bson.binary import Binary
from bson.code import Code
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.raw_bson import RawBSONDocument
from bson.regex import Regex
import datetime
import pymongo

import cases

HERE = Path(__file__).parent
RAW = bson.codec_options.CodecOptions(document_class=RawBSONDocument)
SEED = int(os.environ.get("SEED", "7"))


class Raw:
    """A value given as its BSON type and bytes: for the types that the driver can't write."""
    def __init__(self, kind, data):
        self.kind, self.data = kind, data


def element(key, value):
    """One BSON element as bytes."""
    name = key.encode() + b"\0"
    if isinstance(value, Raw):
        return bytes([value.kind]) + name + value.data
    if isinstance(value, dict):
        return b"\x03" + name + document(value)
    if isinstance(value, list):
        return b"\x04" + name + document({str(i): v for i, v in enumerate(value)})
    return bson.encode({key: value})[4:-1]


def document(fields):
    body = b"".join(element(k, v) for k, v in fields.items())
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def string(kind, text):
    data = text if isinstance(text, bytes) else text.encode()
    return Raw(kind, struct.pack("<i", len(data) + 1) + data + b"\0")


def numbers():
    doubles = [0.0, -0.0, 1.0, -1.0, 0.1, 0.5, 1.5, 2.0**53, 2.0**53 + 2, 2.0**63, -(2.0**63), 2.0**62, 2.0**64, 1e308, -1e308,
               5e-324, -5e-324, 2.2250738585072014e-308, float("inf"), float("-inf"), float("nan"), 1e15 + 0.5, 123456.789, 1e22, 1e23,
               9007199254740993.0, 3.0e-320, 0.3, 1 / 3]
    longs = [0, 1, -1, 2**53, 2**53 + 1, 2**53 - 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**62 + 1, 2**62 - 1, 10**18, 10**18 + 1, 123456, 10]
    ints = [0, 1, -1, 2**31 - 1, -(2**31), 10, 123456]
    decimals = ["0", "-0", "0E+6111", "0E-6176", "1", "-1", "1.0", "1.00000000000000000000000000000000", "0.1", "0.5", "1.5",
                "0.1000000000000000055511151231257827", "0.1000000000000000055511151231257828", "0.3", "0.333333333333333314829616256247391",
                "9007199254740993", "9007199254740992.5", "9223372036854775807", "9223372036854775807.5", "9223372036854775808", "9223372036854775809",
                "-9223372036854775808", "-9223372036854775809", "1E+6144", "-1E+6144", "1E-6176", "-1E-6176", "9.999999999999999999999999999999999E+6144",
                "Infinity", "-Infinity", "NaN", "-NaN", "1E+308", "1E+309", "1.797693134862315708145274237317043E+308",
                "1.797693134862315708145274237317044E+308", "4.9E-324", "5E-324", "4.940656458412465441765687928682213E-324",
                "4.940656458412465441765687928682214E-324", "1E+22", "1E+23", "99999999999999991611392", "123456.789", "123456.7890000000000",
                "1E+1", "10", "1234567890123456789012345678901234"]
    return doubles + [Int64(n) for n in longs] + ints + [Decimal128(d) for d in decimals]


def scalars():
    oid = ObjectId("0123456789abcdef01234567")
    epoch = datetime.datetime(1970, 1, 1)
    return [MinKey(), Raw(6, b""), None, MaxKey(), True, False, epoch, epoch + datetime.timedelta(milliseconds=1), epoch - datetime.timedelta(days=9999),
            Raw(9, struct.pack("<q", -(2**63))), Raw(9, struct.pack("<q", 2**63 - 1)),
            Timestamp(0, 0), Timestamp(1, 5), Timestamp(2**32 - 1, 0), Timestamp(2**31, 1), Timestamp(1, 2**31),
            oid, ObjectId("ffffffffffffffffffffffff"), ObjectId("000000000000000000000000"),
            "", "a", "A", "b", "aa", "ab", "é", "e\u0301", "日本", "\U0001f600", "a\0b", "a\0", string(2, b"\xff\xfe"), string(2, b"a\x80"),
            string(14, ""), string(14, "a"), string(14, "aa"), string(13, "a"), string(13, "b"), string(13, "function(){}"),
            Code("a", {}), Code("a", {"x": 1}), Code("b", {}), Code("a", {"x": 1.0}),
            Regex("a"), Regex("a", "i"), Regex("b"), Regex(""), Regex("a", "m"),
            Binary(b"", 0), Binary(b"a", 0), Binary(b"b", 0), Binary(b"a", 5), Binary(b"aa", 0), Binary(b"a" * 16, 4), Binary(b"a" * 16, 3),
            Raw(5, struct.pack("<i", 5) + b"\x02" + struct.pack("<i", 1) + b"z"), Binary(b"zzzzz", 0), Binary(b"\xff", 128),
            Raw(12, string(2, "db.c").data + oid.binary), Raw(12, string(2, "d").data + oid.binary)]


def containers():
    return [{}, {"a": 1}, {"a": 1.0}, {"a": 2}, {"b": 1}, {"a": "x"}, {"a": 1, "b": 1}, {"b": 0, "a": 1}, {"a": None}, {"a": {}}, {"a": {"b": 1}},
            {"a": []}, {"a": Raw(6, b"")}, {"a": MinKey()}, {"": 1}, {"a": {"b": {"c": [1, {"d": 2}]}}}, {"é": 1}, {"A": 1},
            [], [1], [1.0], [1, 2], [2], [[]], [[1]], [None], ["a"], [{}], [{"a": 1}], [MaxKey()], [1, [2, 3]], [Raw(6, b"")]]


def record_compare(client):
    values = numbers() + scalars() + containers()
    coll = client.understudy_record.compare
    coll.drop()
    coll.database.create_collection("compare")
    # In a document of its own each value is compared as it is: sort would look into an array.
    coll.insert_many([RawBSONDocument(document({"_id": i, "v": {"x": v}})) for i, v in enumerate(values)])
    ranks = [doc["rank"] for doc in client.get_database("understudy_record", bson.codec_options.CodecOptions(document_class=RawBSONDocument))
             .compare.aggregate([{"$setWindowFields": {"sortBy": {"v": 1}, "output": {"rank": {"$denseRank": {}}}}}, {"$sort": {"_id": 1}}, {"$project": {"rank": 1}}])]
    with open(HERE / "compare.bson", "wb") as out:
        for value, rank in zip(values, ranks):
            out.write(document({"rank": int(rank), "v": value}))
    print(len(values), "values,", max(ranks), "ranks")


# --- updates -----------------------------------------------------------------------------------------

NAMES = ["a", "b", "c", "d", "zz", "A", "é", "10", "2", "x y"]


def some_value(rng, depth=0):
    kind = rng.randrange(12 if depth < 3 else 8)
    if kind == 0: return rng.randrange(-5, 100)
    if kind == 1: return Int64(rng.randrange(-(2**62), 2**62))
    if kind == 2: return rng.random() * 1000
    if kind == 3: return "s" * rng.randrange(0, 40)
    if kind == 4: return rng.choice([None, True, False])
    if kind == 5: return Binary(bytes(rng.randrange(256) for _ in range(rng.randrange(20))), rng.choice([0, 5, 128]))
    if kind == 6: return rng.choice([ObjectId(), Timestamp(rng.randrange(1, 99), 1), Decimal128("1.50"), Regex("a", "i"), datetime.datetime(2020, 1, 1)])
    if kind == 7: return rng.choice([MinKey(), MaxKey(), "", {}, []])
    if kind < 10: return {n: some_value(rng, depth + 1) for n in rng.sample(NAMES, rng.randrange(5))}
    return [some_value(rng, depth + 1) for _ in range(rng.randrange(6))]


def some_path(rng):
    parts = [rng.choice(NAMES[:7])]
    while rng.random() < 0.5 and len(parts) < 4:
        parts.append(rng.choice(NAMES[:5] + ["0", "1", "2", "3", "7", "12"]))
    return ".".join(parts)


def some_update(rng, pipelines):
    kind = rng.randrange(12 if pipelines else 10)
    if kind < 4: return {"$set": {some_path(rng): some_value(rng) for _ in range(rng.randrange(1, 5))}}
    if kind == 4: return {"$unset": {some_path(rng): 1 for _ in range(rng.randrange(1, 4))}}
    if kind == 5: return {"$set": {some_path(rng): some_value(rng)}, "$unset": {some_path(rng): 1}}
    if kind == 6: return {rng.choice(["$push", "$addToSet"]): {some_path(rng): {"$each": [some_value(rng) for _ in range(rng.randrange(3))]}}}
    if kind == 7: return {"$push": {some_path(rng): {"$each": [some_value(rng, 2) for _ in range(rng.randrange(4))], "$position": rng.randrange(4), "$slice": rng.randrange(-4, 6)}}}
    if kind == 8: return rng.choice([{"$pop": {some_path(rng): rng.choice([1, -1])}}, {"$inc": {some_path(rng): 1}}, {"$rename": {some_path(rng): some_path(rng)}}])
    if kind == 9: return "replace"
    if kind == 10: return [{"$set": {some_path(rng): some_value(rng)}}, {"$unset": [some_path(rng)]}]
    return [{"$replaceWith": {"$mergeObjects": ["$$ROOT", {n: some_value(rng) for n in rng.sample(NAMES, 3)}]}}]


def record_updates(client, out_name, count=1500):
    rng = random.Random(SEED)
    raw = bson.codec_options.CodecOptions(document_class=RawBSONDocument)
    pipelines = client.server_info()["versionArray"][0] >= 5
    db = client.get_database("understudy_record", raw)
    db.drop_collection("updates")
    oplog = client.local.get_collection("oplog.rs", raw)
    with open(HERE / out_name, "wb") as out:
        done = 0
        while done < count:
            _id = done % 40
            key = {"_id": _id}
            pre = db.updates.find_one(key)
            if pre is None or len(pre.raw) > 4000 or rng.random() < 0.05:
                db.updates.replace_one(key, {n: some_value(rng) for n in rng.sample(NAMES, rng.randrange(1, 8))}, upsert=True)
                pre = db.updates.find_one(key)
            update = some_update(rng, pipelines)
            try:
                if update == "replace":
                    db.updates.replace_one(key, {n: some_value(rng) for n in rng.sample(NAMES, 4)})
                else:
                    db.updates.update_one(key, update)
            except pymongo.errors.WriteError:
                continue
            post = db.updates.find_one(key)
            if post.raw == pre.raw:
                continue
            entry = next(oplog.find({"ns": "understudy_record.updates", "op": "u"}).sort("$natural", -1).limit(1))
            out.write(bson.encode({"pre": pre, "o": entry["o"], "post": post}))
            done += 1
    print(done, "updates")


# --- filters -----------------------------------------------------------------------------------------

FIELDS = ["a", "b", "a.b", "a.0", "a.b.c", "a.1", "a.0.b", "b.a", "a.b.0", "c", "a.b.1.c", ""]


def typed_values():
    return numbers() + scalars() + containers()


def small_value(rng):
    kind = rng.randrange(14)
    if kind < 4: return rng.choice([0, 1, 2, 3, 5, -1, Int64(2), 2.0, 1.5, Decimal128("1.5"), Decimal128("2")])
    if kind < 6: return rng.choice(["x", "y", "xyz", "", "abc", "X"])
    if kind == 6: return rng.choice([None, True, False, Raw(6, b"")])
    if kind == 7: return rng.choice(typed_values())
    if kind < 11: return [small_value(rng) for _ in range(rng.randrange(4))]
    return {rng.choice(["a", "b", "c", "0", "1"]): small_value(rng) for _ in range(rng.randrange(3))}


def filter_dataset(rng):
    docs = [{"a": v} for v in typed_values()] + [{"a": [v]} for v in containers()] + [{"a": {"b": v}} for v in scalars()] + [{}]
    docs += [{"a": v} for v in (["x", "y"], [1, 2, 3], [[1, 2], 3], [[[1]]], [{"b": 1}, {"b": 2}, 7, {"c": 2}, {"b": [3, 4]}], [[{"b": 1}]], [[], [None]],
             {"b": {"c": 1}}, {"b": [{"c": 1}, {"c": [2, 3]}, 4]}, {"0": 1}, {"0": {"b": 5}}, [{"0": 1}], [{"0": {"b": 5}}], [{"b": None}], [{"b": []}], "xyz", "x\ny", "X")]
    for _ in range(150):
        docs.append({k: small_value(rng) for k in rng.sample(["a", "b", "c", ""], rng.randrange(1, 4))})
    return [{"_id": i, **doc} for i, doc in enumerate(docs)]


def operator(rng, depth):
    op = rng.choice(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists", "$type", "$mod", "$regex", "$all", "$elemMatch", "$size",
                     "$bitsAllSet", "$bitsAnySet", "$bitsAllClear", "$bitsAnyClear", "$not"])
    if op in ("$in", "$nin", "$all"):
        items = [rng.choice([small_value(rng), small_value(rng), Regex(rng.choice(["x", "^x", "Y$"]), rng.choice(["", "i"]))]) for _ in range(rng.randrange(4))]
        if op == "$all" and rng.random() < 0.3: items = [{"$elemMatch": elem(rng, depth + 1)} for _ in range(rng.randrange(1, 3))]
        return {op: items}
    if op == "$exists": return {op: rng.choice([True, False, 1, 0, None])}
    if op == "$type": return {op: rng.choice([1, 2, 3, 4, 8, 10, 16, "number", "array", "object", "string", "null", "undefined", ["int", "string"], "minKey", "bool", 6, -1, 127])}
    if op == "$mod": return {op: [rng.choice([1, 2, 3, -2, 2.7]), rng.choice([0, 1, -1])]}
    if op == "$regex": return rng.choice([{op: rng.choice(["x", "^X", "y$", "^.*$", "", "[a-c]"])}, {op: rng.choice(["X", "^x .z", "z$", "^y"]), "$options": rng.choice(["i", "m", "s", "x", "im", ""])}])
    if op == "$elemMatch": return {op: elem(rng, depth + 1)}
    if op == "$size": return {op: rng.choice([0, 1, 2, 3, Int64(2), 2.0])}
    if op.startswith("$bits"): return {op: rng.choice([0, 1, 2, 5, [0], [1, 2], [0, 63, 64, 100], Binary(b"\x03"), Binary(b""), []])}
    if op == "$not": return {op: operator(rng, depth + 1) if depth < 3 else {"$gt": 1}}
    return {op: rng.choice([small_value(rng), small_value(rng), rng.choice(typed_values())])}


def elem(rng, depth):
    if depth > 3 or rng.random() < 0.4: return {**operator(rng, 3), **rng.choice([{}, {"$gt": 1}, {"$lt": 3}])}
    return a_filter(rng, depth)


def a_filter(rng, depth=0):
    kind = rng.randrange(10)
    if kind < 2 and depth < 3: return {rng.choice(["$and", "$or", "$nor"]): [a_filter(rng, depth + 1) for _ in range(rng.randrange(1, 4))]}
    query = {}
    for _ in range(rng.choice([1, 1, 1, 2])):
        path = rng.choice(FIELDS)
        if rng.random() < 0.35: query[path] = rng.choice([small_value(rng), small_value(rng), Regex("x", "i"), rng.choice(typed_values())])
        else: query[path] = {**operator(rng, depth), **(operator(rng, depth) if rng.random() < 0.25 else {})}
    return query


def answer(call):
    """What the server says: the result, or the code and text of its refusal."""
    try:
        return {"ok": call()}
    except pymongo.errors.OperationFailure as e:
        return {"code": e.code, "errmsg": e.details["errmsg"]}


def find(coll, **options):
    """The documents of a find, all in one batch; options may hold values that the driver can't write."""
    options = {k: RawBSONDocument(document(v)) if isinstance(v, dict) else v for k, v in options.items()}
    reply = coll.database.command({"find": coll.name, **options, "batchSize": 100000})
    return reply["cursor"]["firstBatch"]


def load(client, name, docs):
    db = client.get_database("understudy_record", bson.codec_options.CodecOptions(document_class=RawBSONDocument))
    db.drop_collection(name)
    db.create_collection(name)
    for at in range(0, len(docs), 500):
        db[name].insert_many([RawBSONDocument(document(doc)) for doc in docs[at:at + 500]])
    return db[name]


def record_filters(client, count=1500):
    rng = random.Random(SEED)
    docs = filter_dataset(rng)
    coll = load(client, "filters", docs)
    queries = cases.FILTERS + [a_filter(rng) for _ in range(int(count))]
    with open(HERE / "filters.bson", "wb") as out:
        out.write(document({"docs": docs}))
        for query in queries:
            got = answer(lambda: [doc["_id"] for doc in find(coll, filter=query, projection={"_id": 1}, sort={"_id": 1})])
            out.write(document({"filter": query, **got}))
    print(len(queries), "filters")


# --- expressions -------------------------------------------------------------------------------------

def expression_values():
    day = lambda *a: datetime.datetime(*a)
    return [0, 1, -1, 2, 3, 5, -7, 10, 2**31 - 1, -(2**31), Int64(0), Int64(4), Int64(2**62), Int64(2**63 - 1), Int64(-(2**63)), 0.0, -0.0, 0.5, 1.5, -2.5, 2.0, 1e20, 1e300, float("inf"), float("nan"),
            Decimal128("0"), Decimal128("1.5"), Decimal128("-2.50"), Decimal128("3"), Decimal128("1E+30"), Decimal128("NaN"), Decimal128("Infinity"),
            "", "a", "abc", "Hello World", "  trim me ", "a,b,c", "2020-02-29T12:34:56.789Z", "2021-03-04", "12", "-3.5", "1e3", "true", "5ab4f5c2e1f2a3b4c5d6e7f8", "été", "日本語", "day", "month", "%Y-%m",
            None, True, False, day(2020, 2, 29, 12, 34, 56, 789000), day(1969, 12, 31, 23, 59, 59, 1000), day(2021, 1, 3), day(2018, 12, 31), Timestamp(1500000000, 7), ObjectId("5ab4f5c2e1f2a3b4c5d6e7f8"),
            Binary(b"abc"), Regex("a", "i"), MinKey(), MaxKey(), {}, {"x": 1}, {"x": 1, "y": {"z": 2}}, {"k": "q", "v": 5}, [], [1, 2, 3], [3, 1, 2, 1], ["b", "a"], [None, 1, "a"], [[1, 2], [3]], [["k", 1], ["l", 2]],
            [{"k": "a", "v": 1}], [1.5, 2, Int64(3)], [True, 0], [{"x": 1}, {"x": 2}, {"y": 3}, 4]]


ARITY = {"$abs": 1, "$add": 2, "$subtract": 2, "$multiply": 2, "$divide": 2, "$mod": 2, "$ceil": 1, "$floor": 1, "$round": 2, "$trunc": 2, "$exp": 1, "$ln": 1, "$log": 2, "$log10": 1, "$pow": 2, "$sqrt": 1,
         "$sin": 1, "$cos": 1, "$atan2": 2, "$degreesToRadians": 1, "$bitAnd": 2, "$bitOr": 2, "$bitXor": 2, "$bitNot": 1, "$eq": 2, "$ne": 2, "$lt": 2, "$lte": 2, "$gt": 2, "$gte": 2, "$cmp": 2, "$not": 1, "$and": 2, "$or": 2,
         "$ifNull": 2, "$concat": 2, "$toLower": 1, "$toUpper": 1, "$strcasecmp": 2, "$substrBytes": 3, "$substrCP": 3, "$strLenBytes": 1, "$strLenCP": 1, "$split": 2, "$indexOfBytes": 2, "$indexOfCP": 2,
         "$arrayElemAt": 2, "$first": 1, "$last": 1, "$concatArrays": 2, "$isArray": 1, "$size": 1, "$in": 2, "$indexOfArray": 2, "$range": 2, "$reverseArray": 1, "$slice": 2, "$arrayToObject": 1, "$objectToArray": 1,
         "$setUnion": 2, "$setIntersection": 2, "$setDifference": 2, "$setEquals": 2, "$setIsSubset": 2, "$allElementsTrue": 1, "$anyElementTrue": 1, "$mergeObjects": 2, "$type": 1, "$isNumber": 1, "$toBool": 1, "$toInt": 1,
         "$toLong": 1, "$toDouble": 1, "$toDecimal": 1, "$toString": 1, "$toDate": 1, "$toObjectId": 1, "$year": 1, "$month": 1, "$dayOfMonth": 1, "$dayOfWeek": 1, "$dayOfYear": 1, "$hour": 1, "$minute": 1, "$second": 1,
         "$millisecond": 1, "$week": 1, "$isoWeek": 1, "$isoWeekYear": 1, "$isoDayOfWeek": 1, "$tsSecond": 1, "$tsIncrement": 1, "$sum": 2, "$avg": 2, "$min": 2, "$max": 2, "$stdDevPop": 2, "$stdDevSamp": 2, "$binarySize": 1, "$bsonSize": 1}


def record_expressions(client, each=14):
    rng = random.Random(SEED)
    pool = expression_values()
    found = []
    for op, arity in ARITY.items():
        for n in range(int(each) * arity):
            values = [rng.choice(pool) for _ in range(arity)]
            if n % 2 and arity > 1:  # likely types more often than chance gives them
                kinds = [v for v in pool if type(v) is type(values[0])]
                values = [values[0]] + [rng.choice(kinds + [1, 2]) for _ in range(arity - 1)]
            found.append(({k: v for k, v in zip("abc", values) if rng.random() < 0.97}, {op: ["$" + k for k in "abc"[:arity]]}))
    found += [(cases.DOC, e) for e in cases.EXPRESSIONS]
    for doc in expression_values():
        found.append(({"a": doc}, "$a.x"))
    load(client, "expressions", [{"_id": i, **doc} for i, (doc, _) in enumerate(found)])
    coll = client.get_database("understudy_record", bson.codec_options.CodecOptions(document_class=RawBSONDocument)).expressions
    with open(HERE / "expressions.bson", "wb") as out:
        for i, (doc, expression) in enumerate(found):
            stages = [{"$match": {"_id": i}}, RawBSONDocument(document({"$replaceWith": {"r": expression}}))]
            got = answer(lambda: coll.database.command({"aggregate": coll.name, "pipeline": stages, "cursor": {}}, codec_options=RAW)["cursor"]["firstBatch"][0])
            out.write(document({"doc": {"_id": i, **doc}, "expr": expression, **{k: (Raw(3, v.raw) if k == "ok" else v) for k, v in got.items()}}))
    print(len(found), "expressions")


# --- find: projections, sorts, skip and limit ---------------------------------------------------------

def a_projection(rng):
    mode = rng.choice([0, 1])
    spec = {}
    for path in rng.sample(["a", "b", "c", "a.b", "a.0", "a.b.c", "b.a", "_id", "b.1", "c.a"], rng.randrange(1, 4)):
        kind = rng.randrange(12)
        if path == "_id": spec[path] = rng.choice([0, 1])
        elif kind < 8: spec[path] = mode
        elif kind == 8: spec[path] = {"$slice": rng.choice([1, -1, 2, [1, 1], [-2, 1]])}
        elif kind == 9 and "." not in path: spec[path] = {"$elemMatch": rng.choice([{"$gt": 1}, {"b": {"$exists": True}}, {"$type": "string"}])}
        elif kind == 10: spec[path] = rng.choice(["$a", "$b.a", {"$ifNull": ["$c", 0]}, "lit", ["$a", 1]])
        else: spec[path] = rng.choice([True, False, 1.0, Int64(0)])
    return spec


def record_finds(client, count=900):
    rng = random.Random(SEED)
    docs = filter_dataset(rng)[150:]
    coll = load(client, "finds", docs)
    found = [{"filter": f, "projection": p} for f, p in cases.PROJECTIONS] + [{"sort": {**s, "_id": 1}} for s in cases.SORTS]
    for _ in range(int(count)):
        kind = rng.randrange(3)
        if kind == 0: found.append({"filter": {"_id": {"$mod": [rng.choice([5, 7, 9]), 1]}}, "projection": a_projection(rng)})
        else: found.append({"filter": {"_id": {"$mod": [rng.choice([3, 5, 7]), 1]}}, "sort": {**{f: rng.choice([1, -1]) for f in rng.sample(["a", "b", "a.b", "c", "b.a", "a.0"], rng.choice([1, 1, 2]))}, "_id": 1}, "skip": rng.choice([0, 0, 2]), "limit": rng.choice([0, 0, 5]), "projection": {"_id": 1}})
    with open(HERE / "finds.bson", "wb") as out:
        out.write(document({"docs": docs}))
        for options in found:
            raw = {k: RawBSONDocument(document(v)) if isinstance(v, dict) else v for k, v in options.items()}
            got = answer(lambda: [Raw(3, d.raw) for d in coll.database.command({"find": coll.name, **raw, "batchSize": 10000}, codec_options=RAW)["cursor"]["firstBatch"]])
            out.write(document({"find": options, **got}))
    print(len(found), "finds")


# --- pipelines ---------------------------------------------------------------------------------------

def pipeline_docs(rng):
    kinds = ["book", "pen", "cup", None]
    docs = [{"_id": i, "kind": rng.choice(kinds), "qty": rng.choice([1, 2, 3, Int64(2), 2.0, 1.5, Decimal128("2"), None, "x"]), "price": rng.choice([5, 10.5, Decimal128("3.25"), Int64(7)]), "tags": rng.choice([["a", "b"], ["b"], [], "c", None, [["n"], 1]]),
             "at": datetime.datetime(2020, 1, 1) + datetime.timedelta(days=i), "who": {"name": rng.choice(["ann", "bob", "Cid"]), "n": i % 4}} for i in range(40)]
    for doc in docs[::7]: del doc["kind"]
    for doc in docs[::9]: del doc["tags"]
    return docs


def record_pipelines(client):
    rng = random.Random(SEED)
    docs = pipeline_docs(rng)
    other = [{"_id": k, "n": i % 3, "label": "L" + str(k)} for i, k in enumerate(["book", "pen", "cup", None, "ann", 1, 2, 3])]
    coll = load(client, "pipelines", docs)
    load(client, "other", other)
    with open(HERE / "pipelines.bson", "wb") as out:
        out.write(document({"docs": docs, "other": other}))
        for pipeline in cases.PIPELINES:
            stages = [RawBSONDocument(document(s)) if isinstance(s, dict) else s for s in pipeline]
            got = answer(lambda: [Raw(3, d.raw) for d in coll.database.command({"aggregate": coll.name, "pipeline": stages, "cursor": {"batchSize": 10000}}, codec_options=RAW)["cursor"]["firstBatch"]])
            out.write(document({"pipeline": pipeline, **got}))
    print(len(cases.PIPELINES), "pipelines")


# --- geo ---------------------------------------------------------------------------------------------

def record_geo(client):
    rng = random.Random(SEED)
    near = lambda: [round(rng.uniform(-20, 20), rng.choice([0, 1, 3])), round(rng.uniform(-20, 20), rng.choice([0, 1, 3]))]
    def ring(size, hole=False):
        x, y = near()
        corners = [[x, y], [x + size, y], [x + size, y + size], [x, y + size], [x, y]]
        return corners[::-1] if hole else corners
    def shape():
        kind = rng.randrange(9)
        if kind < 3: return {"type": "Point", "coordinates": near()}
        if kind == 3: return {"type": "LineString", "coordinates": [near() for _ in range(rng.randrange(2, 5))]}
        if kind == 4: return {"type": "Polygon", "coordinates": [ring(rng.choice([1, 5, 12]))]}
        if kind == 5: return {"type": "MultiPoint", "coordinates": [near() for _ in range(rng.randrange(1, 4))]}
        if kind == 6: return {"type": "MultiLineString", "coordinates": [[near(), near()] for _ in range(rng.randrange(1, 3))]}
        if kind == 7: return {"type": "MultiPolygon", "coordinates": [[ring(3)], [ring(4)]]}
        return {"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": near()}, {"type": "LineString", "coordinates": [near(), near()]}]}
    docs = [{"_id": i, "loc": rng.choice([shape, shape, near, lambda: {"x": near()[0], "y": near()[1]}, lambda: [near(), near()]])()} for i in range(160)]
    docs += [{"_id": 160 + i, "loc": v} for i, v in enumerate(["nope", 5, None, [], {}, [1], ["a", "b"], {"type": "Point"}, {"type": "Point", "coordinates": [200, 0]}, [200, 100], {"type": "Foo", "coordinates": [1, 1]}, {"type": "Polygon", "coordinates": [[[-10, -10], [10, -10], [10, 10], [-10, 10], [-10, -10]], [[-2, -2], [-2, 2], [2, 2], [2, -2], [-2, -2]]]}])]
    found = list(cases.GEO)
    for _ in range(300):
        kind = rng.randrange(9)
        if kind < 2: q = {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [ring(rng.choice([4, 10, 25]))]}}}
        elif kind == 2: q = {"$geoWithin": {"$geometry": {"type": "MultiPolygon", "coordinates": [[ring(8)], [ring(10)]]}}}
        elif kind == 3: q = {"$geoWithin": {"$box": [near(), near()]}}
        elif kind == 4: q = {"$geoWithin": {"$center": [near(), rng.choice([2, 5.5, 12])]}}
        elif kind == 5: q = {"$geoWithin": {"$centerSphere": [near(), rng.choice([0.05, 0.2, 0.5])]}}
        elif kind == 6: q = {"$geoWithin": {"$polygon": [near() for _ in range(rng.randrange(3, 6))]}}
        else: q = {"$geoIntersects": {"$geometry": shape()}}
        found.append({"loc": q})
    coll = load(client, "geo", docs)
    with open(HERE / "geo.bson", "wb") as out:
        out.write(document({"docs": docs}))
        for query in found:
            got = answer(lambda: [doc["_id"] for doc in find(coll, filter=query, projection={"_id": 1}, sort={"_id": 1})])
            out.write(document({"filter": query, **got}))
    print(len(found), "geo filters")


def record_near(client):
    rng = random.Random(SEED)
    at = lambda: [round(rng.uniform(-30, 30), 2), round(rng.uniform(-30, 30), 2)]
    sphere = [{"_id": i, "loc": rng.choice([{"type": "Point", "coordinates": at()}, {"type": "Point", "coordinates": at()}, at(), {"type": "LineString", "coordinates": [at(), at()]}, {"type": "MultiPoint", "coordinates": [at(), at()]}])} for i in range(60)] + [{"_id": 60}]
    flat = [{"_id": i, "loc": rng.choice([at(), at(), {"x": at()[0], "y": at()[1]}, [at(), at()]])} for i in range(60)] + [{"_id": 60}]
    found = []
    for _ in range(160):
        point = rng.choice([{"type": "Point", "coordinates": at()}, at()])
        limits = rng.choice([{}, {}, {"$maxDistance": rng.choice([5, 0.2, 1000000])}, {"$minDistance": rng.choice([1, 0.1, 500000])}])
        if rng.random() < 0.5:
            op = rng.choice(["$near", "$nearSphere"])
            spec = {"$geometry": point, **limits} if isinstance(point, dict) else point
            found.append({"find": {"loc": {op: spec, **({} if isinstance(point, dict) else limits)}, **rng.choice([{}, {"_id": {"$lt": 30}}])}})
        else:
            found.append({"geoNear": {"near": point, "distanceField": rng.choice(["d", "d.x"]), **{k[1:]: v for k, v in limits.items()}, **rng.choice([{}, {"spherical": True}, {"spherical": False}]), **rng.choice([{}, {"includeLocs": "l"}, {"distanceMultiplier": 0.5}, {"query": {"_id": {"$gt": 20}}}, {"key": "loc"}])}})
    found += [{"geoNear": s} for s in cases.GEO_NEAR]
    colls = {}
    for name, docs, kind in (("sphere", sphere, "2dsphere"), ("flat", flat, "2d")):
        colls[name] = load(client, name, docs)
        colls[name].create_index([("loc", kind)])
    with open(HERE / "near.bson", "wb") as out:
        out.write(document({"sphere": sphere, "flat": flat}))
        for case in found:
            for name, coll in colls.items():
                if "find" in case: got = answer(lambda: [doc["_id"] for doc in find(coll, filter=case["find"], projection={"_id": 1})])
                else: got = answer(lambda: [Raw(3, d.raw) for d in coll.database.command({"aggregate": coll.name, "pipeline": [{"$geoNear": RawBSONDocument(document(case["geoNear"])) if isinstance(case["geoNear"], dict) else case["geoNear"]}], "cursor": {"batchSize": 10000}}, codec_options=RAW)["cursor"]["firstBatch"]])
                out.write(document({"coll": name, **case, **got}))
    print(2 * len(found), "distances")


# --- windows -----------------------------------------------------------------------------------------

def window_docs(rng):
    start = datetime.datetime(2024, 1, 30, 12)
    docs = []
    for i in range(36):
        doc = {"_id": i, "g": i % 3, "x": rng.choice([i, Int64(i), i + 0.5, Decimal128(str(i))]), "w": i // 4, "t": start + datetime.timedelta(hours=i * 7), "n": rng.choice([1, 2, 5, -3, Int64(4), 2.5, 0.1, 7]),
               "d": rng.random() * 100, "i": rng.randrange(-50, 50), "m": rng.choice([1, 2.5, None, "s", Decimal128("1.1"), Int64(3), [1], True]), "s": rng.choice(["a", "b", "Ab"]), "l": [i % 4, "z"], "f": rng.choice([i * 2, None, i * 1.5])}
        if rng.random() < 0.3: del doc["f"]
        if rng.random() < 0.2: del doc["m"]
        docs.append(doc)
    rng.shuffle(docs)
    return docs


def a_window(rng, sort):
    kind = rng.randrange(6)
    if kind == 0 or not sort: return {}
    if kind < 4 or len(sort) > 1 or list(sort.values()) != [1]:
        low = rng.choice(["unbounded", "current", -3, -2, -1, 0, 1, 2, Int64(-1), -2.0])
        high = rng.choice(["unbounded", "current", 0, 1, 3, -1, 2.0])
        return {"window": {"documents": [low, high]}}
    if list(sort) == ["t"]: return {"window": {"range": [rng.choice(["unbounded", "current", -1, -2]), rng.choice(["unbounded", "current", 0, 1, 20])], "unit": rng.choice(["hour", "day", "month", "week", "minute"])}}
    return {"window": {"range": [rng.choice(["unbounded", "current", -3, -1.5, Decimal128("-2")]), rng.choice(["unbounded", "current", 0, 2.5, Int64(4)])]}}


def a_window_stage(rng):
    sort = rng.choice([{"x": 1}, {"x": 1}, {"t": 1}, {"x": -1}, {"g": 1, "x": 1}, {"w": 1, "_id": 1}, {"x": 1}])
    field = rng.choice(["$n", "$d", "$i", "$m", "$x", "$f", "$g"])
    op = rng.choice(["$sum", "$avg", "$min", "$max", "$stdDevPop", "$stdDevSamp", "$push", "$first", "$last", "$count", "$covariancePop", "$covarianceSamp", "$minN", "$maxN", "$firstN", "$lastN", "$top", "$bottomN", "$median", "$percentile",
                     "$rank", "$denseRank", "$documentNumber", "$shift", "$derivative", "$integral", "$expMovingAvg", "$linearFill", "$locf", "$minMaxScaler", "$sum", "$avg", "$stdDevPop", "$covarianceSamp", "$integral"])
    window = a_window(rng, sort)
    if op == "$count": spec = {op: {}, **window}
    elif op.startswith("$covariance"): spec = {op: [field, rng.choice(["$i", "$d", "$x"])], **window}
    elif op in ("$minN", "$maxN", "$firstN", "$lastN"): spec = {op: {"n": rng.choice([1, 2, 3]), "input": field}, **window}
    elif op == "$top": spec = {op: {"sortBy": {"d": -1}, "output": field}, **window}
    elif op == "$bottomN": spec = {op: {"n": 2, "sortBy": {"i": 1, "_id": 1}, "output": ["$i", field]}, **window}
    elif op == "$median": spec = {op: {"input": field, "method": "approximate"}, **window}
    elif op == "$percentile": spec = {op: {"input": field, "p": [0, 0.1, 0.5, 0.95], "method": "approximate"}, **window}
    elif op in ("$rank", "$denseRank", "$documentNumber"):
        # Documents that tie come in any order: their places are looked at, not theirs.
        sort = rng.choice([{"w": 1}, {"g": -1}, {"m": 1}, {"s": 1}]) if op != "$documentNumber" else {"x": 1}
        spec = {op: {}}
    elif op == "$shift": spec = {op: {"output": field, "by": rng.choice([-2, -1, 0, 1, 3]), **rng.choice([{}, {"default": "none"}, {"default": {"$add": [1, 2]}}])}}
    elif op == "$derivative": spec = {op: {"input": rng.choice(["$n", "$d", "$i", field]), **({"unit": rng.choice(["hour", "second", "week"])} if "t" in sort else {})}, **(window or {"window": {"documents": [-1, 0]}})}
    elif op == "$integral": spec = {op: {"input": rng.choice(["$n", "$d", "$i", "$x"]), **({"unit": rng.choice(["hour", "second", "day"])} if "t" in sort else {})}, **window}
    elif op == "$expMovingAvg": spec = {op: {"input": field, **rng.choice([{"N": 3}, {"N": 1}, {"alpha": 0.3}, {"alpha": Decimal128("0.75")}])}}
    elif op == "$linearFill":
        sort = rng.choice([{"x": 1}, {"t": 1}, {"x": -1}])
        spec = {op: "$f"}
    elif op == "$locf": spec = {op: rng.choice(["$f", "$m"])}
    elif op == "$minMaxScaler": spec = {op: {"input": rng.choice(["$n", "$i", "$d"]), **rng.choice([{}, {"min": -1, "max": 1}, {"min": 0.5, "max": 10}])}, **window}
    else: spec = {op: field, **window}
    return {"$setWindowFields": {**rng.choice([{}, {"partitionBy": "$g"}, {"partitionBy": {"$mod": ["$_id", 2]}}, {"partitionBy": "$s"}, {"partitionBy": "const"}]), "sortBy": sort, "output": {rng.choice(["r", "r", "o.r", "n"]): spec}}}


def a_densify(rng):
    field = rng.choice(["x", "i", "t", "w", "f", "n"])
    unit = {"unit": rng.choice(["hour", "day", "week", "month"])} if field == "t" else {}
    step = rng.choice([1, 2, 5, Int64(3)]) if field == "t" else rng.choice([1, 2, 0.5, Decimal128("1.5"), Int64(3), 7, 1.5])
    start = datetime.datetime(2024, 1, 30)
    bounds = rng.choice(["full", "full", "partition", [start, start + datetime.timedelta(days=rng.choice([0, 1, 3]))] if field == "t" else rng.choice([[-3, 4], [0, 10], [0, Int64(20)], [2.5, 6.5], [Int64(-2), Int64(9)]])])
    parts = rng.choice([[], ["g"], ["s", "g"]]) if bounds != "partition" else rng.choice([["g"], ["s"]])
    return {"$densify": {"field": field, **({"partitionByFields": parts} if parts else {}), "range": {"step": step, "bounds": bounds, **unit}}}


def record_windows(client):
    rng = random.Random(SEED)
    docs = window_docs(rng)
    coll = load(client, "windows", docs)
    found = list(cases.WINDOWS) + [[a_window_stage(rng), {"$project": {"r": 1, "o": 1, "n": 1}}] for _ in range(500)]
    for _ in range(150):
        stage = a_densify(rng)
        found.append([{"$project": {stage["$densify"]["field"]: 1, "g": 1, "s": 1}}, stage])
    with open(HERE / "windows.bson", "wb") as out:
        out.write(document({"docs": docs, "other": []}))
        for pipeline in found:
            stages = [RawBSONDocument(document(s)) if isinstance(s, dict) else s for s in pipeline]
            got = answer(lambda: [Raw(3, d.raw) for d in coll.database.command({"aggregate": coll.name, "pipeline": stages, "cursor": {"batchSize": 10000}}, codec_options=RAW)["cursor"]["firstBatch"]])
            out.write(document({"pipeline": pipeline, **got}))
    print(len(found), "windows")


# --- time-series -------------------------------------------------------------------------------------

def series(rng):
    """Generators of a field's values: i is the measurement's number."""
    walk, oid = [0], ObjectId("5ab4f5c2e1f2a3b4c5000000")
    def step(by):
        walk[0] += rng.randrange(-by, by + 1)
        return walk[0]
    def id_after(i, every):
        data = bytearray(oid.binary)
        data[0:4] = struct.pack(">I", 0x5ab4f5c2 + i // every)
        data[9:12] = struct.pack(">I", 77 + i)[1:]
        return ObjectId(bytes(data))
    return {
        "int": lambda i: step(9), "flat": lambda i: 5, "jump": lambda i: rng.choice([0, 2**31 - 1, -(2**31), 7]),
        "long": lambda i: Int64(2**40 + step(1000) * i), "longest": lambda i: Int64(rng.choice([2**63 - 1, -(2**63), 0])), "shifted": lambda i: Int64(step(3) << 40),
        "whole": lambda i: float(step(5)), "tenth": lambda i: step(50) / 10, "hundredth": lambda i: 20 + step(30) / 100, "tenthousandth": lambda i: step(900) / 10000, "fine": lambda i: step(900) / 1e8,
        "any": lambda i: rng.random() * 1000, "odd": lambda i: rng.choice([0.0, -0.0, float("nan"), float("inf"), 1e300, 0.1, 5e-324]),
        "decimal": lambda i: Decimal128(str(step(20) / 4)), "decimals": lambda i: rng.choice([Decimal128("NaN"), Decimal128("1E+6000"), Decimal128("-0"), Decimal128("1.5")]),
        "date": lambda i: datetime.datetime(2022, 5, 5) + datetime.timedelta(milliseconds=i * 1000 + rng.randrange(20)), "stamp": lambda i: Timestamp(1500000000 + i, i % 5),
        "oid": lambda i: id_after(i, 3), "oids": lambda i: ObjectId(bytes(rng.randrange(256) for _ in range(12))),
        "bool": lambda i: rng.random() < 0.3, "nothing": lambda i: None, "least": lambda i: MinKey(), "most": lambda i: MaxKey(),
        "text": lambda i: "s" + str(i % 40), "words": lambda i: rng.choice(["", "a", "ok", "warning", "é日", "a" * 16, "b" * 17, "c" * 40, "\0x"]), "code": lambda i: Code("f" + str(i % 3)),
        "uuid": lambda i: Binary(bytes([i % 256] * 16), 4), "bytes": lambda i: Binary(b"ab" + bytes([i % 7]), 0), "blob": lambda i: Binary(b"x" * rng.choice([0, 3, 16, 17, 50]), 5), "regex": lambda i: Regex("a", "i"),
        "list": lambda i: [step(2), 2, "x"], "lists": lambda i: rng.choice([[], [1], [[1, 2], {"a": step(1)}], {"a": 1}]), "empty": lambda i: {},
        "point": lambda i: {"x": step(4), "y": i * 1.5, "z": {"name": "n" + str(i % 4), "at": Int64(i)}},
        "holes": lambda i: {**({"x": i} if rng.random() < 0.7 else {}), **({"y": {"a": step(2), **({"b": "t"} if i % 3 else {})}} if rng.random() < 0.8 else {}), **({"z": []} if i % 5 else {})},
        "shapes": lambda i: rng.choice([{"x": 1}, {"y": 2, "x": 1}, {"x": "s"}, {"x": {"y": i}}, {"x": {}}, 5]), "deep": lambda i: {"a": {"b": {"c": {"d": step(1), "e": [i, {"f": i}]}}}},
        "mixed": lambda i: rng.choice([1, Int64(2), 2.5, "s", None, True, [1], {"a": 1}, Decimal128("3")]), "turns": lambda i: [1, "x", 2.5, None][i // 37 % 4], "runs": lambda i: i // 150,
        "rare": lambda i: i if i % 97 == 0 else RARE,
    }


RARE = object()


def record_timeseries(client, out_name):
    rng = random.Random(SEED)
    db = client.get_database("understudy_record", RAW)
    start = datetime.datetime(2024, 3, 1)
    buckets = queries = 0
    with open(HERE / out_name, "wb") as out:
        for n in range(int(os.environ.get("SERIES", "60"))):
            name, meta = f"series{n}", rng.choice(["m", "m", None])
            db.drop_collection(name)
            db.create_collection(name, timeseries={"timeField": "t", **({"metaField": meta} if meta else {}), "granularity": rng.choice(["seconds", "minutes", "hours"])})
            fields = series(rng)
            chosen = {f: rng.choice([1, 1, 1, 0.9, 0.5, 0.05]) for f in rng.sample(sorted(fields), rng.randrange(1, 7))}
            count, step, batch = rng.choice([1, 2, 5, 30, 130, 400, 1300]), rng.choice([1, 7, 50, 3000, 60000]), rng.choice([1, 3, 50, 1000])
            docs = []
            for i in range(count):
                at = start + datetime.timedelta(milliseconds=i * step + (rng.randrange(-900, 900) if n % 3 == 0 else 0))
                doc = {"t": at, "_id": i, **({"m": rng.choice([None, "a", {"x": rng.randrange(2), "n": 1}])} if meta and n % 4 else {"m": 7} if meta else {})}
                for f, often in chosen.items():
                    value = fields[f](i)
                    if value is not RARE and rng.random() <= often: doc[f] = value
                docs.append(doc)
            for i in range(0, count, batch): db[name].insert_many([RawBSONDocument(document(d)) for d in docs[i:i + batch]])
            unpack = {"$_internalUnpackBucket": {"timeField": "t", **({"metaField": meta} if meta else {}), "bucketMaxSpanSeconds": 3600}}
            for bucket in db["system.buckets." + name].find():
                got = db.command({"aggregate": "system.buckets." + name, "pipeline": [{"$match": {"_id": bucket["_id"]}}, unpack], "cursor": {"batchSize": 100000}}, codec_options=RAW)["cursor"]["firstBatch"]
                out.write(document({"coll": name, "time": "t", **({"meta": meta} if meta else {}), "bucket": Raw(3, bucket.raw), "docs": [Raw(3, d.raw) for d in got]}))
                buckets += 1
            for _ in range(3):
                moment = start + datetime.timedelta(milliseconds=rng.randrange(-10, count + 10) * step)
                query = rng.choice([{"t": {rng.choice(["$gt", "$gte", "$lt", "$lte", "$eq"]): moment}}, {"t": {"$gte": moment, "$lt": moment + datetime.timedelta(seconds=rng.choice([1, 60]))}}, {"m": rng.choice(["a", None, 7])}, {"m.x": 1}, {"m.x": {"$ne": 1}, "t": {"$gt": moment}},
                                    {"$or": [{"m.x": 0}, {"m": "a"}]}, {"$or": [{"m": 7}, {"t": {"$lt": moment}}]}, {"m": {"$exists": False}}, {"t": {"$not": {"$gt": moment}}}, {"t": {"$gt": 5}}, {"t": {"$ne": moment}}, {"t": {"$in": [moment, start]}}, {"m": {"$in": ["a", None]}, "_id": {"$gt": 3}}])
                ids = [d["_id"] for d in db[name].find(query, {"_id": 1}).sort("_id", 1)]
                out.write(document({"coll": name, **({"meta": meta} if meta else {}), "filter": query, "ids": ids}))
                queries += 1
            db.drop_collection(name)
    print(buckets, "buckets,", queries, "filters")


if __name__ == "__main__":
    what, uri, *rest = sys.argv[1:]
    client = pymongo.MongoClient(uri, directConnection=True)
    {"compare": record_compare, "updates": record_updates, "filters": record_filters, "expressions": record_expressions, "finds": record_finds, "pipelines": record_pipelines, "timeseries": record_timeseries, "windows": record_windows, "geo": record_geo, "near": record_near}[what](client, *rest)
    client.drop_database("understudy_record")
