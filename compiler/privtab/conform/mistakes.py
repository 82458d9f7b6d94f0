"""The kinds of mistakes that a system could make with the meaning of a table, and what a policy needs for each to show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import product

from privtab.conform import misreadings as wrong
from privtab.conform.misreadings import CONTINUED, Mistake, Names, above
from privtab.ir.algebra import Rebuilder
from privtab.ir.nodes import (
    ALWAYS,
    RESOURCE,
    Atom,
    Compare,
    Formula,
    Has,
    HasBelow,
    Holds,
    Member,
    Owner,
    OwnsBelow,
    Program,
    Self,
    ServiceAdmin,
)
from privtab.state.nodes import Grant

_DENY, _GROUPS, _ROLES, _OWNERS = "denials", "groups of the state", "roles", "ownership in conditions"
_POSSIBLE: Mapping[str, Callable[[Program], bool]] = {
    "inheritance": lambda program: bool(program.inherited),
    "no inheritance": lambda program: not program.inherited.issuperset(program.privileges),
    _DENY: lambda program: program.semantics.deny != "none",
    f"{_DENY} and inheritance": lambda program: program.semantics.deny == "overrides" and bool(program.inherited),
    f"{_DENY} to users": lambda program: program.semantics.deny != "none" and "user" in program.semantics.grantees,
    f"{_DENY} to groups or roles": lambda program: (
        program.semantics.deny != "none" and program.semantics.grantees != ("user",)
    ),
    "grants to users": lambda program: "user" in program.semantics.grantees,
    "two kinds of grantees": lambda program: len(program.semantics.grantees) > 1,
    _GROUPS: lambda program: "state" in program.semantics.groups and "group" in program.semantics.grantees,
    "groups in groups": lambda program: "groups" in program.semantics.hierarchy,
    "groups in groups, or roles of roles": lambda program: bool(program.semantics.hierarchy),
    _ROLES: lambda program: "role" in program.semantics.grantees and not program.roles,
    "roles of groups": lambda program: "group" in program.semantics.assignees and "state" in program.semantics.groups,
    "roles of roles": lambda program: "roles" in program.semantics.hierarchy,
    "roles within entities": lambda program: (
        any(role.scope is not None for role in program.roles.values())
        or ("role" in program.semantics.grantees and not program.roles)
    ),
    "active roles": lambda program: program.semantics.active_roles == "request",
    "groups of requests": lambda program: (
        "request" in program.semantics.groups and "group" in program.semantics.grantees
    ),
    "owners": lambda program: program.semantics.owner is not None,
    _OWNERS: lambda program: _asks_for(program, Owner),
    "groups that own": lambda program: "group" in _owners(program),
    "roles that own": lambda program: "role" in _owners(program),
    "a `with` object of the resource's type": lambda program: any(
        rule.entity in slot.types for rule in program.rules.values() for slot in rule.withs
    ),
    "two types in one container": lambda program: (
        len({(t.parent, t.single) for t in program.entities.values()}) < len(program.entities)
    ),
}
"""Whether a policy has what mistakes need; where the policy itself is read wrongly, another reading shows it."""


def _asks_for(program: Program, kind: type[object]) -> bool:
    return wrong.never(kind)(program) != program


def _owners(program: Program) -> tuple[str, ...]:
    return () if program.semantics.owner is None else program.semantics.owner.kinds


def is_possible(mistake: Mistake, program: Program) -> bool:
    """Whether a policy can show a mistake at all."""
    needed = _POSSIBLE.get(mistake.needs)
    if needed is not None and not needed(program):
        return False
    return mistake.seen_without_policy or mistake.program(program) != program


@cache
def mistakes() -> tuple[Mistake, ...]:
    """All of them, by subject."""
    return (
        *_about_objects(),
        *_about_levels(),
        *_about_denials(),
        *_about_principals(),
        *_about_owners(),
        *_about_conditions(),
    )


def _about_objects() -> Iterator[Mistake]:
    def of_objects(
        id_: str, text: str, changed: Callable[[Names], Names], needs: str = "rights on entities"
    ) -> Mistake:
        return Mistake(id=id_, text=text, needs=needs, about_objects=True, **wrong.named(changed))

    yield of_objects(
        "any-object",
        "a right on one entity counts for every entity of its type",
        lambda names: (wrong.SAME,) * len(names),
    )
    yield of_objects(
        "same-last-name",
        "entities are told apart by their last name alone",
        lambda names: (*(wrong.SAME,) * (len(names) - 1), names[-1]),
    )
    yield of_objects(
        "same-container",
        "a right on one entity counts for the others in its container",
        lambda names: (*names[:-1], wrong.SAME),
    )
    yield of_objects(
        "same-root",
        "a right counts everywhere below the same root",
        lambda names: (names[0], *(wrong.SAME,) * (len(names) - 1)),
    )
    yield of_objects("other-root", "the root is not looked at", lambda names: (wrong.SAME, *names[1:]))
    yield of_objects(
        "case-of-entities",
        "names of entities are compared without their case",
        lambda names: tuple(map(str.lower, names)),
    )
    yield of_objects(
        "beginning-of-name", "a name counts for the names that continue it",
        lambda names: tuple(name.removesuffix(CONTINUED) for name in names),
    )  # fmt: skip
    yield Mistake(
        id="other-type", text="types are not looked at: a path of one type counts for the same path of others",
        needs="two types in one container", about_objects=True, view=wrong.types_confused,
    )  # fmt: skip
    yield Mistake(
        id="objects-swapped", text="the resource and a `with` object are taken for each other",
        needs="a `with` object of the resource's type", request=wrong.objects_swapped,
    )  # fmt: skip


def _about_levels() -> Iterator[Mistake]:
    yield Mistake(
        id="nothing-inherited",
        text="grants count only where they are written",
        needs="inheritance",
        program=wrong.semantics(inheritance="none"),
    )
    yield Mistake(
        id="everything-inherited",
        text="grants count for all that is below",
        needs="no inheritance",
        program=wrong.semantics(inheritance="down"),
    )
    yield Mistake(
        id="one-level",
        text="grants count one level down, and no further",
        needs="inheritance over two levels",
        program=wrong.semantics(inheritance="none"),
        view=wrong.one_level,
    )
    yield Mistake(
        id="counts-above", text="a grant counts for what contains its entity", about_objects=True,
        view=wrong.added(lambda view, row: [replace(row, entity=entity) for entity in above(view.program, row.entity)]),
    )  # fmt: skip
    yield Mistake(
        id="counts-around", text="a grant on an entity counts for all that its container contains",
        about_objects=True,
        view=wrong.added(lambda view, row: [replace(row, entity=entity) for entity in above(view.program, row.entity)[-1:]]),
    )  # fmt: skip
    yield Mistake(
        id="roots-ignored",
        text="grants on roots count for nothing",
        view=wrong.grants(lambda row: len(row.entity.names) > 1),
    )
    yield Mistake(
        id="only-roots", text="only grants on roots count", view=wrong.grants(lambda row: len(row.entity.names) == 1)
    )
    yield Mistake(
        id="outermost",
        text="of a type that nests, the outermost level counts, not the nearest",
        needs="a type that nests",
        program=wrong.atoms(wrong.outermost),
    )
    yield Mistake(
        id="below-ignored", text="`or below` is not looked at", needs="`or below`",
        program=wrong.atoms(
            lambda _, atom: Has(privilege=atom.privilege, target=atom.target) if isinstance(atom, HasBelow)
            else Owner(target=atom.target) if isinstance(atom, OwnsBelow) else atom
        ),
    )  # fmt: skip


def _about_denials() -> Iterator[Mistake]:
    yield Mistake(
        id="denials-ignored",
        text="denials count for nothing",
        needs=_DENY,
        view=wrong.grants(lambda row: row.effect == "allow"),
    )
    yield Mistake(
        id="denials-allow", text="a denial counts as a grant", needs=_DENY,
        view=wrong.with_rows(lambda view: {"grants": [replace(row, effect="allow") for row in view.state.grants]}),
    )  # fmt: skip
    yield Mistake(
        id="denials-not-inherited",
        text="a denial counts only where it is written",
        needs=f"{_DENY} and inheritance",
        program=wrong.semantics(inheritance="none"),
        view=wrong.denials_where_written,
    )
    yield Mistake(
        id="denials-of-everything", text="a denial of one privilege denies all", needs=_DENY,
        view=wrong.added(lambda view, row: [replace(row, privilege=name) for name in view.program.grantable] if row.effect == "deny" else []),
    )  # fmt: skip
    yield Mistake(
        id="denials-for-everybody", text="a denial to one user denies all users", needs=_DENY,
        view=wrong.added(lambda view, row: [replace(row, grantee=user) for user in wrong.users(view)] if row.effect == "deny" else []),
    )  # fmt: skip
    yield Mistake(
        id="denials-of-others-ignored", text="denials to groups and roles count for nothing", needs=f"{_DENY} to groups or roles",
        view=wrong.grants(lambda row: row.effect == "allow" or row.grantee.startswith("user:")),
    )  # fmt: skip
    yield Mistake(
        id="denials-of-users-ignored", text="denials to users count for nothing", needs=f"{_DENY} to users",
        view=wrong.grants(lambda row: row.effect == "allow" or not row.grantee.startswith("user:")),
    )  # fmt: skip
    yield Mistake(
        id="nearest-wins", text="a grant further down prevails over a denial above it", needs=f"{_DENY} and inheritance",
        view=wrong.only("grants", lambda view, row: not (isinstance(row, Grant) and row.effect == "deny" and wrong.has_deeper_allow(view, row))),
    )  # fmt: skip
    yield Mistake(
        id="denials-around", text="a denial on an entity counts for all that its container contains", needs=f"{_DENY} and inheritance",
        view=wrong.added(
            lambda view, row: [replace(row, entity=entity) for entity in above(view.program, row.entity)[-1:]] if row.effect == "deny" else []
        ),
    )  # fmt: skip


def _about_principals() -> Iterator[Mistake]:
    def called(id_: str, text: str, changed: Callable[[str, str], str], needs: str = "rights of users") -> Mistake:
        return Mistake(id=id_, text=text, needs=needs, **wrong.called(changed))

    yield Mistake(
        id="any-user", text="a right of one user counts for every user", about_objects=True, **wrong.one_of("user")
    )
    yield Mistake(id="any-group", text="all groups are one", needs=_GROUPS, **wrong.one_of("group"))
    yield Mistake(id="any-role", text="all roles are one", needs=_ROLES, **wrong.one_of("role"))
    yield called(
        "case-of-users",
        "names of users are compared without their case",
        lambda kind, name: name.lower() if kind == "user" else name,
    )
    yield called(
        "beginning-of-users", "a user has the rights of those whose names theirs continues",
        lambda kind, name: name.removesuffix(CONTINUED) if kind == "user" else name,
    )  # fmt: skip
    yield Mistake(
        id="kinds-confused",
        text="users, groups and roles of one name are one",
        needs="two kinds of grantees",
        view=wrong.kinds_confused,
    )
    yield Mistake(
        id="users-ignored",
        text="grants to users count for nothing",
        needs="grants to users",
        view=wrong.grants(lambda row: not row.grantee.startswith("user:")),
    )
    yield Mistake(
        id="groups-ignored",
        text="groups count for nothing",
        needs=_GROUPS,
        view=wrong.with_rows(lambda _: {"memberships": []}),
    )
    yield Mistake(
        id="groups-in-groups-ignored", text="groups in groups count for nothing", needs="groups in groups",
        view=wrong.only("memberships", lambda _, row: not wrong.is_link(row)),
    )  # fmt: skip
    yield Mistake(
        id="roles-ignored",
        text="roles count for nothing",
        needs=_ROLES,
        view=wrong.with_rows(lambda _: {"assignments": []}),
    )
    yield Mistake(
        id="roles-of-groups-ignored", text="roles that groups hold count for nothing", needs="roles of groups",
        view=wrong.with_rows(lambda view: {"assignments": [row for row in view.state.assignments if not row.principal.startswith("group:")]}),
    )  # fmt: skip
    yield Mistake(
        id="roles-of-roles-ignored", text="roles that roles hold count for nothing", needs="roles of roles",
        view=wrong.only("assignments", lambda _, row: not wrong.is_link(row)),
    )  # fmt: skip
    yield Mistake(
        id="third-link-ignored",
        text="chains of groups or roles end at the second",
        needs="groups in groups, or roles of roles",
        view=wrong.links_cut,
    )
    yield Mistake(
        id="links-reversed",
        text="groups in groups, or roles of roles, count the wrong way round",
        needs="groups in groups, or roles of roles",
        view=wrong.links_reversed,
    )
    yield Mistake(
        id="scopes-ignored", text="a role within an entity counts everywhere", needs="roles within entities",
        view=wrong.with_rows(lambda view: {"assignments": [replace(row, scope=None) for row in view.state.assignments]}),
    )  # fmt: skip
    yield Mistake(
        id="scoped-roles-ignored", text="roles within entities count for nothing", needs="roles within entities",
        view=wrong.with_rows(lambda view: {"assignments": [row for row in view.state.assignments if row.scope is None]}),
    )  # fmt: skip
    yield Mistake(
        id="default-grants-ignored",
        text="the default grants of roles count for nothing",
        needs="roles with default grants",
        program=wrong.without_default_grants,
    )
    yield Mistake(
        id="inactive-roles-count", text="roles count that the request does not name as active", needs="active roles",
        request=lambda request, _: replace(request, active_roles=None),
    )  # fmt: skip
    yield Mistake(
        id="active-roles-ignored", text="no role counts where a request names the active ones", needs="active roles",
        request=lambda request, _: replace(request, active_roles=request.active_roles and ()),
    )  # fmt: skip
    yield Mistake(
        id="groups-of-requests-ignored", text="the groups that a request names count for nothing", needs="groups of requests",
        request=lambda request, _: replace(request, groups=()),
    )  # fmt: skip
    yield Mistake(
        id="members-ignored",
        text="nobody is a member of anything",
        needs="memberships in conditions",
        program=wrong.never(Member),
    )
    yield Mistake(
        id="everybody-is-a-member",
        text="everybody is a member of everything",
        needs="memberships in conditions",
        program=wrong.always(Member),
    )
    yield Mistake(
        id="administrators-ignored",
        text="service administrators have no rights",
        needs="service administrators",
        program=wrong.never(ServiceAdmin),
    )
    yield Mistake(
        id="everybody-administers",
        text="everybody is a service administrator",
        needs="service administrators in conditions",
        program=wrong.always(ServiceAdmin),
    )
    yield Mistake(
        id="administrators-may-all", text="service administrators may do everything", needs="rows that administrators may not do",
        program=wrong.conditions(wrong.administrators_may_all),
    )  # fmt: skip


def _about_owners() -> Iterator[Mistake]:
    yield Mistake(
        id="owners-ignored", text="owners have no rights", needs=_OWNERS, view=wrong.with_rows(lambda _: {"owners": []})
    )
    yield Mistake(id="everybody-owns", text="everybody owns everything", needs=_OWNERS, program=wrong.always(Owner))
    yield Mistake(
        id="any-owner", text="whoever owns something owns everything that anybody owns", needs=_OWNERS,
        view=wrong.with_rows(lambda view: {"owners": list(product((e for e, _ in view.state.owners), {o for _, o in view.state.owners}))}),
    )  # fmt: skip
    yield Mistake(
        id="owners-of-what-is-below",
        text="owners own what is below, too",
        needs=_OWNERS,
        about_objects=True,
        view=wrong.owned(wrong.below),
    )
    yield Mistake(
        id="owners-of-what-is-above", text="owners own what contains their entities, too", needs=_OWNERS, about_objects=True,
        view=wrong.owned(lambda view, entity: above(view.program, entity)),
    )  # fmt: skip
    yield Mistake(
        id="owning-groups-ignored", text="groups that own count for nothing", needs="groups that own",
        view=wrong.with_rows(lambda view: {"owners": [row for row in view.state.owners if not row[1].startswith("group:")]}),
    )  # fmt: skip
    yield Mistake(
        id="owning-roles-ignored", text="roles that own count for nothing", needs="roles that own",
        view=wrong.with_rows(lambda view: {"owners": [row for row in view.state.owners if not row[1].startswith("role:")]}),
    )  # fmt: skip
    yield Mistake(
        id="owners-hold-everything",
        text="owners hold every privilege",
        needs="owners",
        program=wrong.owners_hold(lambda program: tuple(program.privileges)),
    )
    yield Mistake(
        id="owners-hold-nothing",
        text="owners do not hold what the policy says they do",
        needs="owners that hold privileges",
        program=wrong.owners_hold(lambda _: ()),
    )


def _about_conditions() -> Iterator[Mistake]:
    yield Mistake(
        id="gate-skipped",
        text="the gate is not asked",
        needs="a gate",
        program=wrong.conditions(lambda *_: ALWAYS, "gate"),
    )
    yield Mistake(
        id="and-as-or", text="one of the things that `and` joins is enough", needs="`and`",
        program=wrong.conditions(lambda _, __, formula: wrong.Swapped(all_=True, any_=False).fold(formula)),
    )  # fmt: skip
    yield Mistake(
        id="or-as-and", text="all of the things that `or` joins are needed", needs="`or`",
        program=wrong.conditions(lambda _, __, formula: wrong.Swapped(all_=False, any_=True).fold(formula)),
    )  # fmt: skip
    yield Mistake(
        id="any-privilege",
        text="any privilege on an entity counts for any other",
        needs="two privileges on one type",
        program=wrong.atoms(wrong.any_privilege),
    )
    yield Mistake(
        id="with-objects-skipped", text="only the resource is looked at", needs="`with` objects",
        program=wrong.atoms(lambda _, atom: ALWAYS if getattr(getattr(atom, "target", None), "slot", RESOURCE) != RESOURCE else atom),
    )  # fmt: skip
    yield Mistake(
        id="resource-skipped", text="where there is a `with` object, only that is looked at", needs="`with` objects",
        program=wrong.conditions(
            lambda _, rule, formula: _resource_skipped(formula) if rule.withs else formula
        ),
    )  # fmt: skip
    yield Mistake(
        id="everybody-is-oneself", text="`self` holds for everybody", needs="`self`", program=wrong.always(Self)
    )
    yield Mistake(
        id="everybody-holds-the-role", text="`holds` holds for everybody", needs="`holds`", program=wrong.always(Holds)
    )
    yield Mistake(
        id="nobody-holds-the-role", text="`holds` holds for nobody", needs="`holds`", program=wrong.never(Holds)
    )
    yield Mistake(
        id="flags-ignored",
        text="what a flag requires is never required",
        needs="flags",
        program=wrong.conditions(lambda _, __, f: wrong.Flags(required=False).fold(f)),
    )
    yield Mistake(
        id="flags-always",
        text="what a flag requires is always required",
        needs="flags",
        program=wrong.conditions(lambda _, __, f: wrong.Flags(required=True).fold(f)),
    )
    yield Mistake(
        id="comparisons-hold", text="attributes are not compared", needs="attributes", program=wrong.always(Compare)
    )
    yield Mistake(
        id="comparisons-fail",
        text="no attributes stand in a relation",
        needs="attributes",
        program=wrong.never(Compare),
    )
    yield Mistake(
        id="items-unfiltered",
        text="every item of a listing is shown",
        needs="listings",
        program=wrong.conditions(lambda *_: ALWAYS, "each"),
    )
    yield Mistake(
        id="implied-ignored",
        text="implied privileges are not given",
        needs="privileges that imply others",
        program=wrong.implied(lambda *_: ()),
    )
    yield Mistake(
        id="implied-reversed", text="privileges imply those that imply them", needs="privileges that imply others",
        program=wrong.implied(lambda program, name: tuple(o.name for o in program.privileges.values() if name in o.implies)),
    )  # fmt: skip
    yield Mistake(
        id="first-row",
        text="every operation on a type is decided as its first one",
        needs="two rows of one type",
        program=wrong.first_row_of_each_type,
    )


def _resource_skipped(formula: Formula) -> Formula:
    class Skipped(Rebuilder):
        def atom(self, atom: Atom) -> Formula:
            return ALWAYS if getattr(getattr(atom, "target", None), "slot", "-") == RESOURCE else atom

    return Skipped().fold(formula)
