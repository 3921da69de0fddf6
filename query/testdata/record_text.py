#!/usr/bin/env python3
"""Records how a real mongod searches text into text.bson beside this file.

    record_text.py mongodb://host:port

Three kinds of cases, each a document:
    words   a language and words, with the term that each becomes, or null
    parsed  a search, with what explain shows of it
    found   a text index, documents and searches, with `_id`s and scores, sorted by `_id`
Needs pymongo and wordfreq. The same SEED gives the same cases.
"""
import os, random, sys
from pathlib import Path

import bson
import pymongo
import wordfreq

from text_tables import LANGUAGES

HERE = Path(__file__).parent
RNG = random.Random(int(os.environ.get("SEED", "7")))
ODD = ["dog", "dogs", "Dogs", "DOG", "running", "Running", "runs", "the", "The", "THE", "don't", "Don't", "l'homme", "O'Neil's", "'quoted'", "x_y", "naïve", "NAÏVE",
       "café", "Café", "cafe", "ÉTÉ", "été", "İstanbul", "ISTANBUL", "ısı", "straße", "STRASSE", "ẞ", "evolução", "evolución", "akiből", "akibõl", "нога", "НОГА", "ноги",
       "日本語", "ὈΔΥΣΣΕΎΣ", "e\u0301te\u0301", "\u0301", "a\u200bb", "ŒUVRE", "ǅ", "3.14", "1,000", "foo@bar.com", "C++", "a", "I", "x", "são", "São", "çok", "I'm", "we're",
       "´", "ʰ", "·x", "être", "ÊTRE", "Etre", "même", "MÊME", "für", "FÜR", "fur", "der", "DER", "Der", "hétérogénéité", "Laufen", "häuser", "HÄUSER", "hauser"]


def words(language, count):
    pool = wordfreq.top_n_list(language, 4000)
    return [RNG.choice(pool) for _ in range(count)]


def text(size):
    """A text of several languages, with punctuation and capitals."""
    pool = ODD + words(RNG.choice(["en", "de", "fr", "es", "ru", "pt", "tr"]), 20)
    some = [RNG.choice(pool) for _ in range(RNG.randint(0, size))]
    some = [RNG.choice([w, w, w, w.upper(), w.capitalize()]) for w in some]
    return "".join(w + RNG.choice([" ", " ", " ", ", ", ". ", "-", "/", "\t", "\n", " -", "—", "'", "  "]) for w in some).strip() if some else ""


def search(size=4, among=None):
    """A search, sometimes an odd one."""
    pool = (among or []) * 6 + ODD
    parts = []
    for _ in range(RNG.randint(0, size)):
        w = RNG.choice(pool)
        v = RNG.choice(pool)
        parts.append(RNG.choice([w, w, w, w, w.upper(), "-" + w, f'"{w}"', f'"{w} {v}"', f'-"{w}"', f'-"{w} {v}"', f"- {w}", f"--{w}", f"{w}-{v}", f"-{w}-{v}", f'- "{w}"', '"', '""', "-",
                                 f'"{w} -{v}"', f'{w}"{v}"', f"\t-{w}", f"-{w}\t{v}", f"-{w}'{v}", f'-{w}"{v}"', f'"-{w}" {v}', f'-"-{w}"', f"\u3000-{w}", f"—{w}"]))
    return RNG.choice([" ", " ", "  ", "", "\n"]).join(parts)


def options(version):
    out = {}
    if RNG.random() < 0.6:
        out["$language"] = RNG.choice(list(LANGUAGES) + list(LANGUAGES.values()) + ["none", "none", "ENGLISH", "klingon", ""])
    if RNG.random() < 0.3:
        out["$caseSensitive"] = RNG.random() < 0.7
    if RNG.random() < 0.3:
        out["$diacriticSensitive"] = RNG.random() < 0.7
    return out


def parsed(coll, query):
    plan = coll.database.command("explain", {"find": coll.name, "filter": {"$text": query}}, verbosity="queryPlanner")
    stage = plan["queryPlanner"]["winningPlan"]
    while stage["stage"] != "TEXT_MATCH":
        stage = stage["inputStage"]
    return stage["parsedTextQuery"]


