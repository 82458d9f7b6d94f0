"""The program as JSON, as the policy bundle carries it at `data.privtab_program.<system>`.

Clients check the names of a request against it, the Rego explanation reads minimal sets from it, and in-process engines run it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, get_args

from privtab.base.caching import once
from privtab.base.names import PRINCIPAL_KINDS, small_letters
from privtab.base.sql_text import FilterWord
from privtab.base.vocabulary import Vocabulary, kinds_of_requests
from privtab.ir import nodes as ir
from privtab.ir.canonical import Canonical, Leaf, Listing, canonical_form
from privtab.ir.declarations import Semantics
from privtab.ir.formula import asked_condition
from privtab.ir.names import constants_text
from privtab.ir.shapes import rule_flags, shapes
from privtab.ir.some_minimal_sets import minimal_listing

KINDS_OF_NODES: Mapping[type, str] = {node: small_letters(node.__name__) for node in get_args(ir.Formula)}
"""The name of each kind of node: `has_below`, `and`."""
FORMAT = 1
FORMAT_NEWER = 2
"""The format of programs with nested types, flat ids, active roles, attributes, a group of every user or privileges with an inheritance of
their own, which readers of the first format would misread: denials to everyone, for example."""


def _needs_newer(program: ir.Program) -> bool:
    semantics = program.semantics
    beyond_grants = semantics.active_roles != "none" or semantics.everyone is not None or program.inheritance == "mixed"
    return bool(program.nested_on or program.flat or program.attributes or beyond_grants)


def program_json(program: ir.Program, optimised: ir.Program | None = None, *, explained: bool = True) -> dict[str, Any]:
    """The whole program: entities, privileges, roles, semantics and rules, keys in a fixed order.

    `optimised`: the program after the passes, whose conditions engines run. Minimal sets, which explanations cite, are the sets of
    `program`: both programs mean the same, but if there are too many minimal sets, which of them are listed depends on the formula.
    Not `explained`: without what explanations cite, for engines in this process, since minimal sets take time to work out.

    Example:
        text = json.dumps(program_json(program))
    """
    known: _Known = {}
    if not explained:
        rules = _by_entity(
            program, lambda rule: {"id": rule.id, **_requests(program, rule), **_conditions(rule, known)}
        )
    else:
        rules = {
            entity: {
                name: {**written, **_conditions((optimised or program).rules[entity, name], known)}
                for name, written in written_rules.items()
            }
            for entity, written_rules in _rules(program).items()
        }
    return {**_declarations(program), "rules": rules}


def _by_entity(
    program: ir.Program, written: Callable[[ir.Rule], dict[str, Any]]
) -> dict[str, dict[str, dict[str, Any]]]:
    """The rules by entity type and operation."""
    rules: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in program.entities}
    for (entity, operation), rule in program.rules.items():
        rules[entity][operation] = written(rule)
    return rules


def _declarations(program: ir.Program) -> dict[str, Any]:
    return {
        "format": FORMAT_NEWER if _needs_newer(program) else FORMAT,
        "system": program.system,
        "version": program.version,
        "title": program.title,
        "entities": {name: _entity(program, entity) for name, entity in program.entities.items()},
        "privileges": {
            name: {"on": list(p.on)}
            | ({"implies": list(p.implies)} if p.implies else {})
            | ({"inheritance": p.inheritance} if p.inheritance else {})
            | ({} if p.granted else {"granted": False})
            for name, p in program.privileges.items()
        },
        "aliases": {name: alias.of for name, alias in program.aliases.items()},
        "sets": {name: list(members) for name, members in program.sets.items()},
        "roles": {
            name: {"scope": role.scope, "grants": {t: list(ps) for t, ps in role.grants}}
            for name, role in program.roles.items()
        },
        **({"attributes": program.attributes.to_json()} if program.attributes else {}),
        **({"filters": _filters(program)} if program.filters else {}),
        "semantics": semantics_json(program.semantics),
    }


def _filters(program: ir.Program) -> dict[str, Any]:
    """The row filters and column masks by kind and type; in a list of parts, what is no text is a placeholder."""
    found: dict[str, Any] = {"dialect": program.dialect}
    for (entity, kind), listed in program.filter_lists.items():
        found.setdefault(kind, {})[entity] = [{"name": one.name, "sql": [*map(_sql_part, one.parts)]} for one in listed]
    return found


def _sql_part(part: str | FilterWord | ir.Term) -> str | dict[str, Any]:
    if isinstance(part, FilterWord):
        return {"word": part.text}
    return part if isinstance(part, str) else _term(part, _place)


_Known: TypeAlias = dict[int, tuple[ir.Formula, dict[str, Any]]]
"""The JSON of atoms by their identity: rows of a large table share most of them."""


def _conditions(rule: ir.Rule, known: _Known) -> dict[str, Any]:
    return {
        "call": formula_json(rule.call_condition, known),
        "each": None if rule.each is None else formula_json(rule.each, known),
    }


@once
def _rules(program: ir.Program) -> dict[str, dict[str, dict[str, Any]]]:
    """The rules, in which `program_json` puts the conditions."""
    leaf, known = shapes(program).leaf, dict[int, dict[str, Any]]()
    return _by_entity(program, lambda rule: _rule(program, rule, lambda atom: leaf(atom).number, known))


def semantics_json(semantics: Semantics) -> dict[str, Any]:
    """The file-wide semantics of grants, without the gate, which is part of each rule."""
    owner = semantics.owner
    return {
        "inheritance": semantics.inheritance,
        "deny": semantics.deny,
        "owner": owner and {"kinds": list(owner.kinds), "creator": owner.creator, "holds": list(owner.holds)},
        **({} if semantics.subjects == ("user",) else {"subjects": list(semantics.subjects)}),
        **({} if semantics.grantees == PRINCIPAL_KINDS else {"grantees": list(semantics.grantees)}),
        **({} if semantics.assignees == PRINCIPAL_KINDS else {"assignees": list(semantics.assignees)}),
        "groups": list(semantics.groups),
        **({} if semantics.everyone is None else {"everyone": semantics.everyone}),
        **({"hierarchy": list(semantics.hierarchy)} if semantics.hierarchy else {}),
        **({} if semantics.active_roles == "none" else {"active_roles": semantics.active_roles}),
        **({"inactive_owners": True} if semantics.inactive_owners else {}),
    }


@once
def vocabulary(program: ir.Program) -> Vocabulary:
    """The names of a program, as a client reads them from its JSON.

    Example:
        vocabulary(program).check(request)
    """
    return Vocabulary.from_program(
        {
            "system": program.system,
            "entities": {name: _entity(program, entity) for name, entity in program.entities.items()},
            "attributes": program.attributes.to_json(),
            "filters": _filters(program),
            "semantics": semantics_json(program.semantics),
            "rules": _by_entity(program, partial(_requests, program)),
        }
    )


def _requests(program: ir.Program, rule: ir.Rule) -> dict[str, Any]:
    """The content of requests for an operation."""
    return {
        "unnamed": rule.unnamed,
        "with": {w.name: list(w.types) for w in rule.withs},
        "flags": list(rule_flags(program, rule)),
        **({"required_flags": list(rule.required_flags)} if rule.required_flags else {}),
        **({"needs_active_role": True} if rule.needs_active_role else {}),
    }


def _chain(program: ir.Program, type_: str) -> list[dict[str, Any]]:
    return [{"type": link, "depth": program.depth(link)} for link in program.chain(type_)]


def _entity(program: ir.Program, entity: ir.EntityType) -> dict[str, Any]:
    return {
        "parent": entity.parent,
        "single": entity.single,
        "principal": entity.principal,
        "chain": _chain(program, entity.name),
        **({"nested": entity.nested} if entity.nested else {}),
        **({"flat": True} if entity.flat else {}),
        **({"opaque": True} if entity.opaque else {}),
    }


def _rule(
    program: ir.Program, rule: ir.Rule, number_of: Callable[[Leaf], int], known: dict[int, dict[str, Any]]
) -> dict[str, Any]:
    """A rule as JSON; `known`: the JSON of atoms by their numbers, which equal atoms share."""
    positions: dict[int, int] = {}

    def position(atom: Leaf) -> int:
        number = number_of(atom)
        if number not in positions:
            positions[number] = len(positions)
            if number not in known or isinstance(atom, ir.Compare):  # equal constants may be written in two ways
                known[number] = _atom(program, atom)
        return positions[number]

    combinations = tuple(itertools.islice(_combinations(program, rule), VARIANTS + 1))
    listings = {"item": _variants(program, rule, asked_condition(program, rule, named=True), combinations)}
    if rule.unnamed:
        listings["call"] = _variants(program, rule, asked_condition(program, rule, named=False), combinations)
    cut = {form: [key for key, listed in by_key.items() if not listed.complete] for form, by_key in listings.items()}
    return {
        "id": rule.id,
        "title": rule.title,
        "origin": rule.origin,
        "source": rule.source_text,
        **_requests(program, rule),
        "report": rule.report,
        **{name: True for name in ("destructive", "sensitive") if getattr(rule, name)},
        "call": None,
        "each": None,
        "effects": [_effect(program, effect) for effect in rule.effects],
        **({"delegations": [_effect(program, effect) for effect in rule.delegations]} if rule.delegations else {}),
        "minimal": {
            form: {
                key: [[*map(position, row)] for row in listed.sets] for key, listed in listings.get(form, {}).items()
            }
            for form in ("item", "call")
        },
        **({"minimal_cut": cut} if len(combinations) > VARIANTS or any(cut.values()) else {}),
        "atoms": [known[number] for number in positions],
    }


VARIANTS = 64
"""Combinations of flags and types of a rule whose minimal sets are listed; later combinations have none."""


Combination: TypeAlias = tuple[tuple[str, ...], dict[str, str]]
"""Flags that a request sets, and the types of its objects."""


def _variants(
    program: ir.Program, rule: ir.Rule, condition: ir.Formula, combinations: Sequence[Combination]
) -> dict[str, Listing]:
    """Minimal sets for the first combinations of flags and of types of `with` objects."""
    form = canonical_form(program)
    return {
        variant_key(flags, {w.name: types[w.name] for w in rule.withs if w.polymorphic}): _listed(
            form, condition, frozenset(flags), types
        )
        for flags, types in combinations[:VARIANTS]
    }


def _combinations(program: ir.Program, rule: ir.Rule) -> Iterator[Combination]:
    """Combinations of flags and types, those with few flags first."""
    return kinds_of_requests(rule_flags(program, rule), {w.name: w.types for w in rule.withs})


def listing(
    program: ir.Program, rule: ir.Rule, *, named: bool, flags: frozenset[str], types: Mapping[str, str]
) -> Listing:
    """The minimal sets of one kind of request as listed in the program's JSON, which are all that explanations see."""
    first = itertools.islice(_combinations(program, rule), VARIANTS + 1)
    known = [(frozenset(flags_set), chosen) for flags_set, chosen in first]
    setting = flags & frozenset(rule_flags(program, rule)), {w.name: types[w.name] for w in rule.withs}
    if len(known) > VARIANTS and setting not in known[:VARIANTS]:
        return Listing((), complete=False)
    return _listed(canonical_form(program), asked_condition(program, rule, named=named), *setting)


