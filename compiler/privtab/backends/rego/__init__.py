"""The Rego back end: one package for a system, one function for a row, readable and fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from privtab.backends.protocol import Compilation
from privtab.backends.rego.atoms import explained_atoms
from privtab.backends.rego.body import Body, Clause, Functions, RowView, filter_views
from privtab.backends.rego.layout import rego_string, rego_template
from privtab.base.attributes import AttributeKind
from privtab.base.names import ANY_PRIVILEGE, LEFT_OUT, UNUSABLE
from privtab.base.paths import SEVERAL
from privtab.base.records import dataclass
from privtab.base.request import MOST_ACTIVE_ROLES
from privtab.base.sql_text import DENIAL, DIALECTS, NO_IDENTIFIER
from privtab.ir.formula import compared_terms, reached_atoms, references, resolve_can, uses_below, walk_condition
from privtab.ir.nodes import ALWAYS, And, Can, Compare, Formula, Program, Rule, Self, When
from privtab.ir.serialise import vocabulary

ENTRY = "allowed"
"""The entry function for requests; each clause first compares the operation and the type with literals."""


@dataclass(slots=True)
class Emitter(Functions):
    """Turns formulas into clauses; alternatives inside a conjunction become functions of their own."""

    referred: set[str] = field(default_factory=set)
    """The functions that `can` calls; other rows need only their clauses of `allowed`."""
    need_no_row: dict[Can, bool] = field(default_factory=dict)
    """True if some part of the condition of a `can` holds without any rows in the state."""

    def rows(self) -> tuple[RowView, ...]:
        """A view for each rule, in the program's order."""
        for entity, operation in self.program.rules:
            self.functions[entity, operation] = self.names.take(f"{entity}_{operation}")
        for rule in self.program.rules.values():
            for can in references(rule.item_condition):
                self.referred.add(self.functions[can.target.type, can.operation])
            if rule.unnamed:
                self._note_unnamed(rule, rule.call_condition)
        return tuple(self._row(rule) for rule in self.program.rules.values())

    def _note_unnamed(self, rule: Rule, condition: Formula) -> None:
        """Note a rule that refers to its own entity though that may be unnamed, and the rules that it refers to for it."""
        key = (rule.entity, rule.operation)
        atoms = reached_atoms(self.program, condition)
        if key not in self.short and any(any(self.is_resource(target, rule) for target in a.targets) for a in atoms):
            self.short.add(key)
            for can in references(condition):
                if self.is_resource(can.target, rule):
                    referred = self.program.rules[can.target.type, can.operation]
                    self._note_unnamed(referred, referred.item_condition)

    def _row(self, rule: Rule) -> RowView:
        body = Body(self, rule)
        name = self.functions[rule.entity, rule.operation]
        call, each = rule.call_condition, rule.each
        requires_nothing = call == ALWAYS and not rule.withs
        length = len(self.program.chain(rule.entity))
        clauses: list[Clause] = []
        unnamed = self.program.unnamed(rule)
        if each is not None and not requires_nothing and (unnamed or name in self.referred):
            gate = self.names.take(f"{name}_call")
            clauses += body.function(gate, call)
            item: tuple[tuple[str, ...], ...] = ((f"{gate}(user, path)", *body.lines_of(name, each)),)
            short: tuple[str, ...] = (f"{gate}(user, path)",)
        else:
            item = body.bodies(name, call if each is None else each if requires_nothing else And.of(call, each))
            short = () if requires_nothing else (f"{name}(user, path)",)
        if name in self.referred or len(item) > 1 or (unnamed and each is None):
            clauses += [body.clause(name, lines) for lines in item]
            item = ((f"{name}(user, path)",),)
        named, without = (f"count(path) == {length}",), (f"count(path) == {length - 1}",)
        both: tuple[str, ...] = (f"count(path) in {{{length - 1}, {length}}}",)
        if rule.entity in self.program.nested_on:
            named, without, both = ("lib.complete(path)",), ("not lib.complete(path)",), ()
        if unnamed and item == (short,):
            entries = [self._entry(body, rule, both, short)]
        else:
            entries = [self._entry(body, rule, named, lines) for lines in item]
            if unnamed:
                entries.append(self._entry(body, rule, without, short))
        return RowView(
            id=rule.id,
            title=rule.title,
            entity=rule.entity,
            operation=rule.operation,
            requires=rule.requires_text,
            each=rule.each_text,
            note=rule.note,
            source=rule.source_text,
            origin=rule.origin,
            clauses=(*entries, *clauses, *body.helpers),
        )

    def _entry(self, body: Body, rule: Rule, form: tuple[str, ...], lines: tuple[str, ...]) -> Clause:
        # Rule indexing requires that the input is compared with literals, first and directly.
        conditions = (
            f'input.action.name == "{rule.operation}"',
            f'input.resource.type == "{rule.entity}"',
            *form,
            *(f'lib.said("{flag}")' for flag in rule.required_flags),
            *(("count(input.context.active_roles) > 0",) if rule.needs_active_role else ()),
        )
        # Check the user last, since that only matters if all else holds.
        user_check = ("lib.named(user)",) if self._may_hold_without_rows(rule) else ()
        return body.clause(ENTRY, (*lines, *user_check), before=conditions)

    def _may_hold_without_rows(self, rule: Rule) -> bool:
        """Return whether the row may hold for a user without any rows in the state, and so for an empty user name."""
        if "request" in self.program.semantics.groups or self.program.semantics.everyone is not None:
            return True
        asked = (rule.call_condition,) if rule.each is None else (rule.call_condition, rule.item_condition)
        return any(map(self._needs_no_row, asked))

    def _needs_no_row(self, formula: Formula) -> bool:
        """Return whether some part of a condition holds without any rows in the state."""
        for node in walk_condition(formula):
            match node:
                case Self() | When() | Compare() | And(parts=()):
                    return True
                case Can():
                    if node not in self.need_no_row:
                        self.need_no_row[node] = self._needs_no_row(resolve_can(self.program, node))
                    if self.need_no_row[node]:
                        return True
                case _:
                    pass
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeDispatch:
    """The dispatch of a request about an entity of a type to its row."""

    function: str
    rows: Mapping[str, str]
    """The function of each operation's row."""


