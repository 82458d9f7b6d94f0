"""Explain a decision by the minimal sets in the program: the same context that OPA returns, word for word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from privtab.effects import with_changes
from privtab.engines.conditions import Atom, words
from privtab.engines.plan import Caller, FormPlan, named
from privtab.paths import base_type
from privtab.request import roles_not_held, smallest


class MinimalSets:
    """The minimal sets of a rule's condition for one form of request, as numbers of atoms."""

    def __init__(self, rule: Mapping[str, Any], plan: FormPlan) -> None:
        """`rule`: as in the program's JSON. `sets` is empty if there are too many forms to list."""
        self.rule = rule
        self.plan = plan
        form, self._depth = plan.form, plan.reader.depth
        withs: Mapping[str, Sequence[str]] = rule["with"]
        types = [f"{slot}={form.types[slot]}" for slot in sorted(withs) if len(withs[slot]) > 1]
        kind, variant = "item" if form.named else "call", " ".join([*sorted(form.flags), *types])
        self.sets: Sequence[Sequence[int]] = rule["minimal"][kind].get(variant, ())
        self.complete = variant in rule["minimal"][kind] and variant not in rule.get("minimal_cut", {}).get(kind, ())
        """Whether these are all minimal sets."""
        self._listed: Sequence[Mapping[str, Any]] = rule["atoms"]
        if plan.reader.nested:
            self._listed, self.sets = plan.reader.located(rule, form, self.sets)
        self.atoms: Sequence[Atom] = list(map(plan.reader.atom, self._listed))
        self._effects = [(effect["text"], plan.reader.place(effect["target"], form)) for effect in rule["effects"]]

    def effects(self, paths: Mapping[str, list[str]]) -> list[str]:
        """What success changes, in words, for a request about objects with these paths."""
        return [f"{text} ({self._key_or_type(target, paths)})" for text, target in self._effects]

    def text(self, number: int, paths: Mapping[str, list[str]]) -> str:
        """An atom with the request's entities: `READ (namespace:i/n)`."""
        return words(self._listed[number], lambda target: self._key_or_type(target, paths))

    def _key_or_type(self, target: Mapping[str, Any], paths: Mapping[str, list[str]]) -> str:
        """The key of a target's entity, or its type alone if the request does not name it."""
        path = named(paths[target["slot"]], self._depth(target["type"]))
        type_: str = base_type(target["type"])
        return type_ if path is None else f"{type_}:{path}"


class Explanation:
    """Explains the decision for one request."""

    def __init__(self, listed: MinimalSets, caller: Caller, paths: Mapping[str, list[str]]) -> None:
        self.listed = listed
        self.caller = caller
        self.paths = paths
        self._held: dict[int, bool] = {}

    def context(self, revision: str | None, *, allowed: bool) -> dict[str, Any]:
        """Rule, source and revision; reasons and effects if allowed, what is missing if denied."""
        unheld = self.caller.unheld
        context = {
            "rule": self.listed.rule["id"],
            "missing": [] if allowed or unheld else self.missing(),
            "reasons": self.reasons() if allowed else [],
            "effects": self.listed.effects(self.paths) if allowed else [],
            "source": self.listed.rule["source"],
            **({"error": roles_not_held(self.caller.user, unheld)} if unheld else {}),
            **({} if self.listed.complete else {"minimal_sets_complete": False}),
        }
        revised = context if revision is None else context | {"revision": revision}
        return with_changes(revised, self.caller.user, self.caller.active_roles)

    def missing(self) -> list[list[str]]:
        """The smallest sets of atoms that would turn a denial into an allow, smallest first; denials to remove are listed as such."""
        return smallest(
            [text for number in numbers for text in self._missing_of(number)] for numbers in self.listed.sets
        )

    def _missing_of(self, number: int) -> list[str]:
        if self.holds(number):
            return []
        atom, plan = self.listed.atoms[number], self.listed.plan
        denials = plan.denials(atom, self.caller, self.paths)
        denied = [f"deny {atom.privilege} ({denial.on}) to {denial.through}" for denial in denials]
        if any(plan.grants(atom, self.caller, self.paths)):
            return denied
        return [self.listed.text(number, self.paths), *denied]

    def reasons(self) -> list[dict[str, str]]:
        """Each atom of the first minimal set that holds: on which entity and through which principal."""
        for numbers in self.listed.sets:
            if all(map(self.holds, numbers)):
                return list(map(self._reason, numbers))
        return []

    def _reason(self, number: int) -> dict[str, str]:
        atom = self.listed.atoms[number]
        source = min(self.listed.plan.sources(atom, self.caller, self.paths))
        on = {"on": source.on} if atom.type and atom.kind != "self" else {}
        return {"atom": self.listed.text(number, self.paths), **on, "through": source.through}

    def holds(self, number: int) -> bool:
        """Whether an atom holds."""
        known = self._held.get(number)
        if known is None:
            sources = self.listed.plan.sources(self.listed.atoms[number], self.caller, self.paths)
            known = self._held[number] = any(sources)
        return known
