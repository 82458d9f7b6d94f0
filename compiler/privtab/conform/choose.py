"""Chooses few callers among the candidates of one row, enough to prove its cells and notice each fault."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from privtab.conform.candidates import Candidate, Setting
from privtab.ir.nodes import Program, Rule
from privtab.scenarios.coverage import Cell, cells_of
from privtab.scenarios.masks import Key, Mask, Observed, RuleDependencies
from privtab.scenarios.mutants import UNSEEN, Mutants


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table: its candidates, and what they are observed to hold."""

    rule: Rule
    settings: tuple[Setting, ...]
    candidates: tuple[Candidate, ...]
    observed: Observed
    readings: Mapping[str, Rule]

    def differing(self, changed: Rule) -> Mask:
        """The candidates that a changed rule answers otherwise."""
        return self.observed.outcome(changed) ^ self.observed.allowed


class Choice:
    """What the questions must cover in each row, and the candidates chosen for it."""

    def __init__(self, program: Program, rows: Mapping[Key, Row], *, separate: bool = False) -> None:
        """`separate`: choose enough candidates to distinguish the faults of a row from each other as well."""
        self.program = program
        self._separate = separate
        self.rows = rows
        self.cells: dict[Key, list[tuple[Cell, Mask]]] = {key: list(_cells(row)) for key, row in rows.items()}
        self.readings: dict[Key, dict[str, Mask]] = {
            key: {name: row.differing(rule) for name, rule in row.readings.items()} for key, row in rows.items()
        }
        self._dependencies = RuleDependencies(program)
        self._mutants = Mutants(program, self._dependencies)

    def asked_rules(self) -> list[Rule]:
        """The rows, and those that they refer to."""
        keys = {key for row in self.rows for key in self._dependencies.of(row)}
        return [rule for key, rule in self.program.rules.items() if key in keys]

    def chosen(self) -> dict[Key, tuple[int, ...]]:
        """The positions of the chosen candidates of each row."""
        required: dict[Key, list[Mask]] = {key: list(self._wanted(key)) for key in self.rows}
        elsewhere: list[list[tuple[Key, Mask]]] = []
        for key in self.rows:
            for own, others in self._faults(key):
                if own:
                    required[key].append(own)
                elif others:
                    elsewhere.append(others)
        preferred = {key: self._preferred(row) for key, row in self.rows.items()}
        taken = {key: hitting_set(masks, preferred[key]) for key, masks in required.items()}
        for others in elsewhere:
            if not any(taken[key] & mask for key, mask in others):
                key, mask = others[0]
                taken[key] |= hitting_set([mask], preferred[key])
        for key in self.rows if self._separate else ():
            taken[key] = self._separated(key, taken[key])
        return {key: tuple(bits(mask)) for key, mask in taken.items()}

    def _wanted(self, key: Key) -> Iterator[Mask]:
        yield from (mask for _, mask in self.cells[key])
        by_purpose: defaultdict[str, Mask] = defaultdict(int)
        for position, candidate in enumerate(self.rows[key].candidates):
            if candidate.purpose:
                by_purpose[candidate.purpose] |= 1 << position
        yield from by_purpose.values()
        allowed = self.rows[key].observed.allowed
        for mask in self._by_levels(key):
            yield mask & allowed
            yield mask & ~allowed
        for mask in self.readings[key].values():
            yield mask & allowed
            yield mask & ~allowed

    def _by_levels(self, key: Key) -> Iterable[Mask]:
        """For each form of request and number of levels, where a type nests, its candidates."""
        found: defaultdict[object, Mask] = defaultdict(int)
        for position, candidate in enumerate(self.rows[key].candidates):
            setting = candidate.setting
            if not setting.is_deepest or max(setting.levels.values()) > 1:
                found[setting.form, tuple(setting.levels.values())] |= 1 << position
        return found.values()

    def _faults(self, key: Key) -> Iterator[tuple[Mask, list[tuple[Key, Mask]]]]:
        """For each fault in a row, the candidates that notice it: of the row itself, or of those that refer to it."""
        row = self.rows[key]
        for mutant in self._mutants.of(row.rule):
            if mutant.change in UNSEEN:
                continue
            own = row.differing(mutant.rule)
            others: list[tuple[Key, Mask]] = []
            for dependent in () if own else self._dependencies.dependents(key):
                if dependent in self.rows:
                    observed = self.rows[dependent].observed
                    mask = observed.outcome(observed.rule, mutant.rule, self._dependencies) ^ observed.allowed
                    if mask:
                        others.append((dependent, mask))
            yield own, others

    def _separated(self, key: Key, taken: Mask) -> Mask:
        """The chosen candidates of a row, with further ones that distinguish all of its faults that candidates can distinguish.

        Each fault also has a candidate that it allows and one that it refuses, where it differs from the row in both.
        """
        row = self.rows[key]
        rules = [mutant.rule for mutant in self._mutants.of(row.rule) if mutant.change not in UNSEEN]
        masks = list(dict.fromkeys(row.differing(rule) for rule in (*rules, *row.readings.values())))
        allowed = row.observed.allowed
        both = (part for mask in masks for part in (mask & allowed, mask & ~allowed))
        taken |= hitting_set((part for part in both if not part & taken), row.observed.all_cases)
        groups = [masks]
        while groups:
            by_answers: defaultdict[Mask, list[Mask]] = defaultdict(list)
            for mask in groups.pop():
                by_answers[mask & taken].append(mask)
            for alike in by_answers.values():
                if len(alike) > 1:
                    taken |= hitting_set([alike[0] ^ alike[1]], row.observed.all_cases)
                    groups.append(alike)
        return taken

    @staticmethod
    def _preferred(row: Row) -> Mask:
        """The candidates with privileges of their own who name what they create: no real creation is without a name."""
        is_unnamed = row.rule.each is None
        return sum(
            1 << position
            for position, candidate in enumerate(row.candidates)
            if not (candidate.through_roles or (is_unnamed and candidate.setting.form == "call"))
        )


