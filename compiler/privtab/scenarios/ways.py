"""The complete minimal ways of a `needs` entry: sets of atoms with the entities of one request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Literal, TypeAlias

from privtab.ir.names import compare_text
from privtab.ir.nodes import Compare, EntityType, Program
from privtab.ir.serialise import vocabulary
from privtab.names import ANY_PRIVILEGE, encode_name, path_of, quoted, unquoted
from privtab.request import Entity
from privtab.scenarios.comparison_texts import comparison, is_comparison
from privtab.scenarios.params import Values
from privtab.scenarios.tree import ScenarioReader, fill
from privtab.state.names import Problem, StateNames
from privtab.syntax import yaml_tree
from privtab.syntax.node_reader import near
from privtab.syntax.yaml_tree import Node, Scalar

_ON = re.compile(r"(?P<what>[^()]+?)\s*\((?P<on>[^()]*)\)")
BELOW = " or below"
_SPACES = re.compile(r"\s+")
AtomKind: TypeAlias = Literal["has", "owner", "member", "holds", "self", "admin", "compare"]


@dataclass(frozen=True, slots=True)
class HeldAtom:
    """Something that a caller can hold or be: a privilege on an entity, ownership, membership, a role, `self`, or a comparison."""

    kind: AtomKind
    what: str = ""
    on: str = ""
    """The key of the entity, `type:path`."""
    below: bool = False
    """Whether it may be held on an entity below instead."""
    compare: Compare | None = None
    """For `compare`: attributes that stand in a relation; the slot of a target is the key of an entity."""

    def __str__(self) -> str:
        if self.compare is not None:
            return compare_text(self.compare, lambda target: target.slot)
        if self.below:
            return f"{quoted(self.what) or self.kind} ({self.on} or below)"
        match self.kind:
            case "has":
                return f"{quoted(self.what)} ({self.on})"
            case "self":
                return "self"
            case "admin":
                return "service admin"
            case _:
                return f"{self.kind} ({self.on})"


HeldSet: TypeAlias = frozenset[HeldAtom]
Ways: TypeAlias = tuple[HeldSet, ...]
ANYONE: Ways = (frozenset(),)
MAX_WAYS = 2_000
"""The most sets that one part of an entry may stand for, if they have to be compared; and the most smallest ways to be denied."""


class WaysReader:
    """Reads `by` and `all`, following the names of `let`."""

    def __init__(self, reader: ScenarioReader, program: Program, lets: Mapping[str, Node]) -> None:
        self.reader = reader
        self.program = program
        self.names = StateNames(program)
        self.lets = lets
        self._read_parts: dict[tuple[str, tuple[tuple[str, str], ...]], Ways | None] = {}
        self._in_progress: list[str] = []

    def ways(self, node: Node, values: Values) -> Ways | None:
        """The sets of a node: a list of sets, a name, one atom, `{all: …}` or `{any: …}`; None after a finding."""
        match node:
            case Scalar():
                return self._named_part(node, values)
            case yaml_tree.Sequence():
                return self._explicit_sets(node)
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
        return None if parts is None else self._unions(node, parts)

    def any(self, node: Node, values: Values) -> Ways | None:
        """The sets of every part."""
        parts = self._parts(node, "`any`", values)
        if parts is None:
            return None
        sets = [set_ for part in parts for set_ in part]
        same_size = len({len(set_) for set_ in sets}) < 2  # then no set contains another
        return smallest(sets) if same_size or self._is_within_limit(node, len(sets)) else None

    def _unions(self, node: Node, parts: list[Ways]) -> Ways | None:
        """The unions of one set of each part."""
        if not self._is_within_limit(node, prod(map(len, parts))):
            return None
        return smallest(frozenset().union(*combination) for combination in product(*parts))

    def _is_within_limit(self, node: Node, number: int) -> bool:
        """Whether that many sets can be compared; reports a finding if not."""
        if number > MAX_WAYS:
            advice = "say it of a shorter part, or test the row by `cases`"
            self.reader.report("T205", node, f"this expands to more than {MAX_WAYS:,} ways", advice)
        return number <= MAX_WAYS

    def _parts(self, node: Node, what: str, values: Values) -> list[Ways] | None:
        parts = [self.ways(item, values) for item in self.reader.items(node, what)]
        valid = [part for part in parts if part is not None]
        return valid if parts and len(valid) == len(parts) else None

    def _named_part(self, node: Scalar, values: Values) -> Ways | None:
        if node.text == "anyone":
            return ANYONE
        part = self.lets.get(node.text)
        if part is None:
            if "(" in node.text or node.text in {"self", "service admin"} or is_comparison(node.text.strip()):
                return self.atom(node)
            self.reader.report(
                "T105",
                node,
                f"`{node.text}` is neither an atom nor a name of `let`",
                near(node.text, self.lets, "names"),
            )
            return None
        key = node.text, tuple(sorted(values.items()))
        if key not in self._read_parts:
            if node.text in self._in_progress:
                self.reader.report("T107", node, f"`{node.text}` is said by means of itself")
                return None
            self._in_progress.append(node.text)
            self._read_parts[key] = self.ways(fill(part, values), values)
            self._in_progress.pop()
        return self._read_parts[key]

    def _explicit_sets(self, node: yaml_tree.Sequence) -> Ways | None:
        """A list of sets. None may contain another, or it would not be minimal."""
        if not self._is_within_limit(node, len(node.items)):
            return None
        found: list[HeldSet] = []
        valid = True
        for item in node.items:
            sets = self._set(item)
            valid = valid and sets is not None
            for atoms in sets or ():
                comparable = next((earlier for earlier in found if earlier <= atoms or atoms <= earlier), None)
                if comparable is None:
                    found.append(atoms)
                elif valid:
                    larger, smaller = (atoms, comparable) if comparable <= atoms else (comparable, atoms)
                    message = (
                        f"{set_text(larger)} is not a minimal set"
                        if larger != smaller
                        else f"{set_text(atoms)} occurs twice"
                    )
                    self.reader.report(
                        "T201", item, message, None if larger == smaller else f"{set_text(smaller)} is enough"
                    )
                    valid = False
        return tuple(found) if valid else None

    def _set(self, node: Node) -> Ways | None:
        """One set, written as a list of atoms; each may stand for several: `READ/WRITE (x)`, `owner (x, y)`."""
        if not isinstance(node, yaml_tree.Sequence):
            self.reader.report("T003", node, "a set is a list of atoms", "write `[[A, B], [C]]`: A and B, or C")
            return None
        atoms = [self.atom(item) for item in node.items]
        valid = [atom for atom in atoms if atom is not None]
        return self._unions(node, valid) if len(valid) == len(atoms) else None

    def atom(self, node: Node) -> Ways | None:
        """The ways to hold one atom: one, or as many as its text names."""
        text = self.reader.text(node, "an atom")
        if text is None:
            return None
        normalised = _SPACES.sub(" ", text.value.strip())
        if normalised == "self":
            return (frozenset({HeldAtom("self")}),)
        if normalised == "service admin":
            return (frozenset({HeldAtom("admin")}),)
        if is_comparison(text.value.strip()):
            return self._compared(node, text.value.strip())
        parts = _ON.fullmatch(normalised)
        if parts is None:
            self._malformed(node, f"`{text.value}` is not an atom")
            return None
        below = parts["on"].endswith(BELOW)
        keys = [self._key(node, text.strip()) for text in parts["on"].removesuffix(BELOW).split(",")]
        valid = [key for key in keys if key is not None]
        if len(valid) < len(keys):
            return None
        if below and parts["what"] in ("member", "holds"):
            self._malformed(node, f"nothing asks for `{parts['what']}` below an entity")
            return None
        ways = self._atoms_on(node, parts["what"], valid)
        return ways and tuple(frozenset(replace(atom, below=below) for atom in way) for way in ways)

    def _compared(self, node: Node, text: str) -> Ways | None:
        """The one way to fulfil a comparison."""
        found = comparison(self.program, self.names, text)
        if isinstance(found, Problem):
            self.reader.report("T104", node, found.message, found.help)
            return None
        return (frozenset({HeldAtom("compare", compare=found)}),)

    def _atoms_on(self, node: Node, what: str, keys: list[Entity]) -> Ways | None:
        match what:
            case "owner" | "member" | "holds":
                return tuple(frozenset({HeldAtom(what, "", str(key))}) for key in keys)
            case _:
                found: list[HeldSet] = []
                names = (unquoted(part.strip()) for part in what.split("/"))
                for name, key in product(names, keys):
                    if name == ANY_PRIVILEGE:
                        on = self.program.grantable_on(key.type)
                        found += (frozenset({HeldAtom("has", privilege, str(key))}) for privilege in on)
                        continue
                    privileges = self._privileges(node, name, key)
                    if privileges is None:
                        return None
                    found.append(frozenset(HeldAtom("has", privilege, str(key)) for privilege in privileges))
                return tuple(dict.fromkeys(found))

    def _privileges(self, node: Node, name: str, entity: Entity) -> tuple[str, ...] | None:
        """The privileges that a name stands for: all members of a set, or the target of an alias."""
        members = self.names.privileges(name)
        if members is None:
            known = (*self.names.known_privileges(), "owner", "member", "holds")
            self.reader.report("T104", node, f"unknown privilege `{name}`", near(name, known, "privileges"))
            return None
        problem = self.names.grantable(name, entity.type)
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
    if len({len(atoms) for atoms in candidates}) < 2:
        return tuple(candidates)
    return tuple(atoms for atoms in candidates if not any(subset < atoms for subset in candidates))


def transversals(ways: Ways) -> Ways:
    """The smallest sets with an atom of each listed set: what a denied caller must lack."""
    found: Ways = (frozenset(),)
    for way in ways:
        extended: list[HeldSet] = []
        for partial in found:
            extended += [partial] if partial & way else [partial | {atom} for atom in sorted(way, key=str)]
        found = smallest(extended)[:MAX_WAYS]
    return found


def set_text(atoms: HeldSet) -> str:
    """A set as text for messages: `READ (a:x), owner (a:y)`."""
    return ", ".join(sorted(map(str, atoms))) or "anyone"


def at_or_below(program: Program, key: str, suffix: str = "") -> Iterator[tuple[str, str]]:
    """An entity and one of each type below it, each with what contains it; nothing contains the first here.

    If its type nests, one of the same type is below it, too, unless it has the most levels. `suffix` ends the names of those below.
    """
    yield key, ""
    waiting = [key]
    while waiting:
        container = waiting.pop(0)
        outer, path = container.partition(":")[0], path_of(container)
        for type_ in program.entities.values():
            nests = container == key and type_.name == outer and _may_nest(program, type_, path)
            if type_.parent != outer and not nests:
                continue
            name = f"{'inner_' if nests else ''}{type_.name}{suffix}"
            if type_.single:
                below = path
            elif type_.flat:
                below = encode_name(f"{name} in {container}")
            else:
                below = f"{path}/{name}" if path else name
            waiting.append(f"{type_.name}:{below}")
            yield waiting[-1], container


def _may_nest(program: Program, type_: EntityType, path: str) -> bool:
    """Whether an entity with this path may contain one of its own type; with flat ids, its place does not tell its level here."""
    return type_.nested > 0 and (type_.flat or vocabulary(program).shapes[type_.name].levels(path) < type_.nested)
