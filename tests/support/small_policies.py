"""Tiny policies for which every state can be tried: one caller, and one path for each object of a request.

All sets of rows that could affect a rule are evaluated by the reference, independently of minimal sets and facts, so that the exact
analyses can be tested against it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

from privtab import model
from privtab.base.diagnostics import Severity
from privtab.base.request import Entity, Request
from privtab.base.source import SourceFile
from privtab.ir.formula import reached_atoms
from privtab.ir.nodes import RESOURCE, Compare, Has, Member, Owner, Program, Rule, ServiceAdmin, Target
from privtab.ir.shapes import rule_flags
from privtab.language import syntax
from privtab.model.lower import lower
from privtab.reference.evaluate import EvaluationContext, Reference
from privtab.state.names import StateNames
from privtab.state.nodes import Assignment, Grant, State

USER, GROUP, BROUGHT, ROLE = "alice", "team", "guests", "crew"
OTHERS = "others"
"""A group that the caller is not in."""
MOST_ROWS = 12
"""Rules that are affected by more rows are skipped, so that at most 4,096 states are tried."""


@dataclass
class Draft:
    """A tiny policy that is being generated."""

    inheritance: str
    deny: str
    owner: str
    groups: str
    gate: bool
    on: dict[str, list[str]]
    roles: dict[str, list[str]]
    members_of_set: list[str]
    rows: dict[tuple[str, str], str] = field(default_factory=dict)
    implies: dict[str, list[str]] = field(default_factory=dict)
    apart: set[str] = field(default_factory=set)
    """The privileges whose inheritance is not that of the others."""
    deep: bool = False
    """Whether conditions are deeply nested and repeat terms."""

    def text(self) -> str:
        """The policy as YAML."""
        lines = ["privtab: 1", "system: small", "version: '1'"]
        lines += ["entities:", "  top: {mid: {low: }, user: , group: , role: }"]
        lines += ["privileges:", *(self._privilege(p) for p in self.on)]
        lines += ["  OLD: {alias_of: READ}", f"sets: {{BOTH: [{', '.join(self.members_of_set)}]}}"]
        lines += [
            "semantics:",
            f"  inheritance: {self.inheritance}",
            f"  deny: {self.deny}",
            f"  groups: {self.groups}",
        ]
        lines += [f"  owner: {self.owner}"] if self.owner else []
        lines += ["  gate: member (top)"] if self.gate else []
        lines += ["roles:"] if self.roles else []
        for name, grants in self.roles.items():
            scope = "scope: top, " if name == "keeper" else ""
            lines += [f"  {name}: {{{scope}grants: {{mid: [{', '.join(grants)}]}}}}"]
        lines += ["tables:"]
        for type_ in sorted({t for t, _ in self.rows}):
            lines += [f"  {type_}:"]
            lines += [f"    {operation}: {text}" for (t, operation), text in self.rows.items() if t == type_]
        return "\n".join(lines) + "\n"

    def _privilege(self, name: str) -> str:
        implied = f", implies: [{', '.join(self.implies[name])}]" if self.implies.get(name) else ""
        other = "down" if self.inheritance == "none" else "none"
        own = f", inheritance: {other}" if name in self.apart else ""
        return f"  {name}: {{on: [{', '.join(self.on[name])}]{implied}{own}}}"


TREE = {"top": ["top"], "mid": ["top", "mid"], "low": ["top", "mid", "low"]}


def policy(seed: int, changes: int = 0, change_seed: int = 0, *, deep: bool = False, implies: bool = False) -> str:
    """The YAML text of a tiny random policy; with `changes`, of the same one with that many random changes.

    `deep`: its conditions are deeply nested and made of few terms each, so that terms repeat often.
    `implies`: privileges imply others.
    """
    rnd = random.Random(seed)
    draft = Draft(
        inheritance=rnd.choice(["none", "down"]),
        deny=rnd.choice(["none", "overrides"]),
        owner=rnd.choice(
            ["", "{kinds: [user]}", "{kinds: [user, group], holds: [READ]}", "{kinds: [user], holds: ALL}"]
        ),
        groups=rnd.choice(["[state]", "[state]", "[state]", "[request]"]),
        gate=rnd.random() < 0.2,
        on={"READ": ["top", "mid", "low"], "WRITE": rnd.choice([["top", "mid", "low"], ["mid", "low"]])},
        roles={name: [rnd.choice(["READ", "WRITE"])] for name in ("keeper", "watcher") if rnd.random() < 0.25},
        members_of_set=["READ", "WRITE"],
        deep=deep,
    )
    if implies:
        draft.on["EDIT"] = rnd.choice([["top", "mid", "low"], ["mid", "low"]])
        draft.implies = _implications(draft, rnd)
    apart = random.Random(f"apart {seed}")
    if apart.random() < 0.4:
        draft.apart = {name for name in draft.on if apart.random() < 0.5}
    for type_ in ("mid", "low", "low"):
        draft.rows[type_, f"op{len(draft.rows)}"] = _row(draft, type_, rnd)
    draft.rows[rnd.choice(["user", "group", "role"]), "see"] = _row(draft, "top", rnd)
    changing, moving = random.Random(f"{seed} {change_seed}"), random.Random(f"apart {seed} {change_seed}")
    for _ in range(changes):
        if moving.random() < 0.1:
            draft.apart ^= {moving.choice(list(draft.on))}
        else:
            _change(draft, changing)
    return draft.text()


def _implications(draft: Draft, rnd: random.Random) -> dict[str, list[str]]:
    others = {name: [other for other in draft.on if other != name] for name in draft.on}
    return {name: rnd.sample(others[name], k=rnd.choice([0, 1, 1, 2])) for name in draft.on}


def _change(draft: Draft, rnd: random.Random) -> None:
    if draft.implies and rnd.random() < 0.3:
        draft.implies = _implications(draft, rnd)
        return
    match rnd.randrange(8):
        case 0:
            draft.inheritance = "down" if draft.inheritance == "none" else "none"
        case 1:
            draft.deny = "overrides" if draft.deny == "none" else "none"
        case 2:
            draft.owner = draft.owner and rnd.choice(
                [
                    "{kinds: [user]}",
                    "{kinds: [group]}",
                    "{kinds: [user], holds: [WRITE]}",
                    "{kinds: [user], holds: ALL}",
                ]
            )
        case 3:
            draft.roles = {} if draft.roles else {"keeper": ["READ"]}
        case 4:
            draft.members_of_set = rnd.choice([["READ"], ["WRITE"], ["READ", "WRITE"]])
        case 5:
            draft.groups = rnd.choice(["[state]", "[request]", "[state, request]"])
        case _:
            key = rnd.choice(list(draft.rows))
            draft.rows[key] = _row(draft, "top" if key[0] not in TREE else key[0], rnd)


def _row(draft: Draft, type_: str, rnd: random.Random) -> str:
    with_ = type_ == "low" and rnd.random() < 0.2
    text = _expression(draft, type_, 2, rnd) if not draft.deep else _nested(_some_terms(draft, type_, rnd), 3, rnd)
    if with_:
        text = f"{text} {rnd.choice(['and', 'or'])} {rnd.choice(['READ', 'WRITE'])} (object)"
    each = (
        f", each: '{_expression(draft, type_, 1 + draft.deep, rnd)}'" if type_ == "low" and rnd.random() < 0.2 else ""
    )
    objects = f", with: {{object: {rnd.choice(['mid', '[mid, low]'])}}}" if with_ else ""
    return f"{{requires: '{text}'{each}{objects}}}"


def _expression(draft: Draft, type_: str, depth: int, rnd: random.Random) -> str:
    if depth and rnd.random() < 0.65:
        left, right = (_expression(draft, type_, depth - 1, rnd) for _ in range(2))
        return f"({left} {rnd.choice(['and', 'or'])} {right})"
    choice = rnd.random()
    target = rnd.choice(TREE[type_])
    if choice < 0.15 and draft.owner:
        return f"owner ({target})"
    if choice < 0.22:
        return "member (top)"
    if choice < 0.26:
        return "service admin"
    if choice < 0.32:
        return f"({rnd.choice(['READ', 'WRITE'])} (mid) when force)" if type_ != "top" else "READ (top)"
    earlier = [o for (t, o), text in draft.rows.items() if t == target and "with" not in text]
    if choice < 0.42 and earlier:
        return f"can {rnd.choice(earlier)} ({target})"
    fitting = [name for name, on in draft.on.items() if target in on]
    return f"{rnd.choice(fitting)} ({target})"


def _some_terms(draft: Draft, type_: str, rnd: random.Random) -> list[str]:
    """Two to five terms about a type."""
    path = TREE[type_][-2:]
    everywhere = all(set(path) <= set(on) for on in draft.on.values())
    terms = [f"READ ({target})" for target in path] + ["member (top)", "service admin", f"READ ({', '.join(path)})"]
    terms += [f"owner ({target})" for target in path] * bool(draft.owner)
    if everywhere:
        terms += [f"WRITE ({target})" for target in path]
        terms += [f"{names} ({target})" for names in ("READ/WRITE", "READ + WRITE", "BOTH") for target in path]
        terms += [
            f"{names} ({', '.join(path)})" for names in ("READ/WRITE", "READ + WRITE", "READ/BOTH", "READ + BOTH")
        ]
    terms += [f"can {o} ({t})" for (t, o), text in draft.rows.items() if t in path and "with" not in text]
    chosen = rnd.sample(terms, min(len(terms), rnd.choice([2, 3, 3, 4])))
    return chosen + [f"({rnd.choice(chosen)} when force)"] * (rnd.random() < 0.2)


def _nested(terms: list[str], depth: int, rnd: random.Random) -> str:
    if depth and rnd.random() < 0.75:
        word = rnd.choice([" and ", " or "])
        return f"({word.join(_nested(terms, depth - 1, rnd) for _ in range(rnd.choice([2, 2, 3])))})"
    return rnd.choice(terms)


def program(text: str) -> Program | None:
    """The lowered policy, before the passes; None if it is invalid."""
    tables, found = syntax.read_policy(SourceFile.of("small.yaml", text))
    if tables is None:
        return None
    policy_, more = model.resolve(tables)
    if policy_ is None or any(d.severity is Severity.ERROR for d in (*found, *more)):
        return None
    return lower(policy_)


def requests(program_: Program, rule: Rule) -> list[Request]:
    """All requests of a rule: each choice of types for its objects, of flags, named or not, about the caller or another user, or about a group with the caller or without."""
    found = []
    flags = rule_flags(program_, rule)
    names = {"user": [USER, "bob"], "group": [GROUP, OTHERS], "role": [ROLE]}
    resources = [_entity(program_, rule.entity, 1, last) for last in names.get(rule.entity, [None])]
    if rule.unnamed:
        resources.append(Entity(rule.entity, resources[0].id.rpartition("/")[0]))
    for resource, types, apart, flag_values in product(
        resources,
        product(*(w.types for w in rule.withs)),
        (True, False) if rule.withs else (True,),
        product((False, True), repeat=len(flags)),
    ):
        slots = dict(zip((w.name for w in rule.withs), types, strict=True))
        found.append(
            Request(
                user=USER,
                action=rule.operation,
                resource=resource,
                groups=(BROUGHT,),
                with_={slot: _entity(program_, type_, 2 if apart else 1) for slot, type_ in slots.items() if type_},
                flags=frozenset(flag for flag, on in zip(flags, flag_values, strict=True) if on),
            )
        )
    return found


def _entity(program_: Program, type_: str, number: int, last: str | None = None) -> Entity:
    names = [f"{t}{number}" for t in program_.chain(type_) if not program_.entities[t].single]
    return Entity(type_, "/".join([*names[:-1], last] if last else names))


def states(rules: Sequence[tuple[Program, Rule]], request: Request) -> Iterator[State] | None:
    """All states that the rules can distinguish by this request; None if there are too many."""
    rows = list(
        dict.fromkeys(row for program_, rule in rules for row in _rows(program_, rule, request, [p for p, _ in rules]))
    )
    if len(rows) > MOST_ROWS:
        return None
    combinations = product((False, True), repeat=len(rows))
    return (_state([row for row, included in zip(rows, choices, strict=True) if included]) for choices in combinations)


Row = tuple[str, object]


def _state(rows: Sequence[Row]) -> State:
    # The caller is always in the group: leaving out the group's rows has the same effect as leaving out the membership.
    tables: dict[str, list[object]] = {"memberships": [(USER, GROUP)]}
    for table, row in rows:
        tables.setdefault(table, []).append(row)
    return State(**{table: tuple(found) for table, found in tables.items()})  # type: ignore[arg-type]


def _rows(program_: Program, rule: Rule, request: Request, programs: Sequence[Program]) -> Iterator[Row]:
    grantees = [f"user:{USER}"]
    if len({p.semantics.groups for p in programs}) > 1:
        grantees += [f"group:{GROUP}", f"group:{BROUGHT}"]
    for atom in reached_atoms(program_, rule.item_condition):
        if isinstance(atom, Compare):
            continue
        if isinstance(atom, ServiceAdmin):
            yield "service_admins", USER
            continue
        path = _path(program_, atom.target, request)
        if not path:
            continue
        if isinstance(atom, Has):
            looked_at = path if any(p.inherited for p in programs) else path[-1:]
            for entity in looked_at:
                yield from _grants(program_, atom.privilege, entity, grantees, programs)
            yield from _assignments(program_, path, programs)
            if any(p.semantics.owner and atom.privilege in p.semantics.owner.holds for p in programs):
                yield from (row for entity in path for row in _owners(entity, programs))
        elif isinstance(atom, Owner):
            yield from _owners(path[-1], programs)
        elif isinstance(atom, Member):
            yield "members", (USER, path[-1])
        elif path[-1].type == "role":
            yield "assignments", Assignment(principal=f"user:{USER}", role=path[-1].names[-1])


def _grants(
    program_: Program, privilege: str, entity: Entity, grantees: Sequence[str], programs: Sequence[Program]
) -> Iterator[Row]:
    other_words = len({(*p.aliases, *p.sets.items()) for p in programs}) > 1
    implying = (p.name for program_ in programs for p in program_.privileges.values() if privilege in p.implies)
    names = dict.fromkeys([privilege, *implying, *((*program_.aliases, *program_.sets) if other_words else ())])
    effects: list[Literal["allow", "deny"]] = ["allow"]
    effects += ["deny"] if any(p.semantics.deny == "overrides" for p in programs) else []
    for name, grantee, effect in product(names, grantees, effects):
        if any(privilege in StateNames(p).privileges_of(name, entity.type, effect) for p in programs):
            yield "grants", Grant(grantee=grantee, effect=effect, privilege=name, entity=entity)


def _assignments(program_: Program, path: Sequence[Entity], programs: Sequence[Program]) -> Iterator[Row]:
    """Assignments of roles in which the programs differ; for other roles, a grant has the same effect."""
    for role in program_.roles.values():
        if any(p.roles.get(role.name) != role for p in programs):
            scopes = [None] if role.scope is None else [entity for entity in path if entity.type == role.scope]
            for scope in scopes:
                yield "assignments", Assignment(principal=f"user:{USER}", role=role.name, scope=scope)


def _owners(entity: Entity, programs: Sequence[Program]) -> Iterator[Row]:
    kinds = {kind for p in programs if p.semantics.owner for kind in p.semantics.owner.kinds}
    owners = {"user": [f"user:{USER}"], "group": [f"group:{GROUP}", f"group:{BROUGHT}"], "role": []}
    for kind in sorted(kinds):
        yield from (("owners", (entity, owner)) for owner in owners[kind])


def _path(program_: Program, target: Target, request: Request) -> list[Entity]:
    """The entities from the root down to a target; empty if the request does not name it."""
    entity = request.resource if target.slot == RESOURCE else request.with_[target.slot]
    if program_.anchor(target)[0] >= len(entity.names):
        return []
    return [
        Entity(type_, "/".join(entity.names[: depth + 1])) for depth, type_ in enumerate(program_.chain(target.type))
    ]


def allows(program_: Program, state: State, request: Request) -> bool:
    """Whether the reference allows a request; rows that are invalid for the policy are ignored."""
    reference = Reference(program_, known(program_, state))
    context = EvaluationContext(reference, request)
    rule = program_.rules[request.resource.type, request.action]
    return context.holds(rule.item_condition if RESOURCE in context.complete else rule.call_condition)


def known(program_: Program, state: State) -> State:
    """The rows of a state that are valid for a policy."""
    names, semantics = StateNames(program_), program_.semantics
    kinds = semantics.owner.kinds if semantics.owner else ()
    return State(
        members=state.members,
        memberships=state.memberships,
        assignments=tuple(a for a in state.assignments if _is_valid(program_, a)),
        grants=tuple(
            g
            for g in state.grants
            if (g.effect == "allow" or semantics.deny == "overrides")
            and names.privileges_of(g.privilege, g.entity.type, "deny")
        ),
        owners=tuple((entity, owner) for entity, owner in state.owners if owner.partition(":")[0] in kinds),
        service_admins=state.service_admins,
    )


def _is_valid(program_: Program, assignment: Assignment) -> bool:
    role = program_.roles.get(assignment.role)
    if role is None or role.scope is None:
        return True
    return assignment.scope is not None and assignment.scope.type == role.scope
