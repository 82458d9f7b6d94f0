"""What it means that a flag becomes required, or optional."""

from __future__ import annotations

from required_flag_policy import POLICY

from privtab.base import SourceFile
from privtab.pipeline import load_program
from privtab_analysis.diff import Diff, diff


def compared(before: str, after: str) -> Diff:
    sides = (f"{POLICY}    print: can read (file)\n".replace("required", word) for word in (before, after))
    old, new = (load_program(SourceFile.of("clinic.yaml", text)) for text in sides)
    return diff(old, new)


def test_a_flag_that_becomes_required_is_narrower() -> None:
    found = compared("optional", "required")
    assert {row.name: str(row.verdict) for row in found.changes} == {"file/read": "narrower", "file/print": "narrower"}
    read = next(row for row in found.rows if row.name == "file/read")
    assert "flags" in read.parts
    (witness,) = read.witnesses
    assert (witness.before, witness.after) == ("allow", "invalid")
    assert witness.request.flags == frozenset(), "a request that does not say the flag"


def test_a_flag_that_becomes_optional_is_wider() -> None:
    found = compared("required", "optional")
    assert {row.name: str(row.verdict) for row in found.changes} == {"file/read": "wider", "file/print": "wider"}


def test_the_same_requirement_changes_nothing() -> None:
    assert not compared("required", "required").changes
