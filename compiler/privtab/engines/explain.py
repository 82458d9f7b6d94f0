"""Explain a decision by the minimal sets in the program: the same context that OPA returns, word for word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from privtab.effects import with_changes
from privtab.engines.conditions import words
from privtab.engines.plan import Caller, FormPlan, Source, named
from privtab.paths import base_type
from privtab.request import roles_not_held


@dataclass(eq=False)
class Explanation:
    """Explains the decision for one request."""

    rule: Mapping[str, Any]
    plan: FormPlan
    caller: Caller
    paths: Mapping[str, list[str]]

    def __post_init__(self) -> None:
        self.form, self.reader = self.plan.form, self.plan.reader
        self.atoms: Sequence[Mapping[str, Any]] = self.rule["atoms"]
        """As in the program's JSON: `kind`, and if it concerns an entity, `slot`, `type` and possibly `privilege`."""
        self.sets: Sequence[Sequence[int]] = self._listed
        if self.reader.nested:
            self.atoms, self.sets = self.reader.located(self.rule, self.form, self._listed)
        self._held: dict[int, bool] = {}

    def context(self, revision: str | None, *, allowed: bool) -> dict[str, Any]:
        """Rule, source and revision; reasons and effects if allowed, what is missing if denied."""
        context = {
            "rule": self.rule["id"],
            "missing": [] if allowed or self.caller.unheld else self.missing(),
            "reasons": self.reasons() if allowed else [],
            "effects": [
                f"{e['text']} ({self.key_or_type(self.reader.place(e['target'], self.form))})"
                for e in self.rule["effects"]
            ]
            if allowed
            else [],
            "source": self.rule["source"],
            **({"error": roles_not_held(self.caller.user, self.caller.unheld)} if self.caller.unheld else {}),
            **({} if self.complete else {"minimal_sets_complete": False}),
        }
        revised = context if revision is None else context | {"revision": revision}
        return with_changes(revised, self.caller.user, self.caller.active_roles)

    @cached_property
    def _variant(self) -> tuple[str, str]:
        """The form of the request, and its combination of flags and types."""
        withs: Mapping[str, Sequence[str]] = self.rule["with"]
        types = [f"{slot}={self.form.types[slot]}" for slot in sorted(withs) if len(withs[slot]) > 1]
        return "item" if self.form.named else "call", " ".join([*sorted(self.form.flags), *types])

    @property
    def _listed(self) -> Sequence[Sequence[int]]:
        """The minimal sets for this form of request, as numbers of atoms; empty if there are too many forms to list."""
        form, variant = self._variant
        sets: Sequence[Sequence[int]] = self.rule["minimal"][form].get(variant, ())
        return sets

    @property
    def complete(self) -> bool:
        """Whether these are all minimal sets."""
        form, variant = self._variant
        return variant in self.rule["minimal"][form] and variant not in self.rule.get("minimal_cut", {}).get(form, ())

    def missing(self) -> list[list[str]]:
        """The smallest sets of atoms that would turn a denial into an allow, smallest first; denials to remove are listed as such."""
        return _smallest([text for number in numbers for text in self._missing_of(number)] for numbers in self.sets)

    def _missing_of(self, number: int) -> list[str]:
        if self.holds(number):
            return []
        atom, text = self.reader.atom(self.atoms[number]), self.text(self.atoms[number])
        denials = self.plan.denials(atom, self.caller, self.paths)
        denied = [f"deny {atom.privilege} ({denial.on}) to {denial.through}" for denial in denials]
        return denied if any(self.plan.grants(atom, self.caller, self.paths)) else [text, *denied]

    def reasons(self) -> list[dict[str, str]]:
        """Each atom of the first minimal set that holds: on which entity and through which principal."""
        for numbers in self.sets:
            if all(map(self.holds, numbers)):
                return [self._reason(self.atoms[number]) for number in numbers]
        return []

    def _reason(self, atom: Mapping[str, Any]) -> dict[str, str]:
        source = min(self._sources(atom))
        on = {"on": source.on} if "type" in atom and atom["kind"] != "self" else {}
        return {"atom": self.text(atom), **on, "through": source.through}

    def holds(self, number: int) -> bool:
        """Whether an atom holds."""
        known = self._held.get(number)
        if known is None:
            known = self._held[number] = any(self._sources(self.atoms[number]))
        return known

    def _sources(self, atom: Mapping[str, Any]) -> Iterable[Source]:
        return self.plan.sources(self.reader.atom(atom), self.caller, self.paths)

    def text(self, atom: Mapping[str, Any]) -> str:
        """An atom with the request's entities: `READ (namespace:i/n)`."""
        return words(atom, self.key_or_type)

    def key_or_type(self, target: Mapping[str, Any]) -> str:
        """The key of a target's entity, or its type alone if the request does not name it."""
        path = named(self.paths[target["slot"]], self.reader.depth(target["type"]))
        type_: str = base_type(target["type"])
        return type_ if path is None else f"{type_}:{path}"


def _smallest(sets: Iterable[Iterable[str]]) -> list[list[str]]:
    """The sets that contain no other, each sorted, smallest first."""
    smallest: list[frozenset[str]] = []
    for candidate in sorted(set(map(frozenset, sets)), key=len):
        if not any(smaller <= candidate for smaller in smallest):
            smallest.append(candidate)
    return sorted((sorted(texts) for texts in smallest), key=lambda texts: (len(texts), texts))
