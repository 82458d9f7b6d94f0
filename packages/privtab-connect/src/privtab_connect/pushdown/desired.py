"""Rights that a target should hold: the rows of a state in the target's terms. A row without such a term is a finding."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from privtab.base import Entity, Request, Span, UsageError, Window
from privtab.ir import ALWAYS, RESOURCE, Has, Program, Rule, Target, privilege_names
from privtab.reference import EvaluationContext, Reference
from privtab.state import TABLE_COLUMNS, Assignment, Grant, Places, RowLocation, State, StateFinding
from privtab_connect.pushdown import TargetModule
from privtab_connect.pushdown.document import MappingDocument, NativeNames, Part
from privtab_connect.pushdown.rights import (
    EVERYONE,
    Account,
    Inventory,
    NativeGrant,
    NativeMembership,
    NativeOwnership,
    Object,
    Right,
    Traits,
    accounts_of,
    linked,
)

_NOWHERE = Span(path="", line=1, column=1, end_line=1, end_column=1)


class Holders:
    """Looks up who holds what. Each privilege is asked for as an operation that needs nothing else."""

    def __init__(self, program: Program, state: State) -> None:
        rules = {
            (type_, name): Rule(
                id=f"{type_}/{name}",
                entity=type_,
                operation=name,
                title=name,
                origin="row",
                gate=ALWAYS,
                requires=Has(privilege=name, target=Target(slot=RESOURCE, type=type_)),
                each=None,
                span=_NOWHERE,
            )
            for name in program.privileges
            for type_ in program.entities
        }
        self._program = replace(program, rules=rules)
        self._reference = Reference(self._program, state)

    def of(self, privilege: str, entity: Entity, users: Iterable[str]) -> frozenset[str]:
        """Return the accounts of the users who hold the privilege on the entity."""
        requires = self._program.rules[entity.type, privilege].requires

        def holds(user: str) -> bool:
            request = Request(user=f"user:{user}", action=privilege, resource=entity)
            return EvaluationContext(self._reference, request).holds(requires)

        return frozenset(filter(holds, users))


def users_of(state: State) -> tuple[str, ...]:
    """Every user that a row names as a principal."""
    members = {user for user in state.distinct(("memberships", "user")) if not user.startswith("group:")}
    principals = state.distinct(("assignments", "principal"), ("grants", "grantee"), ("owners", "owner"))
    return tuple(sorted(members | {text.removeprefix("user:") for text in principals if text.startswith("user:")}))


EXPAND = "`--expand` grants what follows from the rows: to roles where that is exact, else to users"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredRights:
    """The rights that a target should hold, and what became of the other rows."""

    rights: frozenset[Right]
    findings: tuple[StateFinding, ...]
    """Rows that the target cannot express: nothing may be pushed without them."""
    left_out: Mapping[str, int]
    """Rows without a counterpart, as the mapping document declares: the reason and their number."""
    outside: int
    """Rows about entities that are not of this target."""
    absent: Mapping[str, int]
    """Logins and objects that rows name and the target does not have, and the number of their rights."""


def desired_rights(
    program: Program,
    state: State,
    document: MappingDocument,
    inventory: Inventory,
    module: TargetModule,
    *,
    places: Places = Places.NONE,
    expand: bool = False,
) -> DesiredRights:
    """The rights that the rows of a state are in a target.

    `expand`: grants follow from all rows together, for the objects that the target has now, which is how inheritance, denials and scopes
    are expressed where the target has none. Raises UsageError for rows that cannot be looked up.
    """
    if expand and not document.traits.knows_names:
        raise UsageError(f"`--expand` needs the objects of a target, and {document.target} does not list them")
    if expand and "login" not in document.traits.grantees:
        raise UsageError(f"`--expand` grants to users, and {document.target} does not")
    rows = _Rows(program, state, document, inventory, module, places, expand=expand)
    rows.read()
    rights = rows.rights
    if expand and not rows.findings:
        rights = rights | set(_Expansion(rows, state.plain("expanding")).grants(inventory.objects))
    present, absent = _present(rights, inventory, document.traits)
    return DesiredRights(
        rights=frozenset(present),
        findings=tuple(sorted(rows.findings)),
        left_out=dict(sorted(rows.left_out.items())),
        outside=rows.outside,
        absent=dict(sorted(absent.items())),
    )


def _present(rights: set[Right], inventory: Inventory, traits: Traits) -> tuple[set[Right], Counter[str]]:
    """The rights of logins and about objects that are there, and the number of the others by what is missing."""
    present: set[Right] = set()
    absent: Counter[str] = Counter()
    made = {account for right in rights for account in accounts_of(right)}
    for right in rights:
        logins = [account for account in accounts_of(right) if account.kind == "login" and not traits.adds_logins]
        missing: list[Account | Object] = [account for account in logins if account not in inventory.accounts]
        if isinstance(right, NativeGrant | NativeOwnership) and right.object not in inventory.objects:
            object_ = right.object
            if object_.kind != traits.role_kind or Account("role", object_.names[-1]) not in made:
                missing.append(object_)
        if missing and traits.knows_names:
            absent.update(map(str, missing))
        else:
            present.add(right)
    return present, absent


@dataclass(slots=True)
class _Rows:
    """The rows of a state, read table by table."""

    program: Program
    state: State
    document: MappingDocument
    inventory: Inventory
    module: TargetModule
    places: Places
    expand: bool = field(kw_only=True)
    rights: set[Right] = field(default_factory=set)
    findings: list[StateFinding] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    outside: int = 0
    names: NativeNames = field(init=False)
    _principals: dict[tuple[str, str, str], str] = field(default_factory=dict)
    _checked: dict[Account | Object, bool] = field(default_factory=dict)
    _row: tuple[str, int, Mapping[str, object]] = field(default=("", 0, {}), init=False)

    def __post_init__(self) -> None:
        self.names = NativeNames(self.program, self.document, self.inventory.within)
        if self.document.traits.one_namespace:
            self.names.own_roles = self._own_roles()

    def _own_roles(self) -> dict[Account, Account]:
        """The roles that are logins: all that such a user has is the role of its name, so that both are one account."""
        assigned = [(row.principal, f"role:{row.role}") for row in self.state.assignments]
        joined = [(u if u.startswith("group:") else f"user:{u}", f"group:{g}") for u, g in self.state.memberships]
        found: dict[Account, tuple[Account, str]] = {}
        others = self.state.distinct(("grants", "grantee"), ("owners", "owner"))
        for member, role in (*assigned, *joined):
            login, held = self.names.account(member), self.names.account(role)
            if held.name != login.name:
                others.add(member)
            elif login.kind == "login" and login in self.inventory.accounts:
                found[held] = login, member
        return {held: login for held, (login, member) in found.items() if member not in others}

    def read(self) -> None:
        """Read all tables."""
        for table in TABLE_COLUMNS:
            rows: Sequence[Any] = getattr(self.state, table)
            reason = self.document.left_out["tables"].get(table)
            if reason is not None:
                self.left_out[f"{table}: {reason}"] += len(rows)
                continue
            cells = zip(rows, self.state.cells(table), self.state.windows_of(table), strict=True)
            for number, (row, named, window) in enumerate(cells):
                self._row = (table, number, named)
                if window != Window():
                    advice = "`--at TIME` pushes the rows that hold at that moment"
                    self.refuse("the row holds for a time, and rights of the target always hold", advice, code="S302")
                    continue
                match table:
                    case "members":
                        self.belongs(*row)
                    case "memberships":
                        self.membership(*row)
                    case "assignments":
                        self.assignment(row)
                    case "grants":
                        self.grant(row)
                    case "owners":
                        self.owner(*row)
                    case _:
                        self.refuse(f"rows of `{table}` have no counterpart in {self.document.target}")
        self.left_out = Counter({reason: number for reason, number in self.left_out.items() if number})

    def belongs(self, user: str, entity: Entity) -> None:
        """A user is a member of an entity."""
        natives = self.document.members.get(entity.type)
        if self.leaves_out("types", entity.type):
            return
        if natives is None:
            advice = f"name `{entity.type}` under `members`, or leave out the table `members`, with a reason"
            self.refuse(f"rows of `members` have no counterpart in {self.document.target}", advice)
            return
        object_, account = self.object(entity), self.account(f"user:{user}")
        if object_ is not None and account is not None:
            self.rights |= {NativeGrant(account, "allow", native, object_) for native in natives}

    def membership(self, user: str, group: str) -> None:
        """A user or a group is in a group."""
        if "state" not in self.program.semantics.groups:
            self.refuse("the policy takes groups from requests only, and the target would take this row")
            return
        member = user if user.startswith("group:") else f"user:{user}"
        self.member(member, f"group:{group}")

    def assignment(self, row: Assignment) -> None:
        """A principal holds a role."""
        role = self.program.roles.get(row.role)
        if row.scope is not None and not self.expand:
            self.refuse(f"the role is held within `{row.scope}`, and roles of the target are held everywhere", EXPAND)
        elif role is not None and role.grants and not self.expand:
            self.refuse(f"the policy gives `{row.role}` default grants on all entities of a type", EXPAND)
        elif row.scope is None and (role is None or role.scope is None):
            self.member(row.principal, f"role:{row.role}")
        else:
            self.account(row.principal)

    def member(self, member: str, role: str) -> None:
        """A principal is a member of a role or a group."""
        if role == self.program.semantics.everybody:
            self.left_out[f"memberships: every user is in `{self.program.semantics.everyone}`"] += 1
            return
        account, held = self.account(member), self.account(role)
        if account is None or held is None:
            return
        if account == EVERYONE:
            self.refuse(f"{self.document.target} gives {held} to accounts one by one, and not to everyone")
            return
        links = self.document.traits.links
        if account == held:
            self.left_out["a login holds the role of its own name"] += 1
        elif links is None or (account.kind, held.kind) in links:
            self.rights.add(NativeMembership(account, held))
        else:
            message = f"{self.document.target} does not say which {account.kind} has which {held.kind}"
            self.refuse(message, "leave out the table, with a reason")

    def grant(self, row: Grant) -> None:
        """A principal is allowed or denied a privilege."""
        type_ = row.entity.type
        if self.leaves_out("types", type_):
            return
        object_ = self.object(row.entity) if type_ in self.document.objects else None
        if object_ is None and type_ in self.document.objects:
            return
        account = self.account(row.grantee)
        if account is not None and account.kind not in self.document.traits.grantees:
            kinds = " and ".join(f"{kind}s" for kind in self.document.traits.grantees if kind != "everyone")
            self.refuse(f"{self.document.target} gives privileges to {kinds} only, and not to {account}")
            return
        given = privilege_names(self.program).privileges_of(row.privilege, type_, row.effect)
        for privilege in filter(self.program.grantable.__contains__, given):
            natives = list(self.natives(row, privilege))
            if object_ is not None and account is not None and not self.expand:
                self.rights |= {NativeGrant(account, row.effect, native, object_) for native in natives}

    def natives(self, row: Grant, privilege: str) -> Iterator[str]:
        """The native privileges for one privilege of a row, unless the target would mean more or less by them."""
        mapped = self.document.privileges.get(privilege, {})
        type_, target = row.entity.type, self.document.target
        below = [t for t in mapped if t != type_ and type_ in self.program.chain(t)]
        inherited = bool(below) and self.program.inherits(privilege)
        if self.leaves_out("privileges", privilege):
            return
        if type_ not in mapped and not inherited:
            why = "under `privileges`, or under `leave_out` with a reason"
            self.refuse(f"`{privilege}` on a {type_} has no counterpart in {target}", f"name it {why}")
        elif self.expand:
            pass
        elif row.effect == "deny" and not self.document.traits.denials:
            self.refuse(f"{target} has no denials", EXPAND)
        elif inherited and (type_ not in mapped or not self.document.inherits):
            names = " and ".join(f"every {t}" for t in below)
            self.refuse(f"the grant is also about {names} in the {type_}, and one of {target} is not", EXPAND)
        elif below and not inherited and self.document.inherits:
            self.refuse(f"in {target}, the grant would also be about what lies in the {type_}", EXPAND)
        else:
            yield from mapped.get(type_, ())

    def owner(self, entity: Entity, owner: str) -> None:
        """A principal owns an entity."""
        if self.leaves_out("types", entity.type):
            return
        if entity.type not in self.document.owners or not self.document.traits.owners:
            advice = "name it under `owners`, or leave out the table `owners`, with a reason"
            self.refuse(f"the owner of a {entity.type} has no counterpart in {self.document.target}", advice)
            return
        object_, account = self.object(entity), self.account(owner)
        if object_ is None or account is None:
            return
        if account == EVERYONE:
            self.refuse(f"in {self.document.target}, not everyone owns {object_}")
            return
        owners = (r.owner for r in self.rights if isinstance(r, NativeOwnership) and r.object == object_)
        if (other := next((owner for owner in owners if owner != account), None)) is not None:
            message = f"{object_} has one owner in {self.document.target}, and another row says {other}"
            self.refuse(message, code="S305")
            return
        self.rights.add(NativeOwnership(object_, account))
        self.rights |= {NativeGrant(account, "allow", native, object_) for native in self.document.owners[entity.type]}

    def object(self, entity: Entity) -> Object | None:
        """The object of an entity; None, and counted or reported, if it is not of the target."""
        object_ = self.names.object(entity)
        if object_ is None:
            self.outside += 1
            return None
        if object_.kind == self.document.traits.role_kind:
            role = self.account(f"{self.program.entities[entity.type].principal}:{object_.names[-1]}")
            return None if role is None else Object(object_.kind, (role.name,))
        return object_ if self.check_name(object_, None) else None

    def account(self, principal: str) -> Account | None:
        """The account of a principal; None, with a finding, if it cannot be, and counted if it is not of the target."""
        if self.names.elsewhere(principal):
            self.outside += 1
            return None
        account = self.names.account(principal)
        return account if account == EVERYONE or self.check_name(account, principal) else None

    def check_name(self, item: Account | Object, principal: str | None) -> bool:
        """Return whether the target can have a name, and no other principal has it there; report a finding if not."""
        if item not in self._checked:
            there = item in self.inventory.objects or item in self.inventory.predefined
            problem = None if there else self.module.name_problem(item)
            self._checked[item] = problem is None
            if problem is not None:
                self.refuse(f"{item} cannot be in {self.document.target}: {problem}", code="S303")
        if item in self.names.own_roles.values() and f"{principal}".startswith("user:"):
            return self._checked[item]
        if principal is not None and isinstance(item, Account):
            one = self.document.traits.one_namespace
            advice = "`names` in the mapping document can tell them apart"
            shared = ("", item.name, "") if one else (item.kind, item.name, item.host)
            first = self._principals.setdefault(shared, principal)
            if first != principal:
                self.refuse(f"`{first}` and `{principal}` would both be {item}", advice, code="S304")
                return False
            if one and item.kind == "role" and Account("login", item.name) in self.inventory.accounts:
                message = f"`{item.name}` is a login in {self.document.target}, and `{principal}` cannot be one"
                self.refuse(message, advice, code="S304")
                return False
        return self._checked[item]

    def leaves_out(self, part: Part, name: str) -> bool:
        """Return whether the document leaves out the name of a row; if so, count it."""
        reason = self.document.left_out[part].get(name)
        if reason is not None:
            self.left_out[f"{name}: {reason}"] += 1
        return reason is not None

    def refuse(self, message: str, advice: str | None = None, *, code: str = "S301") -> None:
        """Report the row that is being read: by default, since the target cannot say it."""
        table, number, cells = self._row
        place = self.places.of(table, number) or RowLocation(path="state", table=table, row=number + 1)
        self.findings.append(StateFinding(place=place, message=message, code=code, help=advice, row=cells))


def _everywhere(names: NativeNames, holders: Mapping[Entity, frozenset[str]]) -> dict[Entity, frozenset[str]]:
    """The users who also hold the privilege on everything in an entity, by entity, for targets in which grants count below."""
    found = dict(holders)
    for entity in reversed(list(holders)):
        for container in names.path(entity)[:-1]:
            if container in found:
                found[container] &= holders[entity]
    return found


class _Expansion:
    """The users in each account, and the principals to whom rows allow a privilege."""

    def __init__(self, rows: _Rows, state: State) -> None:
        """`rows`: all of a state, which is `state` at one moment."""
        program = self._program = rows.program
        self._document, self._names = rows.document, rows.names
        self._users = users_of(state)
        self._holders = Holders(program, state)
        self._users_by_account = {self._names.account(f"user:{user}"): user for user in self._users}
        self._members: dict[Account, set[Account]] = defaultdict(set)
        for right in rows.rights:
            if isinstance(right, NativeMembership):
                self._members[right.role].add(right.account)
        self._allowed: dict[tuple[str, Entity], set[str]] = defaultdict(set)
        self._denied: dict[tuple[str, Entity], set[str]] = defaultdict(set)
        privileges = privilege_names(program)
        for row in state.grants:
            named = self._allowed if row.effect == "allow" else self._denied
            for privilege in privileges.privileges_of(row.privilege, row.entity.type, row.effect):
                named[privilege, row.entity].add(row.grantee)

    def grants(self, objects: Iterable[Object]) -> Iterator[NativeGrant]:
        """The grants on every object that is there now."""
        document, names = self._document, self._names
        entities = names.entities(objects)
        for privilege, natives in document.privileges.items():
            if privilege in document.left_out["privileges"]:
                continue
            mapped = (entity for entity in entities if entity.type in natives)
            holders = {entity: self._holders.of(privilege, entity, self._users) for entity in mapped}
            if document.inherits:
                holders = _everywhere(names, holders)
            covered: dict[Entity, frozenset[str]] = {}
            for entity, users in holders.items():
                above = names.path(entity)[:-1] if document.inherits else ()
                inherited = frozenset[str]().union(*(covered.get(container, ()) for container in above))
                covered[entity] = users | inherited
                for account in self._accounts(privilege, entity, users - inherited, covered[entity]):
                    for native in natives[entity.type]:
                        yield NativeGrant(account, "allow", native, entities[entity])

    def _accounts(
        self, privilege: str, entity: Entity, needed: frozenset[str], may: frozenset[str]
    ) -> Iterator[Account]:
        """The accounts to grant a privilege on an entity, so that `needed` hold it and nobody but `may` does."""
        path = self._path(privilege, entity)
        allowed = {principal for key in path for principal in self._allowed.get((privilege, key), ())}
        denied = {principal for key in path for principal in self._denied.get((privilege, key), ())}
        left = set(needed)
        for principal in sorted(allowed - denied):
            account = self._names.account(principal)
            users = self._reached(account)
            if users <= may and (users & needed or not users) and account not in self._users_by_account:
                left -= users
                yield account
        for user in sorted(left):
            yield self._names.account(f"user:{user}")

    def _path(self, privilege: str, entity: Entity) -> list[Entity]:
        """The entities whose grants of a privilege count for one."""
        if not self._program.inherits(privilege):
            return [entity]
        found, taken = [], 0
        for type_ in self._program.chain(entity.type):
            taken += not self._program.entities[type_].single
            found.append(Entity(type_, "/".join(entity.names[:taken])))
        return found

    def _reached(self, account: Account) -> frozenset[str]:
        """The users who hold what an account holds."""
        if account == EVERYONE:
            return frozenset(self._users)
        reached = linked([account], self._members)
        return frozenset(self._users_by_account[member] for member in reached if member in self._users_by_account)