def _listed(form: Canonical, condition: ir.Formula, flags: frozenset[str], types: Mapping[str, str]) -> Listing:
    """As `minimal_listing`; incomplete as well if a set has several atoms about any level, as explanations choose one distance."""
    listed = minimal_listing(form, condition, flags, types)
    if not form.program.nested_on:
        return listed
    several = any(sum(_about_any_level(atom) for atom in atoms) > 1 for atoms in listed.sets)
    return listed._replace(complete=False) if several else listed


def _about_any_level(atom: Leaf) -> bool:
    target = atom.several if isinstance(atom, ir.Atomic) else None
    return target is not None and target.level == "any"


def variant_key(flags: tuple[str, ...], types: dict[str, str]) -> str:
    """The name of a combination: flags set, then types of `with` objects, both sorted.

    >>> variant_key(("override",), {"object": "table"})
    'override object=table'
    """
    return " ".join([*sorted(flags), *(f"{slot}={type_}" for slot, type_ in sorted(types.items()))])


def _effect(program: ir.Program, effect: ir.Effect) -> dict[str, Any]:
    privileges = list(effect.privileges)
    return {"text": effect.text, "privileges": privileges, "target": _target(program, effect.target)}


def _target(program: ir.Program, target: ir.Target) -> dict[str, Any]:
    index, single = program.anchor(target)
    return {**_place(target), "index": index, "single": single}


