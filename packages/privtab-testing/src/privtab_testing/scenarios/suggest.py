"""Suggests entries of `needs` for cells that no case proves yet, to be checked against the source document and kept.

The entries repeat the policy, in the form of its cells, so they prove nothing until they have been reviewed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import pairwise
from typing import TypeAlias

from privtab import ir
from privtab.base import LEFT_OUT, NOT_SET, base_type, dataclass
from privtab.ir import RequestAlgebra, asked_condition, atom_words, reached_atoms, resolve_can, vocabulary, walk_reached
from privtab_testing.scenarios import Form

Tree: TypeAlias = "str | list[list[str]] | dict[str, list[Tree]]"
"""Ways as written: an atom or a name, sets, or parts under `all` or `any`."""
Value: TypeAlias = "Tree | ir.Atom"
"""The value of a condition before it is written."""
Merged: TypeAlias = ir.Has | ir.Owner | ir.Member | ir.Holds
"""Atoms of which several are written as one."""
ANYONE: Tree = "anyone"
NOBODY: Tree = []
MOST_LEVELS = 3
"""The most levels: with three levels, the outermost, the innermost and the one around it are not the same."""
Setting: TypeAlias = tuple[frozenset[str], tuple[tuple[str, str], ...], Form]


@dataclass(slots=True)
class _Entry:
    """One entry: its requests, and what it states about all of them."""

    asks: list[str] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)


def suggestions(program: ir.Program, settings_by_rule: Mapping[str, tuple[ir.Rule, Collection[Setting]]]) -> str:
    """The text of `let` and `needs` for some rules, each in some of its settings; empty if there are none."""
    writer = _Writer(program)
    for rule, settings in settings_by_rule.values():
        if rule.needs_active_role:
            writer.left_out.append(f"{rule.entity}/{rule.operation}")
            continue
        default_types = {slot.name: slot.types[0] for slot in rule.withs}
        for flags, types, form in sorted(settings, key=partial(_setting_order, rule)):
            for levels in _numbers_of_levels(program, rule):
                writer.add(rule, flags, {**default_types, **dict(types)}, form, levels)
    return writer.text()


def _numbers_of_levels(program: ir.Program, rule: ir.Rule) -> range:
    """The numbers of levels of suggested requests: as many as it takes to tell the levels apart that the condition names."""
    bounds = [type_.nested for type_ in program.entities.values() if type_.nested]
    if not bounds:
        return range(1, 2)
    held = (ir.Has, ir.Owner, ir.Member, ir.HasBelow, ir.OwnsBelow)
    atoms = [atom for atom in reached_atoms(program, rule.item_condition) if isinstance(atom, held)]
    others = {atom.target.level for atom in atoms} - {"nearest"}
    if any(program.entities[atom.target.type].nested and atom.target.level == "nearest" for atom in atoms):
        others.add("any")  # which the nearest is to be told from
    return range(1, 1 + min(1 + len(others), MOST_LEVELS, *bounds))


def _setting_order(rule: ir.Rule, setting: Setting) -> tuple[object, ...]:
    """Sort by number of flags, then by types in the order of the row, then by the form of the request."""
    flags, types, form = setting
    slots = {slot.name: slot.types for slot in rule.withs}
    positions = [slots[name].index(type_) for name, type_ in types]
    return len(flags), sorted(flags), positions, ("", "item", "call").index(form)


class _Writer:
    """Collects entries, and merges entries that state the same about several requests."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self._shapes = vocabulary(program).shapes
        self.places: dict[str, str] = {}
        """The container of each entity with a flat id that a request is about, or that lies around one."""
        self.lets: dict[str, Tree] = {}
        self.entries: dict[tuple[tuple[str, str], ...], _Entry] = {}
        self.left_out: list[str] = []
        """Operations whose requests name active roles, which `needs` cannot say."""

    def add(self, rule: ir.Rule, flags: frozenset[str], types: Mapping[str, str], form: Form, number: int) -> None:
        """Add one request of a rule, in which each object whose path has levels has this number of them."""
        objects = present(types)
        levels = dict.fromkeys((ir.RESOURCE, *objects), number)
        names = RequestNames(self.program, {ir.RESOURCE: rule.entity, **objects}, levels)
        condition = asked_condition(self.program, rule, named=form != "call")
        on_resource = ir.Target(slot=ir.RESOURCE, type=rule.entity)
        resource = names.key(on_resource)
        for slot, slot_type in objects.items():
            self.places |= names.places(ir.Target(slot=slot, type=slot_type))
        places = names.places(on_resource)
        if form == "call":
            type_, _, path = resource.partition(":")
            end = "/" if self._shapes[type_].nested is not None and self._shapes[type_].flat is None else ""
            container = places.pop(resource, None)
            resource = f"{type_}:{path.rpartition('/')[0]}{end}" if container is None else f"{type_}:{container}/"
        self.places |= places
        keys: dict[str, str] = {}
        if objects:
            named = (
                f"{slot}: {_quoted(names.key(ir.Target(slot=slot, type=type_)))}" for slot, type_ in objects.items()
            )
            keys["with"] = "{" + ", ".join(named) + "}"
        flag_texts = [*sorted(flags), *(f"{flag}{NOT_SET}" for flag in rule.required_flags if flag not in flags)]
        if flag_texts:
            keys["flags"] = f"[{', '.join(flag_texts)}]"
        tree = _WaysWriter(self, names, flags, types, levels).tree(condition)
        part = next(
            (name for name, known_tree in self.lets.items() if known_tree == tree and isinstance(tree, dict)), None
        )
        if part is not None:
            keys["by"] = part
        elif isinstance(tree, dict) and tree.keys() == {"all"}:
            keys["all"] = _flow(tree["all"])
        else:
            keys["by"] = _flow(tree)
        if rule.effects:
            keys["effects"] = _flow([self._effect(e, names, rule, resource, form) for e in rule.effects])
        else:
            keys["effects"] = "[]"
        if rule.report is not None:
            keys["report"] = rule.report
        entry = self.entries.setdefault(tuple(keys.items()), _Entry(keys=keys))
        entry.asks.append(f"{rule.operation} {resource}")

    def _effect(self, effect: ir.Effect, names: RequestNames, rule: ir.Rule, resource: str, form: Form) -> str:
        """The text of an effect; an entity that the request does not name is written as its type."""
        named_length = len(self.program.chain(rule.entity)) - (form == "call")
        key = names.key(effect.target)
        if effect.target.slot == ir.RESOURCE and self.program.anchor(effect.target)[0] >= named_length:
            key = effect.target.type
        return f"{effect.text} ({'{resource}' if key == resource else key})"

    def text(self) -> str:
        """The entries as YAML."""
        lines = [f"# {name} needs active roles: write `cases` with `active_roles` for it" for name in self.left_out]
        if self.places:
            rows = (f"    - {{entity: {_quoted(key)}, parent: {_quoted(self.places[key])}}}" for key in self.places)
            lines += ["state:", "  entities:", *rows]
        lines += ["let:", *(f"  {name}: {_flow(tree)}" for name, tree in self.lets.items())] if self.lets else []
        lines += ["needs:"] if self.entries else []
        for entry in self.entries.values():
            asks = _quoted(entry.asks[0]) if len(entry.asks) == 1 else _flow(list[object](entry.asks))
            lines.append(f"  - ask: {asks}")
            lines += [f"    {key}: {value}" for key, value in entry.keys.items()]
        return "".join(f"{line}\n" for line in lines)


