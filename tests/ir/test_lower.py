from __future__ import annotations

import time
from collections.abc import Callable
from textwrap import dedent
from typing import Any

import pytest

from privtab import model
from privtab.base.diagnostics import Severity
from privtab.base.source import SourceFile
from privtab.ir import nodes as ir
from privtab.ir.names import compare_text
from privtab.ir.nodes import Program
from privtab.language import syntax
from privtab.model.lower import lower as lower_policy

HEAD = {
    "privtab": "privtab: 1",
    "system": "system: shop",
    "version": 'version: "1"',
    "entities": "entities: {shop: {shelf: {item: }, user: , role: }}",
    "privileges": "privileges: [READ, WRITE]",
}


@pytest.fixture
def program() -> Callable[..., Program]:
    """The program of a text, whose head may be left off; it must be sound. Further arguments go to `model.resolve`."""

    def lowered(text: str, **options: Any) -> Program:
        text = dedent(text)
        present = {line.split(":")[0] for line in text.splitlines()}
        document = text + "".join(f"{line}\n" for key, line in HEAD.items() if key not in present)
        tables, found = syntax.read_policy(SourceFile.of("shop.yaml", document))
        assert tables is not None
        policy, more = model.resolve(tables, **options)
        errors = [d for d in (*found, *more) if d.severity is Severity.ERROR]
        assert policy is not None, errors
        assert errors == []
        return lower_policy(policy)

    return lowered


Lower = Callable[..., Program]


def text(formula: ir.Formula) -> str:
    """A formula with every parenthesis written out; an object's slot stands before its type."""
    match formula:
        case ir.Has(privilege=privilege, target=target):
            return f"{privilege}({target_text(target)})"
        case ir.Owner(target=target) | ir.Member(target=target) | ir.Self(target=target) | ir.Holds(target=target):
            return f"{type(formula).__name__.lower()}({target_text(target)})"
        case ir.HasBelow(privilege=privilege, target=target):
            return f"{privilege}({target_text(target)} or below)"
        case ir.OwnsBelow(target=target):
            return f"owner({target_text(target)} or below)"
        case ir.ServiceAdmin():
            return "service admin"
        case ir.Compare():
            return compare_text(formula, lambda target: target.type)
        case ir.And(parts=parts):
            return "[" + " & ".join(text(p) for p in parts) + "]"
        case ir.Or(parts=parts):
            return "[" + " | ".join(text(p) for p in parts) + "]"
        case ir.When(flag=flag, body=body):
            return f"[{text(body)} when {flag}]"
        case ir.Can(operation=operation, target=target):
            return f"can {operation}({target_text(target)})"
        case ir.ByType(slot=slot, cases=cases, text=shown):
            return f"<{shown} {slot}: " + ", ".join(f"{t}={text(f)}" for t, f in cases) + ">"


def target_text(target: ir.Target) -> str:
    return f"{target.slot}:{target.type}" if target.slot else target.type


def requires(program: Lower, cell: str, *, entity: str = "shelf", more: str = "", row: str = "") -> str:
    lowered = program(
        "privileges: {READ: , WRITE: , VIEW: {alias_of: READ}}\nsets: {ALL: [READ, WRITE]}\n"
        f"semantics: {{owner: {{kinds: [user]}}}}\n{more}"
        f"tables:\n  shop: {{load: READ (shop)}}\n  {entity}:\n    open:\n      requires: {cell}\n{row}"
    )
    return text(lowered.rules[entity, "open"].requires)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("READ (shelf)", "READ(shelf)"),
        ("READ/WRITE (shop, shelf)", "[[READ(shop) | READ(shelf)] | [WRITE(shop) | WRITE(shelf)]]"),
        ("READ + WRITE (shop, shelf)", "[[READ(shop) | READ(shelf)] & [WRITE(shop) | WRITE(shelf)]]"),
        ("VIEW (shelf)", "READ(shelf)"),
        ("ALL (shelf)", "[READ(shelf) & WRITE(shelf)]"),
        ("READ/ALL (shelf)", "[READ(shelf) | [READ(shelf) & WRITE(shelf)]]"),
        ("READ (parent) & WRITE (entity)", "[READ(shop) & WRITE(shelf)]"),
        ("owner (shop, shelf) or member (shop)", "[[owner(shop) | owner(shelf)] | member(shop)]"),
        ("can load (shop)", "can load(shop)"),
        ("anyone", "[]"),
        ("service admin", "service admin"),
        ("READ (shelf) and WRITE (shelf) when urgent", "[READ(shelf) & [WRITE(shelf) when urgent]]"),
        ("READ (shelf) or WRITE (shelf) when urgent", "[READ(shelf) | [WRITE(shelf) when urgent]]"),
        ("(READ (shelf) or WRITE (shelf)) when urgent", "[[READ(shelf) | WRITE(shelf)] when urgent]"),
        ("READ (shelf) and (WRITE (shelf) when urgent)", "[READ(shelf) & [WRITE(shelf) when urgent]]"),
    ],
)
def test_conditions(program: Lower, cell: str, expected: str) -> None:
    assert requires(program, cell) == expected


def test_principals(program: Lower) -> None:
    assert requires(program, "self", entity="user") == "self(user)"
    assert requires(program, "holds (role)", entity="role") == "holds(role)"


def test_single_types_hang_off_the_path(program: Lower) -> None:
    entities = "entities: {shop: {log: , shelf: {item: }, user: , role: }}\ntypes: {log: {single: true}}\n"
    assert requires(program, "READ (log)", more=entities) == "READ(log)"


