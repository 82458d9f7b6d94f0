from __future__ import annotations

import random
from pathlib import Path

import pytest
from checkout import POLICIES

from privtab import model
from privtab.base.diagnostics import Diagnostic, Severity
from privtab.base.source import SourceFile
from privtab.language import syntax

SHIPPED = [p for p in sorted(POLICIES.rglob("*.yaml")) if "\nprivtab: 1" in "\n" + p.read_text("utf-8")]

MISTAKES = """\
privtab: 1
system: shop
version: "1"
entities: {shop: {shelf: {item: }}}
privileges:
  READ:
  WRITE: {on: [shop, shelf]}
  VIEW: {alias_of: LOOK}
  SEE: {alias_of: WATCH}
  WATCH: {alias_of: SEE}
tables:
  shop:
    open: MODIFIY (shop)
    close: READ (shop)
    close: READ (shop)
  shelf:
    a: can b (shelf)
    b: can a (shelf)
    fill: WRITE (shelf)
    fill: READ (shelf)
    move: READ (shelf) and and WRITE (shelf)
    look: {with: {template: item}, requires: READ (tmplate)}
  item:
    sell: WRITE (item) or VIEW (item)
    count: {each: [READ, item]}
    load: READ (shlef) or SEE (item)
"""


def findings(text: str) -> list[Diagnostic]:
    tables, found = syntax.read_policy(SourceFile.of("shop.yaml", text))
    if tables is not None:
        policy, more = model.resolve(tables)
        found = [*found, *more]
        assert (policy is None) == any(d.severity is Severity.ERROR for d in found)
    return sorted(set(found))


def test_mistakes_of_many_kinds_are_one_finding_each_in_order() -> None:
    found = findings(MISTAKES)
    assert [(d.code, d.span.line) for d in found] == [
        ("P106", 8),
        ("P203", 9),
        ("P101", 13),
        ("P201", 15),
        ("P204", 17),
        ("P202", 20),
        ("P011", 21),
        ("P103", 22),
        ("P206", 24),
        ("P008", 25),
        ("P102", 26),
    ]
    assert [d.span for d in found] == sorted(d.span for d in found)
    assert len({d.code for d in found}) == len(found)


@pytest.mark.parametrize("line", range(len(MISTAKES.splitlines())))
def test_mending_one_line_never_makes_more_findings(line: int) -> None:
    """Every mistake is told by itself: dropping a line with one drops its finding and, at most, what stood behind it."""
    lines = MISTAKES.splitlines(keepends=True)
    if lines[line].startswith("    ") and not lines[line].strip().startswith(("b:", "a:")):
        fewer = findings("".join(lines[:line] + lines[line + 1 :]))
        assert len(fewer) <= len(findings(MISTAKES))