class _WaysWriter(RequestAlgebra[Value]):
    """Writes conditions for one request. Atoms stay atoms until it is known whether they are merged with others."""

    def __init__(
        self,
        writer: _Writer,
        names: RequestNames,
        flags: frozenset[str],
        types: Mapping[str, str],
        levels: Mapping[str, int],
    ) -> None:
        super().__init__(writer.program, flags, types, levels)
        self.writer = writer
        self.names = names

    def tree(self, formula: ir.Formula) -> Tree:
        """A condition as ways."""
        return self._as_tree(self.fold(formula))

    def _as_tree(self, value: Value) -> Tree:
        return value if isinstance(value, str | list | dict) else self.names.atom(value)

    def atom(self, atom: ir.Atom) -> Value:
        return atom

    def all_of(self, values: Iterable[Value]) -> Tree:
        flat: list[Tree] = []
        for part in map(self._as_tree, values):
            flat += part["all"] if isinstance(part, dict) and part.keys() == {"all"} else [part]
        if NOBODY in flat:
            return NOBODY
        seen: set[str] = set()
        implied = [inner for part in flat for inner in self._required_parts(part, seen)]
        flat = [
            part_
            for index, part_ in enumerate(flat)
            if part_ != ANYONE and part_ not in flat[:index] and part_ not in implied
        ]
        if len(flat) < 2:
            return flat[0] if flat else ANYONE
        return {"all": flat}

    def _required_parts(self, part: Tree, seen: set[str]) -> Iterator[Tree]:
        """Everything that a named part requires through `all`, including other named parts, except the parts in `seen`."""
        if not isinstance(part, str) or part in seen:
            return
        seen.add(part)
        tree = self.writer.lets.get(part)
        if isinstance(tree, str):
            yield tree
        elif isinstance(tree, dict):
            for inner in tree.get("all", ()):
                yield inner
                yield from self._required_parts(inner, seen)

    def any_of(self, values: Iterable[Value]) -> Tree:
        parts = list(values)
        atoms = [part for part in parts if isinstance(part, Merged)]
        others = [self._as_tree(part) for part in parts if not isinstance(part, Merged)]
        alternatives = [*self.names.merged(atoms), *(part for part in others if part != NOBODY)]
        alternatives = [part for number, part in enumerate(alternatives) if part not in alternatives[:number]]
        if ANYONE in alternatives:
            return ANYONE
        if len(alternatives) < 2:
            return alternatives[0] if alternatives else NOBODY
        return {"any": alternatives}

    def referred(self, can: ir.Can) -> str:
        """The name of a part for the rule that a `can` refers to; the part is added when it is first needed."""
        rule = self.program.rules[can.target.type, can.operation]
        condition = rule.item_condition
        flags_used = {node.flag for node in walk_reached(self.program, condition) if isinstance(node, ir.When)}
        words = [
            can.operation,
            can.target.type,
            *([can.target.slot] if can.target.slot else []),
            *sorted(flags_used.intersection(self.flags)),
        ]
        name = base = "_".join(words)
        tree = self.tree(resolve_can(self.program, can))
        number = 1
        while self.writer.lets.setdefault(name, tree) != tree:
            number += 1
            name = f"{base}_{number}"
        return name


