"""The program of a bundle: what the JSON in it says, as the comparison reads programs.

What runs is compared as it runs: nothing has to be kept beside the bundles, and a bundle that somebody else put into the
registry is compared too. Only words are lost on this road (notes, titles of types, where a row stands in its file).
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, assert_never

from privtab import strict_json
from privtab.bundle.archive import json_bytes
from privtab.bundle.stream import entries
from privtab.diagnostics import Span
from privtab.errors import BrokenBundle, FileError
from privtab.ir.canonical import target_text
from privtab.ir.nodes import (
    ALWAYS,
    RESOURCE,
    Alias,
    And,
    ByType,
    Can,
    Effect,
    EntityType,
    Formula,
    Has,
    Holds,
    Member,
    Or,
    Owner,
    OwnerSemantics,
    Privilege,
    Program,
    Role,
    Rule,
    Self,
    Semantics,
    ServiceAdmin,
    Source,
    Target,
    When,
    WithSlot,
)
from privtab.ir.serialise import FORMAT, program_json

_OF_TARGET: Mapping[str, type[Owner | Member | Self | Holds]] = {
    "owner": Owner,
    "member": Member,
    "self": Self,
    "holds": Holds,
}


def program_in(bundle: bytes, shown: str) -> Program:
    """The program of a policy bundle; `shown` names it. Raises FileError where there is none that can be read."""
    try:
        texts = [file.read() for name, _, file in entries(io.BytesIO(bundle)) if name.startswith("privtab_program/")]
        content = strict_json.loads(texts[0]) if len(texts) == 1 else None
    except (BrokenBundle, ValueError, RecursionError) as error:
        raise FileError(f"{shown} cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise FileError(f"{shown} holds no program of format {FORMAT}")
    try:
        return program_from(content, shown)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise FileError(f"the program of {shown} cannot be read: {error!r}") from error


def comparable(program: Program) -> Program:
    """A program as it comes out of its own bundle, with the places of its file: two of these differ where bundles would."""
    # Through the bundle's JSON, so that types and operations come in its order on both sides.
    made = program_from(strict_json.loads(json_bytes(program_json(program))), f"{program.system}/{program.version}")
    return replace(made, rules={pair: replace(r, span=program.rules[pair].span) for pair, r in made.rules.items()})


def program_from(content: Mapping[str, Any], shown: str) -> Program:
    """The program that `ir.serialise.program_json` wrote; `shown` stands where a program of a file has its path."""
    span = Span(path=shown, line=1, column=1, end_line=1, end_column=1)
    semantics = content["semantics"]
    owner = semantics["owner"]
    return Program(
        system=content["system"],
        version=content["version"],
        title=content["title"],
        entities={
            name: EntityType(name=name, parent=e["parent"], single=e["single"], principal=e["principal"])
            for name, e in content["entities"].items()
        },
        privileges={name: Privilege(name=name, on=tuple(p["on"])) for name, p in content["privileges"].items()},
        aliases={name: Alias(name=name, of=of) for name, of in content["aliases"].items()},
        sets={name: tuple(members) for name, members in content["sets"].items()},
        roles={
            name: Role(name=name, scope=r["scope"], grants=tuple((t, tuple(ps)) for t, ps in r["grants"].items()))
            for name, r in content["roles"].items()
        },
        semantics=Semantics(
            inheritance=semantics["inheritance"],
            deny=semantics["deny"],
            owner=owner
            and OwnerSemantics(kinds=tuple(owner["kinds"]), creator=owner["creator"], holds=tuple(owner["holds"])),
            groups=tuple(semantics["groups"]),
        ),
        rules={
            (entity, operation): _rule(entity, operation, rule, span)
            for entity, rules in content["rules"].items()
            for operation, rule in rules.items()
        },
    )


def _rule(entity: str, operation: str, rule: Mapping[str, Any], span: Span) -> Rule:
    each = None if rule["each"] is None else _formula(rule["each"])
    made = Rule(
        id=rule["id"],
        entity=entity,
        operation=operation,
        title=rule["title"],
        origin=rule["origin"],
        gate=ALWAYS,  # the JSON has it as a part of what the call needs
        requires=_formula(rule["call"]),
        each=each,
        span=span,
        withs=tuple(WithSlot(name=name, types=tuple(types)) for name, types in rule["with"].items()),
        report=rule["report"],
        effects=tuple(_effect(effect) for effect in rule["effects"]),
        creates=rule["unnamed"] and each is None,
        source=None if rule["source"] is None else Source(document=rule["source"]),
    )
    texts = [None if f is None or f == ALWAYS else _text(f, made) for f in (made.requires, each)]
    return replace(made, requires_text=texts[0], each_text=texts[1])


def _effect(effect: Mapping[str, Any]) -> Effect:
    kind, _, what = effect["text"].partition(" ")
    return Effect(kind=kind, what=what, privileges=tuple(effect["privileges"]), target=_target(effect["target"]))


def _target(node: Mapping[str, Any]) -> Target:
    return Target(slot=node["slot"], type=node["type"])


def _formula(node: Mapping[str, Any]) -> Formula:
    [(kind, inside)] = node.items()
    match kind:
        case "has":
            return Has(privilege=inside["privilege"], target=_target(inside))
        case "owner" | "member" | "self" | "holds":
            return _OF_TARGET[kind](target=_target(inside))
        case "service_admin":
            return ServiceAdmin()
        case "and":
            return And(parts=tuple(map(_formula, inside)))
        case "or":
            return Or(parts=tuple(map(_formula, inside)))
        case "when":
            return When(flag=inside["flag"], body=_formula(inside["body"]))
        case "can":
            return Can(operation=inside["operation"], target=_target(inside))
        case "by_type":
            cases = tuple((type_, _formula(case_)) for type_, case_ in inside["cases"].items())
            return ByType(slot=inside["slot"], cases=cases, text="")
        case _:
            raise ValueError(f"unknown node `{kind}`")


def _text(formula: Formula, rule: Rule, *, inner: bool = False) -> str:
    """A condition in the words of the tables; `inner`: parentheses around what has several parts."""
    match formula:
        case Has():
            return f"{formula.privilege} ({target_text(formula.target, rule)})"
        case Self(target=target):
            return "self" if target.slot == RESOURCE and target.type == rule.entity else f"self ({target.type})"
        case Owner(target=target) | Member(target=target) | Holds(target=target):
            return f"{type(formula).__name__.lower()} ({target_text(target, rule)})"
        case ServiceAdmin():
            return "service admin"
        case Can():
            return f"can {formula.operation} ({target_text(formula.target, rule)})"
        case And(parts=parts) | Or(parts=parts):
            if not parts:
                return "anyone" if isinstance(formula, And) else "nobody"
            words = (" and " if isinstance(formula, And) else " or ").join(_text(p, rule, inner=True) for p in parts)
            return f"({words})" if inner and len(parts) > 1 else words
        case When():
            return f"({_text(formula.body, rule, inner=True)} when {formula.flag})"
        case ByType():
            cases: dict[str, list[str]] = {}
            for type_, case_ in formula.cases:
                cases.setdefault(_text(case_, rule), []).append(type_)
            words = "; ".join(f"{'/'.join(types)}: {text}" for text, types in cases.items())
            return f"[by {formula.slot}: {words}]"
        case _:
            assert_never(formula)
