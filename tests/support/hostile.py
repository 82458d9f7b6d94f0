"""Small policies that are the most expensive for exact analysis; each is a few kilobytes of plain YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping

HEAD = "privtab: 1\nsystem: hostile\nversion: v1\ntitle: Hostile\n"


def flags(count: int) -> str:
    """A row with that many flags, each of which requires another privilege."""
    names = _names(count + 1)
    condition = " and ".join(["P0 (shop)", *(f"(P{i + 1} (shop) when f{i})" for i in range(count))])
    return rows_of(names, [f"load: {condition}"])


def open_flags(count: int) -> str:
    """A row that requires nothing unless a flag is set."""
    condition = " and ".join(f"(P{i} (shop) when f{i})" for i in range(count))
    return rows_of(_names(count), [f"load: {condition}"])


def can_chain(length: int, alternatives: int) -> str:
    """A chain of rows that refer to each other, each with its own alternatives."""
    rows = []
    for i in range(length):
        condition = " or ".join(f"P{(i * 7 + k) % 60} (shop)" for k in range(alternatives))
        rows.append(f"op{i}: {'' if i == 0 else f'can op{i - 1} (shop) and '}({condition})")
    return rows_of(_names(60), rows)


def cnf(clauses: int, width: int) -> str:
    """A conjunction of disjunctions without repeated privileges."""
    parts = ["(" + " or ".join(f"P{i * width + k} (shop)" for k in range(width)) + ")" for i in range(clauses)]
    return rows_of(_names(clauses * width), [f"load: {' and '.join(parts)}"])


def tangled_cnf(clauses: int, width: int, names: int) -> str:
    """A conjunction of disjunctions that share privileges, with inheritance and denials."""
    parts = [
        "("
        + " or ".join(f"P{(i * i + 3 * k * (i + 1)) % names} ({('shop', 'shelf')[(i + k) % 2]})" for k in range(width))
        + ")"
        for i in range(clauses)
    ]
    return (
        f"{HEAD}entities: {{shop: {{shelf:}}}}\nprivileges: [{', '.join(_names(names))}]\n"
        "semantics: {inheritance: down, deny: overrides, owner: {holds: ALL}}\n"
        f"sets: {{ALL: [{', '.join(_names(names))}]}}\n"
        f"tables: {{shelf: {{load: {' and '.join(parts)}}}}}\n"
    )


def pigeons(count: int, holes: int) -> tuple[str, str]:
    """Two policies that mean the same if there are more pigeons than holes, which takes a solver nearly all ways to find."""
    placed = ["(" + " or ".join(f"P{p}X{h} (shop)" for h in range(holes)) + ")" for p in range(count)]
    shared = [
        f"P{first}X{h} + P{second}X{h} (shop)"
        for h in range(holes)
        for first in range(count)
        for second in range(first)
    ]
    names = [f"P{p}X{h}" for p in range(count) for h in range(holes)]
    load = f"load: {' and '.join(placed)}"
    return rows_of(names, [load]), rows_of(names, [f"{load} and ({' or '.join(shared)})"])


def any_objects(slots: int, types: int) -> str:
    """A row with objects of any type, in a tree as deep as it has types."""
    tree = "".join("  " * (i + 1) + f"t{i}:\n" for i in range(types))
    withs = ", ".join(f"o{i}: any" for i in range(slots))
    condition = " and ".join(f"READ (o{i})" for i in range(slots))
    return (
        f"{HEAD}entities:\n{tree}privileges: [READ]\nsemantics: {{inheritance: down, deny: overrides}}\n"
        f"tables: {{t{types - 1}: {{copy: {{with: {{{withs}}}, requires: READ (entity) and {condition}}}}}}}\n"
    )


def alternatives(count: int) -> str:
    """A row with that many alternatives."""
    return rows_of(_names(count), [f"load: {' or '.join(f'P{i} (shop)' for i in range(count))}"])


def nested_alternatives(count: int) -> str:
    """Alternatives at two levels of a tree with inheritance, so that half of them are redundant."""
    condition = " or ".join(f"P{i // 2} ({('shop', 'shelf')[i % 2]})" for i in range(count))
    names = ", ".join(_names(count // 2))
    return (
        f"{HEAD}entities: {{shop: {{shelf:}}}}\nprivileges: [{names}]\nsemantics: {{inheritance: down}}\n"
        f"tables: {{shelf: {{load: {condition}}}}}\n"
    )


def branching_can(length: int) -> str:
    """Rows that each refer to the previous one in two alternatives."""
    rows = ["op0: P0 (shop) or P1 (shop)"]
    for i in range(1, length):
        before = f"can op{i - 1} (shop)"
        rows.append(f"op{i}: ({before} and P{i % 40} (shop)) or ({before} and P{(i + 1) % 40} (shop))")
    return rows_of(_names(40), rows)


def long_can_chain(length: int) -> str:
    """A chain of rows that only refer to the next."""
    rows = ["op0: READ (shop)", *(f"op{i}: can op{i - 1} (shop)" for i in range(1, length))]
    return rows_of(["READ"], rows)


def set_chain(length: int) -> str:
    """Sets that each contain the previous set."""
    sets = ", ".join(f"S{i}: [{'READ' if i == 0 else f'S{i - 1}'}]" for i in range(length))
    return (
        f"{HEAD}entities: {{shop:}}\nprivileges: [READ]\nsets: {{{sets}}}\n"
        f"tables: {{shop: {{load: S{length - 1} (shop)}}}}\n"
    )


def parentheses(depth: int) -> str:
    """A condition of nested parentheses with alternating `and` and `or`."""
    text = "READ (shop)"
    for i in range(depth):
        text = f"({text} {('and', 'or')[i % 2]} P{i % 9} (shop))"
    return rows_of(["READ", *_names(9)], [f"load: {text}"])


POLICIES: Mapping[str, Callable[[], str]] = {
    "20 flags": lambda: flags(20),
    "30 flags": lambda: flags(30),
    "30 open flags": lambda: open_flags(30),
    "chain of 20 can, 20 alternatives each": lambda: can_chain(20, 20),
    "chain of 30 can, 3 alternatives each": lambda: can_chain(30, 3),
    "chain of 30 can, each asked for twice": lambda: branching_can(30),
    "12 disjunctions of 4": lambda: cnf(12, 4),
    "10 clauses of 3": lambda: cnf(10, 3),
    "12 clauses of 12": lambda: cnf(12, 12),
    "15 clauses of 3": lambda: cnf(15, 3),
    "20 clauses of 20": lambda: cnf(20, 20),
    "12 tangled clauses": lambda: tangled_cnf(12, 5, 20),
    "20 tangled clauses of 20": lambda: tangled_cnf(20, 20, 90),
    "3 objects of any of 40 types": lambda: any_objects(3, 40),
    "8,000 alternatives": lambda: alternatives(8000),
    "2,000 alternatives on two levels": lambda: nested_alternatives(2000),
    "chain of 2,000 can": lambda: long_can_chain(2000),
    "chain of 3,000 sets": lambda: set_chain(3000),
    "2,000 nested parentheses": lambda: parentheses(2000),
}
"""The policies by description."""

DEEP = ("chain of 2,000 can", "chain of 3,000 sets", "2,000 nested parentheses")
"""Policies that are rejected for their depth."""


def changed(text: str) -> str:
    """A copy with another condition in its last row, or else with another title."""
    head, mark, tail = text.rpartition("load: ")
    if mark and " (shop)" in tail and not tail.startswith("S"):
        return f"{head}{mark}P0 (shop) or ({tail.rstrip().rstrip('}')})" + _closing(tail)
    return text.replace("title: Hostile", "title: Hostile too").replace("READ (entity) and ", "", 1)


def granting(text: str) -> str:
    """A copy whose last row grants the caller a privilege."""
    type_ = resource(text).partition(":")[0]
    privilege = privileges(text)[0]
    if "requires: " in text:
        return text.replace("requires: ", f"grants: {privilege} ({type_}), requires: ")
    head, mark, condition = text.rstrip("\n}").rpartition(f"{operation(text)}: ")
    return f"{head}{mark}{{requires: {condition}, grants: {privilege} ({type_})}}" + _closing(text)


def state(text: str) -> str:
    """A state with 30 users that each hold every 30th privilege, and `all`, which holds all of them, the first through a role.

    All grants are on the entity that `resource` names.
    """
    entity = resource(text)
    names = privileges(text)
    grantees = [(f"user:u{number % 30}", name) for number, name in enumerate(names)]
    grantees += [("user:all", name) for name in names[1:]] + [("role:first", names[0])]
    grants = [{"grantee": grantee, "effect": "allow", "privilege": p, "entity": entity} for grantee, p in grantees]
    members = [{"user": user, "group": "staff"} for user in ("ann", "all")]
    roles = [{"principal": "group:staff", "role": "first"}]
    return json.dumps({"grants": grants, "memberships": members, "assignments": roles})


def scenarios(text: str) -> str:
    """A scenario file with one case for the last row of `p.yaml`."""
    case: dict[str, object] = {"user": "ann", "action": operation(text), "resource": resource(text), "decision": "deny"}
    if objects(text):
        case["with"] = dict(assignment.split("=") for assignment in objects(text))
    return f"scenarios: 1\npolicy: p.yaml\ncases:\n  - {json.dumps(case)}\n"


def privileges(text: str) -> list[str]:
    """The names of the privileges."""
    return re.findall(r"\w+", text.partition("privileges: [")[2].partition("]")[0])


def operation(text: str) -> str:
    """The operation of the last row."""
    return "copy" if "copy: {" in text else re.findall(r"\b(load|op\d+): ", text)[-1]


def resource(text: str) -> str:
    """The resource of a request for the last row."""
    deep = re.findall(r"^ +t(\d+):$", text, re.MULTILINE)
    if deep:
        return f"t{deep[-1]}:" + "/".join(f"n{i}" for i in range(len(deep)))
    return "shelf:s/h" if "shelf:" in text else "shop:s"


def objects(text: str) -> list[str]:
    """The `with` objects of a request for the last row, as options of the command line."""
    return [f"{slot}={resource(text)}" for slot in re.findall(r"(o\d+): any", text)]


def _closing(tail: str) -> str:
    body = tail.rstrip()
    return body[len(body.rstrip("}")) :] + "\n"


def rows_of(privileges: Iterable[str], rows: Iterable[str]) -> str:
    """A policy of one type with these privileges and rows."""
    listed = "".join(f"    {row}\n" for row in rows)
    return (
        f"{HEAD}entities: {{shop:}}\nprivileges: [{', '.join(privileges)}]\n"
        f"semantics: {{inheritance: none}}\ntables:\n  shop:\n{listed}"
    )


def _names(count: int) -> list[str]:
    return [f"P{i}" for i in range(count)]
