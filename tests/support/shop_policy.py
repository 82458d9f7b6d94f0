"""The policy of a small shop, for tests of scenarios."""

from __future__ import annotations

from collections.abc import Callable

from privtab.base.diagnostics import Diagnostic
from privtab_testing.scenarios import CasePlan
from privtab_testing.scenarios.run import ReferenceEngine, failures

POLICY = """\
privtab: 1
system: shop
version: "1"
entities: {store: {shelf: {item: }, user: , role: }}
privileges: [READ, WRITE, OWN]
sets: {ALL: [READ, WRITE]}
semantics: {inheritance: down, deny: overrides, owner: {creator: true}}
tables:
  store:
    open: READ (store)
  shelf:
    create: {requires: WRITE (store), grants: ALL (shelf)}
    list: {requires: READ (store), each: READ (shelf)}
  item:
    read: READ (item) or owner (shelf, item)
    move: {with: {to: [shelf, item]}, requires: WRITE (item) and WRITE (to)}
    burn: {requires: "WRITE (item) and (OWN (item) when really)"}
    peek: can read (item)
  user: {get: self or READ (store)}
  role: {use: holds (role)}
"""
Reads = Callable[..., CasePlan]
Refuses = Callable[..., list[Diagnostic]]


def failed(plan: CasePlan) -> list[str]:
    """The names of the cases for which the reference gives another answer."""
    return [failure.case.name for failure in failures(plan, plan.cases, [ReferenceEngine(plan.program)])]
