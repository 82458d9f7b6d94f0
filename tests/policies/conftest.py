"""What the tests of the shipped policies share: rows of a compiled policy, and a short notation for what is expected."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml
from checkout import POLICIES

from privtab.ir.canonical import canonical_form, minimal_sets
from privtab.ir.names import atom_text
from privtab.ir.nodes import Program, Rule

Sets: TypeAlias = frozenset[frozenset[str]]
Key: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one row comes to: where it stands, what it asks for, what it does."""

    line: int
    title: str
    requires: Sets
    each: Sets | None
    effects: tuple[str, ...] = ()
    report: str | None = None


Table: TypeAlias = dict[Key, Row]


def read_sets(text: str) -> Sets:
    """`A/B (x) or C + D (x) and E (y)` as minimal sets; `anyone` asks for nothing."""
    found: set[frozenset[str]] = set()
    for alternative in re.split(r" or (?!below\))", text):
        choices = []
        for term in alternative.split(" and "):
            if term.strip() == "anyone":
                continue
            privileges, _, target = term.strip().partition(" (")
            if "+" in privileges:
                choices += [[f"{p.strip()} ({target}"] for p in privileges.split("+")]
            else:
                choices.append([f"{p.strip()} ({target}" for p in privileges.split("/")])
        found |= {frozenset(picked) for picked in itertools.product(*choices)}
    return frozenset(s for s in found if not any(other < s for other in found))


def read_row(line: int, operation: str, cell: str, effects: str = "", title: str = "") -> Row:
    """A row from its cell: what the call requires, and behind `; each` what an item does."""
    requires, has_each, each = cell.partition("; each ")
    return Row(
        line=line,
        title=title or operation.replace("_", " "),
        requires=read_sets(requires),
        each=read_sets(each) if has_each else None,
        effects=tuple(e.strip() for e in effects.split(";")) if effects else (),
    )


def read_table(text: str, column: int = 1) -> Table:
    """Rows written as `line entity operation | cell | … | effects | title`, the cell in the given column."""
    table: Table = {}
    for written in filter(None, map(str.strip, text.splitlines())):
        where, *columns = (part.strip() for part in written.split("|"))
        line, entity, operations = where.split(maxsplit=2)
        cells, effects, title = columns[:-2], columns[-2], columns[-1]
        cell = cells[min(column, len(cells)) - 1]
        for operation in operations.split(", "):
            assert (entity, operation) not in table, written
            table[entity, operation] = read_row(int(line), operation, cell, effects, title)
    return table


def compiled_row(program: Program, rule: Rule, flags: frozenset[str] = frozenset()) -> Row:
    """The same of a compiled row."""

    def text(sets: Sequence[Sequence[Any]]) -> Sets:
        return frozenset(frozenset(atom_text(atom, rule) for atom in atoms) for atoms in sets)

    each = None if rule.each is None else canonical_form(program).minimal_sets(rule.each, flags)
    return Row(
        line=(rule.source and rule.source.line) or 0,
        title=rule.title,
        requires=text(minimal_sets(program, rule, flags)),
        each=None if each is None else text(each),
        effects=tuple(f"{effect.kind} {effect.what} ({effect.target.type})" for effect in rule.effects),
        report=rule.report,
    )


def compiled_table(program: Program, flags: frozenset[str] = frozenset()) -> Table:
    """All rows of a program that stand in its tables, in the order of the file."""
    rows = sorted((r for r in program.rules.values() if r.origin == "row"), key=lambda r: r.span)
    return {(r.entity, r.operation): compiled_row(program, r, flags) for r in rows}


def cited_lines(policy: str) -> set[int]:
    """Every line that a policy file's rows cite."""
    content = yaml.safe_load((POLICIES / policy).read_text(encoding="utf-8"))

    def sources(value: object) -> Iterator[int]:
        match value:
            case {"source": int(line)}:
                yield line
            case {"source": [*lines]}:
                yield from lines
        if isinstance(value, Mapping):
            for inner in value.values():
                yield from sources(inner)

    return set(sources({"core": content.get("core"), "tables": content["tables"], "variants": content.get("variants")}))


@dataclass(frozen=True, slots=True)
class Tools:
    """The helpers, for tests that are imported by path and so cannot import this file."""

    read_table: Callable[..., Table] = read_table
    read_sets: Callable[[str], Sets] = read_sets
    compiled_row: Callable[..., Row] = compiled_row
    compiled_table: Callable[..., Table] = compiled_table
    cited_lines: Callable[[str], set[int]] = cited_lines
    policies: Path = POLICIES


@pytest.fixture(scope="session")
def tools() -> Tools:
    """The helpers of this folder."""
    return Tools()