def test_an_object_of_one_type(program: Lower) -> None:
    row = "      with: {other: shelf}\n"
    assert requires(program, "READ (other) and READ (shelf)", row=row) == "[READ(other:shelf) & READ(shelf)]"


def test_an_object_of_several_types_has_a_case_for_each(program: Lower) -> None:
    row = "      with: {o: [shop, item]}\n"
    assert requires(program, "READ (o)", row=row) == "<READ (o) o: shop=READ(o:shop), item=READ(o:item)>"
    assert requires(program, "owner (o)", row=row) == "<owner (o) o: shop=owner(o:shop), item=owner(o:item)>"
    assert requires(program, "can load (o)", row=row) == "<can load (o) o: shop=can load(o:shop)>"


def test_a_type_that_a_privilege_cannot_bind_to_has_no_case(program: Lower) -> None:
    lowered = program(
        "privileges: {READ: {on: [shop]}, WRITE: {on: [shop, item]}}\n"
        "tables: {shop: {open: {with: {o: any}, requires: READ/WRITE (o)}}}\n"
    )
    rule = lowered.rules["shop", "open"]
    assert rule.withs == (ir.WithSlot(name="o", types=("shop", "item")),)
    assert (
        text(rule.requires)
        == "[<READ (o) o: shop=READ(o:shop)> | <WRITE (o) o: shop=WRITE(o:shop), item=WRITE(o:item)>]"
    )


def test_gates_are_conjoined_to_all_rows_but_those_that_say_none(program: Lower) -> None:
    rules = program(
        "semantics: {gate: member (shop)}\n"
        "tables:\n  shop: {found: {requires: service admin, gate: none}}\n  shelf: {look: READ (shelf), list: {each: READ (shelf)}}\n"
    ).rules
    assert {op: text(rule.gate) for (_, op), rule in rules.items()} == {
        "found": "[]",
        "look": "member(shop)",
        "list": "member(shop)",
    }
    assert rules["shelf", "list"].requires == ir.ALWAYS
    assert rules["shelf", "list"].each is not None
    assert rules["shelf", "list"].unnamed


def test_effects_stand_one_by_one(program: Lower) -> None:
    rule = program(
        "sets: {ALL: [READ, WRITE]}\nsemantics: {owner: {kinds: [user]}}\n"
        "tables: {shelf: {fill: {requires: READ (shelf), grants: [ALL, 'READ + WRITE (item, shop)'], becomes: [owner, member (shop)], revokes: READ (parent)}}}\n"
    ).rules["shelf", "fill"]
    assert [(e.kind, e.what, e.privileges, e.target.type) for e in rule.effects] == [
        ("grant", "ALL", ("READ", "WRITE"), "shelf"),
        ("grant", "READ", ("READ",), "item"),
        ("grant", "READ", ("READ",), "shop"),
        ("grant", "WRITE", ("WRITE",), "item"),
        ("grant", "WRITE", ("WRITE",), "shop"),
        ("become", "owner", (), "shelf"),
        ("become", "member", (), "shop"),
        ("revoke", "READ", ("READ",), "shop"),
    ]


def test_a_rule_carries_what_people_read(program: Lower) -> None:
    rule = program(
        """\
        sources: {d: {document: d.txt}}
        tables:
          shop:
            look_up:
              requires: READ   (shop)
                or WRITE (shop)
              note: as ever
              source: 7
              deprecated: use look
              ambiguous: {cell: READ WRITE, readings: {both: READ + WRITE (shop)}, why: a lost mark}
        """
    ).rules["shop", "look_up"]
    assert (rule.id, rule.title, rule.origin) == ("shop/shop/look_up", "look up", "row")
    assert (rule.requires_text, rule.each_text) == ("READ (shop) or WRITE (shop)", None)
    assert (rule.note, rule.deprecated, rule.source) == ("as ever", "use look", ir.Source(document="d.txt", line=7))
    assert rule.ambiguous == ir.Ambiguous(
        cell="READ WRITE", readings=(("both", "READ + WRITE (shop)"),), why="a lost mark"
    )
    assert (rule.span.line, rule.span.column) == (4, 5)


def test_core_rows_speak_of_each_type(program: Lower) -> None:
    rules = program("core: {create: {requires: WRITE (parent), grants: READ (entity)}}\n").rules
    assert {t: text(r.requires) for (t, _), r in rules.items()} == {
        "shelf": "WRITE(shop)",
        "item": "WRITE(shelf)",
        "user": "WRITE(shop)",
        "role": "WRITE(shop)",
    }
    assert all(r.origin == "core" and r.creates and r.requires_text == "WRITE (parent)" for r in rules.values())


def test_the_same_text_gives_the_same_program(program: Lower) -> None:
    policy = "core: {look: READ (entity)}\ntables: {shop: {open: READ/WRITE (shop)}}\n"
    assert program(policy) == program(policy)


@pytest.mark.slow
def test_ten_thousand_rows_take_seconds_and_twice_as_many_twice_as_long(program: Lower) -> None:
    def seconds(types: int) -> float:
        rows = "".join(
            f"  t{i}:\n" + "".join(f"    op{j}: READ (t{i}) or WRITE (shop) and can op0 (shop)\n" for j in range(10))
            for i in range(types)
        )
        inside = ", ".join(f"t{i}: " for i in range(types))
        policy = f"entities: {{shop: {{{inside}}}}}\ntables:\n  shop: {{op0: READ (shop)}}\n{rows}"
        begin = time.perf_counter()
        assert len(program(policy).rules) == types * 10 + 1
        return time.perf_counter() - begin

    seconds(20)
    half, whole = seconds(500), seconds(1000)
    assert whole < half * 5
