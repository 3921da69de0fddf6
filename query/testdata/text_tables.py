#!/usr/bin/env python3
"""Asks a real mongod how it sees every character and which words it drops, and writes what it says.

    text_tables.py mongodb://host:port            -> ../src/text/tables.rs, ../src/text/stop_words.rs

`explain` of a `$text` query shows the terms that are left of a search. A character between two letters is a
delimiter if the word falls apart; else the term shows what became of it. A word is a stop word if no term is left.
Candidates for stop words are public lists of words. Needs pymongo, wordfreq, stopwordsiso and stop-words.
"""
import sys
from pathlib import Path

import pymongo
import stopwordsiso
import wordfreq
from stop_words import get_stop_words

SRC = Path(__file__).parent.parent / "src" / "text"
LANGUAGES = {"danish": "da", "dutch": "nl", "english": "en", "finnish": "fi", "french": "fr", "german": "de", "hungarian": "hu",
             "italian": "it", "norwegian": "nb", "portuguese": "pt", "romanian": "ro", "russian": "ru", "spanish": "es",
             "swedish": "sv", "turkish": "tr"}
HEAD = "//! {}\n//!\n//! Written by `testdata/text_tables.py`, which asked a real mongod 8.2.\n\n"


def terms(coll, search, **options):
    """The terms that mongod finds in a search."""
    query = {"$search": search, **{"$" + name: value for name, value in options.items()}}
    plan = coll.database.command("explain", {"find": coll.name, "filter": {"$text": query}}, verbosity="queryPlanner")
    stage = plan["queryPlanner"]["winningPlan"]
    while stage["stage"] != "TEXT_MATCH":
        stage = stage["inputStage"]
    return stage["parsedTextQuery"]["terms"]


def characters(coll, **options):
    """What becomes of each character within a word; delimiters are not in it."""
    seen = {}
    for base in range(1, 0x110000, 512):
        chunk = [c for c in range(base, base + 512) if c < 0x110000 and not 0xD800 <= c < 0xE000 and c != ord('"')]
        for term in terms(coll, " ".join(f"q{c:x}w{chr(c)}w" for c in chunk), language="none", **options):
            if term.endswith("w") and "w" in term[:-1]:
                number, rest = term[1:].split("w", 1)
                seen[int(number, 16)] = rest[:-1]
    return seen


def ranges(codes):
    out = []
    for code in sorted(codes):
        if out and out[-1][1] == code - 1:
            out[-1][1] = code
        else:
            out.append([code, code])
    return out


def strides(pairs):
    """(first, last, step, delta) for characters that move by the same distance."""
    out = []
    for code, to in sorted(pairs.items()):
        delta = to - code
        for run in reversed(out[-3:]):
            if run[3] == delta and (run[0] == run[1] and code - run[1] <= 2 or code - run[1] == run[2]):
                run[1], run[2] = code, code - run[1]
                break
        else:
            out.append([code, code, 1, delta])
    return out


def rows(items, width=96):
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > width:
            lines.append(line)
            line = "   "
        line += f" {item},"
    return "\n".join(lines + [line])