CASCADES = {
    "an entity type that is misspelt where it is declared": (
        (
            "entities: {shop: {Shelf: {item: }}}\nprivileges: [READ]\n"
            "tables: {Shelf: {look: READ (Shelf)}, item: {look: can look (Shelf) or READ (Shelf)}}\n"
        ),
        ["P010"],
    ),
    "privileges that are no list": (
        "entities: {shop: }\nprivileges: READ\ntables: {shop: {open: READ (shop)}}\n",
        ["P008"],
    ),
    "a privilege with details in a list": (
        "entities: {shop: }\nprivileges: [READ, WRITE: {on: [shop]}]\ntables: {shop: {open: READ/WRITE (shop)}}\n",
        ["P008"],
    ),
    "a section under another name": (
        "entities: {shop: }\nrights: [READ]\ntables: {shop: {open: READ (shop), close: READ (shop)}}\n",
        ["P006"],
    ),
    "a misspelt `with`": (
        "entities: {shop: }\nprivileges: [READ]\ntables: {shop: {open: {wiht: {o: shop}, requires: READ (o)}}}\n",
        ["P006"],
    ),
    "an object with a bad name": (
        "entities: {shop: }\nprivileges: [READ]\ntables: {shop: {open: {with: {Other: shop}, requires: READ (Other)}}}\n",
        ["P010"],
    ),
    "an operation with a bad name that others ask for": (
        "entities: {shop: }\nprivileges: [READ]\ntables: {shop: {load-it: READ (shop), open: can load_it (shop)}}\n",
        ["P010"],
    ),
    "a table that is no mapping": (
        "entities: {shop: {shelf: }}\nprivileges: [READ]\ntables: {shop: [load], shelf: {load: can load (shop)}}\n",
        ["P008"],
    ),
    "a table under a misspelt name": (
        "entities: {shop: {shelf: }}\nprivileges: [READ]\ntables: {shpo: {load: READ (shop)}, shelf: {load: can load (shop)}}\n",
        ["P102"],
    ),
    "`for` that is no list": (
        "entities: {a: , b: }\nprivileges: [READ]\nany: {open: {for: {a: }, requires: READ (a)}}\n",
        ["P008"],
    ),
    "a privilege on an unknown type": (
        "entities: {shop: }\nprivileges: {READ: {on: [shpo]}}\ntables: {shop: {open: READ (shop)}}\n",
        ["P102"],
    ),
    "a set with an unknown member": (
        "entities: {shop: }\nprivileges: [READ]\nsets: {ALL: [REED]}\ntables: {shop: {open: ALL (shop)}}\n",
        ["P101"],
    ),
    "an entity type that is declared twice": (
        "entities: {shop: {shelf: }, depot: {shelf: {box: }}}\nprivileges: [READ]\ntables: {box: {open: READ (box)}}\n",
        ["P207"],
    ),
    "a name that is missing from its list and used everywhere": (
        "entities: {shop: }\nprivileges: [WRITE]\ntables: {shop: {"
        + ", ".join(f"o{i}: READ (shop)" for i in range(30))
        + "}}\n",
        ["P101"],
    ),
    "a source with a bad name": (
        (
            "entities: {shop: }\nprivileges: [READ]\nsources: {my docs: {document: d.txt}}\n"
            "tables: {shop: {open: {requires: READ (shop), source: 3}}}\n"
        ),
        ["P010"],
    ),
    "a mistake in a row that occurs twice": (
        "entities: {shop: }\nprivileges: [READ]\ntables:\n  shop:\n    open: READ (shop)\n    open: REED (shop)\n",
        ["P101"],
    ),
    "a shared row with a mistake": (
        "entities: {a: {b: {c: }}}\nprivileges: [READ]\ncore: {open: REED (entity)}\n",
        ["P101"],
    ),
}


@pytest.mark.parametrize("name", CASCADES)
def test_one_mistake_is_one_finding(name: str) -> None:
    text, expected = CASCADES[name]
    assert [d.code for d in findings("privtab: 1\nsystem: shop\nversion: x\n" + text)] == expected


def test_mistakes_in_different_stages_are_reported_together() -> None:
    text = "privtab: 1\nsystem: Shop\nversion: x\nentities: {shop: }\nprivileges: [READ]\ntables: {shop: {open: REED (shop), close: READ shop}}\n"
    assert [d.code for d in findings(text)] == ["P010", "P101", "P011"]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.relative_to(POLICIES).as_posix())
def test_shipped_policies_are_sound_in_every_variant_and_reading(path: Path) -> None:
    tables, found = syntax.read_policy(SourceFile.load(path))
    assert tables is not None
    policy, more = model.resolve(tables)
    assert [f"{d.span.line}: {d.message}" for d in (*found, *more) if d.severity is Severity.ERROR] == []
    assert policy is not None
    for variant in policy.variants:
        assert model.resolve(tables, variant=variant)[0] is not None
    for row, readings in policy.readings.items():
        for reading in readings:
            assert model.resolve(tables, readings={row: reading})[0] is not None, (row, reading)


MUTATIONS = [
    "(",
    ")",
    ",",
    " and ",
    "/",
    "\n",
    "  ",
    "\t",
    ":",
    "[",
    "]",
    "{",
    "}",
    "'",
    '"',
    "null",
    "5",
    "*a",
    "&a",
    "é",
    "\r",
    "\x00",
]


@pytest.mark.parametrize("seed", range(6))
def test_no_text_breaks_the_reader(seed: int) -> None:
    """Policies with characters dropped, added and swapped: findings with places inside the file, never an exception."""
    chance = random.Random(seed)
    for _ in range(25):
        text = chance.choice([MISTAKES, *(case[0] for case in CASCADES.values())])
        for _ in range(chance.randint(1, 5)):
            at = chance.randrange(len(text))
            text = text[:at] + chance.choice(["", *MUTATIONS]) + text[at + chance.choice([0, 1, 5]) :]
        lines = len(SourceFile.of("shop.yaml", text).starts)
        for found in findings(text):
            assert 1 <= found.span.line <= found.span.end_line <= lines
            assert found.span.column >= 1