def dispatched(
    rows: Mapping[str, Sequence[RowView]], emitter: Emitter
) -> tuple[dict[str, list[RowView]], dict[str, TypeDispatch]]:
    """The rows by type, without the comparisons that an index would use, and the functions that replace these."""
    found: dict[str, TypeDispatch] = {}
    direct_rows: dict[str, list[RowView]] = {}
    for type_, type_rows in rows.items():
        function = emitter.names.take(f"of_{type_}")
        names: dict[str, str] = {}
        for row in type_rows:
            names[row.operation] = emitter.names.take(f"asked_{emitter.functions[row.entity, row.operation]}")
            # An entry clause begins with the operation and the type, which are known where its function is called.
            clauses = tuple(
                replace(clause, name=names[row.operation], lines=clause.lines[2:]) if clause.name == ENTRY else clause
                for clause in row.clauses
            )
            direct_rows.setdefault(type_, []).append(replace(row, clauses=clauses))
        found[type_] = TypeDispatch(function=function, rows=names)
    return direct_rows, found


_NAME = f"(?:[*?]*(?:[^/%*?{UNUSABLE}]|%2[F5])(?:[^/%{UNUSABLE}]|%2[F5])*|(?:%2A|%3F)+)"
"""A name in a key: escaped are `/` and `%` alone, and `*` and `?` where it is made of nothing else."""


