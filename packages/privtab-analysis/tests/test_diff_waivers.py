from __future__ import annotations

from datetime import date

import pytest

from privtab.base import SourceFile
from privtab.pipeline import load_program
from privtab_analysis.diff import Diff, Verdict, diff
from privtab_analysis.diff.waivers import Waivers, apply_waivers, failing, read_waivers

OLD = """\
privtab: 1
system: shop
version: "1"
entities: {store: {item: }}
privileges: [READ, WRITE]
tables:
  item:
    read: READ (item)
    write: WRITE (item)
"""
GOOD = """\
waivers:
  - operation: item/read
    change: wider
    who: ann
    why: writers may read,
      as agreed
    until: 2030-12-31
"""
TODAY = date(2030, 6, 1)
ANY = frozenset({Verdict.WIDER, Verdict.NARROWER})


def wider() -> Diff:
    old, new = (
        load_program(SourceFile.of("shop.yaml", text))
        for text in (OLD, OLD.replace("READ (item)", "READ/WRITE (item)"))
    )
    return diff(old, new)


def read(text: str) -> Waivers:
    return read_waivers(SourceFile.of("privtab-waivers.yaml", text))


def test_a_waived_change_does_not_fail() -> None:
    waivers = read(GOOD)
    assert waivers.found == ()
    before = wider()
    assert failing(before, ANY)
    (after,), found = apply_waivers([before], waivers.waivers, TODAY)
    assert not failing(after, ANY)
    assert found == ()
    (row,) = after.changes
    assert row.waived is not None
    assert (row.waived.who, row.waived.why) == ("ann", "writers may read, as agreed")


def test_the_last_day_counts_and_the_next_does_not() -> None:
    waivers = read(GOOD).waivers
    assert apply_waivers([wider()], waivers, date(2030, 12, 31))[1] == ()
    (after,), found = apply_waivers([wider()], waivers, date(2031, 1, 1))
    assert failing(after, ANY)
    assert [(d.code, d.span.line) for d in found] == [("D202", 2)]


@pytest.mark.parametrize(
    ("old", "new"),
    [("change: wider", "change: narrower"), ("item/read", "item/write"), ("who: ann", "who: ann\n    system: other")],
)
def test_a_waiver_for_something_else_is_unused(old: str, new: str) -> None:
    (after,), found = apply_waivers([wider()], read(GOOD.replace(old, new)).waivers, TODAY)
    assert failing(after, ANY)
    assert [d.code for d in found] == ["D203"]


def test_a_waiver_for_this_system() -> None:
    (after,), found = apply_waivers([wider()], read(GOOD + "    system: shop\n").waivers, TODAY)
    assert not failing(after, ANY)
    assert found == ()


@pytest.mark.parametrize(
    "key", ["who: ann\n", "until: 2030-12-31\n", "change: wider\n", "why: writers may read,\n      as agreed\n"]
)
def test_a_waiver_says_who_why_and_until_when(key: str) -> None:
    text = GOOD.replace(f"    {key}", "")
    assert text != GOOD
    waivers = read(text)
    assert waivers.waivers == ()
    (finding,) = waivers.found
    assert (finding.code, finding.severity, finding.span.line) == ("D201", "error", 2)
    assert f"`{key.partition(':')[0]}`" in finding.message


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (GOOD.replace("2030-12-31", "soon"), 7, "`soon` is not a date"),
        (GOOD.replace("wider", "bigger"), 3, "`change` is `bigger`"),
        (GOOD.replace("item/read", "read"), 2, "`read` is not an operation"),
        (GOOD.replace("who: ann", "who: ''"), 4, "`who` is empty"),
        (GOOD.replace("who:", "woh:"), 4, "unknown key `woh`"),
        (GOOD + "    who: ben\n", 8, "`who` occurs twice"),
        ("- item/read\n", 1, "a file of waivers is a list, not a mapping"),
        ("waivers:\n  - item/read\n", 2, "a waiver is `item/read`, not a mapping"),
        ("waivers: [\n", 2, ""),
        ("", 1, ""),
    ],
)
def test_mistakes_are_reported_at_their_line(text: str, line: int, message: str) -> None:
    waivers = read(text)
    assert waivers.waivers == ()
    assert any(f.span.line == line and message in f.message and f.severity == "error" for f in waivers.found), (
        waivers.found
    )


def test_an_empty_file_is_reported_with_an_example() -> None:
    [found] = read_waivers(SourceFile.of("waivers.yaml", "")).found
    assert (found.code, found.help) == ("P003", "a file of waivers begins with `waivers:`, and a list below")
