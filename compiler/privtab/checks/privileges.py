"""Privileges that are deprecated, never required or never granted, grants of roles that change nothing, and implications: P301, P302, P305, P307, P321, P337, P342, P343."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from privtab.base.diagnostics import Severity, Span
from privtab.base.hints import listed_names
from privtab.base.names import ANY_PRIVILEGE, NAMED_PRIVILEGE, quoted_privilege
from privtab.checks._parts import condition_cells, with_implied
from privtab.checks._view import Found, check, view_of
from privtab.ir.nodes import Has
from privtab.model import nodes as m
from privtab.model.conditions import privilege_names
from privtab.model.nodes import CellPart, HoldsPrivilege, Policy, row_terms


@check("P301", Severity.WARNING, once=True)
def deprecated_privilege(policy: Policy) -> Iterator[Found]:
    """Uses in conditions, effects, sets, `implies` and default grants."""
    deprecated = {n: a.deprecated for n, a in policy.aliases.items() if a.deprecated is not None}
    deprecated |= {n: p.deprecated for n, p in policy.privileges.items() if p.deprecated is not None}
    if not deprecated:
        return
    for name, span in _uses(policy, deprecated):
        same = (
            f"write `{quoted_privilege(policy.aliases[name].of)}`, which means the same"
            if name in policy.aliases
            else None
        )
        yield Found(span, f"`{name}` is deprecated", same or deprecated[name])


def _uses(policy: Policy, names: Collection[str]) -> Iterator[tuple[str, Span]]:
    """The places where some names of privileges are used; may repeat."""
    for row in policy.rows.values():
        uses = [use for term in row_terms(row) if isinstance(term, HoldsPrivilege) for use in term.uses]
        uses += [outcome.use for outcome in row.outcomes if outcome.use is not None]
        yield from ((use.written, use.spot.span) for use in uses if use.written in names)
    tables = policy.tables
    words = [word for set_ in tables.sets for word in set_.members]
    words += (word for privilege in tables.privileges for word in privilege.implies)
    words += (word for role in tables.roles for _, granted in role.grants for word in granted)
    yield from ((word.value, word.span) for word in words if word.value in names)


@check("P302", Severity.WARNING)
def never_required(policy: Policy) -> Iterator[Found]:
    """Privileges that no condition names in any row, reading or variant, not even by an alias or a set, nor any that they imply.

    Or that conditions name, but that decide nothing: no minimal set contains them.
    """
    named = set(required(policy))
    view = view_of(policy)
    idle = {leaf.privilege for leaf in view.leaves if isinstance(leaf, Has)} - {p for p, _ in view.required_privileges}
    for name, privilege in policy.privileges.items():
        if privilege.deprecated is not None or not named.isdisjoint(privilege.implies) or not privilege.granted:
            continue
        if name not in named:
            yield _never_required_finding(policy, name, f"no row requires `{name}`", "add rows that require it")
        elif name in idle:
            message = f"`{name}` decides nothing: wherever it is required, something else is enough"
            yield _never_required_finding(policy, name, message, "check the rows that require it")


def _never_required_finding(policy: Policy, name: str, message: str, advice: str) -> Found:
    return Found(policy.declared[name].span, message, f"granting it changes nothing: {advice}, or drop it")


def required(policy: Policy) -> Iterator[str]:
    """The privileges that conditions name in any row, reading or variant."""
    for cell in condition_cells(policy.tables):
        if cell.expression is not None:
            for name in privilege_names(cell.expression):
                if name.text in policy.aliases:
                    yield policy.aliases[name.text].of
                elif name.text in (ANY_PRIVILEGE, NAMED_PRIVILEGE):
                    yield from policy.privileges
                else:
                    yield from policy.sets.get(name.text, (name.text,))


@check("P305", Severity.WARNING)
def never_granted(policy: Policy) -> Iterator[Found]:
    """One finding for each type whose privileges come from no row's effect, no role and no ownership.

    Root types are skipped, since their privileges are granted from outside. Privileges that only a core row grants are
    reported too: nothing in the tables says that such entities are created on their own.
    """
    by_rows = _granted(policy, core=False)
    by_any_row = _granted(policy, core=True)
    if not any(o.kind == "grant" for row in policy.rows.values() for o in row.outcomes):
        return
    program = view_of(policy).program
    lacking: dict[tuple[str, bool], list[str]] = {}
    first: dict[tuple[str, bool], CellPart] = {}
    for (privilege, type_), spot in _required(policy).items():
        above = program.granting_types(privilege, type_)
        if policy.entities[type_].parent is None or any((privilege, t) in by_rows for t in above):
            continue
        key = (type_, any((privilege, t) in by_any_row for t in above))
        lacking.setdefault(key, []).append(privilege)
        first.setdefault(key, spot)
    for (type_, core), privileges in lacking.items():
        addition = "; only a core row does" if core else ""
        yield Found(
            first[type_, core].span,
            f"no row ever grants {listed_names(privileges)} on the type `{type_}`{addition}",
            f"only an administrator can give it, unless a row that creates the `{type_}` grants it",
        )


def _required(policy: Policy) -> dict[tuple[str, str], CellPart]:
    """The privileges that conditions require, with the first place of each."""
    first: dict[tuple[str, str], CellPart] = {}
    for row in policy.rows.values():
        for term in row_terms(row):
            if not isinstance(term, HoldsPrivilege):
                continue
            for use in term.uses:
                for place in term.places:
                    if len(place.types) == 1:
                        for member in use.members:
                            first.setdefault((member, place.types[0]), use.spot)
    return first


def _granted(policy: Policy, *, core: bool) -> set[tuple[str, str]]:
    granted = {(p, type_) for role in policy.roles.values() for type_, privileges in role.grants for p in privileges}
    for row in policy.rows.values():
        if row.origin == "core" and not core:
            continue
        for outcome in row.outcomes:
            if outcome.kind == "grant" and outcome.use is not None:
                granted.update((p, outcome.type) for p in with_implied(policy, outcome.use.members, outcome.type))
            elif outcome.what == "owner" and policy.semantics.owner is not None:
                granted.update((p, outcome.type) for p in policy.semantics.owner.holds)
    return granted


@check("P307", Severity.WARNING)
def grant_outside_scope(policy: Policy) -> Iterator[Found]:
    """Default grants that never count, since the role gives its privileges only within the scope it is assigned for."""
    for role in policy.tables.all_roles:
        scopes = dict.fromkeys(scope.value for scope in role.scopes)
        inside = dict.fromkeys(type_ for scope in scopes for type_ in policy.hierarchy.inside(scope))
        for type_, _ in role.grants if scopes else ():
            if type_.value not in inside:
                yield Found(
                    type_.span,
                    f"a `{type_.value}` is never within the scope of `{role.name.value}`, a {listed_names(scopes, last='or')}",
                    f"the scope holds {listed_names(inside)}",
                )
        for scope in role.scopes if len(scopes) > 1 else ():
            if not any(policy.hierarchy.within(type_.value, scope.value) for type_, _ in role.grants):
                yield Found(
                    scope.span,
                    f"the role `{role.name.value}` grants nothing within a `{scope.value}`",
                    f"leave out the scope, or grant something on {listed_names(policy.hierarchy.inside(scope.value), last='or')}",
                )


@check("P321", Severity.WARNING)
def idle_role_grant(policy: m.Policy) -> Iterator[Found]:
    """Privileges that a role grants on a type although no row requires them there or, with inheritance, below.

    A set is reported if none of its members is required. A role without any effective grant is reported once.
    """
    view = view_of(policy)
    for role in policy.tables.all_roles:
        idle = [
            (type_, word)
            for type_, words in role.grants
            for word in words
            if not any(
                view.can_matter(privilege, type_.value)
                for privilege in with_implied(policy, _members(policy, word.value), type_.value)
            )
        ]
        if len(idle) == sum(len(words) for _, words in role.grants):
            message = f"the role `{role.name.value}` grants nothing that a row requires"
            yield Found(
                role.name.span,
                message,
                "grant what its holders are meant to do, or drop it: grants of a state need no declaration",
            )
            continue
        for type_, word in idle:
            message = f"no row requires `{word.value}` on a `{type_.value}`"
            yield Found(word.span, message, "drop it, or add rows that require it")


def _members(policy: m.Policy, name: str) -> tuple[str, ...]:
    if name in policy.aliases:
        return (policy.aliases[name].of,)
    return policy.sets.get(name, (name,))


@check("P337", Severity.NOTE)
def idle_type(policy: m.Policy) -> Iterator[Found]:
    """Types on which a privilege can be granted but changes no answer, neither there nor, with inheritance, below.

    A privilege that nothing requires at all is reported by another finding.
    """
    view = view_of(policy)
    required = {privilege for privilege, _ in view.required_privileges}
    for decl in policy.tables.privileges:
        for word in decl.on or ():
            name = decl.name.value
            if name in required and not view.can_matter(name, word.value):
                yield Found(
                    word.span,
                    f"no row requires `{name}` on a `{word.value}`",
                    "granting it there changes nothing: drop the type, or add rows that require it",
                )


# P342: a privilege that nothing requires and that only implies others, as a set does.
@check("P342", Severity.NOTE)
def implication_as_set(policy: Policy) -> Iterator[Found]:
    """Privileges with `implies` that no condition requires and no other list of `implies` names, in a file without denials.

    A denial of a set denies its members, and one of a privilege does not deny what the privilege implies: with denials they differ.
    """
    if policy.semantics.deny != "none":
        return
    named = set(required(policy))
    named.update(p for privilege in policy.privileges.values() for p in privilege.implies)
    for privilege in policy.privileges.values():
        implied = [name for name in privilege.implies if policy.privileges[name].granted]
        if implied and privilege.name not in named:
            yield Found(
                policy.declared[privilege.name].span,
                f"no row requires `{privilege.name}`: it stands for what it implies",
                f"`sets: {{{privilege.name}: [{', '.join(implied)}]}}` says the same",
            )


# P343: a privilege that does not give what those that it implies imply.
@check("P343", Severity.NOTE)
def implication_stops(policy: Policy) -> Iterator[Found]:
    """One finding for each privilege, about the types on which all three privileges can be granted."""
    privileges = policy.privileges
    for first in privileges.values():
        missing: dict[str, str] = {}
        for name in first.implies:
            second = privileges[name]
            for third in second.implies:
                together = {*first.on} & {*second.on} & {*privileges[third].on}
                if third != first.name and third not in first.implies and together:
                    missing.setdefault(third, name)
        if missing:
            third, second_name = next(iter(missing.items()))
            yield Found(
                policy.declared[first.name].span,
                f"`{first.name}` implies `{second_name}`, which implies `{third}`, but does not imply {listed_names(missing)}",
                "implication is one step: add it to the list, if the document says so",
            )