def render(
    program: Program, name: str | None = None, *, indexed: bool = True, sharded: bool = False
) -> Mapping[str, str]:
    """The Rego modules of a program, by path inside the bundle.

    `program` is the one after the passes. `name` replaces the system's name in package names, so that two versions can
    run side by side; both read the state of the system. Without `indexed`, functions lead requests to their rows, for
    engines that run Rego without an index over its rules. With `sharded`, the modules read a sharded state, and are undefined
    where a shard that a request needs is missing.
    """
    name = name or program.system
    rows: dict[str, list[RowView]] = {}
    emitter = Emitter(program, sharded)
    for row in emitter.rows():
        rows.setdefault(row.entity, []).append(row)
    common = {
        "name": name,
        "program": program,
        "inheriting": program.inheritance,
        "system": program.system,
        "indexed": indexed,
        "sharded": sharded,
        "nested": nested_places(program),
        "flat": flat_places(program),
        "below": uses_below(program),
        "unusable": UNUSABLE,
        "name_pattern": _NAME,
        "opaque": sorted(vocabulary(program).opaque),
        "optional_objects": any(LEFT_OUT in slot.types for rule in program.rules.values() for slot in rule.withs),
    }
    base = f"privtab/{name}"
    dispatch: dict[str, TypeDispatch] = {}
    if not indexed:
        rows, dispatch = dispatched(rows, emitter)
    # One module for each package: for every module OPA copies the names of all rules of its package.
    modules = {
        f"{base}/policy.rego": rego_template("policy.rego.j2").render(**common, rows=rows.values(), dispatch=dispatch),
        f"{base}/lib/lib.rego": rego_template("lib.rego.j2").render(
            **common,
            **_named_groups(program),
            most_active_roles=MOST_ACTIVE_ROLES,
            layout="sharded" if sharded else "whole",
            roles_of_roles="roles" in program.semantics.hierarchy,
            role_grants=role_grants(program),
            links=links(program),
            paths=key_paths(program),
            shapes=key_shapes(program),
            attributes=_given_attributes(program),
            defaults=any(attribute.default is not None for attribute in program.attributes.request.values()),
            held=_held_attributes(program),
        ),
        f"{base}/explain/explain.rego": rego_template("explain.rego.j2").render(
            **common,
            levels_compared=any(term.target and term.target.level in SEVERAL for term in compared_terms(program)),
            attributes=bool(program.attributes),
            asks_any=ANY_PRIVILEGE in program.privileges,
            **explained_atoms(program, sharded=sharded),
        ),
    }
    if program.filters:
        modules[f"{base}/filters.rego"] = rego_template("filters.rego.j2").render(
            name=name,
            system=program.system,
            lists=filter_views(program, emitter),
            quoting=DIALECTS[program.dialect],
            no_identifier=NO_IDENTIFIER,
            denial=DENIAL,
        )
    return {path: text.rstrip("\n") + "\n" for path, text in sorted(modules.items())}


def _given_attributes(program: Program) -> dict[str, dict[str, Any]]:
    declared = program.attributes.from_origin("request").to_json()
    return {
        kind: {name: {key: value for key, value in type_.items() if key != "from"} for name, type_ in types.items()}
        for kind, types in declared.items()
    }


def _held_attributes(program: Program) -> dict[str, list[str]]:
    """The names of the attributes that have values in the state; nothing if there are none."""
    declared = program.attributes.from_origin("state")
    kinds: tuple[AttributeKind, ...] = ("user", "entity")
    return {kind: sorted(declared.of(kind)) for kind in kinds if declared.of(kind)}


def links(program: Program) -> dict[str, list[tuple[str, int]]]:
    """For each entity type, the types on its path with the number of names in each one's path."""
    return {name: [(link, program.depth(link)) for link in program.chain(name)] for name in program.entities}


def nested_position(program: Program, type_: str) -> int | None:
    """The position, among the types on the path of a type, of the one that nests; None if none does."""
    nested = program.nested_on.get(type_)
    return None if nested is None else program.chain(type_).index(nested)


def nested_places(program: Program) -> dict[str, dict[str, int]]:
    """For each type on whose path a type nests: the position of that type, and the most names of a path."""
    shapes = vocabulary(program).shapes
    return {
        name: {"at": at, "most": shapes[name].most}
        for name in program.entities
        if (at := nested_position(program, name)) is not None
    }


