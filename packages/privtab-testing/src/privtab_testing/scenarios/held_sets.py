"""The complete minimal ways of a `needs` entry: sets of atoms with the entities of one request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from math import prod
from typing import Any, TypeAlias, TypeVar, cast

from privtab import ir
from privtab.base import ANY_PRIVILEGE, Attribute, Entity, did_you_mean
from privtab.language import MappingNode, ScalarNode, SequenceNode, YamlNode, parse_constants
from privtab.state import RowProblem, StateNames
from privtab_analysis.rights import ONESELF, target_of
from privtab_testing.scenarios.callers import ANYONE, HeldSet, HeldSets, set_text, smallest
from privtab_testing.scenarios.tree import ScenarioReader, Values, fill

Constant: TypeAlias = str | int | bool
_ON = re.compile(r"(?P<what>[^()]+?)\s*\((?P<on>[^()]*)\)")
BELOW = " or below"
_TERM = r"(?:user|request)\.[A-Za-z][A-Za-z0-9_]*|[A-Za-z][A-Za-z0-9_]*\s*\([^()]*\)"
_COMPARISON = re.compile(rf"(?P<left>{_TERM})(?:\s*(?P<relation><=|>=|=|<|>|\bin\b)\s*(?P<right>.+))?", re.DOTALL)
_CONTAINED = re.compile(rf"(?P<word>\"[^\"\n]*\"|[^\W\d]\w*)\s+in\s+(?P<set>{_TERM})")
_CODE = "T104"
_KINDS: Mapping[str, type[ir.Owner | ir.Member | ir.Holds]] = {
    kind.__name__.lower(): kind for kind in (ir.Owner, ir.Member, ir.Holds)
}
_SPACES = re.compile(r"\s+")
T = TypeVar("T")
MAX_WAYS = 2_000
"""The most sets that one part of an entry may stand for, if they have to be compared; and the most smallest ways to be denied."""


class HeldSetsReader:
    """Reads `by` and `all`, following the names of `let`."""

    def __init__(self, reader: ScenarioReader, program: ir.Program, lets: Mapping[str, YamlNode]) -> None:
        self.reader = reader
        self.program = program
        self.names = StateNames(program)
        self.lets = lets
        self._read_parts: dict[tuple[str, tuple[tuple[str, str], ...]], HeldSets | None] = {}
        self._in_progress: list[str] = []

    def sets(self, node: YamlNode, values: Values) -> HeldSets | None:
        """The sets of a node: a list of sets, a name, one atom, `{all: …}` or `{any: …}`; None after a finding."""
        match node:
            case ScalarNode():
                return self._named_part(node, values)
            case SequenceNode():
                return self._explicit_sets(node)
            case MappingNode():
                fields = self.reader.fields(node, "a way", ("all", "any"))
                if fields is None:
                    return None
                if len(fields) != 1:
                    if fields or not node.entries:
                        self.reader.report("T006", node, "a way has either `all` or `any`")
                    return None
                name, inner = next(iter(fields.items()))
                return self.all(inner, values) if name == "all" else self.any(inner, values)

    def all(self, node: YamlNode, values: Values) -> HeldSets | None:
        """The unions of one set of each part."""
        parts = self._parts(node, "`all`", values)
        return None if parts is None else self._unions(node, parts)

    def any(self, node: YamlNode, values: Values) -> HeldSets | None:
        """The sets of every part."""
        parts = self._parts(node, "`any`", values)
        if parts is None:
            return None
        sets = [set_ for part in parts for set_ in part]
        same_size = len({len(set_) for set_ in sets}) < 2  # then no set contains another
        return smallest(sets) if same_size or self._is_within_limit(node, len(sets)) else None

    def _unions(self, node: YamlNode, parts: list[HeldSets]) -> HeldSets | None:
        """The unions of one set of each part."""
        if not self._is_within_limit(node, prod(map(len, parts))):
            return None
        return smallest(frozenset().union(*combination) for combination in product(*parts))

    def _is_within_limit(self, node: YamlNode, number: int) -> bool:
        """Return whether that many sets can be compared; reports a finding if not."""
        if number > MAX_WAYS:
            advice = "say it of a shorter part, or test the row by `cases`"
            self.reader.report("T205", node, f"this expands to more than {MAX_WAYS:,} ways", advice)
        return number <= MAX_WAYS

    def _parts(self, node: YamlNode, what: str, values: Values) -> list[HeldSets] | None:
        parts = [self.sets(item, values) for item in self.reader.items(node, what)]
        valid = [part for part in parts if part is not None]
        return valid if parts and len(valid) == len(parts) else None

    def _named_part(self, node: ScalarNode, values: Values) -> HeldSets | None:
        if node.text == "anyone":
            return ANYONE
        part = self.lets.get(node.text)
        if part is None:
            if "(" in node.text or node.text in {"self", "service admin"} or is_comparison(node.text.strip()):
                return self.atom(node)
            message = f"`{node.text}` is neither an atom nor a name of `let`"
            self.reader.report("T105", node, message, self.reader.near(node.text, self.lets, "names"))
            return None
        key = node.text, tuple(sorted(values.items()))
        if key not in self._read_parts:
            if node.text in self._in_progress:
                self.reader.report("T107", node, f"`{node.text}` is said by means of itself")
                return None
            self._in_progress.append(node.text)
            self._read_parts[key] = self.sets(fill(part, values), values)
            self._in_progress.pop()
        return self._read_parts[key]

    def _explicit_sets(self, node: SequenceNode) -> HeldSets | None:
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
                    smaller, larger = (set_text(rights) or "anyone" for rights in sorted((atoms, comparable), key=len))
                    if atoms == comparable:
                        self.reader.report("T201", item, f"{larger} occurs twice")
                    else:
                        self.reader.report("T201", item, f"{larger} is not a minimal set", f"{smaller} is enough")
                    valid = False
        return tuple(found) if valid else None

    def _set(self, node: YamlNode) -> HeldSets | None:
        """One set, written as a list of atoms; each may stand for several: `READ/WRITE (x)`, `owner (x, y)`."""
        if not isinstance(node, SequenceNode):
            self.reader.report("T003", node, "a set is a list of atoms", "write `[[A, B], [C]]`: A and B, or C")
            return None
        atoms = [self.atom(item) for item in node.items]
        valid = [atom for atom in atoms if atom is not None]
        return self._unions(node, valid) if len(valid) == len(atoms) else None

    def atom(self, node: YamlNode) -> HeldSets | None:
        """The ways to hold one atom: one, or as many as its text names."""
        text = self.reader.text(node, "an atom")
        if text is None:
            return None
        normalised = _SPACES.sub(" ", text.value.strip())
        if normalised == "self":
            return (frozenset({ONESELF}),)
        if normalised == "service admin":
            return (frozenset({ir.ServiceAdmin()}),)
        if is_comparison(text.value.strip()):
            compare = self._found(node, comparison(self.program, self.names, text.value.strip()))
            return None if compare is None else (frozenset({compare}),)
        parts = _ON.fullmatch(normalised)
        if parts is None:
            self._malformed(node, f"`{text.value}` is not an atom")
            return None
        below = parts["on"].endswith(BELOW)
        names = (self.names.entity(text.strip()) for text in parts["on"].removesuffix(BELOW).split(","))
        keys = [self._found(node, entity) for entity in names]
        valid = [key for key in keys if key is not None]
        if len(valid) < len(keys):
            return None
        if below and parts["what"] in ("member", "holds"):
            self._malformed(node, f"nothing asks for `{parts['what']}` below an entity")
            return None
        return self._atoms_on(node, parts["what"], valid, below=below)

    def _found(self, node: YamlNode, found: T | RowProblem) -> T | None:
        """The result; None after a finding."""
        if not isinstance(found, RowProblem):
            return found
        self.reader.report(_CODE, node, found.message, found.help)
        return None

    def _atoms_on(self, node: YamlNode, what: str, keys: list[Entity], *, below: bool) -> HeldSets | None:
        if what in _KINDS:
            kind = ir.OwnsBelow if below else _KINDS[what]
            return tuple(frozenset({kind(target=target_of(str(key)))}) for key in keys)
        has = ir.HasBelow if below else ir.Has
        found: list[HeldSet] = []
        names = (_unquoted(part.strip()) for part in what.split("/"))
        for name, key in product(names, keys):
            target = target_of(str(key))
            if name == ANY_PRIVILEGE:
                on = self.program.grantable_on(key.type)
                found += (frozenset({has(privilege=privilege, target=target)}) for privilege in on)
                continue
            privileges = self._privileges(node, name, key)
            if privileges is None:
                return None
            found.append(frozenset(has(privilege=privilege, target=target) for privilege in privileges))
        return tuple(dict.fromkeys(found))

    def _privileges(self, node: YamlNode, name: str, entity: Entity) -> tuple[str, ...] | None:
        """The privileges that a name stands for: all members of a set, or the target of an alias."""
        members = self.names.privileges(name)
        if members is None:
            known = (*self.names.known_privileges(), *_KINDS)
            self.reader.report("T104", node, f"unknown privilege `{name}`", self.reader.near(name, known, "privileges"))
            return None
        return self._found(node, self.names.grantable(name, entity.type) or members)

    def _malformed(self, node: YamlNode, message: str) -> None:
        advice = "write `PRIVILEGE (type:path)`, `owner (type:path)`, `member (type:path)`, `self` or `service admin`"
        self.reader.report("T104", node, message, advice)


def is_comparison(text: str) -> bool:
    """Return whether the text of an atom is a comparison."""
    found = _COMPARISON.fullmatch(text)
    if found is None:
        return _CONTAINED.fullmatch(text) is not None
    return found["relation"] is not None or found["left"].startswith(("user.", "request."))


def comparison(program: ir.Program, names: StateNames, text: str) -> ir.Compare | RowProblem:
    """The comparison that a text says; or what is wrong with its attributes, entities, constants or types."""
    contained = _CONTAINED.fullmatch(text) if _COMPARISON.fullmatch(text) is None else None
    relation: Any = "contains"
    if contained is not None:
        attribute, written = contained["set"], contained["word"]
    else:
        found = _COMPARISON.fullmatch(text)
        assert found is not None
        attribute = found["left"]
        relation, written = found["relation"] or "=", (found["right"] or "true").strip()
    left = _term(names, attribute)
    if isinstance(left, RowProblem):
        return left
    right = _term(names, written) if re.fullmatch(_TERM, written) else _constants(relation, written)
    if isinstance(right, RowProblem):
        return right
    own = _declared(program, left)
    if isinstance(own, RowProblem):
        return own
    other = _declared(program, right) if isinstance(right, ir.Term) else right
    if isinstance(other, RowProblem):
        return other
    comparable = (
        own.compares_to(relation, other)
        if isinstance(other, Attribute)
        else own.has_relation(relation) and all(own.compares_to_constant(relation, constant) for constant in other)
    )
    if not comparable:
        return RowProblem(_CODE, f"`{text}` compares what cannot be compared", f"`{attribute}` is {own.describe()}")
    return ir.Compare(left=left, operator=relation, right=right)


def _term(names: StateNames, text: str) -> ir.Term | RowProblem:
    """An attribute of the user, the request or an entity."""
    kind, dot, attribute = text.partition(".")
    if dot and kind in ("user", "request"):
        return ir.Term(kind=cast(Any, kind), attribute=attribute)
    attribute, _, key = text.removesuffix(")").partition("(")
    entity = names.entity(key.strip())
    if isinstance(entity, RowProblem):
        return entity
    return ir.Term(kind="entity", attribute=attribute.strip(), target=ir.Target(slot=str(entity), type=entity.type))


def _constants(relation: str, text: str) -> tuple[Constant, ...] | RowProblem:
    """The constants on the right; the grammar of conditions reads them."""
    found = parse_constants(relation, text)
    return (
        found
        if found is not None
        else RowProblem(_CODE, f"`{text}` is no constant", 'write a word, "a text", a number, or with `in` {A, B}')
    )


def _declared(program: ir.Program, term: ir.Term) -> Attribute | RowProblem:
    """The type of an attribute."""
    found = program.attribute(term)
    if found is not None:
        return found
    of = f"a `{term.target.type}`" if term.target is not None else f"the {term.kind}"
    known = program.attributes.of(term.kind)
    return RowProblem(_CODE, f"unknown attribute `{term.attribute}` of {of}", did_you_mean(term.attribute, known))


def _unquoted(text: str) -> str:
    """The name of a privilege that may stand in quotes.

    >>> _unquoted("READ"), _unquoted('"USE CATALOG"')
    ('READ', 'USE CATALOG')
    """
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] == '"' else text
