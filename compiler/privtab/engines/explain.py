"""Explain a decision by the minimal sets in the program: the same context that OPA returns, word for word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from privtab.effects import with_changes
from privtab.engines.attributes import Comparison, Operand, operand
from privtab.engines.conditions import Atom as ConditionAtom
from privtab.engines.conditions import ConditionReader, RequestShape
from privtab.engines.index import OWNER, Index
from privtab.engines.plan import Caller, GrantSemantics, Special, special
from privtab.names import quoted
from privtab.paths import base_type
from privtab.request import roles_not_held

Atom = Mapping[str, Any]
"""An atom of the program's JSON: `kind`, and if it concerns an entity, `slot`, `type` and possibly `privilege`."""


class Source(NamedTuple):
    """How an atom holds: ownership comes first, then the nearest entity, then the first principal. The smallest is reported."""

    rank: int
    distance: int
    """The number of entities from that of the atom up to its own."""
    on: str
    through: str


@dataclass(eq=False)
class Explanation:
    """Explains the decision for one request."""

    rule: Mapping[str, Any]
    form: RequestShape
    caller: Caller
    paths: Mapping[str, list[str]]
    reader: ConditionReader
    semantics: GrantSemantics
    index: Index

    def __post_init__(self) -> None:
        self.atoms: Sequence[Atom] = self.rule["atoms"]
        self.sets: Sequence[Sequence[int]] = self._listed
        if self.reader.nested:
            self.atoms, self.sets = self.reader.located(self.rule, self.form, self._listed)
        self._held: dict[int, bool] = {}
        self._relevant: dict[tuple[str, str, bool], list[tuple[str, str]]] = {}

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
        atom = self.atoms[number]
        if self.holds(number):
            return []
        if atom["kind"] != "has":
            return [self.text(atom)]
        denied = [f"deny {atom['privilege']} ({key}) to {principal}" for key, principal in self.denials(atom)]
        return denied if any(self.grants(atom)) else [self.text(atom), *denied]

    def reasons(self) -> list[dict[str, str]]:
        """Each atom of the first minimal set that holds: on which entity and through which principal."""
        for numbers in self.sets:
            if all(map(self.holds, numbers)):
                return [self._reason(self.atoms[number]) for number in numbers]
        return []

    def _reason(self, atom: Atom) -> dict[str, str]:
        source = min(self.sources(atom))
        on = {"on": source.on} if "type" in atom and atom["kind"] != "self" else {}
        return {"atom": self.text(atom), **on, "through": source.through}

    def holds(self, number: int) -> bool:
        """Whether an atom holds."""
        known = self._held.get(number)
        if known is None:
            known = self._held[number] = any(self.sources(self.atoms[number]))
        return known

    def sources(self, atom: Atom) -> Iterable[Source]:
        """Through what an atom holds; nothing if it does not hold."""
        kind = atom["kind"]
        if kind == "has":
            yield from self.ownerships(atom)
            if not any(self.denials(atom)):
                yield from self.grants(atom)
            return
        if kind == "compare":
            path_of = self._operand_path
            if self.comparison(atom).holds(lambda operand: self.caller.values.value(operand, path_of(operand))):
                yield Source(0, 0, "", "attribute")
            return
        path = self.path(atom) if "type" in atom else ""
        if path is None:
            return
        on = self.key_or_type(atom) if "type" in atom else ""
        if kind == "owner":
            yield from (Source(0, 0, on, owner) for owner in self.owners(base_type(atom["type"]), path))
            return
        if kind in ("has_below", "owns_below"):
            on_itself = {**atom, "kind": "has" if kind == "has_below" else "owner"}
            yield from (Source(source.rank, 0, on, source.through) for source in self.sources(on_itself))
        through, caller = self._special(atom), self.caller
        for rank, principal in through(caller.user, caller.principals, caller.active, path):
            yield Source(rank, 0, on, principal)

    def _special(self, atom: Atom) -> Special:
        asked = ConditionAtom(atom["kind"], type=atom.get("type", ""), privilege=atom.get("privilege", ""))
        return special(asked, self.reader, self.semantics, self.index)

    def comparison(self, atom: Atom) -> Comparison:
        """The comparison that an atom is."""
        right = atom["right"]
        compared = tuple(right["constants"]) if "constants" in right else operand(right, "", self.reader.attributes)
        return Comparison(operand(atom["left"], "", self.reader.attributes), atom["operator"], compared)

    def _operand_path(self, operand: Operand) -> str | None:
        return self.path({"slot": operand.slot, "type": operand.type}) if operand.type else None

    def _operand_text(self, operand: Mapping[str, Any]) -> str:
        if "constants" in operand:
            return str(operand["text"])
        on_entity = operand["of"] == "entity"
        return (
            f"{operand['attribute']} ({self.key_or_type(operand)})"
            if on_entity
            else f"{operand['of']}.{operand['attribute']}"
        )

    def path(self, atom: Atom) -> str | None:
        """The path of an atom's entity; None if the request does not name it."""
        beginnings = self.paths[atom["slot"]]
        depth = self.reader.depth(atom["type"])
        if depth >= len(beginnings) or (depth == len(beginnings) - 1 and beginnings[depth].endswith("/")):
            return None
        return beginnings[depth]

    def key_or_type(self, atom: Atom) -> str:
        """The key of an atom's entity, or its type alone if the request does not name it."""
        path = self.path(atom)
        type_: str = base_type(atom["type"])
        return type_ if path is None else f"{type_}:{path}"

    def text(self, atom: Atom) -> str:
        """An atom with the request's entities: `READ (namespace:i/n)`."""
        match atom["kind"]:
            case "self":
                return "self"
            case "compare":
                left, right = self._operand_text(atom["left"]), self._operand_text(atom["right"])
                return f"{right} in {left}" if atom["operator"] == "contains" else f"{left} {atom['operator']} {right}"
            case "service_admin":
                return "service admin"
            case "has":
                return f"{quoted(atom['privilege'])} ({self.key_or_type(atom)})"
            case "has_below":
                return f"{quoted(atom['privilege'])} ({self.key_or_type(atom)} or below)"
            case "owns_below":
                return f"owner ({self.key_or_type(atom)} or below)"
            case kind:
                return f"{kind} ({self.key_or_type(atom)})"

    def relevant_entities(self, atom: Atom) -> list[tuple[str, str]]:
        """(type, path) of the entities whose grants and denials count, nearest first; empty if the entity is not named."""
        place = atom["slot"], atom["type"], self.semantics.inherits(atom["privilege"])
        if place not in self._relevant:
            found: list[tuple[str, str]] = []
            if self.path(atom) is not None:
                beginnings = self.paths[atom["slot"]]
                chain = self.reader.chains[atom["type"]]
                found = [(base_type(type_), beginnings[depth]) for type_, depth in reversed(chain)]
            self._relevant[place] = found if place[2] else found[:1]
        return self._relevant[place]

    def owners(self, type_: str, path: str) -> Iterable[str]:
        """The principals through which the caller owns an entity."""
        holders = self.index.table(type_).get(path, {})
        return (p for p in self.owning if holders.get(p, 0) & OWNER)

    @property
    def owning(self) -> Sequence[str]:
        """The caller's principals through which ownership counts."""
        return self.caller.principals if self.semantics.inactive_owners else self.caller.active

    def ownerships(self, atom: Atom) -> Iterable[Source]:
        """The ownerships that give an atom's privilege."""
        if atom["privilege"] in self.semantics.owner_holds:
            for distance, (type_, path) in enumerate(self.relevant_entities(atom)):
                for owner in self.owners(type_, path):
                    yield Source(0, distance, f"{type_}:{path}", f"owner {owner}")

    def grants(self, atom: Atom) -> Iterable[Source]:
        """Every grant of an atom's privilege, by a row of the state or by a role's default grants."""
        privilege = atom["privilege"]
        distances = {f"{type_}:{path}": distance for distance, (type_, path) in enumerate(self.relevant_entities(atom))}
        for key, principal in self._entries("allow", atom):
            yield Source(1, distances[key], key, principal)
        beginnings = self.paths[atom["slot"]]
        chain = self.reader.chains[atom["type"]]
        for distance, (type_, path) in enumerate(self.relevant_entities(atom)):
            roles = set(self.caller.active)
            for link, depth in chain[: len(chain) - distance]:
                roles.update(self.caller.scopes.get(f"{base_type(link)}:{beginnings[depth]}", ()))
            for role in roles:
                if privilege in self.semantics.roles.get(role, {}).get(type_, ()):
                    yield Source(1, distance, f"{type_}:{path}", role)

    def denials(self, atom: Atom) -> Iterable[tuple[str, str]]:
        """The denials of an atom's privilege that apply: (key, principal)."""
        return self._entries("deny", atom) if self.semantics.denies else ()

    def _entries(self, effect: str, atom: Atom) -> Iterable[tuple[str, str]]:
        """(key, principal) of the state's rows with an atom's privilege that apply to the caller.

        A role within a scope is reported by its own name, and with the entities that the rows name.
        """
        privilege: str = atom["privilege"]
        numbers = self.index.numbers
        bit = numbers.allowed(privilege) if effect == "allow" else numbers.denied(privilege)
        for type_, path in self.relevant_entities(atom):
            holders = self.index.table(type_).get(path)
            if not holders:
                continue
            key = f"{type_}:{path}"
            for principal in self.caller.active if effect == "allow" else self.caller.principals:
                if holders.get(principal, 0) & bit:
                    if principal in self.index.within:
                        role = self.index.within[principal][0]
                        relevant_keys = {f"{t}:{p}" for t, p in self.relevant_entities(atom)}
                        rows = self.index.origins[effect, privilege, key, principal]
                        yield from ((row, role) for row in rows if row in relevant_keys)
                    else:
                        yield key, principal


def _smallest(sets: Iterable[Iterable[str]]) -> list[list[str]]:
    """The sets that contain no other, each sorted, smallest first."""
    smallest: list[frozenset[str]] = []
    for candidate in sorted(set(map(frozenset, sets)), key=len):
        if not any(smaller <= candidate for smaller in smallest):
            smallest.append(candidate)
    return sorted((sorted(texts) for texts in smallest), key=lambda texts: (len(texts), texts))
