"""The kinds of mistakes that a system could make with the meaning of a table, and what a policy needs for each to show."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import product

from privtab import ir
from privtab.base import PRINCIPAL_KINDS, Request, dataclass
from privtab.ir import on_entity
from privtab.reference import Reference
from privtab_testing.conform import misreadings as wrong
from privtab_testing.conform.misreadings import SAME, Misreading, View, both, only, right_answer


@dataclass(frozen=True, slots=True)
class Mistake:
    """One kind of mistake: `text` describes such a system, `needs` the property by which a policy shows the mistake."""

    id: str
    text: str
    misread: Misreading
    needs: str = "rights on entities"
    about_objects: bool = False
    """True if each row of a table could be decided with the mistake, independently of the other rows."""
    kept_by: Callable[[Request], Hashable] | None = None
    """For a system that keeps answers: what it finds them again by, which is too little."""

    def answers(self, view: View) -> Callable[[Request], bool]:
        """The answers of a system with this mistake."""
        reference = Reference(self.misread.program(view.program), self.misread.view(view).state)
        kept: dict[Hashable, bool] = {}

        def answer(request: Request) -> bool:
            found = right_answer(reference, self.misread.request(request, view.program))
            return found if self.kept_by is None else kept.setdefault(self.kept_by(request), found)

        return answer


def without_type(request: Request) -> Hashable:
    """A request, without the type of its resource."""
    entities = (*request.with_.values(),)
    return (
        request.user,
        request.action,
        request.resource.id,
        request.groups,
        request.active_roles,
        request.flags,
        entities,
    )


def _denies(program: ir.Program, *kinds: str) -> bool:
    """Return whether principals of some kinds can be denied privileges."""
    return program.semantics.deny != "none" and any(kind in program.semantics.grantees for kind in kinds)


def _has_groups(program: ir.Program, of: Iterable[str]) -> bool:
    """Return whether groups of the state may be grantees or assignees, as `of` names them."""
    return "state" in program.semantics.groups and "group" in of


def _has_roles(program: ir.Program) -> bool:
    """Return whether states have roles of their own."""
    return "role" in program.semantics.grantees and not program.roles


def _owns(program: ir.Program, kind: str) -> bool:
    return program.semantics.owner is not None and kind in program.semantics.owner.kinds


_POSSIBLE: Mapping[str, Callable[[ir.Program], bool]] = {
    "inheritance": lambda program: bool(program.inherited),
    "no inheritance": lambda program: not program.inherited.issuperset(program.privileges),
    "denials": lambda program: program.semantics.deny != "none",
    "denials and inheritance": lambda program: program.semantics.deny == "overrides" and bool(program.inherited),
    "denials to users": lambda program: _denies(program, "user"),
    "denials to groups": lambda program: _denies(program, "group"),
    "denials to roles": lambda program: _denies(program, "role"),
    "grants to users": lambda program: "user" in program.semantics.grantees,
    "two kinds of grantees": lambda program: len(program.semantics.grantees) > 1,
    "groups of the state": lambda program: _has_groups(program, program.semantics.grantees),
    "groups in groups": lambda program: "groups" in program.semantics.hierarchy,
    "groups in groups, or roles of roles": lambda program: bool(program.semantics.hierarchy),
    "roles": _has_roles,
    "roles of groups": lambda program: _has_groups(program, program.semantics.assignees),
    "roles of roles": lambda program: "roles" in program.semantics.hierarchy,
    "roles within entities": lambda program: any(role.scopes for role in program.roles.values()) or _has_roles(program),
    "active roles": lambda program: program.semantics.active_roles == "request",
    "groups of requests": lambda program: (
        "request" in program.semantics.groups and "group" in program.semantics.grantees
    ),
    "owners": lambda program: program.semantics.owner is not None,
    "ownership in conditions": lambda program: wrong.never(ir.Owner).program(program) != program,
    "groups that own": lambda program: _owns(program, "group"),
    "roles that own": lambda program: _owns(program, "role"),
    "a `with` object of the resource's type": lambda program: any(
        rule.entity in slot.types for rule in program.rules.values() for slot in rule.withs
    ),
    "an operation of two types in one container": lambda program: any(True for _ in sharing(program)),
    "two types in one container": lambda program: (
        len({(t.parent, t.single) for t in program.entities.values()}) < len(program.entities)
    ),
}
"""Tests of a policy for the needs of mistakes; where the policy itself is read wrongly, another reading shows the mistake."""


def sharing(program: ir.Program) -> Iterator[tuple[ir.Rule, ir.Rule]]:
    """Two operations of one name on types whose entities can have the same path."""
    for rule in program.rules.values():
        type_ = program.entities[rule.entity]
        for other in program.entities.values():
            found = program.rules.get((other.name, rule.operation))
            alike = (other.parent, other.single, other.flat) == (type_.parent, type_.single, type_.flat)
            if (
                found is not None
                and other is not type_
                and alike
                and not other.flat
                and other.principal is type_.principal is None
            ):
                yield rule, found


def is_possible(mistake: Mistake, program: ir.Program) -> bool:
    """Return whether a policy can show a mistake at all."""
    needed = _POSSIBLE.get(mistake.needs)
    if needed is not None and not needed(program):
        return False
    return (
        mistake.kept_by is not None or not mistake.misread.is_of_policy or mistake.misread.program(program) != program
    )


# Two lines or three for each mistake: what it does, then what is misread, and what shows it.
# fmt: off
_OBJECTS = (
    Mistake("any-object", "a right on one entity counts for every entity of its type",
            wrong.named(lambda names: (SAME,) * len(names)), about_objects=True),
    Mistake("same-last-name", "entities are told apart by their last name alone",
            wrong.named(lambda names: (*(SAME,) * (len(names) - 1), names[-1])), about_objects=True),
    Mistake("same-container", "a right on one entity counts for the others in its container",
            wrong.named(lambda names: (*names[:-1], SAME)), about_objects=True),
    Mistake("same-root", "a right counts everywhere below the same root",
            wrong.named(lambda names: (names[0], *(SAME,) * (len(names) - 1))), about_objects=True),
    Mistake("other-root", "the root is not looked at",
            wrong.named(lambda names: (SAME, *names[1:])), about_objects=True),
    Mistake("case-of-entities", "names of entities are compared without their case",
            wrong.named(lambda names: tuple(map(str.lower, names))), about_objects=True),
    Mistake("beginning-of-name", "a name counts for the names that continue it",
            wrong.everywhere(wrong.continuing), about_objects=True),
    Mistake("end-of-name", "a name counts for the names that it continues",
            wrong.everywhere(wrong.continued), about_objects=True),
    Mistake("other-type", "types are not looked at: a path of one type counts for the same path of others",
            both(wrong.counts_on(wrong.of_other_types), wrong.owned(wrong.of_other_types)),
            "two types in one container", about_objects=True),
    Mistake("type-forgotten", "answers are kept by the user, the operation and the path, without the type",
            Misreading(), "an operation of two types in one container", kept_by=without_type),
    Mistake("objects-swapped", "the resource and a `with` object are taken for each other",
            Misreading(request=wrong.objects_swapped), "a `with` object of the resource's type"),
)
_LEVELS = (
    Mistake("nothing-inherited", "grants count only where they are written",
            wrong.inheritance("none"), "inheritance"),
    Mistake("everything-inherited", "grants count for all that is below",
            wrong.inheritance("down"), "no inheritance"),
    Mistake("one-level", "grants count one level down, and no further",
            both(wrong.inheritance("none"), wrong.counts_on(wrong.one_below)), "inheritance over two levels"),
    Mistake("counts-above", "a grant counts for what contains its entity",
            wrong.counts_on(wrong.containers), about_objects=True),
    Mistake("counts-around", "a grant on an entity counts for all that its container contains",
            wrong.counts_on(wrong.container), about_objects=True),
    Mistake("roots-ignored", "grants on roots count for nothing",
            only("grants", lambda row: len(row.entity.names) > 1)),
    Mistake("only-roots", "only grants on roots count",
            only("grants", lambda row: len(row.entity.names) == 1)),
    Mistake("outermost", "of a type that nests, the outermost level counts, not the nearest",
            wrong.atoms(wrong.outermost), "a type that nests"),
    Mistake("below-ignored", "`or below` is not looked at",
            wrong.atoms(lambda _, atom: on_entity(atom)), "`or below`"),
)
_DENIALS = (
    Mistake("denials-ignored", "denials count for nothing",
            only("grants", lambda row: row.effect == "allow"), "denials"),
    Mistake("denials-allow", "a denial counts as a grant",
            wrong.rows("grants", lambda _, row: [replace(row, effect="allow")]), "denials"),
    Mistake("denials-not-inherited", "a denial counts only where it is written",
            both(wrong.inheritance("none"), wrong.counts_on(wrong.below, "allow")), "denials and inheritance"),
    Mistake("denials-of-everything", "a denial of one privilege denies all",
            wrong.grants_also(lambda view, row: [replace(row, privilege=p) for p in view.program.grantable], "deny"),
            "denials"),
    Mistake("denials-for-everybody", "a denial to one user denies all users",
            wrong.grants_also(lambda view, row: [replace(row, grantee=user) for user in wrong.users(view)], "deny"),
            "denials to users"),
    Mistake("denials-of-groups-ignored", "denials to groups count for nothing",
            only("grants", lambda row: row.effect == "allow" or not row.grantee.startswith("group:")),
            "denials to groups"),
    Mistake("denials-of-roles-ignored", "denials to roles count for nothing",
            only("grants", lambda row: row.effect == "allow" or not row.grantee.startswith("role:")),
            "denials to roles"),
    Mistake("denials-of-users-ignored", "denials to users count for nothing",
            only("grants", lambda row: row.effect == "allow" or not row.grantee.startswith("user:")),
            "denials to users"),
    Mistake("nearest-wins", "a grant further down prevails over a denial above it",
            wrong.rows("grants", lambda view, row: [] if wrong.is_overridden(view, row) else [row]),
            "denials and inheritance"),
    Mistake("denials-around", "a denial on an entity counts for all that its container contains",
            wrong.counts_on(wrong.container, "deny"), "denials and inheritance"),
)
_PRINCIPALS = (
    Mistake("any-user", "a right of one user counts for every user",
            wrong.called("user", lambda _: SAME), about_objects=True),
    Mistake("any-group", "all groups are one", wrong.called("group", lambda _: SAME), "groups of the state"),
    Mistake("any-role", "all roles are one", wrong.called("role", lambda _: SAME), "roles"),
    Mistake("case-of-users", "names of users are compared without their case",
            wrong.called("user", str.lower), "rights of users"),
    Mistake("beginning-of-users", "a user has the rights of those whose names theirs continues",
            Misreading(request=lambda request, _: replace(request, user=wrong.shortened(request.user))),
            "rights of users"),
    Mistake("end-of-users", "a user has the rights of those whose names continue theirs",
            Misreading(view=wrong.with_shortened_users), "rights of users"),
    Mistake("beginning-of-groups", "members of a group are members of those whose names its continues",
            wrong.rows("memberships", lambda _, row: [row, (row[0], wrong.shortened(row[1]))]), "groups of the state"),
    Mistake("end-of-groups", "a group has the rights of those whose names continue its",
            wrong.grants_also(lambda _, row: [replace(row, grantee=wrong.shortened_of("group", row.grantee))]),
            "groups of the state"),
    Mistake("beginning-of-roles", "who has a role has those whose names its continues",
            wrong.rows("assignments", lambda _, row: [row, replace(row, role=wrong.shortened(row.role))]), "roles"),
    Mistake("end-of-roles", "a role has the rights of those whose names continue its",
            wrong.grants_also(lambda _, row: [replace(row, grantee=wrong.shortened_of("role", row.grantee))]),
            "roles"),
    Mistake("kinds-confused", "users, groups and roles of one name are one",
            wrong.grants_also(lambda _, row: [
                replace(row, grantee=f"{kind}:{row.grantee.partition(':')[2]}") for kind in PRINCIPAL_KINDS
            ]), "two kinds of grantees"),
    Mistake("users-ignored", "grants to users count for nothing",
            only("grants", lambda row: not row.grantee.startswith("user:")), "grants to users"),
    Mistake("groups-ignored", "groups count for nothing",
            only("memberships", lambda _: False), "groups of the state"),
    Mistake("groups-in-groups-ignored", "groups in groups count for nothing",
            only("memberships", lambda row: not wrong.is_link(row)), "groups in groups"),
    Mistake("everyone-ignored", "the rights of the group of every user count for nothing",
            Misreading(program=wrong.nobody_is_everyone), "a group of every user"),
    Mistake("roles-ignored", "roles count for nothing",
            only("assignments", lambda _: False), "roles"),
    Mistake("roles-of-groups-ignored", "roles that groups hold count for nothing",
            only("assignments", lambda row: not row.principal.startswith("group:")), "roles of groups"),
    Mistake("roles-of-roles-ignored", "roles that roles hold count for nothing",
            only("assignments", lambda row: not wrong.is_link(row)), "roles of roles"),
    Mistake("third-group-ignored", "chains of groups end at the second",
            Misreading(view=wrong.third_groups_cut), "groups in groups"),
    Mistake("third-role-ignored", "chains of roles end at the second",
            Misreading(view=wrong.third_roles_cut), "roles of roles"),
    Mistake("links-reversed", "groups in groups, or roles of roles, count the wrong way round",
            both(wrong.rows("memberships", wrong.reversed_link), wrong.rows("assignments", wrong.reversed_link)),
            "groups in groups, or roles of roles"),
    Mistake("scopes-ignored", "a role within an entity counts everywhere",
            wrong.rows("assignments", lambda _, row: [replace(row, scope=None)]), "roles within entities"),
    Mistake("scoped-roles-ignored", "roles within entities count for nothing",
            only("assignments", lambda row: row.scope is None), "roles within entities"),
    Mistake("default-grants-ignored", "the default grants of roles count for nothing",
            Misreading(program=wrong.without_default_grants), "roles with default grants"),
    Mistake("inactive-roles-count", "roles count that the request does not name as active",
            Misreading(request=lambda request, _: replace(request, active_roles=None)), "active roles"),
    Mistake("active-roles-ignored", "no role counts where a request names the active ones",
            Misreading(request=lambda request, _: replace(request, active_roles=request.active_roles and ())),
            "active roles"),
    Mistake("groups-of-requests-ignored", "the groups that a request names count for nothing",
            Misreading(request=lambda request, _: replace(request, groups=())), "groups of requests"),
    Mistake("members-ignored", "nobody is a member of anything", wrong.never(ir.Member), "memberships in conditions"),
    Mistake("everybody-is-a-member", "everybody is a member of everything",
            wrong.always(ir.Member), "memberships in conditions"),
    Mistake("administrators-ignored", "service administrators have no rights",
            wrong.never(ir.ServiceAdmin), "service administrators"),
    Mistake("everybody-administers", "everybody is a service administrator",
            wrong.always(ir.ServiceAdmin), "service administrators in conditions"),
    Mistake("administrators-may-all", "service administrators may do everything",
            wrong.conditions(wrong.administrators_may_all), "rows that administrators may not do"),
)
_OWNERS = (
    Mistake("owners-ignored", "owners have no rights", only("owners", lambda _: False), "ownership in conditions"),
    Mistake("everybody-owns", "everybody owns everything", wrong.always(ir.Owner), "ownership in conditions"),
    Mistake("any-owner", "whoever owns something owns everything that anybody owns",
            wrong.rows("owners", lambda view, row: product([row[0]], {owner for _, owner in view.state.owners})),
            "ownership in conditions"),
    Mistake("owners-of-what-is-below", "owners own what is below, too",
            wrong.owned(wrong.below), "ownership in conditions", about_objects=True),
    Mistake("owners-of-what-is-above", "owners own what contains their entities, too",
            wrong.owned(wrong.containers), "ownership in conditions", about_objects=True),
    Mistake("owning-groups-ignored", "groups that own count for nothing",
            only("owners", lambda row: not row[1].startswith("group:")), "groups that own"),
    Mistake("owning-roles-ignored", "roles that own count for nothing",
            only("owners", lambda row: not row[1].startswith("role:")), "roles that own"),
    Mistake("owners-hold-everything", "owners hold every privilege",
            wrong.owners_hold(lambda program: program.privileges), "owners"),
    Mistake("owners-hold-nothing", "owners do not hold what the policy says they do",
            wrong.owners_hold(lambda _: ()), "owners that hold privileges"),
)
_CONDITIONS = (
    Mistake("gate-skipped", "the gate is not asked", wrong.conditions(lambda *_: ir.ALWAYS, "gate"), "a gate"),
    Mistake("and-as-or", "one of the things that `and` joins is enough",
            wrong.rebuilt(wrong.Joined(by=ir.Or)), "`and`"),
    Mistake("or-as-and", "all of the things that `or` joins are needed",
            wrong.rebuilt(wrong.Joined(by=ir.And)), "`or`"),
    Mistake("any-privilege", "any privilege on an entity counts for any other",
            wrong.atoms(wrong.any_privilege), "two privileges on one type"),
    Mistake("with-objects-skipped", "only the resource is looked at",
            wrong.conditions(partial(wrong.slots_hold, lambda slot: slot != ir.RESOURCE)), "`with` objects"),
    Mistake("resource-skipped", "where there is a `with` object, only that is looked at",
            wrong.conditions(partial(wrong.slots_hold, lambda slot: slot == ir.RESOURCE)), "`with` objects"),
    Mistake("everybody-is-oneself", "`self` holds for everybody", wrong.always(ir.Self), "`self`"),
    Mistake("everybody-holds-the-role", "`holds` holds for everybody", wrong.always(ir.Holds), "`holds`"),
    Mistake("nobody-holds-the-role", "`holds` holds for nobody", wrong.never(ir.Holds), "`holds`"),
    Mistake("flags-ignored", "what a flag requires is never required",
            wrong.rebuilt(wrong.Flags(required=False)), "flags"),
    Mistake("flags-always", "what a flag requires is always required",
            wrong.rebuilt(wrong.Flags(required=True)), "flags"),
    Mistake("comparisons-hold", "attributes are not compared", wrong.always(ir.Compare), "attributes"),
    Mistake("comparisons-fail", "no attributes stand in a relation", wrong.never(ir.Compare), "attributes"),
    Mistake("items-unfiltered", "every item of a listing is shown",
            wrong.conditions(lambda *_: ir.ALWAYS, "each"), "listings"),
    Mistake("implied-ignored", "implied privileges are not given",
            wrong.implied(lambda *_: ()), "privileges that imply others"),
    Mistake("implied-reversed", "privileges imply those that imply them",
            wrong.implied(lambda program, name: (p.name for p in program.privileges.values() if name in p.implies)),
            "privileges that imply others"),
    Mistake("first-row", "every operation on a type is decided as its first one",
            Misreading(program=wrong.first_row_of_each_type), "two rows of one type"),
)
# fmt: on


@cache
def mistakes() -> tuple[Mistake, ...]:
    """All of them, by subject."""
    return (*_OBJECTS, *_LEVELS, *_DENIALS, *_PRINCIPALS, *_OWNERS, *_CONDITIONS)
