"""The complete minimal ways of a `needs` entry: sets of atoms with the entities of one request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Literal, TypeAlias

from privtab.ir.nodes import Program
from privtab.request import Entity
from privtab.scenarios.params import Values
from privtab.scenarios.tree import ScenarioReader, fill
from privtab.state.names import Problem, StateNames
from privtab.syntax import yaml_tree
from privtab.syntax.node_reader import near
from privtab.syntax.yaml_tree import Node, Scalar

_ON = re.compile(r"(?P<what>[^()]+?)\s*\((?P<on>[^()]*)\)")
_SPACES = re.compile(r"\s+")
AtomKind: TypeAlias = Literal["has", "owner", "member", "holds", "self", "admin"]


@dataclass(frozen=True, slots=True)
class HeldAtom:
    """Something that a caller can hold or be: a privilege on an entity, ownership, membership, a role, or `self`."""

    kind: AtomKind
    what: str = ""
    on: str = ""
    """The key of the entity, `type:path`."""

    def __str__(self) -> str:
        match self.kind:
            case "has":
                return f"{self.what} ({self.on})"
            case "self":
                return "self"
            case "admin":
                return "service admin"
            case _:
                return f"{self.kind} ({self.on})"


HeldSet: TypeAlias = frozenset[HeldAtom]
Ways: TypeAlias = tuple[HeldSet, ...]
ANYONE: Ways = (frozenset(),)
MOST = 2_000
"""The most sets that one part of an entry may stand for, if they have to be compared."""


class WaysReader:
    """Reads `by` and `all`, following the names of `let`."""

    def __init__(self, reader: ScenarioReader, program: Program, lets: Mapping[str, Node]) -> None:
        self.reader = reader
        self.names = StateNames(program)
        self.lets = lets
        self._read: dict[tuple[str, tuple[tuple[str, str], ...]], Ways | None] = {}
        self._open: list[str] = []

    def ways(self, node: Node, values: Values) -> Ways | None:
        """The sets of a node: a list of sets, a name, one atom, `{all: …}` or `{any: …}`; None after a finding."""
        match node:
            case Scalar():
                return self._named(node, values)
            case yaml_tree.Sequence():
                return self._listed(node)
            case yaml_tree.Mapping():
                fields = self.reader.fields(node, "a way", ("all", "any"))
                if fields is None:
                    return None
                if len(fields) != 1:
                    if fields or not node.entries:
                        self.reader.report("T006", node, "a way has either `all` or `any`")
                    return None
                name, inner = next(iter(fields.items()))
                return self.all(inner, values) if name == "all" else self.any(inner, values)

    def all(self, node: Node, values: Values) -> Ways | None:
        """The unions of one set of each part."""
        parts = self._parts(node, "`all`", values)
        return None if parts is None else self._together(node, parts)

    def any(self, node: Node, values: Values) -> Ways | None:
        """The sets of every part."""
        parts = self._parts(node, "`any`", values)
        if parts is None:
            return None
        sets = [one for part in parts for one in part]
        alike = len({len(one) for one in sets}) < 2  # then no set contains another
        return smallest(sets) if alike or self._few(node, len(sets)) else None

    def _together(self, node: Node, parts: list[Ways]) -> Ways | None:
        """The unions of one set of each part."""
        if not self._few(node, prod(map(len, parts))):
            return None
        return smallest(frozenset().union(*chosen) for chosen in product(*parts))

    def _few(self, node: Node, number: int) -> bool:
        """Whether that many sets can be compared; reports a finding if not."""
        if number > MOST:
            advice = "say it of a shorter part, or test the row by `cases`"
            self.reader.report("T205", node, f"this expands to more than {MOST:,} ways", advice)
        return number <= MOST

    def _parts(self, node: Node, what: str, values: Values) -> list[Ways] | None:
        parts = [self.ways(item, values) for item in self.reader.items(node, what)]
        good = [part for part in parts if part is not None]
        return good if parts and len(good) == len(parts) else None

    def _named(self, node: Scalar, values: Values) -> Ways | None:
        if node.text == "anyone":
            return ANYONE
        part = self.lets.get(node.text)
        if part is None:
            if "(" in node.text or node.text in {"self", "service admin"}:
                return self.atom(node)
            self.reader.report(
                "T105",
                node,
                f"`{node.text}` is neither an atom nor a name of `let`",
                near(node.text, self.lets, "names"),
            )
            return None
        key = node.text, tuple(sorted(values.items()))
        if key not in self._read:
            if node.text in self._open:
                self.reader.report("T107", node, f"`{node.text}` is said by means of itself")
                return None
            self._open.append(node.text)
            self._read[key] = self.ways(fill(part, values), values)
            self._open.pop()
        return self._read[key]

    def _listed(self, node: yaml_tree.Sequence) -> Ways | None:
        """A list of sets. None may contain another, or it would not be minimal."""
        if not self._few(node, len(node.items)):
            return None
        found: list[HeldSet] = []
        good = True
        for item in node.items:
            sets = self._set(item)
            good = good and sets is not None
            for one in sets or ():
                other = next((known for known in found if known <= one or one <= known), None)
                if other is None:
                    found.append(one)
                elif good:
                    larger, less = (one, other) if other <= one else (other, one)
                    message = f"{said(larger)} is not a minimal set" if larger != less else f"{said(one)} occurs twice"
                    self.reader.report("T201", item, message, None if larger == less else f"{said(less)} is enough")
                    good = False
        return tuple(found) if good else None

    def _set(self, node: Node) -> Ways | None:
        """One set, written as a list of atoms; each may stand for several: `READ/WRITE (x)`, `owner (x, y)`."""
        if not isinstance(node, yaml_tree.Sequence):
            self.reader.report("T003", node, "a set is a list of atoms", "write `[[A, B], [C]]`: A and B, or C")
            return None
        atoms = [self.atom(item) for item in node.items]
        good = [atom for atom in atoms if atom is not None]
        return self._together(node, good) if len(good) == len(atoms) else None

    def atom(self, node: Node) -> Ways | None:
        """The ways to hold one atom: one, or as many as its text names."""
        text = self.reader.text(node, "an atom")
        if text is None:
            return None
        plain = _SPACES.sub(" ", text.value.strip())
        if plain == "self":
            return (frozenset({HeldAtom("self")}),)
        if plain == "service admin":
            return (frozenset({HeldAtom("admin")}),)
        parts = _ON.fullmatch(plain)
        if parts is None:
            self._malformed(node, f"`{text.value}` is not an atom")
            return None
        keys = [self._key(node, one.strip()) for one in parts["on"].split(",")]
        good = [key for key in keys if key is not None]
        return self._on(node, parts["what"], good) if len(good) == len(keys) else None

    def _on(self, node: Node, what: str, keys: list[Entity]) -> Ways | None:
        match what:
            case "owner" | "member" | "holds":
                return tuple(frozenset({HeldAtom(what, "", str(key))}) for key in keys)
            case _:
                found: list[HeldSet] = []
                for name, key in product((one.strip() for one in what.split("/")), keys):
                    given = self._privileges(node, name, key)
                    if given is None:
                        return None
                    found.append(frozenset(HeldAtom("has", privilege, str(key)) for privilege in given))
                return tuple(dict.fromkeys(found))

    def _privileges(self, node: Node, name: str, on: Entity) -> tuple[str, ...] | None:
        """The privileges that a name stands for: all members of a set, or the target of an alias."""
        members = self.names.privileges(name)
        if members is None:
            known = (*self.names.known_privileges(), "owner", "member", "holds")
            self.reader.report("T104", node, f"unknown privilege `{name}`", near(name, known, "privileges"))
            return None
        problem = self.names.grantable(name, on.type)
        if problem is not None:
            self.reader.report("T104", node, problem.message, problem.help)
            return None
        return members

    def _key(self, node: Node, text: str) -> Entity | None:
        found = self.names.entity(text)
        if isinstance(found, Problem):
            self.reader.report("T104", node, found.message, found.help)
            return None
        return found

    def _malformed(self, node: Node, message: str) -> None:
        advice = "write `PRIVILEGE (type:path)`, `owner (type:path)`, `member (type:path)`, `self` or `service admin`"
        self.reader.report("T104", node, message, advice)


def smallest(sets: Iterable[HeldSet]) -> Ways:
    """The sets that contain no other set, in the order given."""
    candidates = list(dict.fromkeys(sets))
    if len({len(one) for one in candidates}) < 2:
        return tuple(candidates)
    return tuple(one for one in candidates if not any(other < one for other in candidates))


def said(atoms: HeldSet) -> str:
    """A set as text for messages: `READ (a:x), owner (a:y)`."""
    return ", ".join(sorted(map(str, atoms))) or "anyone"
