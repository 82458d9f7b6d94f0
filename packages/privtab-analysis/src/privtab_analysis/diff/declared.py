"""Differences between two files outside of their rows: semantics, entity types, privileges, aliases, sets, roles, attributes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias, TypeVar

from privtab.base import ANY_PRIVILEGE, Attribute
from privtab.ir import Effect, EntityType, Program, Rule, Target
from privtab.state import StateNames
from privtab_analysis.diff.nodes import DeclarationChange, DeclarationKind, Detail, Verdict

EffectKey: TypeAlias = tuple[str, str, Target]
"""(`grant` or `become`; a privilege, `owner` or `member`; target)"""


def outcomes(effects: Iterable[Effect], *, gains: bool) -> frozenset[EffectKey]:
    """The rights that the caller gains or may give and take, or the revoked rights; a set counts as its members."""
    return frozenset(
        (effect.kind, what, effect.target)
        for effect in effects
        if (effect.kind != "revoke") == gains
        for what in effect.privileges or (effect.text,)
    )


def compare_effects(before: Rule, after: Rule) -> Verdict:
    """Wider if the caller gains more or less is revoked, and not the reverse as well."""
    effects = [(*rule.effects, *rule.delegations) for rule in (before, after)]
    # Whichever privileges there are: those that are new are told where they are declared.
    of_any = [{(e.kind, e.target) for e in side if e.what == ANY_PRIVILEGE} for side in effects]
    effects = [
        tuple(e for e in side if e.what != ANY_PRIVILEGE or (e.kind, e.target) not in of_any[0] & of_any[1])
        for side in effects
    ]
    gains_before, gains_after = (outcomes(side, gains=True) for side in effects)
    revoked_before, revoked_after = (outcomes(side, gains=False) for side in effects)
    return verdict(
        more=not (gains_after <= gains_before and revoked_before <= revoked_after),
        less=not (gains_before <= gains_after and revoked_after <= revoked_before),
    )


def verdict(*, more: bool, less: bool) -> Verdict:
    """The verdict for a later side that has more, less, or both."""
    if more and less:
        return Verdict.INCOMPARABLE
    return Verdict.WIDER if more else Verdict.NARROWER if less else Verdict.EQUAL


def combine_verdicts(first: Verdict, second: Verdict) -> Verdict:
    """Combine the verdicts on the condition and the effects of a row."""
    if Verdict.UNKNOWN in (first, second):
        return Verdict.UNKNOWN
    different = {first, second} - {Verdict.EQUAL}
    return Verdict.EQUAL if not different else different.pop() if len(different) == 1 else Verdict.INCOMPARABLE


T = TypeVar("T")


def compare_declared(before: Program, after: Program) -> Iterator[DeclarationChange]:
    """Every difference, in the order of the file."""
    yield from _semantics(before, after)
    yield from _types(before, after)
    yield from _privileges(before, after)
    for name, old, new in _pairs(before.aliases, after.aliases):
        yield from _text_change(
            "alias", name, None if old is None else f"of {old.of}", None if new is None else f"of {new.of}"
        )
    yield from _sets(before, after)
    yield from _conditions(before, after)
    yield from _roles(before, after)
    yield from _attributes(before, after)
    yield from _filters(before, after)


def _pairs(before: Mapping[str, T], after: Mapping[str, T]) -> Iterator[tuple[str, T | None, T | None]]:
    """Each name of either side with its value on both; names of the later side come first."""
    for name in dict.fromkeys([*after, *before]):
        yield name, before.get(name), after.get(name)


def _text_change(kind: DeclarationKind, name: str, old: str | None, new: str | None) -> Iterator[DeclarationChange]:
    """The change of a declaration that is shown as one text."""
    if old != new:
        state = Verdict.ADDED if old is None else Verdict.REMOVED if new is None else Verdict.CHANGED
        yield DeclarationChange(kind=kind, name=name, verdict=state, details=(Detail(what="", before=old, after=new),))


def _semantics(earlier: Program, later: Program) -> Iterator[DeclarationChange]:
    before, after = earlier.semantics, later.semantics
    denies = "overrides" in {before.deny, after.deny}

    def change(
        name: str, old: str | None, new: str | None, state: Verdict = Verdict.CHANGED
    ) -> Iterator[DeclarationChange]:
        if state is not Verdict.EQUAL and (details := _details(("", old, new))):
            yield DeclarationChange(kind="semantics", name=name, verdict=state, details=details)

    # With denials, wider inheritance or more callers also mean wider denials.
    inheritance_verdict = (
        Verdict.CHANGED if denies else Verdict.WIDER if after.inheritance == "down" else Verdict.NARROWER
    )
    yield from change("inheritance", before.inheritance, after.inheritance, inheritance_verdict)
    yield from change("deny", before.deny, after.deny, Verdict.NARROWER if after.deny == "overrides" else Verdict.WIDER)
    old, new = before.owner, after.owner
    if old is None or new is None:
        state = Verdict.WIDER if old is None else Verdict.NARROWER
        yield from change("owner", _presence(old), _presence(new), state)
    else:
        yield from change("owner.kinds", _list(old.kinds), _list(new.kinds), _inclusion(old.kinds, new.kinds))
        yield from change("owner.creator", _creator(old.creator), _creator(new.creator))
        yield from change("owner.holds", _list(old.holds), _list(new.holds), _inclusion(old.holds, new.holds))
    yield from change("subjects", _list(before.subjects), _list(after.subjects))
    for name, kinds, others in (
        ("grantees", before.grantees, after.grantees),
        ("assignees", before.assignees, after.assignees),
    ):
        yield from change(name, _list(kinds), _list(others), Verdict.CHANGED if denies else _inclusion(kinds, others))
    groups = Verdict.CHANGED if denies else _inclusion(before.groups, after.groups)
    yield from change("groups", _list(before.groups), _list(after.groups), groups)
    everyone = Verdict.WIDER if before.everyone is None else Verdict.NARROWER if after.everyone is None else None
    yield from change(
        "everyone", before.everyone, after.everyone, Verdict.CHANGED if denies else everyone or Verdict.CHANGED
    )
    hierarchy = Verdict.CHANGED if denies else _inclusion(before.hierarchy, after.hierarchy)
    yield from change("hierarchy", _list(before.hierarchy), _list(after.hierarchy), hierarchy)
    active = Verdict.NARROWER if after.active_roles == "request" else Verdict.WIDER
    yield from change("active_roles", before.active_roles, after.active_roles, active)
    owners = Verdict.WIDER if after.inactive_owners else Verdict.NARROWER
    yield from change("inactive owners", _yes_no(before.inactive_owners), _yes_no(after.inactive_owners), owners)
    yield from change("gate", before.gate, after.gate)


def _filters(before: Program, after: Program) -> Iterator[DeclarationChange]:
    """Types of which one side alone has row filters, or column masks: without any, nothing is hidden."""
    for entity, kind in dict.fromkeys([*after.filter_lists, *before.filter_lists]):
        old, new = (
            ", ".join(one.name for one in side.filter_lists.get((entity, kind), ())) for side in (before, after)
        )
        if not (old and new) and {entity} <= before.entities.keys() & after.entities.keys():
            detail = Detail(what=f"{kind}s", before=old or None, after=new or None)
            state = Verdict.NARROWER if new else Verdict.WIDER
            yield DeclarationChange(kind="type", name=entity, verdict=state, details=(detail,))


def _presence(owner: object) -> str:
    return "none" if owner is None else "declared"


def _types(before: Program, after: Program) -> Iterator[DeclarationChange]:
    for name, old, new in _pairs(before.entities, after.entities):
        if old is None or new is None:
            yield from _text_change("type", name, _type_text(old), _type_text(new))
            continue
        details = _details(
            ("parent", old.parent, new.parent),
            ("nested", _levels(old), _levels(new)),
            ("flat", _yes_no(old.flat or old.opaque), _yes_no(new.flat or new.opaque)),
            ("single", _yes_no(old.single), _yes_no(new.single)),
            ("principal", old.principal, new.principal),
        )
        yield from _changed("type", name, details, ("title", old.title, new.title))


def _privileges(before: Program, after: Program) -> Iterator[DeclarationChange]:
    known = before.entities.keys() & after.entities.keys()
    for name, old, updated in _pairs(before.grantable, after.grantable):
        if old is None or updated is None:
            yield from _text_change(
                "privilege",
                name,
                None if old is None else f"on {_list(old.on)}",
                None if updated is None else f"on {_list(updated.on)}",
            )
            continue
        removed, added = {*old.on} - {*updated.on}, {*updated.on} - {*old.on}
        # If the other side lacks the whole type, the change is reported there, not here.
        changed = _details(("on", _list(old.on), _list(updated.on))) if known & (removed | added) else ()
        more = bool(added) or not set(updated.implies) <= set(old.implies)
        less = bool(removed) or not set(old.implies) <= set(updated.implies)
        if set(updated.implies) != set(old.implies):
            changed += _details(("implies", _list(old.implies), _list(updated.implies)))
        further = after.inherits(name)
        if old.inheritance != updated.inheritance and before.inherits(name) != further:
            changed += _details(("inheritance", *(("none", "down") if further else ("down", "none"))))
            denies = "overrides" in {before.semantics.deny, after.semantics.deny}
            more, less = more or further or denies, less or not further or denies
        deprecated = "deprecated", old.deprecated, updated.deprecated
        yield from _changed("privilege", name, changed, deprecated, verdict(more=more, less=less))


def _sets(before: Program, after: Program) -> Iterator[DeclarationChange]:
    """Compare sets by their members. Sets are granted as well as required, so more members is not simply wider."""
    if not before.sets and not after.sets:
        return
    names = StateNames(before), StateNames(after)
    for name, old, new in _pairs(before.sets, after.sets):
        members = [
            None if declaration is None else sorted(names_.privileges(name) or ())
            for declaration, names_ in zip((old, new), names, strict=True)
        ]
        texts = [None if names_in_set is None else _list(names_in_set) for names_in_set in members]
        yield from _text_change("set", name, texts[0], texts[1])


def _conditions(before: Program, after: Program) -> Iterator[DeclarationChange]:
    """Compare named conditions by their texts; what they mean is compared in the rows that use them."""
    for name, old, new in _pairs(before.conditions, after.conditions):
        yield from (replace(change, meaning=False) for change in _text_change("condition", name, old, new))


def _roles(before: Program, after: Program) -> Iterator[DeclarationChange]:
    for name, old, new in _pairs(before.roles, after.roles):
        if old is None or new is None:
            yield from _text_change("role", name, _role_text(before, name), _role_text(after, name))
            continue
        old_grants, new_grants = ({type_: sorted({*granted}) for type_, granted in role.grants} for role in (old, new))
        details = _details(
            ("scope", ", ".join(sorted(old.scopes)) or None, ", ".join(sorted(new.scopes)) or None),
            *((type_, _list(was or ()), _list(now or ())) for type_, was, now in _pairs(old_grants, new_grants)),
        )
        pairs = [
            {(type_, privilege) for type_, granted in grants.items() for privilege in granted}
            for grants in (old_grants, new_grants)
        ]
        more = not pairs[1] <= pairs[0] or not _within(new.scopes, old.scopes)
        less = not pairs[0] <= pairs[1] or not _within(old.scopes, new.scopes)
        state = (
            verdict(more=more, less=less)
            if _within(new.scopes, old.scopes) or _within(old.scopes, new.scopes)
            else Verdict.CHANGED
        )
        yield from _changed("role", name, details, ("title", old.title, new.title), state)


def _within(scopes: Collection[str], others: Collection[str]) -> bool:
    """Return whether a role with some scopes is assigned at most where one with others is; without any, it is held everywhere."""
    return not others or bool(scopes and {*scopes} <= {*others})


def _attributes(before: Program, after: Program) -> Iterator[DeclarationChange]:
    for kind in ("user", "entity", "request"):
        for name, old, new in _pairs(before.attributes.of(kind), after.attributes.of(kind)):
            yield from _text_change("attribute", f"{kind}.{name}", _attribute_text(old), _attribute_text(new))


def _details(*parts: tuple[str, str | None, str | None]) -> tuple[Detail, ...]:
    """The parts whose texts differ: the name of the part, before, after."""
    return tuple(Detail(what=what, before=old, after=new) for what, old, new in parts if old != new)


def _changed(
    kind: DeclarationKind,
    name: str,
    details: tuple[Detail, ...],
    wording: tuple[str, str | None, str | None],
    state: Verdict = Verdict.CHANGED,
) -> Iterator[DeclarationChange]:
    if all_details := (*details, *_details(wording)):
        state = state if details else Verdict.CHANGED
        yield DeclarationChange(kind=kind, name=name, verdict=state, details=all_details, meaning=bool(details))


def _levels(kind: EntityType) -> str:
    return f"{kind.nested} levels" if kind.nested else "no"


def _type_text(kind: EntityType | None) -> str | None:
    return None if kind is None else f"in {kind.parent}" if kind.parent else "root"


def _role_text(program: Program, name: str) -> str | None:
    role = program.roles.get(name)
    if role is None:
        return None
    grants = "; ".join(f"{type_}: {' + '.join(privileges)}" for type_, privileges in role.grants)
    return f"{f'scope {_list(role.scopes)}; ' if role.scopes else ''}{grants or 'no grants'}"


def _attribute_text(attribute: Attribute | None) -> str | None:
    if attribute is None:
        return None
    on = f" on {_list(attribute.on)}" if attribute.on else ""
    return f"{attribute.describe().replace('`', '')}{on}, from the {' or the '.join(attribute.origins)}"


def _inclusion(before: Collection[str], after: Collection[str]) -> Verdict:
    return verdict(more=not set(after) <= set(before), less=not set(before) <= set(after))


def _list(names: Collection[str]) -> str:
    return ", ".join(names) or "nothing"


def _creator(creator: bool | str) -> str:  # noqa: FBT001  as the policy declares it
    return creator if isinstance(creator, str) else _yes_no(creator)


def _yes_no(value: bool) -> str:  # noqa: FBT001  one value in, its word out
    return "yes" if value else "no"
