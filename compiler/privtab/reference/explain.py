"""Explain a decision: the minimal set that allowed it and through what, or what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from privtab.effects import with_changes
from privtab.ir.canonical import Leaf, Listing
from privtab.ir.names import atom_words
from privtab.ir.nodes import ByType, Effect, Has, Rule, Target
from privtab.ir.serialise import source_text
from privtab.locations import not_placed
from privtab.paths import base_type
from privtab.request import roles_not_held

if TYPE_CHECKING:
    from privtab.reference.evaluate import EvaluationContext


class Explanation:
    """A decision and its explanation, the `context` of the answer."""

    def __init__(self, evaluation: EvaluationContext, rule: Rule, listing: Listing, *, allowed: bool) -> None:
        self.evaluation = evaluation
        self.rule = rule
        self.sets, self.complete = listing
        self.allowed = allowed

    def context(self) -> dict[str, Any]:
        """Rule, source and revision; reasons and effects if allowed, what is missing if denied."""
        unplaced = self.evaluation.unplaced
        context: dict[str, Any] = {
            "rule": self.rule.id,
            "missing": [] if self.allowed or self.evaluation.unheld or unplaced else self.missing(),
            "reasons": self.reasons() if self.allowed else [],
            "effects": [self.effect_text(effect) for effect in self.rule.effects] if self.allowed else [],
            "source": source_text(self.rule.source),
        }
        if unplaced:
            context["error"] = not_placed(unplaced)
        elif self.evaluation.unheld:
            context["error"] = roles_not_held(self.evaluation.user, self.evaluation.unheld)
        if not self.complete and not unplaced:
            context["minimal_sets_complete"] = False
        if self.evaluation.revision is not None:
            context["revision"] = self.evaluation.revision
        return with_changes(context, self.evaluation.user, self.evaluation.active_roles)

    def missing(self) -> list[list[str]]:
        """The smallest sets of atoms that would turn a denial into an allow, smallest first; denials to remove are listed as such."""
        return smallest([self._missing_of(atom) for atom in atoms] for atoms in self.sets)

    def _missing_of(self, atom: Leaf) -> list[str]:
        evaluation = self.evaluation
        assert not isinstance(atom, ByType)
        if evaluation.holds(atom):
            return []
        if not isinstance(atom, Has):
            return [self.text(atom)]
        denied = [
            f"deny {atom.privilege} ({key}) to {principal}"
            for key, principal in evaluation.denials(atom.privilege, atom.target)
        ]
        return denied if evaluation.allowed_but_for_denials(atom.privilege, atom.target) else [self.text(atom), *denied]

    def reasons(self) -> list[dict[str, str]]:
        """Each atom of the first minimal set that holds: on which entity and through which principal."""
        for atoms in self.sets:
            if all(self.evaluation.holds(atom) for atom in atoms):
                return [self._reason(atom) for atom in atoms]
        return []

    def _reason(self, atom: Leaf) -> dict[str, str]:
        assert not isinstance(atom, ByType)
        reason = self.evaluation.why(atom)
        assert reason is not None
        on = {} if reason.on is None else {"on": reason.on}
        return {"atom": self.text(atom), **on, "through": reason.through}

    def text(self, atom: Leaf) -> str:
        """An atom with the request's entities: `READ (namespace:i/n)`."""
        return atom_words(atom, self.key)

    def key(self, target: Target) -> str:
        """The target's key, or its type alone if the request does not name it."""
        path = self.evaluation.path(target)
        return path[-1] if path else base_type(target.type)

    def effect_text(self, effect: Effect) -> str:
        """An effect with the request's entities: `grant ALL (namespace:i/n)`, `become owner (catalog:m/c)`."""
        return f"{effect.text} ({self.key(effect.target)})"


def smallest(sets: Iterable[Sequence[Sequence[str]]]) -> list[list[str]]:
    """The sets that contain no other, each sorted, smallest first; a set is given as the parts for each of its atoms."""
    candidates = sorted({frozenset(text for part in parts for text in part) for parts in sets}, key=len)
    minimal: list[frozenset[str]] = []
    for candidate in candidates:
        if not any(smaller <= candidate for smaller in minimal):
            minimal.append(candidate)
    return sorted((sorted(set_) for set_ in minimal), key=lambda set_: (len(set_), set_))