def flat_places(program: Program) -> dict[str, dict[str, Any]]:
    """For each type with flat ids or below one: the types from that one on, with the number of names, and the types around it."""
    names = vocabulary(program)
    return {
        name: {
            "chain": [list(link) for link in names.shapes[name].written.chain],
            "containers": list(names.containers(name)) if name in program.flat else [],
        }
        for name in program.entities
        if names.lies_in_state(name)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPath:
    """A pattern for the keys on the path to an entity of a type."""

    type: str
    chain: Sequence[tuple[str, int]]
    """The types of the keys, with the number of names in each key."""
    pattern: str
    """Matches the keys, joined by `//`, which no key contains."""
    names: tuple[str, ...]
    """Variables for what the pattern captures: a name of the path is the same in every key that contains it."""

    @property
    def last_names(self) -> tuple[str, ...]:
        """Variables for the names in the last key, which are the names of the whole path."""
        return tuple(f"name_{number}" for number in range(self.chain[-1][1] if self.chain else 0))

    @property
    def parts(self) -> Sequence[Sequence[str]]:
        """For each key, the literals and variables of names that make it up, joined by `//`; for engines without fast patterns."""
        parts: list[list[str]] = []
        for place, (link, depth) in enumerate(self.chain):
            separated = [part for name in self.last_names[:depth] for part in ('"/"', name)]
            parts.append([rego_string(f"{'//' if place else ''}{link}:"), *separated[1:]])
        return parts


def key_paths(program: Program) -> list[KeyPath]:
    """The key paths of each entity type, and paths without their own key for types where some row allows such requests."""
    unnamed = {rule.entity for rule in program.rules.values() if program.unnamed(rule)}
    nested, names = program.nested_on, vocabulary(program)
    found: list[KeyPath] = []
    for type_, chain in links(program).items():
        if type_ in nested or names.lies_in_state(type_):
            continue  # what keys there are depends on the request or the state: they are compared with those of the path
        found.append(_key_path(type_, chain))
        if type_ in unnamed:
            found.append(_key_path(type_, chain[:-1]))
    return found


def _key_path(type_: str, chain: Sequence[tuple[str, int]]) -> KeyPath:
    name_numbers = [number for _, depth in chain for number in range(depth)]
    names = (f"name_{number}" if name_numbers.count(number) > 1 else "_" for number in name_numbers)
    pattern = "//".join(f"{link}:{'/'.join([f'({_NAME})'] * depth)}" for link, depth in chain)
    return KeyPath(type=type_, chain=chain, pattern=f"^{pattern}$", names=("_", *names))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyShape:
    """The derivation of the keys on a path of two or more keys from the last one."""

    last: int
    pattern: str
    """Matches the last key."""
    keys: str
    """The replacement: all keys, joined by `//`, which no key contains."""


def key_shapes(program: Program) -> dict[str, dict[int, KeyShape]]:
    """For each entity type, the shapes of its keys by their number.

    A path of one key has none: if the pattern does not match, the key remains as it is, and equals itself.
    """
    found: dict[str, dict[int, KeyShape]] = {}
    for path in key_paths(program):
        length = len(path.chain)
        if length > 1:
            found.setdefault(path.type, {})[length] = _key_shape(path.chain)
    return found


def _key_shape(chain: Sequence[tuple[str, int]]) -> KeyShape:
    type_, depth = chain[-1]
    # Each group contains the next one and one more name, so the first, outermost group is the whole path.
    groups = "(" * depth + ")/".join([_NAME] * depth) + ")"
    keys = "//".join(f"{link}:${{{depth - names + 1}}}" for link, names in chain)
    return KeyShape(last=len(chain) - 1, pattern=f"^{type_}:{groups}$", keys=keys)


def role_grants(program: Program) -> dict[str, dict[str, dict[str, int]]]:
    """Entity type → privilege → role → deepest position on the path where its default grants give the privilege.

    A scope counts if it is at that position or above it.
    """
    table: dict[str, dict[str, dict[str, int]]] = {}
    for name in program.entities:
        chain = program.chain(name)
        first = nested_position(program, name)
        for position, type_ in enumerate(chain):
            for role in program.roles.values():
                for privilege in dict(role.grants).get(type_, ()):
                    if type_ not in program.granting_types(privilege, name):
                        continue
                    table.setdefault(name, {}).setdefault(privilege, {})[f"role:{role.name}"] = (
                        position if first is None or position < first else position - len(chain)
                    )
    return table


__all__ = ["files", "render"]


def files(policy: Compilation) -> Mapping[str, str]:
    """The Rego modules of the policy bundle."""
    return render(policy.optimised, policy.name, sharded=policy.sharded)


def _named_groups(program: Program) -> dict[str, str]:
    """The groups of a caller that no row gives them: the template for them, the Rego expression of their names, and its words.

    `named_by`: the value of the rule that this expression is, if requests bring groups.
    """
    asked, everyone = "request" in program.semantics.groups, program.semantics.everyone
    brought = '[trim_prefix(group, "group:") | some group in input.subject.properties.groups]'
    words = {"groups": "request" if asked or everyone else "state", "named_groups": "named_groups"}
    if asked and everyone:
        both = "the request brings, and of the group of every user"
        return words | {"which": both, "named_by": f"array.concat({brought}, [{rego_string(everyone)}])"}
    if everyone:
        return words | {"named_groups": f"[{rego_string(everyone)}]", "which": "every user is in"}
    return words | {"which": "the request brings", "named_by": brought}