def present(types: Mapping[str, str]) -> dict[str, str]:
    """The types of the objects that a request has, of those by slot."""
    return {slot: type_ for slot, type_ in types.items() if type_ != LEFT_OUT}


class RequestNames:
    """Short names for the objects of a request; different slots share none.

    `levels`: by slot, the levels on the path of its object where a type nests; one unless it says otherwise.
    """

    def __init__(self, program: ir.Program, types: Mapping[str, str], levels: Mapping[str, int] | None = None) -> None:
        self.program = program
        self.slots = {slot: number for number, slot in enumerate(types, start=1)}
        self._levels = levels or {}

    def key(self, target: ir.Target) -> str:
        """The key of a target: `table:m/c/s/t`."""
        return self._path(target)[-1]

    def places(self, target: ir.Target) -> dict[str, str]:
        """The container of each entity with a flat id on the path of a target, by key."""
        flat = self.program.flat
        return {key: around for around, key in pairwise(self._path(target)) if key.partition(":")[0] in flat}

    def _path(self, target: ir.Target) -> list[str]:
        """The keys on the path of a target, from the root to its own."""
        type_, of_object = base_type(target.type), self._levels.get(target.slot, 1)
        # An entity with a flat id lies in one place, so requests on other numbers of levels are about others.
        end = self.suffix(target.slot) + (f"_{of_object}" if self.program.flat and of_object > 1 else "")
        names: list[str] = []
        keys: list[str] = []
        first = 0
        """The number of names before the names in the key: an id that is flat begins with its own."""
        for link, depth in (
            vocabulary(self.program).shapes[type_].links(int(target.type.partition("/")[2] or of_object))
        ):
            word = base_type(link)
            if depth > len(names):  # a `single` type has the path of what contains it
                names.append(next((word[:n] for n in range(1, len(word)) if word[:n] not in names), word))
            if word in self.program.flat:
                first = depth - 1
            keys.append(f"{word}:{'/'.join(name + end for name in names[first:])}")
        return keys

    def suffix(self, slot: str) -> str:
        """The end of the names of the object in a slot."""
        number = self.slots[slot]
        return str(number) if number > 1 else ""

    def atom(self, atom: ir.Atom) -> str:
        """An atom with names."""
        return atom_words(atom, self.key)

    def merged(self, atoms: Sequence[Merged]) -> Iterator[Tree]:
        """Merge alternatives: `READ/WRITE (x)`, `owner (x, y)`."""
        by_key: dict[str, list[str]] = {}
        for atom in atoms:
            what, _, target = self.atom(atom).removesuffix(")").partition(" (")
            key, value = (target, what) if isinstance(atom, ir.Has) else (f" {what}", target)
            by_key.setdefault(key, []).append(value)
        for key, values in by_key.items():
            if key.startswith(" "):
                yield f"{key[1:]} ({', '.join(dict.fromkeys(values))})"
            else:
                yield f"{'/'.join(dict.fromkeys(values))} ({key})"


def _flow(value: object) -> str:
    match value:
        case str():
            return _quoted(value)
        case list():
            return "[" + ", ".join(map(_flow, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{key}: {_flow(inner)}" for key, inner in value.items()) + "}"
        case _:
            raise AssertionError(value)


def _quoted(text: str) -> str:
    if '"' in text:
        return json.dumps(text, ensure_ascii=False)
    return f'"{text}"' if set(text) & set(",{}[]#&*!|>%@`\"'") or ": " in text or text.endswith(":") else text
