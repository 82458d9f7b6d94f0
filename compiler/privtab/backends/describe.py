"""A resolved policy as one JSON value: entities, privileges, and each row with its minimal sets, effects and source."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from privtab.backends.protocol import Compilation
from privtab.base.printable import indented_json
from privtab.ir.canonical import canonical_form
from privtab.ir.formula import walk_condition
from privtab.ir.names import atom_text, effect_texts
from privtab.ir.nodes import ByType, EntityType, Formula, Program, Role, Rule
from privtab.ir.serialise import VARIANTS, semantics_json
from privtab.ir.shapes import rule_flags
from privtab.ir.some_minimal_sets import minimal_listing

NO_FLAGS: frozenset[str] = frozenset()


def files(policy: Compilation) -> Mapping[str, str]:
    """The description as one JSON file."""
    described = described_policy(policy.program, revision=policy.revision or "")
    return {"policy.json": indented_json(described) + "\n"}


def described_policy(program: Program, *, revision: str, rules: Iterable[Rule] | None = None) -> dict[str, Any]:
    """The policy in the shape that `privtab describe --format json` prints, with all rows or the rows of some rules.

    `revision` is the bundle's: `described_policy(program, revision="a1b2")["revision"]`.
    """
    return {
        "system": program.system,
        "version": program.version,
        "title": program.title,
        "revision": revision,
        "entities": {name: _entity(entity) for name, entity in program.entities.items()},
        "privileges": _privileges(program),
        "sets": {name: list(members) for name, members in program.sets.items()},
        **({"conditions": dict(program.conditions)} if program.conditions else {}),
        "roles": {name: _role(role) for name, role in program.roles.items()},
        "conflicts": [
            {"operations": [f"{t}/{o}" for t, o in c.operations], "at_most": c.at_most, "why": c.why}
            for c in program.conflicts
        ],
        "semantics": semantics_json(program.semantics) | {"gate": program.semantics.gate},
        "sources": dict(program.sources),
        **({"dialect": program.dialect} if program.filters else {}),
        "operations": [_row(program, rule) for rule in (program.rules.values() if rules is None else rules)],
    }


def _row(program: Program, rule: Rule) -> dict[str, Any]:
    """Describe one row.

    If a condition depends on the type of a `with` object, `minimal_sets` has that part as written and `cases` has an entry for
    each type. If not all minimal sets are listed, `minimal_sets_complete` is present and false; if none is, they are unknown.
    """
    sets = _sets(program, rule, {})
    described: dict[str, Any] = {
        "id": rule.id,
        "entity": rule.entity,
        "operation": rule.operation,
        "title": rule.title,
        "from": "core" if rule.origin == "core" else "row",
        "requires": rule.requires_text,
        "minimal_sets": sets.pop("minimal_sets"),
        "each": rule.each_text,
        "each_minimal_sets": sets.pop("each_minimal_sets"),
        "report": rule.report,
        "effects": list(effect_texts(rule)),
        "creates": rule.creates is not None,
        **{name: True for name in ("destructive", "sensitive") if getattr(rule, name)},
        "note": rule.note,
        "deprecated": rule.deprecated,
        "source": None if rule.source is None else {"document": rule.source.document, "line": rule.source.line},
        "ambiguous": None
        if rule.ambiguous is None
        else {"cell": rule.ambiguous.cell, "readings": dict(rule.ambiguous.readings), "why": rule.ambiguous.why},
        "defined": {"file": rule.span.path, "line": rule.span.line},
        **sets,
    }
    if (filter_ := program.filter_of(rule.entity, rule.operation)) is not None:
        described["sql"] = filter_.sql
    if rule.required_flags:
        described["required_flags"] = list(rule.required_flags)
    if rule.withs:
        described["with"] = {slot.name: list(slot.words) for slot in rule.withs}
    slots = sorted({node.slot for node in walk_condition(rule.item_condition) if isinstance(node, ByType)})
    if slots:
        types = {slot.name: slot.types for slot in rule.withs}
        combinations = itertools.product(*(types[slot] for slot in slots))
        cases = [
            dict(zip(slots, chosen_types, strict=True)) for chosen_types in itertools.islice(combinations, VARIANTS)
        ]
        described["cases"] = [{"with": case, **_sets(program, rule, case)} for case in cases]
        if next(combinations, None) is not None or any("minimal_sets_complete" in case for case in described["cases"]):
            described["minimal_sets_complete"] = False
    return described


def minimal_set_texts(described: Mapping[str, Any], more: str) -> tuple[list[tuple[str, list[str]]], list[str]]:
    """The smallest sets of a described row in words, and a remark if not all of them are known or listed.

    Sets have a title, empty for the call; `never` or `unknown` is a set where there is none. `more`: the remark if there are more.

    >>> row = {"requires": "x", "minimal_sets": [["READ (lake)"]], "each_minimal_sets": None, "minimal_sets_complete": False}
    >>> minimal_set_texts(row, "has more")
    ([('', ['READ (lake)'])], ['has more'])
    """
    complete = described.get("minimal_sets_complete", True)
    call, each = described["minimal_sets"], described["each_minimal_sets"]
    listed = {"": call} if described["requires"] or call != [[]] else {}
    listed |= {} if each is None else {"each: ": each}
    for when, key in (("with", "when"), ("each with", "each_when")):
        listed |= {f"{when} {flag}: ": sets for flag, sets in described.get(key, {}).items()}
    none = ["never" if complete else "unknown"]
    texts = [(title, [" and ".join(atoms) or "anyone" for atoms in sets] or none) for title, sets in listed.items()]
    unknown = "has unknown minimal sets: its comparisons take too long to decide"
    return texts, [] if complete else [unknown if [] in (call, each) else more]


def type_forest(entities: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    """The described types from the roots down, each after what contains it, with its depth.

    >>> list(type_forest({"schema": {"parent": "lake"}, "lake": {"parent": None}}))
    [('lake', 0), ('schema', 1)]
    """
    inside: dict[str | None, list[str]] = {}
    for name, entity in entities.items():
        inside.setdefault(entity["parent"], []).append(name)
    waiting = [(name, 0) for name in reversed(inside.get(None, []))]
    while waiting:
        name, depth = waiting.pop()
        yield name, depth
        waiting += [(inner, depth + 1) for inner in reversed(inside.get(name, []))]


def _sets(program: Program, rule: Rule, types: Mapping[str, str]) -> dict[str, Any]:
    """The minimal sets of a row without flags and, under `when` and `each_when`, the minimal sets for each of its flags."""
    complete = True

    def text(condition: Formula | None, flags: frozenset[str] = NO_FLAGS) -> list[list[str]] | None:
        nonlocal complete
        if condition is None:
            return None
        found = minimal_listing(canonical_form(program), condition, flags, types)
        complete = complete and found.complete
        return [[atom_text(atom, rule, types) for atom in atoms] for atoms in found.sets]

    call = rule.call_condition
    found: dict[str, Any] = {"minimal_sets": text(call), "each_minimal_sets": text(rule.each)}
    flags = rule_flags(program, rule)
    if flags:
        found["when"] = {flag: text(call, frozenset({flag})) for flag in flags}
        if rule.each is not None:
            found["each_when"] = {flag: text(rule.each, frozenset({flag})) for flag in flags}
    return found if complete else found | {"minimal_sets_complete": False}


def _entity(entity: EntityType) -> dict[str, Any]:
    keys = ("single", "nested", "flat", "opaque", "title", "principal")
    return {"parent": entity.parent} | _declared(entity, *keys)


def _declared(declaration: object, *keys: str) -> dict[str, Any]:
    """The parts of a declaration that are not the defaults."""
    values = ((key, getattr(declaration, key)) for key in keys)
    return {key: value for key, value in values if value not in (None, False, ())}


def _privileges(program: Program) -> dict[str, Any]:
    described: dict[str, dict[str, Any]] = {}
    for name, privilege in program.grantable.items():
        implied = {"implies": list(privilege.implies)} if privilege.implies else {}
        further = _declared(privilege, "inheritance", "title", "deprecated")
        described[name] = {"on": list(privilege.on), **implied, **further}
    for name, alias in program.aliases.items():
        on = list(program.privileges[alias.of].on)
        described[name] = {"on": on, "alias_of": alias.of} | _declared(alias, "deprecated")
    return described


def _role(role: Role) -> dict[str, Any]:
    grants = {type_: list(names) for type_, names in role.grants}
    return {"scope": role.scope, "grants": grants} | _declared(role, "title")
