"""The YAML text of a random policy."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from random import Random

from privtab.base.names import quoted_privilege
from worlds import active, attributes, below, filters, flat, hierarchy, implies, nested
from worlds.names import GROUPS, PRIVILEGES, ROLES


@dataclass
class Draft:
    """A policy that is being generated."""

    random: random.Random
    system: str
    seed: int
    features: frozenset[str]
    parents: dict[str, str | None] = field(default_factory=dict)
    singles: set[str] = field(default_factory=set)
    on: dict[str, list[str]] = field(default_factory=dict)
    owners: bool = False
    roles: bool = False
    gate: bool = False
    alternative: bool = False
    """True if the gate has an `or`."""
    rows: list[tuple[str, str, bool]] = field(default_factory=list)
    """(entity, operation, whether it has `with` objects)"""
    generators: dict[str, Random] = field(default_factory=dict)

    def generator(self, feature: str) -> Random | None:
        """What a feature draws from, so that the rest of a world is the same with and without it; None without it."""
        if feature not in self.features:
            return None
        if feature not in self.generators:
            self.generators[feature] = random.Random(f"{feature} {self.seed}")
        return self.generators[feature]

    def chain(self, type_: str) -> list[str]:
        names: list[str] = []
        at: str | None = type_
        while at is not None:
            names.insert(0, at)
            at = self.parents[at]
        return names

    def reachable(self, type_: str) -> list[str]:
        found = self.chain(type_)
        for single in sorted(self.singles):  # `config` before what it contains
            if single not in found and self.parents[single] in found:
                found.append(single)
        return found


FEATURES = ("implies", "below", "hierarchy", "active", "any", "nobody", "filters", "scopes", "gates", "named")
"""What a world can have besides what every world has: most are modules of this package. `nested` and `attributes` have to be asked for,
since tools refuse them, and `inside`: single types within single types."""
IN_SPARK = ("implies", "hierarchy", "any", "nobody", "filters", "scopes", "gates", "named")
"""Those of the features that arrays in Spark support."""
IN_PORTIONS = (
    (),
    ("attributes", "below", "hierarchy", "implies", "any", "nobody", "filters", "scopes", "gates", "named"),
    ("nested", "active", "below", "hierarchy", "inside"),
    ("flat", "nested", "attributes", "below", "hierarchy", "implies"),
)
"""Features of policies that are decided in portions in Spark, one or several at once."""
OPERATIONS = ("op0", "Op0", "opAll")
"""The operations of a type; two differ in case alone."""
SHARDED = ("implies", "hierarchy", "active", "any", "nobody", "filters", "scopes", "gates", "named")
"""Those of the features that sharded states support."""


def policy(seed: int, system: str = "world", features: Collection[str] = ()) -> str:
    """The YAML text of a random valid policy."""
    rnd = random.Random(seed)
    draft = Draft(random=rnd, system=system, seed=seed, features=frozenset(features))
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
    types += [*nested.types(draft.generator("nested")), *flat.types(draft.generator("flat"), draft.parents)]
    place_of_types = len(lines)
    further = _further(draft, inheritance)
    lines += ["privileges:", *(f"  {p}: {{on: [{', '.join(on)}]{further[p]}}}" for p, on in draft.on.items())]
    lines += ["  OLD_READ: {alias_of: READ, deprecated: use READ}"]
    lines += ["sets:", "  BOTH: [READ, WRITE]", *_conditions(draft)]
    semantics = [f"inheritance: {inheritance}", f"deny: {deny}"]
    if draft.owners:
        kinds = rnd.choice(["[user]", "[user]", "[user, group]", "[user, group, role]"])
        kinds = kinds if draft.generator("active") is None else "[user, group, role]"
        holds = rnd.choice(["", "", ", holds: ALL", ", holds: [READ, USE ALL]"])
        semantics.append(f"owner: {{kinds: {kinds}, creator: {rnd.choice(['true', 'false'])}{holds}}}")
    semantics += _gate(draft)
    if rnd.random() < 0.3:
        semantics.append(f"groups: [{rnd.choice(['state, request', 'request'])}]")
    semantics += [*_everyone(random.Random(f"everyone {seed}")), *hierarchy.declared(draft.generator("hierarchy"))]
    lines += [attributes.declared(random.Random(f"defaults {seed}"))] if draft.generator("attributes") else []
    semantics += active.declared(draft.generator("active"))
    lines += ["semantics:", *(f"  {s}" for s in semantics)]
    if rnd.random() < 0.5:
        draft.roles = True
        lines += ["roles:", *_roles(draft)]
    tables: list[str] = []
    for type_ in draft.parents:
        rows = [line for name in OPERATIONS[: rnd.randint(1, 3)] for line in _row(draft, type_, name)]
        tables += [f"  {type_}:", *rows]
    if rnd.random() < 0.5:
        lines += ["core:", "  look: READ (entity)", "  make: {requires: WRITE (parent), grants: READ (entity)}"]
        lines[-1] = "  make: {requires: WRITE (parent)}" if _unbound(draft, "READ") else lines[-1]
        if _unbound(draft, "READ") or _unbound(draft, "WRITE"):
            lines[-3:] = []
    lines += ["tables:", *tables]
    if rnd.random() < 0.5:
        lines += ["any:", f"  every: {{requires: '{_expression(draft, 'top', 1, ())}', gate: none}}"]
    types += filters.types(draft, types, lambda own, type_: _expression(own, type_, 2, ()))
    lines[place_of_types:place_of_types] = ["types:", *types] if types else []
    return "\n".join(lines) + "\n"


def _everyone(rnd: random.Random) -> list[str]:
    """The group of every user, in some policies: one with rows or without."""
    return [f"everyone: {rnd.choice([*GROUPS, 'unnamed'])}"] if rnd.random() < 0.3 else []


NAMED = ("KEEPER", "EDITOR")


def _conditions(draft: Draft) -> list[str]:
    """Named conditions that hold something for every type, one of them by the other."""
    rnd = draft.generator("named")
    if rnd is None:
        return []
    some = ["member (top)", "service admin", "READ (top)", "(ADMIN (top) when force)", "WRITE/ADMIN (top)"]
    some += [f"{quoted_privilege(p)} (entity)" for p in PRIVILEGES if not _unbound(draft, p)]
    keeper, other = rnd.sample(some, k=2), rnd.choice(some)
    return [
        "conditions:",
        f"  KEEPER: '{rnd.choice([' and ', ' or ', ' or ']).join(keeper)}'",
        f"  EDITOR: '{rnd.choice(['KEEPER (entity)', 'KEEPER (top)'])} {rnd.choice(['and', 'or', 'or'])} {other}'",
    ]


def _gate(draft: Draft) -> list[str]:
    """The gate of the file, in some policies with a condition that suffices for every row."""
    gates = draft.generator("gates")
    parts = ["and: member (top)"] if draft.gate else []
    if gates is not None and gates.random() < 0.6:
        draft.alternative = True
        some = ["service admin", "ADMIN (top)", "nobody", "ADMIN (top) and (member (top) when deep)"]
        some += [f"{quoted_privilege(p)} (entity)" for p in PRIVILEGES if not _unbound(draft, p)]
        some += ["owner (top, entity)"] if draft.owners else []
        parts.append(f"or: '{gates.choice(some)}'")
        return [f"gate: {{{', '.join(parts)}}}"]
    return [f"gate: {part.removeprefix('and: ')}" for part in parts]


def _further(draft: Draft, inheritance: str) -> dict[str, str]:
    """What to write for privileges that imply others, and for those whose inheritance is not that of the others."""
    implied = implies.implied(draft.generator("implies"), tuple(draft.on))
    apart = random.Random(f"inheritance {draft.seed}")
    other = ", inheritance: down" if inheritance == "none" else ", inheritance: none"
    own = {p: other for p in draft.on if apart.random() < 0.4} if apart.random() < 0.4 else {}
    return {p: implied.get(p, "") + own.get(p, "") for p in draft.on}


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
        inside = draft.generator("inside")
        if inside is not None and inside.random() < 0.6:
            draft.parents["setting"] = "config"
            draft.singles.add("setting")
            if inside.random() < 0.5:
                draft.parents["value"] = "setting"


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
        several = draft.generator("scopes")
        if several is not None and scope is not None and several.random() < 0.7:
            other = several.choice([t for t in draft.parents if t != scope])
            grants |= {
                t: [p for p in PRIVILEGES if t in draft.on[p] and several.random() < 0.4]
                for t in draft.parents
                if t not in grants and other in draft.chain(t)
            }
            scope = f"[{', '.join(several.sample([scope, other], k=2))}]"
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
        optional = ["none"] * (Random(f"optional {draft.seed} {type_} {operation}").random() < 0.4)
        listed = types[0] if len(types) == 1 and not optional else f"[{', '.join([*types, *optional])}]"
        parts.append(f"with: {{thing: {listed}}}")
    shape = rnd.random()
    if shape < 0.8 or withs:
        required = _expression(draft, type_, 3, withs)
        if parts and "none" in parts[0]:
            required = required.replace("when force", "when thing")
        parts.append(f"requires: '{required}'")
    if shape >= 0.65:
        parts.append(f"each: '{_expression(draft, type_, 2, ())}'")
    if draft.gate and rnd.random() < 0.2:
        parts.append("gate: none")
    gates = draft.generator("gates")
    if draft.alternative and not draft.gate and gates is not None and gates.random() < 0.2:
        parts.append("gate: none")
    if draft.owners and rnd.random() < 0.2:
        parts.append("becomes: owner")
    draft.rows.append((type_, operation, bool(withs)))
    flags = [flag for flag in ("force", "Force") if any(f"when {flag}" in part for part in parts)]
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
    return attributes.comparison(draft, type_, [name for name, _ in withs]) or _term(draft, type_, withs)


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
            return f"{quoted_privilege(rnd.choice(found))} ({name})"
    reachable = draft.reachable(type_)
    choice = rnd.random()
    if choice < 0.12 and draft.owners:
        owned = rnd.sample(reachable, k=rnd.randint(1, len(reachable)))
        names = nested.levels(draft.generator("nested"), owned, around=type_ == "mid")
        targets = (below.target(draft, target, name, ()) for target, name in zip(owned, names, strict=True))
        return f"owner ({', '.join(targets)})"
    if choice < 0.2:
        of = [rnd.choice([t for t in reachable if t != "role"])]
        return f"member ({nested.levels(draft.generator('nested'), of, around=of == [type_])[0]})"
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
    closed = draft.generator("nobody")
    if closed is not None and closed.random() < 0.02:
        return "nobody"
    named = draft.generator("named")
    if named is not None and named.random() < 0.1:
        on = [*reachable, *(name for name, _ in withs), *(name for name, _ in withs)]
        return f"{named.choice(NAMED)} ({named.choice(on)})"
    target = rnd.choice(reachable)
    fitting = [p for p in PRIVILEGES if target in draft.on[p]]
    if not fitting:
        return "READ (top)"
    chosen = rnd.sample(fitting, k=min(len(fitting), rnd.choice([1, 1, 1, 2])))
    around = type_ == target and all("top" in draft.on[p] for p in chosen)
    [name] = nested.levels(draft.generator("nested"), [target], around=around)
    asked = below.target(draft, target, name, chosen)
    some = draft.generator("any")
    if some is not None and some.random() < 0.3:
        return f"any privilege ({asked})"
    return f"{rnd.choice(['/', ' + ']).join(map(quoted_privilege, chosen))} ({asked})"