def answer(run):
    try:
        return {"ok": run()}
    except pymongo.errors.OperationFailure as error:
        return {"code": error.code, "errmsg": error.details["errmsg"]}


def record_words(coll, out):
    for language, code in LANGUAGES.items():
        asked = sorted(set(words(code, 250)) | {w for w in ODD if not set(w) & set(" -\"")})
        terms = []
        for word in asked:
            found = parsed(coll, {"$search": word, "$language": language})
            terms.append(found["terms"] if not found["negatedTerms"] else None)
        out.write(bson.encode({"kind": "words", "language": language, "words": asked, "terms": terms}))


def record_parsed(db, out):
    for version in (3, 3, 2):
        coll = db[f"text_parsed_{version}"]
        coll.drop()
        coll.create_index([("a", "text")], textIndexVersion=version, default_language="english")
        spec = list(coll.list_indexes())[-1]
        for _ in range(400):
            query = {"$search": search(), **options(version)}
            out.write(bson.encode({"kind": "parsed", "spec": spec, "query": query, **answer(lambda: parsed(coll, query))}))
        coll.drop()


def subdocument(language_field, depth=0):
    doc = {}
    for name in RNG.sample(["a", "b", "c", "d", "n", "x"], RNG.randint(0, 4)):
        kind = RNG.random()
        if kind < 0.6 or depth > 2:
            doc[name] = text(12)
        elif kind < 0.7:
            doc[name] = [text(6) if RNG.random() < 0.7 else subdocument(language_field, depth + 1) for _ in range(RNG.randint(0, 3))]
        elif kind < 0.75:
            doc[name] = [[text(3)], text(3)]
        elif kind < 0.8:
            doc[name] = RNG.choice([1, None, True, 2.5])
        else:
            doc[name] = subdocument(language_field, depth + 1)
        if RNG.random() < 0.15:
            doc[language_field] = RNG.choice(list(LANGUAGES) + ["none", "fr", "FRENCH"])
    return doc


def record_found(db, out):
    coll = db.text_found
    for turn in range(60):
        coll.drop()
        version = RNG.choice([3, 3, 3, 2])
        fields = RNG.choice([["a"], ["a", "b"], ["a", "b.c", "d.a"], ["$**"], ["a.b", "a"], ["x", "a.b.c"], ["a.a", "b"]])
        field = RNG.choice(["language", "language", "tongue", "x"])
        weights = {f: RNG.choice([1, 2, 5, 10, 3.0, 99999]) for f in fields if RNG.random() < 0.5}
        if fields == ["$**"] and RNG.random() < 0.5:
            weights["a"] = 7
            weights["b.c"] = 3
        language = RNG.choice(["english", "english", "none"] + list(LANGUAGES))
        made = {"textIndexVersion": version, "default_language": language, "language_override": field, **({"weights": weights} if weights else {})}
        coll.create_index([(f, "text") for f in fields], **made)
        docs = []
        for n in range(14):
            doc = {"_id": RNG.choice([n, f"running dog {n}"]), **subdocument(field)}
            try:
                coll.insert_one(doc)
                docs.append(doc)
            except pymongo.errors.OperationFailure:
                pass
        seen = [w for doc in docs for w in str(doc).replace("'", " ").replace(",", " ").split() if len(w) < 30][:200]
        queries = []
        for _ in range(25):
            query = {"$search": search(3, seen), **options(version)}
            find = lambda: [[row["_id"], row["s"]] for row in sorted(coll.find({"$text": query}, {"s": {"$meta": "textScore"}}), key=lambda row: str(row["_id"]))]
            queries.append({"query": query, **answer(find)})
        keys = db.command("validate", coll.name)["keysPerIndex"]
        spec = list(coll.list_indexes())[-1]
        out.write(bson.encode({"kind": "found", "spec": spec, "keys": keys[spec["name"]], "docs": docs, "queries": queries}))
    coll.drop()


if __name__ == "__main__":
    database = pymongo.MongoClient(sys.argv[1], directConnection=True).understudy_record
    with open(HERE / "text.bson", "wb") as file:
        database.text_words.drop()
        database.text_words.create_index([("a", "text")])
        record_words(database.text_words, file)
        database.text_words.drop()
        record_parsed(database, file)
        record_found(database, file)
    print((HERE / "text.bson").stat().st_size, "bytes")