def hitting_set(masks: Iterable[Mask], preferred: Mask) -> Mask:
    """Few positions, of which each mask has one; rare positions first, then those that most masks have."""
    distinct = sorted({mask & preferred or mask for mask in masks} - {0}, key=lambda mask: (mask.bit_count(), mask))
    hits: defaultdict[int, int] = defaultdict(int)
    for number, mask in enumerate(distinct):
        for position in bits(mask):
            hits[position] |= 1 << number
    left = (1 << len(distinct)) - 1
    taken = 0
    for number, mask in enumerate(distinct):
        if left >> number & 1:
            best = max(bits(mask), key=lambda position: ((hits[position] & left).bit_count(), -position))
            taken |= 1 << best
            left &= ~hits[best]
    return taken


def bits(mask: Mask) -> Iterator[int]:
    """The positions in a mask, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _cells(row: Row) -> Iterator[tuple[Cell, Mask]]:
    """The cells that some candidate proves, as coverage counts them, with those candidates."""
    by_kind: defaultdict[object, Mask] = defaultdict(int)
    for position, candidate in enumerate(row.candidates):
        by_kind[_kind(candidate.setting)] |= 1 << position
    # One setting for each kind: a cell may be proved with any number of levels.
    for kind, setting in {_kind(setting): setting for setting in row.settings}.items():
        if setting.form != "call" or row.rule.each is not None:
            like = Cell(
                rule=row.rule,
                proof="default",
                flags=setting.flags,
                types=setting.shown_types,
                form=setting.form,
                covered=False,
            )
            found = cells_of(like, setting.sets, row.observed, by_kind[kind])
            yield from ((cell, mask) for cell, mask in found if mask)


def _kind(setting: Setting) -> object:
    return setting.form, setting.flags, tuple(setting.types.items())
