"""Explain an entitlement of one subject by the minimal sets that hold, as `matrix.ways` does for many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from privtab.engines.conditions import RESOURCE
from privtab.engines.explain import Atom, Explanation
from privtab.paths import base_type
from privtab.spark.matrix.principals import Subject
from privtab.spark.matrix.ways import ADMIN, ANYONE, ATTRIBUTE, GRANT, HOLDS, KINDS, MEMBER, NEEDED, OWNER, ROLE, SELF

_KINDS = {"self": SELF, "service_admin": ADMIN, "compare": ATTRIBUTE, "owner": OWNER, "member": MEMBER, "holds": HOLDS}
_HELD = ("has", "owner", "has_below", "owns_below")


@dataclass(eq=False)
class Entitlement(Explanation):
    """What one subject may do with one entity by one operation. A group or a role belongs wherever that is needed."""

    subject: Subject

    def ways(self) -> list[Sequence[int]]:
        """The minimal sets that hold, as numbers of atoms."""
        return [numbers for numbers in self.sets if all(map(self.holds, numbers))]

    def columns(self, way: Sequence[int]) -> dict[str, Any]:
        """The columns that say on what a way is based."""
        links = [self._link(self.atoms[number]) for number in way]
        if not links:
            return {"via_kind": ANYONE, "via_principal": None, "via_entity": None, "via": []}
        main = links[min(range(len(way)), key=lambda position: self._rank(self.atoms[way[position]]))]
        return {
            "via_kind": main["kind"],
            "via_principal": main["principal"],
            "via_entity": main["entity"],
            "via": links,
        }

    def _holds(self, atom: Atom) -> bool:
        return self._is_needed(atom) or super()._holds(atom)

    def _is_needed(self, atom: Atom) -> bool:
        """Whether an atom is a membership that a group or a role cannot have."""
        if self.subject.user is not None or atom["kind"] != "member":
            return False
        return self.reader.principal[base_type(atom["type"])] != "group" and self.path(atom) is not None

    def _rank(self, atom: Atom) -> tuple[bool, bool, int]:
        """The smallest is that of the main atom: the privilege or ownership nearest to the resource."""
        type_ = atom.get("type", "")
        depth = len(self.reader.chains[type_]) if type_ else 0
        return atom.get("slot", RESOURCE) != RESOURCE, atom["kind"] not in _HELD, -depth

    def _link(self, atom: Atom) -> dict[str, str | None]:
        kind, principal, entity = self._source(atom)
        return {
            "atom": self.text(atom),
            "kind": KINDS[kind],
            "principal": principal,
            "entity": entity,
            "group": self._group(kind, principal, atom, entity),
        }

    def _source(self, atom: Atom) -> tuple[int, str, str | None]:
        """The kind of what an atom is based on, and its principal and entity."""
        match atom["kind"]:
            case "self" | "service_admin" | "compare":
                return _KINDS[atom["kind"]], self.subject.principal, None
            case "member" if self._is_needed(atom):
                return NEEDED, self.subject.principal, self.key_or_type(atom)
            case "has" if owned := min(self.ownerships(atom), default=None):
                return OWNER, owned.through.removeprefix("owner "), owned.on
            case "has":
                grant = min(self.grants(atom))
                by_row = (grant.on, grant.through) in self._entries("allow", atom)
                return (GRANT if by_row else ROLE), grant.through, grant.on
            case kind:
                through = self._reason(atom)["through"]
                if kind in ("has_below", "owns_below"):
                    owns = kind == "owns_below" or through.startswith("owner ")
                    return (OWNER if owns else GRANT), through.removeprefix("owner "), self.key_or_type(atom)
                return _KINDS[kind], through, self.key_or_type(atom)

    def _group(self, kind: int, principal: str, atom: Atom, entity: str | None) -> str | None:
        """The group through which a role is held; None: directly. Of several holdings, the first that counts there."""
        holdings = self.subject.through.get(principal, ())
        if not holdings:
            return None
        keys: list[str] = []
        if kind in (GRANT, ROLE):
            paths, chain = self.paths[atom["slot"]], self.reader.chains[atom["type"]]
            keys = [f"{base_type(type_)}:{paths[depth]}" for type_, depth in chain]
            if kind == ROLE and entity in keys:
                keys = keys[: keys.index(entity) + 1]
        # Below an entity, roles count that are held within any of what lies there.
        anywhere = kind == HOLDS or atom["kind"] in ("has_below", "owns_below")
        scopes = {"", *keys}
        return next((group or None for group, scope in holdings if anywhere or scope in scopes), None)
