"""A push from end to end: read the target, compare, show, and on request apply."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from privtab.base import Request
from privtab.ir import Program
from privtab.reference import Reference
from privtab.state import Places, State
from privtab_connect.pushdown import Options, target_module
from privtab_connect.pushdown.desired import DesiredRights, desired_rights, users_of
from privtab_connect.pushdown.document import MappingDocument, NativeNames, Needed
from privtab_connect.pushdown.rights import (
    EVERYONE,
    GRANT_OPTION,
    OWNER,
    Account,
    DefaultRole,
    Inventory,
    NativeGrant,
    NativeMembership,
    NativeOwnership,
    Object,
    PushPlan,
    Right,
    accounts_of,
    difference,
    linked,
)


@dataclass(frozen=True, slots=True, order=True)
class Disagreement:
    """A user may do something by the policy and not in the target, or the other way round."""

    user: str
    operation: str
    entity: str
    allowed: bool
    """The policy's decision."""

    def __str__(self) -> str:
        """As in reports."""
        policy, target = ("allows", "does not") if self.allowed else ("denies", "allows it")
        return f"{self.user} {self.operation} {self.entity}: the policy {policy}, the target {target}"


def disagreements(
    program: Program, state: State, document: MappingDocument, inventory: Inventory, rights: Iterable[Right]
) -> tuple[Disagreement, ...]:
    """Compare the decisions of a target's rights with the policy's, for the users that the target has as limited logins.

    `state`: the state at one moment; `rights`: all that the target then holds.
    """
    names = NativeNames(program, document, inventory.within)
    reference, native = Reference(program, state), NativeDecisions(rights, document)
    entities = names.entities(inventory.objects)
    found = []
    for user in users_of(state):
        account = names.account(f"user:{user}")
        if account not in inventory.accounts or account in inventory.unlimited:
            continue
        for entity in entities:
            path = {place.type: entities[place] for place in names.path(entity) if place in entities}
            for (type_, operation), alternatives in document.operations.items():
                if type_ == entity.type:
                    request = Request(user=f"user:{user}", action=operation, resource=entity)
                    allowed = reference.decide(request).allowed
                    if allowed != native.allows(account, alternatives, path):
                        found.append(Disagreement(user, operation, str(entity), allowed))
    return tuple(sorted(found))


class NativeDecisions:
    """Decisions by native rights."""

    def __init__(self, rights: Iterable[Right], document: MappingDocument) -> None:
        self._document = document
        self._roles: dict[Account, set[Account]] = defaultdict(set)
        self._grants: dict[tuple[str, str, Object], set[Account]] = defaultdict(set)
        self._owners: dict[Object, Account] = {}
        for right in rights:
            match right:
                case NativeGrant(account, effect, privilege, object_):
                    self._grants[effect, privilege, object_].add(account)
                case NativeMembership(account, role):
                    self._roles[account].add(role)
                case NativeOwnership(object_, owner):
                    self._owners[object_] = owner
                case DefaultRole():
                    pass

    def allows(self, account: Account, alternatives: tuple[Needed, ...], path: dict[str, Object]) -> bool:
        """Return whether an account has all that any of the alternatives needs. `path`: the objects by entity type."""
        held = linked([account, EVERYONE], self._roles)
        has = (all(self._has(held, name, path.get(type_)) for type_, name in needed) for needed in alternatives)
        return any(has)

    def _has(self, held: set[Account], privilege: str, object_: Object | None) -> bool:
        if object_ is None:
            return False
        if privilege == OWNER:
            return self._owners.get(object_) in held
        names = (privilege, privilege + GRANT_OPTION)
        grants = [(name, place) for name in names for place in self._document.places(object_)]
        denied, allowed = (
            any(held & self._grants.get((effect, *grant), set()) for grant in grants) for effect in ("deny", "allow")
        )
        return allowed and not denied


@dataclass(frozen=True, slots=True, kw_only=True)
class PushReport:
    """The findings of a push, and its changes, done or planned."""

    where: str
    desired: DesiredRights
    plan: PushPlan
    requests: tuple[str, ...]
    applied: bool
    unlimited: tuple[str, ...]
    """Accounts that may do anything in the target."""
    unread: tuple[str, ...]
    """Things in the target beside rights: neither compared nor changed."""
    disagreements: tuple[Disagreement, ...] | None
    """Decisions of the target that would differ from the policy's, for the operations of the mapping document; None: not compared."""

    @property
    def drifted(self) -> bool:
        """Return whether the target differed from the state, foreign rights included."""
        return self.plan.changes or bool(self.plan.foreign or self.unread)


def push(
    program: Program,
    state: State,
    document: MappingDocument,
    where: str,
    *,
    pusher: str,
    options: Options | None = None,
    places: Places = Places.NONE,
    expand: bool = False,
    revoke_foreign: bool = False,
    compare: bool = False,
    apply: bool = False,
) -> PushReport:
    """Push a state to the target at an address. Changes nothing unless `apply`, and nothing if a row cannot be expressed.

    `compare`: decide the operations of the mapping document by the policy and by the rights, and change nothing if they disagree. `pusher`: the name under which granted rights are recorded in the target. Raises PushError and UsageError.
    """
    module = target_module(document.target)
    with module.opened(where, document, pusher, options or Options()) as session:
        if apply:
            session.prepare()
        inventory = session.read()
        desired = desired_rights(program, state, document, inventory, module, places=places, expand=expand)
        plan, applied = PushPlan(), False
        requests: tuple[str, ...] = ()
        compared: tuple[Disagreement, ...] | None = None
        if not desired.findings:
            rights = session.normalised(desired.rights, inventory)
            named = frozenset(account for right in rights for account in accounts_of(right))
            if not document.traits.knows_names:
                objects = {right.object for right in rights if isinstance(right, NativeGrant)}
                inventory = replace(inventory, accounts=inventory.accounts | named, objects=inventory.objects | objects)
            added = ("login", "group", "role") if document.traits.adds_logins else ("group", "role")
            accounts = frozenset(account for account in named if account.kind in added)
            plan = difference(session.moved(inventory, rights), rights, accounts, revoke_foreign=revoke_foreign)
            requests = session.requests(plan)
            if compare:
                compared = disagreements(program, state.plain("a comparison"), document, inventory, plan.kept)
            applied = apply and not compared
            if applied and (plan.changes or plan.record != inventory.recorded):
                session.apply(plan)
        return PushReport(
            where=session.where,
            desired=desired,
            plan=plan,
            requests=requests,
            applied=applied,
            unlimited=tuple(sorted(map(str, inventory.unlimited))),
            unread=inventory.unread,
            disagreements=compared,
        )