def write_tables(coll):
    plain = characters(coll, caseSensitive=True, diacriticSensitive=True)
    cased = characters(coll, diacriticSensitive=True)
    bare = characters(coll, caseSensitive=True)
    # Apart from the quotes, which were not asked about: they delimit.
    delimiters = [c for c in range(1, 0x110000) if c not in plain and not 0xD800 <= c < 0xE000]
    folds = {c: ord(v) for c, v in cased.items() if v and v != chr(c)}
    gone = [c for c, v in bare.items() if not v]
    bases = {}
    for c, v in sorted(bare.items()):
        if v and v != chr(c):
            bases.setdefault(v, []).append(chr(c))
    text = HEAD.format("How characters are seen: which part words, which are case variants, which bear marks.")
    text += "/// Ranges of characters that part words.\n#[rustfmt::skip]\npub(super) const DELIMITERS: &[(u32, u32)] = &[\n"
    text += rows(f"({a:#x}, {b:#x})" for a, b in ranges(delimiters)) + "\n];\n\n"
    text += "/// Characters with another for all their cases: first, last, step, and the distance to it.\n#[rustfmt::skip]\n"
    text += "pub(super) const FOLDS: &[(u32, u32, u32, i32)] = &[\n"
    text += rows(f"({a:#x}, {b:#x}, {s}, {d})" for a, b, s, d in strides(folds)) + "\n];\n\n"
    text += "/// Ranges of characters that are nothing but a mark.\n#[rustfmt::skip]\npub(super) const MARKS: &[(u32, u32)] = &[\n"
    text += rows(f"({a:#x}, {b:#x})" for a, b in ranges(gone)) + "\n];\n\n"
    text += "/// A letter, and those that are it with a mark.\n#[rustfmt::skip]\npub(super) const BASES: &[(&str, &str)] = &[\n"
    text += rows('("{}", "{}")'.format(esc(base), "".join(map(esc, marked))) for base, marked in sorted(bases.items())) + "\n];\n"
    (SRC / "tables.rs").write_text(text)
    print(len(delimiters), "delimiters,", len(folds), "folds,", len(gone), "marks,", sum(map(len, bases.values())), "letters with marks")
    return plain


def esc(text):
    """Combining and unusual characters are written as numbers, so that the file can be read."""
    return "".join(c if c.isprintable() and ord(c) < 0x2000 and c.isalpha() else f"\\u{{{ord(c):x}}}" for c in text)


def dump(coll, words, language):
    """The words that have a key in a text index of their own."""
    coll.drop()
    coll.create_index([("w", "text"), ("_id", 1)], default_language=language, language_override="none of them", name="t")
    for at in range(0, len(words), 5000):
        coll.insert_many([{"_id": word, "w": word} for word in words[at:at + 5000]], ordered=False)
    # One word has one key: a walk over the index meets every document that has any.
    reply = coll.database.command("find", coll.name, filter={}, hint="t", min={"_fts": "", "_ftsx": 0, "_id": ""}, returnKey=True)["cursor"]
    while True:
        yield from (key["_id"] for key in reply.get("firstBatch", reply.get("nextBatch")))
        if not reply["id"]:
            return
        reply = coll.database.command("getMore", reply["id"], collection=coll.name)["cursor"]


def write_stop_words(coll, plain):
    lists = set()
    for code in set(LANGUAGES.values()) | {"no"}:
        lists |= set(stopwordsiso.stopwords(code)) if stopwordsiso.has_lang(code) else set()
        try:
            lists |= set(get_stop_words(code))
        except Exception:
            pass
    text = HEAD.format("Words that are too common to be looked for, by language.")
    for language, code in LANGUAGES.items():
        words = {word.lower() for word in lists | set(wordfreq.top_n_list(code, 60_000)) if len(word.encode()) < 200}
        whole = lambda word: all(ord(c) in plain or language == "english" and c == "'" for c in word)
        words = sorted(filter(whole, words))
        left = set(dump(coll, words, language))
        stops = [word for word in words if word not in left]
        text += f"pub(super) const {language.upper()}: &str = \"\\\n"
        line = ""
        for word in stops:
            if len(line) + len(word) > 96:
                text += f"    {line}\\\n"
                line = ""
            line += word + " "
        text += f"    {line.rstrip()}\";\n\n"
        print(language, len(words), "words,", len(stops), "stop words")
    (SRC / "stop_words.rs").write_text(text.rstrip() + "\n")
    coll.drop()


if __name__ == "__main__":
    found = pymongo.MongoClient(sys.argv[1], directConnection=True).understudy_record.text_tables
    found.drop()
    found.create_index([("w", "text")])
    write_stop_words(found, write_tables(found))
