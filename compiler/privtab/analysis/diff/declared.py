"""Differences between two files outside of their rows: semantics, entity types, privileges, aliases, sets, roles."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Literal, TypeVar

from privtab.analysis.diff.effects import verdict
from privtab.analysis.diff.nodes import Declared, Detail, Verdict
from privtab.ir.nodes import Alias, EntityType, Privilege, Program, Role, Semantics
from privtab.state.names import StateNames

T = TypeVar("T")


def compare_declared(before: Program, after: Program) -> Iterator[Declared]:
    """Every difference, in the order of the file."""
    yield from _semantics(before.semantics, after.semantics)
    yield from _types(before, after)
    yield from _privileges(before, after)
    for name, one, other in _pairs(before.aliases, after.aliases):
        yield from _whole("alias", name, _of(one), _of(other))
    yield from _sets(before, after)
    yield from _roles(before, after)


def _pairs(before: Mapping[str, T], after: Mapping[str, T]) -> Iterator[tuple[str, T | None, T | None]]:
    """Each name of either side with its value on both; names of the later side come first."""
    for name in dict.fromkeys([*after, *before]):
        yield name, before.get(name), after.get(name)


def _whole(
    kind: Literal["alias", "set", "privilege", "type", "role"], name: str, one: str | None, other: str | None
) -> Iterator[Declared]:
    """The change of a declaration that is shown as one text."""
    if one != other:
        state = Verdict.ADDED if one is None else Verdict.REMOVED if other is None else Verdict.CHANGED
        yield Declared(kind=kind, name=name, verdict=state, details=(Detail(what="", before=one, after=other),))


def _semantics(before: Semantics, after: Semantics) -> Iterator[Declared]:
    denies = "overrides" in {before.deny, after.deny}

    def change(name: str, one: str | None, other: str | None, state: Verdict = Verdict.CHANGED) -> Iterator[Declared]:
        if one != other and state is not Verdict.EQUAL:
            detail = Detail(what="", before=one, after=other)
            yield Declared(kind="semantics", name=name, verdict=state, details=(detail,))

    # With denials, wider inheritance or more callers also mean wider denials.
    further = Verdict.CHANGED if denies else Verdict.WIDER if after.inheritance == "down" else Verdict.NARROWER
    yield from change("inheritance", before.inheritance, after.inheritance, further)
    yield from change("deny", before.deny, after.deny, Verdict.NARROWER if after.deny == "overrides" else Verdict.WIDER)
    one, other = before.owner, after.owner
    if one is None or other is None:
        state = Verdict.WIDER if one is None else Verdict.NARROWER
        yield from change("owner", _presence(one), _presence(other), state)
    else:
        yield from change("owner.kinds", _list(one.kinds), _list(other.kinds), _sizes(one.kinds, other.kinds))
        yield from change("owner.creator", _yes(one.creator), _yes(other.creator))
        yield from change("owner.holds", _list(one.holds), _list(other.holds), _sizes(one.holds, other.holds))
    groups = Verdict.CHANGED if denies else _sizes(before.groups, after.groups)
    yield from change("groups", _list(before.groups), _list(after.groups), groups)
    yield from change("gate", before.gate, after.gate)


def _presence(owner: object) -> str:
    return "none" if owner is None else "declared"


def _types(before: Program, after: Program) -> Iterator[Declared]:
    for name, one, other in _pairs(before.entities, after.entities):
        if one is None or other is None:
            yield from _whole("type", name, _place(one), _place(other))
            continue
        details = [
            Detail(what="parent", before=one.parent, after=other.parent),
            Detail(what="single", before=_yes(one.single), after=_yes(other.single)),
            Detail(what="principal", before=one.principal, after=other.principal),
        ]
        changed = tuple(d for d in details if d.before != d.after)
        words = Detail(what="title", before=one.title, after=other.title)
        yield from _changed("type", name, changed, words if one.title != other.title else None)


def _privileges(before: Program, after: Program) -> Iterator[Declared]:
    known = before.entities.keys() & after.entities.keys()
    for name, one, other in _pairs(before.privileges, after.privileges):
        if one is None or other is None:
            yield from _whole("privilege", name, _on(one), _on(other))
            continue
        gone, new = [t for t in one.on if t not in other.on], [t for t in other.on if t not in one.on]
        # If the other side lacks the whole type, the change is reported there, not here.
        told = [t for t in (*gone, *new) if t in known]
        changed = (Detail(what="on", before=_list(one.on), after=_list(other.on)),) if told else ()
        words = Detail(what="deprecated", before=one.deprecated, after=other.deprecated)
        state = verdict(more=bool(new), less=bool(gone))
        yield from _changed("privilege", name, changed, words if one.deprecated != other.deprecated else None, state)


def _sets(before: Program, after: Program) -> Iterator[Declared]:
    """Compare sets by their members. Sets are granted as well as required, so more members is not simply wider."""
    names = StateNames(before), StateNames(after)
    for name, one, other in _pairs(before.sets, after.sets):
        members = [
            None if s is None else sorted(n.privileges(name) or ()) for s, n in zip((one, other), names, strict=True)
        ]
        texts = [None if m is None else _list(m) for m in members]
        yield from _whole("set", name, texts[0], texts[1])


def _roles(before: Program, after: Program) -> Iterator[Declared]:
    for name, one, other in _pairs(before.roles, after.roles):
        if one is None or other is None:
            yield from _whole("role", name, _grants(one), _grants(other))
            continue
        details = [Detail(what="scope", before=one.scope, after=other.scope)] if one.scope != other.scope else []
        mine, theirs = ({t: frozenset(ps) for t, ps in role.grants} for role in (one, other))
        for type_ in dict.fromkeys([*theirs, *mine]):
            had, has = mine.get(type_, frozenset()), theirs.get(type_, frozenset())
            if had != has:
                details.append(Detail(what=type_, before=_list(sorted(had)), after=_list(sorted(has))))
        pairs = [{(t, p) for t, ps in grants.items() for p in ps} for grants in (mine, theirs)]
        more = not pairs[1] <= pairs[0] or (other.scope is None and one.scope is not None)
        less = not pairs[0] <= pairs[1] or (one.scope is None and other.scope is not None)
        state = verdict(more=more, less=less) if one.scope == other.scope or None in {one.scope, other.scope} else None
        words = Detail(what="title", before=one.title, after=other.title)
        yield from _changed(
            "role", name, tuple(details), words if one.title != other.title else None, state or Verdict.CHANGED
        )


def _changed(
    kind: Literal["type", "privilege", "role"],
    name: str,
    details: tuple[Detail, ...],
    words: Detail | None,
    state: Verdict = Verdict.CHANGED,
) -> Iterator[Declared]:
    if details:
        told = (*details, *(() if words is None else (words,)))
        yield Declared(kind=kind, name=name, verdict=state, details=told)
    elif words is not None:
        yield Declared(kind=kind, name=name, verdict=Verdict.CHANGED, details=(words,), meaning=False)


def _of(alias: Alias | None) -> str | None:
    return None if alias is None else f"of {alias.of}"


def _place(kind: EntityType | None) -> str | None:
    return None if kind is None else f"in {kind.parent}" if kind.parent else "root"


def _on(privilege: Privilege | None) -> str | None:
    return None if privilege is None else f"on {_list(privilege.on)}"


def _grants(role: Role | None) -> str | None:
    if role is None:
        return None
    grants = "; ".join(f"{type_}: {' + '.join(ps)}" for type_, ps in role.grants)
    return f"{f'scope {role.scope}; ' if role.scope else ''}{grants or 'no grants'}"


def _sizes(before: Collection[str], after: Collection[str]) -> Verdict:
    return verdict(more=not set(after) <= set(before), less=not set(before) <= set(after))


def _list(names: Collection[str]) -> str:
    return ", ".join(names) or "nothing"


def _yes(value: bool) -> str:  # noqa: FBT001  one value in, its word out
    return "yes" if value else "no"
