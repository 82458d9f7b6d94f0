"""`privtab unassign`: take back a role in a store."""

from __future__ import annotations

from typing import Annotated

import typer

from privtab.cli._ask import entity
from privtab.cli._options import with_options
from privtab.cli._store_session import (
    RequestedChange,
    ResourceOption,
    ScopeOption,
    Settings,
    carry_out,
    found,
    principal,
    resource_of,
    session,
)

PANEL = "Grant"


@with_options
def run(
    role: Annotated[str, typer.Argument(metavar="ROLE", help="Name or path of a role.")],
    from_: Annotated[str, typer.Option("--from", metavar="PRINCIPAL", help="user:NAME, group:NAME or role:NAME.")],
    scope: ScopeOption = None,
    resource: ResourceOption = None,
    *,
    settings: Settings,
) -> None:
    """Take back a role from a user, a group or a role, whatever time it holds for.

    Exits with 1 if the policy denies it, there is no such assignment, or another change came first.

    Example:

    \b
      privtab unassign grants.db l/reader --from user:ben --as ann -p lake.yaml --dry-run
      privtab unassign https://grants.example l/reader --from group:hr
    """
    cells = {"principal": principal(from_, "--from"), "role": role.removeprefix("role:")}
    cells |= {} if scope is None else {"scope": str(entity(scope))}
    with session(settings) as opened:
        rows = [row for row in opened.rows("assignments", **cells) if (scope is None) == ("scope" not in row)]
        held = f"role:{cells['role']} for {cells['principal']}"
        carry_out(
            settings, opened, RequestedChange(remove={"assignments": found(rows, held)}, resource=resource_of(resource))
        )
