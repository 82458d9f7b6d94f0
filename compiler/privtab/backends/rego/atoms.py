"""Atoms in Rego: when they hold, said once for decisions and explanations, and their words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, assert_never, get_args

from privtab.backends.rego.layout import rego_string
from privtab.base.attributes import Operator
from privtab.base.paths import SEVERAL
from privtab.base.records import dataclass
from privtab.ir import nodes as ir
from privtab.ir.serialise import KINDS_OF_NODES


class Operands(Protocol):
    """The expressions for the arguments of atoms."""

    def name(self, atom: ir.Atom, field: str) -> str:
        """A name of the atom, such as its privilege."""

    def key(self, target: ir.Target) -> str:
        """The target's own key."""

    def place(self, target: ir.Target) -> str:
        """The arguments for looking up a target on its own: its key, preceded by its root's key if the state is sharded."""

    def keys(self, target: ir.Target) -> str:
        """The keys from the root to a target; undefined for a shorter path."""

    def levels(self, target: ir.Target) -> str:
        """The keys down to each level of the type that nests, of a target that means several levels."""

    def value(self, term: ir.Term) -> str:
        """The value of an attribute; undefined if it is absent."""


def held(program: ir.Program, atom: ir.Atom, of: Operands) -> str:
    """The condition that an atom holds; a comparison has a target of single levels."""
    match atom:
        case ir.Has(target=target) if target.level in SEVERAL:
            return f"lib.has_{target.level}(user, {of.name(atom, 'privilege')}, {of.levels(target)})"
        case ir.Owner(target=target) if target.level in SEVERAL:
            return f"lib.owns_{'any_level' if target.level == 'any' else 'every'}(user, {of.levels(target)})"
        case ir.Member(target=target) if target.level in SEVERAL:
            return f"lib.member_{target.level}(user, {of.levels(target)})"
        case ir.Has(target=target):
            return f"lib.has(user, {of.name(atom, 'privilege')}, {of.keys(target)})"
        case ir.Owner(target=target):
            return f"lib.owns(user, {of.place(target)})"
        case ir.Member(target=target):
            group = program.entities[target.type].principal == "group"
            return f"lib.{'in_group' if group else 'member'}(user, {of.place(target)})"
        case ir.Self(target=target):
            return f"lib.is_self(user, {of.key(target)})"
        case ir.Holds(target=target):
            return f"lib.holds(user, {of.key(target)})"
        case ir.ServiceAdmin():
            return "lib.service_admin(user)"
        case ir.HasBelow(target=target):
            return f"lib.has_below(user, {of.name(atom, 'privilege')}, {of.keys(target)})"
        case ir.OwnsBelow(target=target):
            return f"lib.owns_below(user, {of.keys(target)})"
        case ir.Compare(left=left, operator=operator, right=right):
            if isinstance(right, ir.Term):
                return related(of.value(left), operator, of.value(right))
            constants = list(map(rego_string, right))
            return related(
                of.value(left), operator, f"{{{', '.join(constants)}}}" if operator == "in" else constants[0]
            )
        case _:
            assert_never(atom)


def related(left: str, operator: Operator, right: str) -> str:
    """The condition that two values stand in a relation."""
    if operator == "contains":
        return f"{right} in {left}"
    return f"{left} {'==' if operator == '=' else operator} {right}"


def explained_atoms(program: ir.Program, *, sharded: bool) -> dict[str, Any]:
    """The parts of explanations that know the kinds of atoms; those about what is held below are apart, since few policies have them."""
    several_words = any(" " in privilege for privilege in program.grantable)
    named = {KINDS_OF_NODES[kind]: kind for kind in get_args(ir.Atom) if kind.kind.words}
    above = {word: kind for word, kind in named.items() if not issubclass(kind, ir.Below)}
    below = {word: kind for word, kind in named.items() if word not in above}
    return {
        "several_words": several_words,
        "texts": _texts(above, several_words=several_words),
        "texts_below": _texts(below, several_words=several_words),
        "held": [*_held_clauses(program, above, sharded=sharded)],
        "held_below": [*_held_clauses(program, below, sharded=sharded)],
        "unkeyed": ", ".join(sorted(rego_string(word) for word, kind in named.items() if not _has_key(kind))),
        "relations": [
            (operator, related("left", operator, "right" if operator == "in" else "right[0]"))
            for operator in get_args(Operator)
        ],
    }


def _has_key(kind: Any) -> bool:
    return issubclass(kind, ir.OnTarget) and kind.kind.keyed


class _ListedOperands:
    """The arguments of `atom`, an atom of the program's JSON."""

    def __init__(self, *, sharded: bool) -> None:
        self._place = "root(atom), key(atom)" if sharded else "key(atom)"

    def name(self, _: ir.Atom, field: str) -> str:
        return f"atom.{field}"

    def key(self, _: ir.Target) -> str:
        return "key(atom)"

    def place(self, _: ir.Target) -> str:
        return self._place

    def keys(self, _: ir.Target) -> str:
        return "keys_of(atom)"

    def levels(self, target: ir.Target) -> str:
        raise AssertionError(target)  # of an atom about several levels, the request's explanation has one for each

    def value(self, term: ir.Term) -> str:
        raise AssertionError(term)  # comparisons have their own rules


def _held_clauses(program: ir.Program, kinds: dict[str, Any], *, sharded: bool) -> Iterator[tuple[str, ...]]:
    """The lines of each clause that says when an atom holds; several for a kind if that depends on the type of its target."""
    of = _ListedOperands(sharded=sharded)
    for word, kind in kinds.items():
        names = dict.fromkeys(kind.kind.names, "")
        if not issubclass(kind, ir.OnTarget):
            yield f'atom.kind == "{word}"', held(program, kind(**names), of)
            continue
        types: dict[str, list[str]] = {}
        for type_ in program.entities:
            target = ir.Target(slot=ir.RESOURCE, type=type_)
            types.setdefault(held(program, kind(**names, target=target), of), []).append(rego_string(type_))
        usual = max(types, key=lambda line: len(types[line]))
        others = ", ".join(type_ for line, named in types.items() if line != usual for type_ in named)
        yield f'atom.kind == "{word}"', *((f"not atom.type in {{{others}}}",) if others else ()), usual
        for line in sorted(types.keys() - {usual}):
            yield f'atom.kind == "{word}"', f"atom.type in {{{', '.join(types[line])}}}", line


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    """The text of atoms, as an expression of Rego."""

    text: str
    kinds: str
    """The kinds of the atoms, as a condition of Rego."""
    of_privilege: bool


def _texts(named: dict[str, Any], *, several_words: bool) -> list[_Text]:
    """The texts of atoms, in the words of their classes. `several_words`: whether names of privileges have spaces."""
    kinds: dict[str, list[str]] = {}
    of_privilege = set()
    for kind, node in named.items():
        words = node.kind.words.replace("{place}", "{key_or_type(atom)}")
        if words.startswith(f"{kind} "):
            words = words.replace(kind, "{atom.kind}", 1)
        for name in node.kind.names:
            words = words.replace(f"{{{name}}}", f"{{quoted(atom.{name})}}" if several_words else f"{{atom.{name}}}")
            of_privilege.add(words)
        kinds.setdefault(words, []).append(rego_string(kind))
    return [
        _Text(
            text=f'$"{words}"' if "{" in words else f'"{words}"',
            kinds=f"== {of[0]}" if len(of) == 1 else f"in {{{', '.join(of)}}}",
            of_privilege=words in of_privilege,
        )
        for words, of in kinds.items()
    ]
