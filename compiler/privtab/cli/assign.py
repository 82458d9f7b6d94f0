"""`privtab assign`: give a role in a store."""

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
    SinceOption,
    UntilOption,
    carry_out,
    principal,
    resource_of,
    session,
    window,
)

PANEL = "Grant"


@with_options
def run(
    role: Annotated[str, typer.Argument(metavar="ROLE", help="Name or path of a role.")],
    to: Annotated[str, typer.Option("--to", metavar="PRINCIPAL", help="user:NAME, group:NAME or role:NAME.")],
    scope: ScopeOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    resource: ResourceOption = None,
    *,
    settings: Settings,
) -> None:
    """Give a role to a user, a group or a role, as the policy allows.

    Exits with 1 if the policy denies it, a row is wrong, or another change came first.

    Example:

    \b
      privtab assign grants.db l/reader --to user:ben --as ann -p lake.yaml --dry-run
      privtab assign grants.db l/reader --to group:hr --as ann -p lake.yaml
      privtab assign https://grants.example operator --to user:ben --scope instance:d/i --yes
    """
    row = {
        "principal": principal(to, "--to"),
        "role": role.removeprefix("role:"),
        **({} if scope is None else {"scope": str(entity(scope))}),
        **window(since, until),
    }
    with session(settings) as opened:
        carry_out(settings, opened, RequestedChange(add={"assignments": [row]}, resource=resource_of(resource)))