def _atom(program: ir.Program, atom: Leaf) -> dict[str, Any]:
    assert not isinstance(atom, ir.ByType), "every slot has a type here"
    place = partial(_target, program)
    if isinstance(atom, ir.Compare):
        right: dict[str, Any]
        if isinstance(atom.right, ir.Term):
            right = _term(atom.right, place)
        else:
            right = {"constants": list(atom.right), "text": constants_text(atom)}
        return {"kind": "compare", "left": _term(atom.left, place), "operator": atom.operator, "right": right}
    return {"kind": KINDS_OF_NODES[type(atom)], **_held(atom, place)}


def _held(atom: ir.Atom, place: Callable[[ir.Target], Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of an atom other than a comparison, besides its kind."""
    return {**atom.names, **(place(atom.target) if isinstance(atom, ir.OnTarget) else {})}


def _term(term: ir.Term, place: Callable[[ir.Target], Mapping[str, Any]]) -> dict[str, Any]:
    return {"of": term.kind, "attribute": term.attribute, **({} if term.target is None else place(term.target))}


def _place(target: ir.Target) -> dict[str, str]:
    place = {"slot": target.slot, "type": target.type}
    return place if target.level == "nearest" else {**place, "level": target.level}


def formula_json(formula: ir.Formula, known: _Known | None = None) -> dict[str, Any]:
    """A formula as nested objects, each with one key that names the node; equal objects for atoms that are `known`."""
    known = {} if known is None else known
    kind = KINDS_OF_NODES[type(formula)]
    match formula:
        case ir.And() | ir.Or():
            return {kind: [formula_json(p, known) for p in formula.parts]}
        case ir.When():
            return {kind: {"flag": formula.flag, "body": formula_json(formula.body, known)}}
        case ir.ByType():
            return {kind: {"slot": formula.slot, "cases": {t: formula_json(f, known) for t, f in formula.cases}}}
    written = known.get(id(formula))
    if written is None:
        written = known[id(formula)] = formula, {kind: _leaf_json(formula)}  # kept, so that no other gets its identity
    return written[1]


def _leaf_json(formula: ir.Atom | ir.Can) -> dict[str, Any]:
    match formula:
        case ir.Can(operation=operation, target=target):
            return {"operation": operation, "slot": target.slot, "type": target.type}
        case ir.Compare(right=right):
            operand = _term(right, _place) if isinstance(right, ir.Term) else list(right)
            return {"left": _term(formula.left, _place), "operator": formula.operator, "right": operand}
        case _:
            return _held(formula, _place)
