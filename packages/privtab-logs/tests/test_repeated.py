"""Entries that repeat others are read by their text: rows, findings and counts are those of reading each of them by itself."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from decision_logs import REQUEST, entry, hits, wrapped
from seeds import seeds

from privtab_logs import opa, reading, values
from privtab_logs.repeated import Repeats
from privtab_logs.schema import Reading

HASH = "0123456789abcdef" * 4
NAMES = (
    "ann",
    "ben",
    "",
    "a:b",
    HASH,
    f"x:{HASH}",
    HASH.upper(),
    "zoë",
    "\x7f",
    "a b",
    "s/a/x",
    "<varies>user",
    "\u2028",
)
ODD = (
    "NaN", "-Infinity", "1e400", "1.5", "-1", "007", "0", "-0", "9" * 19, "9" * 5000, "true", "null", "[]", "{}", '"x"', '""', '"\\ud800"', '"\\u0041"',
    "900000000000000000", "nul", "[" * 300 + "]" * 300, '{"decision_id":"e","id":"e","timestamp":"t"}',
)  # fmt: skip
ESCAPES = (
    "\\u0061",
    "\\ud800",
    '\\"',
    "\\\\",
    "\\/",
    "\\n",
    "\\x",
    "\x00",
    "\x1f",
    "\t",
    "\n",
    "\r\n",
    "\udcff",
    "\u2028",
    '"',
)
SPACE = ("", " ", "\n", "\r\n", "\t", "\u00a0", "\ufeff", "\n\n", ",", ",,")
BETWEEN = ("\n", "\n", ",", "\r\n", "", " ", "\n\n", "\n,\n", "]\n[", "text\n", "\n{\n", "\n}\n")
INSIDE = (
    '"id":"twice",', '"decision_id":"twice",', '"timestamp":"2026-01-01T00:00:00Z",', '"x":1,', '"i\\u0064":"x",', '"decision\\u005fid":"x",',
    '"erased":["/input/x"],', '"masked":["/input"],', '"masked":[1],', '"metrics":{"timer_server_handler_ns":5},', '"properties":{"id":"x"},',
    '"timer_server_handler_ns":7,', '"req_id":1,', '"context":{"time":"now","pii":true},', '"error":{"code":"x"},', '"x":{"y":{"z":[1,{"id":"q"}]}},',
)  # fmt: skip


def base(form: int, random_: random.Random) -> dict[str, Any]:
    """An entry of a form, with ids, a time and measurements of its own."""
    name = random_.choice(NAMES) if random_.random() < 0.2 else f"u{random_.randrange(20)}"
    item = random_.choice(NAMES) if random_.random() < 0.2 else f"s/a/{random_.randrange(20)}"
    asked: dict[str, Any] = {
        "subject": {"type": "user", "id": name},
        "action": {"name": random_.choice(["read", "move"])},
        "resource": {"type": "item", "id": item},
    }
    result: Any = random_.random() < 0.5
    time = f"2026-11-28T00:{random_.randrange(60):02}:38.{random_.randrange(10**9):09}Z"
    more: dict[str, Any] = {"decision_id": f"{random_.getrandbits(64):x}", "timestamp": time}
    more["metrics"] = {"counter_x": random_.randrange(2), "timer_server_handler_ns": random_.getrandbits(18)}
    rule = "allow"
    match form:
        case 0:
            rule, result = "decision", {"decision": result, "context": {"rule": "shop/item/read", "revision": "p2"}}
        case 1:
            more |= {
                "masked": ["/input"],
                "requested_by": f"10.0.0.1:{random_.randrange(9)}",
                "req_id": random_.randrange(9),
            }
        case 2:
            asked["context"] = {
                "with": {"to": {"type": "shelf", "id": item}},
                "pii": True,
                "level": random_.randrange(3),
            }
        case 3:
            asked["subject"]["properties"] = {"groups": ["hr"], "id": name}
        case 4:
            rule, result, asked = "decisions", [result], {"requests": [asked]}
        case 5:
            rule, result, asked["items"] = "visible", [0], [["store:s", f"item:{item}"]]
        case 6:
            rule = random_.choice(["doors/till/allow", "concern", "inactive"])
        case 7:
            asked["resource"]["type"] = random_.choice(["a:b", "shelf", "", HASH])
        case 8:
            more["bundles"] = {"state-a": {"revision": random_.choice("xy")}, "state-b": {"revision": "z"}}
        case _:
            pass
    return entry(result, asked, rule, **more)


def changed(text: str, random_: random.Random) -> str:
    """The text of an entry with one change that may or may not matter."""
    at = random_.randrange(1, len(text))
    match random_.randrange(9):
        case 0:
            places = [number for number, letter in enumerate(text) if letter == "{"]
            at = random_.choice(places) + 1
            return text[:at] + random_.choice(INSIDE) + text[at:]
        case 1:
            return text[:at] + random_.choice(ESCAPES) + text[at:]
        case 2:
            places = [number for number, letter in enumerate(text) if letter in ":,{}[]"]
            at = random_.choice(places) + random_.randrange(2)
            return text[:at] + random_.choice(SPACE) + text[at:]
        case 3 | 4:
            value = json.loads(text)
            inside = value
            while isinstance(inside, dict) and inside:
                name = random_.choice([*inside])
                if not isinstance(inside[name], dict) or random_.random() < 0.2:
                    inside[name] = "@@"
                    break
                inside = inside[name]
            return json.dumps(value, separators=(",", ":")).replace('"@@"', random_.choice(ODD))
        case 5:
            return text[:at]
        case 6:
            own = re.compile(r'(?<=_ns": )\d+|(?<=_ns":)\d+|(?<=_id":)"\w+"|(?<=[^_]id":)"\w+"|(?<=stamp":)"[^"]+"')
            found = random_.choice([*own.finditer(text)])
            return text[: found.start()] + random_.choice(ODD) + text[found.end() :]
        case 7:
            return wrapped(json.loads(text), random_)
        case _:
            value = json.loads(text)
            return random_.choice([
                json.dumps(value), json.dumps(value, indent=1), json.dumps(hits(value)), f"opa-1 | {text}", text + text, text + " x",
                json.dumps(dict(sorted(value.items()))), text.replace("u1", "u" * 3000), json.dumps({"level": "info", "msg": "x"}),
            ])  # fmt: skip


def log(random_: random.Random) -> bytes:
    forms, texts = random_.choices(range(12), k=2), []
    style: dict[str, Any] = random_.choice([{"separators": (",", ":")}, {"separators": (",", ":")}, {}, {"indent": 1}])
    for _ in range(random_.randrange(1, 60)):
        value = base(random_.choice(forms), random_)
        dumped = json.dumps(value, ensure_ascii=random_.random() < 0.1, **style)
        texts.append(changed(dumped, random_) if random_.random() < 0.1 else dumped)
    between = random_.choice(["\n", ",", random_.choice(BETWEEN)])
    text = "".join(text + (random_.choice(BETWEEN) if random_.random() < 0.03 else between) for text in texts)
    if random_.random() < 0.5:
        text = f"[{text.removesuffix(between)}]"
    content = (random_.choice(["", "\ufeff", "\n", "x\n"]) if random_.random() < 0.1 else "") + text
    packed = content.encode("utf-8", "surrogateescape")
    if random_.random() < 0.1:
        at = random_.randrange(len(packed))
        packed = packed[:at] + random_.choice([b"\xff", b"\xc3", b"\x00", b"\xed\xa0\x80"]) + packed[at:]
    if random_.random() < 0.3:
        packed = gzip.compress(packed, 1)
        packed = packed[: random_.randrange(len(packed))] if random_.random() < 0.3 else packed
    return packed


def strictly(event: Any, position: str, account: Reading) -> Any:
    """As `opa.rows`, of which `Repeats` therefore knows nothing."""
    return opa.rows(event, position, account)


def read(contents: list[bytes], entries: Callable[..., Any]) -> tuple[list[Any], Reading]:
    account, repeats = Reading(), Repeats()
    rows: list[Any] = []
    for number, content in enumerate(contents):
        file: Any = io.BufferedReader(io.BytesIO(content))
        rows.append([b.to_pylist() for b in reading.batches_of(file, f"log{number}", account, entries, repeats)])
    return rows, account


def compare(seed: int) -> int:
    random_ = random.Random(seed)
    contents = [log(random_) for _ in range(random_.randrange(1, 4))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, "PIECE", random_.choice([50, 700, 3_000, 1 << 18]))
        patch.setattr(reading, "_PART", random_.choice([4, 1 << 13]))
        patch.setattr(reading, "ROWS", random_.choice([16, 1 << 16]))
        found, expected = (read(contents, entries) for entries in (opa.rows, strictly))
    assert found == expected, (seed, contents)
    return sum(len(batch) for batches in found[0] for batch in batches)


@pytest.mark.parametrize("seed", seeds(range(20), quick=3))
def test_entries_that_repeat_others_are_read_as_they_are(seed: int) -> None:
    assert sum(compare(number) for number in range(seed * 20, seed * 20 + 20)) > 100


def test_what_is_found_at_the_end_of_a_file_is_told_at_its_turn() -> None:
    assert compare(100_139) == 42, (
        "a packed file that is cut off behind an entry that repeats others, and a line of text"
    )


@pytest.mark.long
def test_many_entries_that_repeat_others_are_read_as_they_are(search_seed: int) -> None:
    assert sum(compare(number) for number in range(search_seed, search_seed + 5_000)) > 25_000


def repeating(*texts: str) -> list[int]:
    """The numbers of the entries of one log that are not parsed by themselves."""
    known, found = Repeats(), []
    for number, text in enumerate(texts):
        rows, _, _ = known.repeated(text, 0, "log", 1)
        found += [number] * len(rows)
        if not rows:
            known.learn(text)
    return found


def test_only_what_tells_a_row_is_parsed_again() -> None:
    random_ = random.Random(1)

    def text(result: Any, input_: Any = REQUEST, **more: Any) -> str:
        metrics = {"counter_x": random_.randrange(2), "timer_server_handler_ns": random_.getrandbits(18)}
        more |= {"decision_id": f"{random_.getrandbits(64):x}", "metrics": metrics}
        return json.dumps(entry(result, input_, **more))

    other = {**REQUEST, "subject": {"type": "user", "id": "ben"}, "resource": {"type": "item", "id": "s/b/y"}}
    hashed = {**REQUEST, "subject": {"type": "user", "id": HASH}}
    masked = {"masked": ["/input"]}
    assert repeating(text(True), text(True, other), text(False), text(True), text(False, other)) == [1, 3, 4]
    assert repeating(text(True, **masked), text(True, other, **masked), text(True, hashed, **masked)) == [1]
    context = {"with": {"to": {"type": "shelf", "id": "s/a"}}, "pii": True}
    assert repeating(*(text(True, {**asked, "context": context}) for asked in (REQUEST, other))) == [1]
    assert repeating(text(True), text(True, {**REQUEST, "action": {"name": "move"}})) == []


def test_entries_that_never_repeat_are_not_learnt_for_ever() -> None:
    known = Repeats()
    for number in range(1_000):
        known.learn(json.dumps(entry(path=f"privtab/shop/allow/{number}")))
        known.learn(json.dumps(entry(input_={**REQUEST, "action": {"name": f"a{number}"}})))
    assert sum(len(form._rows) for form in known._forms) < 200
