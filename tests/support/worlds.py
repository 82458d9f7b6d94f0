"""Random policies, states and requests from a seed: small worlds that combine all features of the language."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from unusual_names import ALIKE, CARRIED, UNUSABLE

from privtab.characters import is_unicode
from privtab.ir.nodes import Program, Rule
from privtab.moments import ALWAYS, FIRST, LAST, Window
from privtab.names import encode_name
from privtab.request import NOT_SET, Entity, Request
from privtab.state.nodes import Assignment, Grant, State

USERS = ("ann", "bob", "a/b", "c%")
GROUPS = ("hr", "it")
ROLES = ("reader", "writer", "admin")
PRIVILEGES = ("READ", "WRITE", "USE", "ADMIN")


@dataclass(frozen=True)
class Names:
    """The names of a world. Few, so that worlds are dense."""

    users: Sequence[str] = USERS
    groups: Sequence[str] = GROUPS
    roles: Sequence[str] = ROLES
    entities: Sequence[str] = ("x", "x", "y/z")
    strangers: Sequence[str] = ("nobody",)
    """Users that occur in no state."""


def names(program: Program) -> Names:
    """The names in states and requests of a policy; unusual ones if its version begins with `odd`."""
    return _odd_names(program.version) if program.version.startswith("odd") else Names()


@lru_cache(maxsize=256)
def _odd_names(version: str) -> Names:
    rnd = random.Random(version)

    def some(plain: Sequence[str], count: int) -> tuple[str, ...]:
        """A plain name, names that could be confused with each other, and unusual ones."""
        alike = rnd.choice(ALIKE)
        chosen = [*rnd.sample(alike, k=min(len(alike), count - 1)), *rnd.sample(CARRIED, k=count)]
        return (rnd.choice(plain), *chosen[: count - 1])

    strangers = [f"a{c}b" for c in rnd.sample(UNUSABLE, k=3) if is_unicode(c)]
    return Names(
        users=some(USERS, 4),
        groups=some(GROUPS, 3),
        # Keep the plain names of roles that a policy may declare.
        roles=(*ROLES[:2], *some(ROLES[2:], 2)),
        entities=(*some(("x",), 3), f"x{rnd.choice(UNUSABLE[:60])}"),
        strangers=("nobody", *strangers),
    )


@dataclass
class Draft:
    """A policy that is being generated."""

    random: random.Random
    system: str
    parents: dict[str, str | None] = field(default_factory=dict)
    singles: set[str] = field(default_factory=set)
    on: dict[str, list[str]] = field(default_factory=dict)
    owners: bool = False
    gate: bool = False
    rows: list[tuple[str, str, bool]] = field(default_factory=list)
    """(entity, operation, whether it has `with` objects)"""

    def chain(self, type_: str) -> list[str]:
        names: list[str] = []
        at: str | None = type_
        while at is not None:
            names.insert(0, at)
            at = self.parents[at]
        return names

    def reachable(self, type_: str) -> list[str]:
        chain = self.chain(type_)
        return chain + [s for s in self.singles if s not in chain and self.parents[s] in chain]


def policy(seed: int, system: str = "world") -> str:
    """The YAML text of a random valid policy."""
    rnd = random.Random(seed)
    draft = Draft(random=rnd, system=system)
    _entities(draft)
    for privilege in PRIVILEGES:
        types = [t for t in draft.parents if draft.parents[t] is None or rnd.random() < 0.75]
        draft.on[privilege] = types
    inheritance = rnd.choice(["none", "down"])
    deny = rnd.choice(["none", "overrides", "overrides"])
    draft.owners = rnd.random() < 0.75
    draft.gate = rnd.random() < 0.4
    version = "odd " + str(seed) if random.Random(f"names {seed}").random() < 0.5 else "1"
    lines = ["privtab: 1", f"system: {system}", f"version: '{version}'", "entities:"]
    lines += _tree(draft, None, 1)
    types = [f"  {s}: {{single: true}}" for s in sorted(draft.singles)]
    lines += ["types:", *types] if types else []
    lines += ["privileges:"]
    lines += [f"  {p}: {{on: [{', '.join(on)}]}}" for p, on in draft.on.items()]
    lines += ["  OLD_READ: {alias_of: READ, deprecated: use READ}"]
    lines += ["sets:", "  BOTH: [READ, WRITE]"]
    semantics = [f"inheritance: {inheritance}", f"deny: {deny}"]
    if draft.owners:
        kinds = rnd.choice(["[user]", "[user]", "[user, group]", "[user, group, role]"])
        holds = rnd.choice(["", "", ", holds: ALL", ", holds: [READ, USE]"])
        semantics.append(f"owner: {{kinds: {kinds}, creator: {rnd.choice(['true', 'false'])}{holds}}}")
    if draft.gate:
        semantics.append("gate: member (top)")
    if rnd.random() < 0.3:
        semantics.append(f"groups: [{rnd.choice(['state, request', 'request'])}]")
    lines += ["semantics:", *(f"  {s}" for s in semantics)]
    if rnd.random() < 0.5:
        lines += ["roles:", *_roles(draft)]
    tables: list[str] = []
    for type_ in draft.parents:
        rows = [line for number in range(rnd.randint(1, 3)) for line in _row(draft, type_, f"op{number}")]
        tables += [f"  {type_}:", *rows]
    if rnd.random() < 0.5:
        lines += ["core:", "  look: READ (entity)", "  make: {requires: WRITE (parent), grants: READ (entity)}"]
        lines[-1] = "  make: {requires: WRITE (parent)}" if _unbound(draft, "READ") else lines[-1]
        if _unbound(draft, "READ") or _unbound(draft, "WRITE"):
            lines[-3:] = []
    lines += ["tables:", *tables]
    if rnd.random() < 0.5:
        lines += ["any:", f"  every: {{requires: '{_expression(draft, 'top', 1, ())}', gate: none}}"]
    return "\n".join(lines) + "\n"


def _unbound(draft: Draft, privilege: str) -> bool:
    return set(draft.on[privilege]) != set(draft.parents)


def _entities(draft: Draft) -> None:
    rnd = draft.random
    draft.parents = {"top": None, "mid": "top", "low": "mid"}
    if rnd.random() < 0.6:
        draft.parents["leaf"] = "low"
    if rnd.random() < 0.5:
        draft.parents["side"] = "mid"
    draft.parents |= {"user": "top", "group": "top", "role": "top"}
    if rnd.random() < 0.6:
        draft.parents["config"] = rnd.choice(["top", "mid"])
        draft.singles.add("config")
        if rnd.random() < 0.5:
            draft.parents["item"] = "config"


def _tree(draft: Draft, parent: str | None, depth: int) -> list[str]:
    lines: list[str] = []
    for name, above in draft.parents.items():
        if above == parent:
            lines += ["  " * depth + f"{name}:", *_tree(draft, name, depth + 1)]
    return lines


def _roles(draft: Draft) -> list[str]:
    rnd = draft.random
    lines = []
    for name in ROLES[: rnd.randint(1, 2)]:
        scope = rnd.choice([None, "top", "mid"])
        grants = {
            t: [p for p in PRIVILEGES if t in draft.on[p] and rnd.random() < 0.4]
            for t in draft.parents
            if scope is None or scope in draft.chain(t)
        }
        listed = ", ".join(f"{t}: [{', '.join(ps)}]" for t, ps in grants.items() if ps)
        lines.append(f"  {name}: {{{f'scope: {scope}, ' if scope else ''}grants: {{{listed}}}}}")
    return lines


def _row(draft: Draft, type_: str, operation: str) -> list[str]:
    rnd = draft.random
    parts: list[str] = []
    withs: tuple[tuple[str, list[str]], ...] = ()
    if rnd.random() < 0.3:
        types = rnd.sample(list(draft.parents), k=rnd.randint(1, 3))
        withs = (("thing", types),)
        parts.append(f"with: {{thing: {types[0] if len(types) == 1 else '[' + ', '.join(types) + ']'}}}")
    shape = rnd.random()
    if shape < 0.8 or withs:
        parts.append(f"requires: '{_expression(draft, type_, 3, withs)}'")
    if shape >= 0.65:
        parts.append(f"each: '{_expression(draft, type_, 2, ())}'")
    if draft.gate and rnd.random() < 0.2:
        parts.append("gate: none")
    if draft.owners and rnd.random() < 0.2:
        parts.append("becomes: owner")
    draft.rows.append((type_, operation, bool(withs)))
    flags = [flag for flag in ("force", "deep") if any(f"when {flag}" in part for part in parts)]
    # Do not draw from the draft's generator, so that a seed gives the same policies with and without such flags.
    saying = {flag: random.Random(f"{flag}{parts}").choice(["required", "optional"]) for flag in flags}
    if saying:
        parts.append(f"flags: {{{', '.join(f'{flag}: {word}' for flag, word in saying.items())}}}")
    return [f"    {operation}: {{{', '.join(parts)}}}"]


def _expression(draft: Draft, type_: str, depth: int, withs: Sequence[tuple[str, list[str]]]) -> str:
    rnd = draft.random
    if depth and rnd.random() < 0.55:
        parts = [_expression(draft, type_, depth - 1, withs) for _ in range(rnd.randint(2, 3))]
        return "(" + rnd.choice([" and ", " or ", " or "]).join(parts) + ")"
    if depth and rnd.random() < 0.12:
        return f"({_expression(draft, type_, 0, withs)} when {rnd.choice(['force', 'deep'])})"
    return _term(draft, type_, withs)


def _term(draft: Draft, type_: str, withs: Sequence[tuple[str, list[str]]]) -> str:
    rnd = draft.random
    if withs and rnd.random() < 0.4:
        name, types = withs[0]
        found = [p for p in PRIVILEGES if all(t in draft.on[p] for t in types)]
        operations = {o for _, o, _ in draft.rows}
        shared = [o for o in sorted(operations) if all((t, o, False) in draft.rows for t in types)]
        if shared and rnd.random() < 0.5:
            return f"can {rnd.choice(shared)} ({name})"
        if found:
            return f"{rnd.choice(found)} ({name})"
    reachable = draft.reachable(type_)
    choice = rnd.random()
    if choice < 0.12 and draft.owners:
        return f"owner ({', '.join(rnd.sample(reachable, k=rnd.randint(1, len(reachable))))})"
    if choice < 0.2:
        return f"member ({rnd.choice([t for t in reachable if t != 'role'])})"
    if choice < 0.26:
        return "service admin"
    if choice < 0.34 and type_ == "user":
        return "self"
    if choice < 0.4 and type_ == "role":
        return "holds (role)"
    if choice < 0.55:
        known = [(t, o) for t, o, with_ in draft.rows if not with_ and t in reachable]
        if known:
            target, operation = rnd.choice(known)
            return f"can {operation} ({target})"
    if choice < 0.57:
        return "anyone"
    target = rnd.choice(reachable)
    fitting = [p for p in PRIVILEGES if target in draft.on[p]]
    if not fitting:
        return "READ (top)"
    chosen = rnd.sample(fitting, k=min(len(fitting), rnd.choice([1, 1, 1, 2])))
    return f"{rnd.choice(['/', ' + ']).join(chosen)} ({target})"


def entity(program: Program, type_: str, rnd: random.Random) -> Entity:
    """A random entity; with few names, so that worlds are dense."""
    known = names(program)
    path: list[str] = []
    for link in program.chain(type_):
        kind = program.entities[link]
        if kind.single:
            continue
        match kind.principal:
            case "user":
                path.append(encode_name(rnd.choice(known.users)))
            case "group":
                path.append(encode_name(rnd.choice(known.groups)))
            case "role":
                path.append(encode_name(rnd.choice(known.roles)))
            case _:
                path.append(encode_name(rnd.choice(known.entities)))
    return Entity(type_, "/".join(path))


def state(program: Program, seed: int) -> State:
    """A random valid state for a policy."""
    rnd = random.Random(seed)
    known = names(program)
    principals = [f"user:{u}" for u in known.users] + [f"group:{g}" for g in known.groups]
    grantees = [*principals, *(f"role:{r}" for r in (*known.roles, *known.roles))]
    grants = []
    named = [*program.privileges, *program.aliases, *program.sets]
    for _ in range(rnd.randint(0, 24)):
        name = rnd.choice(named)
        real = program.aliases[name].of if name in program.aliases else name
        members = program.sets.get(real, (real,))
        types = [t for t in program.entities if all(t in program.privileges[m].on for m in members)]
        if types:
            denied = program.semantics.deny == "overrides" and rnd.random() < 0.25
            target = entity(program, rnd.choice(types), rnd)
            grants.append(
                Grant(grantee=rnd.choice(grantees), effect="deny" if denied else "allow", privilege=name, entity=target)
            )
    assignments = []
    for _ in range(rnd.randint(0, 7)):
        role = rnd.choice(known.roles)
        declared = program.roles.get(role)
        scope_type = declared.scope if declared else rnd.choice([None, None, *program.entities])
        scope = None if scope_type is None else entity(program, scope_type, rnd)
        assignments.append(Assignment(principal=rnd.choice(principals), role=role, scope=scope))
    owner = program.semantics.owner
    owning = [p for p in grantees if owner is not None and p.partition(":")[0] in owner.kinds]
    return State(
        members=tuple(
            (u, entity(program, t, rnd)) for u in known.users for t in program.entities if rnd.random() < 0.4
        ),
        memberships=tuple((u, g) for u in known.users for g in known.groups if rnd.random() < 0.4),
        assignments=tuple(assignments),
        grants=tuple(grants),
        owners=tuple(
            (entity(program, rnd.choice(list(program.entities)), rnd), rnd.choice(owning))
            for _ in range(rnd.randint(0, 6) if owning else 0)
        ),
        service_admins=tuple(u for u in known.users if rnd.random() < 0.2),
    )


EPOCH = 1_772_323_200_000_000_000
"""A moment around which the windows of generated states lie: 2026-03-01T00:00:00Z."""


def timed(given: State, seed: int, *, now: int = EPOCH) -> State:
    """A state with windows on some rows: around `now`, past, future, empty, and several for the same row."""
    rnd = random.Random(f"windows {seed}")
    step = 3_600_000_000_000
    edges = [FIRST, LAST, *(now + number * step for number in range(-3, 4))]
    tables: dict[str, Any] = {}
    windows: dict[str, tuple[Window, ...]] = {}
    share = rnd.choice([0.1, 0.5, 0.9])
    for table in ("memberships", "assignments", "grants", "owners"):
        rows = [row for row in getattr(given, table) for _ in range(1 + (rnd.random() < 0.2))]
        own = [Window(*rnd.choices(edges, k=2)) if rnd.random() < share else ALWAYS for _ in rows]
        # As after validation: a row says the same only once.
        pairs = list(dict.fromkeys(zip(rows, own, strict=True)))
        tables[table] = tuple(row for row, _ in pairs)
        if any(window != ALWAYS for _, window in pairs):
            windows[table] = tuple(window for _, window in pairs)
    return replace(given, windows=windows, **tables)


def moments(given: State) -> list[int]:
    """The moments at which a state with windows changes, and those just before and after."""
    edges = {edge for windows in given.windows.values() for window in windows for edge in window}
    return sorted({at for edge in edges - {FIRST, LAST} for at in (edge - 1, edge, edge + 1)})


def requests(program: Program, seed: int, per_rule: int) -> list[Request]:
    """Random valid requests for every operation, named and unnamed, with objects, flags and groups."""
    rnd = random.Random(seed)
    known = names(program)
    asked = []
    for rule in program.rules.values():
        for _ in range(per_rule):
            resource = entity(program, rule.entity, rnd)
            if rule.unnamed and not program.entities[rule.entity].single and rnd.random() < 0.4:
                resource = Entity(rule.entity, resource.id.rpartition("/")[0])
            asked.append(
                Request(
                    user=rnd.choice([*known.users, *known.strangers]),
                    action=rule.operation,
                    resource=resource,
                    groups=tuple(g for g in (*known.groups, "other") if rnd.random() < 0.2),
                    with_={w.name: entity(program, rnd.choice(w.types), rnd) for w in rule.withs},
                    flags=spoken(rule, frozenset(f for f in ("force", "deep", "unheard") if rnd.random() < 0.3)),
                )
            )
    return asked


def spoken(rule: Rule, flags: frozenset[str]) -> frozenset[str]:
    """The flags, completed with the rule's other required flags as not set."""
    return flags | {f"{flag}{NOT_SET}" for flag in rule.required_flags if flag not in flags}
