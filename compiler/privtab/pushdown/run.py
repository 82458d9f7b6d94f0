"""A push from end to end: read the target, compare, show, and on request apply."""

from __future__ import annotations

from dataclasses import dataclass, replace

from privtab.ir.nodes import Program
from privtab.pushdown.compare import Disagreement, disagreements
from privtab.pushdown.desired import DesiredRights, accounts_of, desired_rights
from privtab.pushdown.document import Document
from privtab.pushdown.plan import Plan, difference
from privtab.pushdown.rights import NativeGrant
from privtab.pushdown.target import Options, target_module
from privtab.state.nodes import State
from privtab.state.places import NOWHERE, Places


@dataclass(frozen=True, slots=True, kw_only=True)
class PushReport:
    """What a push found, and what it did or would do."""

    where: str
    desired: DesiredRights
    plan: Plan
    requests: tuple[str, ...]
    applied: bool
    unlimited: tuple[str, ...]
    """Accounts that may do anything in the target."""
    unread: tuple[str, ...]
    """What the target has beside rights: neither compared nor changed."""
    disagreements: tuple[Disagreement, ...] | None
    """Where the target would decide otherwise than the policy, for the operations of the mapping document; None: not compared."""

    @property
    def drifted(self) -> bool:
        """Whether the target was not as the state says, foreign rights included."""
        return self.plan.changes or bool(self.plan.foreign or self.unread)


def push(
    program: Program,
    state: State,
    document: Document,
    where: str,
    *,
    pusher: str,
    options: Options | None = None,
    places: Places = NOWHERE,
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
        plan, applied = Plan(), False
        requests: tuple[str, ...] = ()
        compared: tuple[Disagreement, ...] | None = None
        if not desired.findings:
            rights = session.normalised(desired.rights, inventory)
            named = frozenset(account for right in rights for account in accounts_of(right))
            if not document.traits.knows_names:
                objects = {right.object for right in rights if isinstance(right, NativeGrant)}
                inventory = replace(inventory, accounts=inventory.accounts | named, objects=inventory.objects | objects)
            accounts = frozenset(account for account in named if account.kind != "login" or document.traits.adds_logins)
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
