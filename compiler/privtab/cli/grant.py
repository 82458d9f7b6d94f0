"""`privtab grant`: grant a privilege in a store."""

from __future__ import annotations

from typing import Annotated

import typer

from privtab.cli._ask import entity
from privtab.cli._options import with_options
from privtab.cli._store_session import (
    RequestedChange,
    Settings,
    SinceOption,
    UntilOption,
    carry_out,
    principal,
    session,
    window,
)

PANEL = "Grant"


@with_options
def run(
    privilege: Annotated[str, typer.Argument(metavar="PRIVILEGE", help="Privilege, or set of privileges.")],
    on: Annotated[str, typer.Argument(metavar="TYPE:PATH", help="Entity that it is granted on.")],
    to: Annotated[str, typer.Option("--to", metavar="PRINCIPAL", help="user:NAME, group:NAME or role:NAME.")],
    deny: Annotated[bool, typer.Option("--deny", help="Deny the privilege instead.")] = False,
    since: SinceOption = None,
    until: UntilOption = None,
    *,
    settings: Settings,
) -> None:
    """Grant a privilege on an entity, or deny it, as the policy allows.

    Exits with 1 if the policy denies it, a row is wrong, or another change came first.

    Example:

    \b
      privtab grant grants.db SELECT table:l/web/t --to role:l/reader --as ann -p lake.yaml --dry-run
      privtab grant grants.db SELECT schema:l/web --to user:ben --deny --as ann -p lake.yaml
      privtab grant https://grants.example SELECT table:l/web/t --to group:hr --until 2026-12-31T00:00Z
    """
    row = {
        "grantee": principal(to, "--to"),
        "effect": "deny" if deny else "allow",
        "privilege": privilege,
        "entity": str(entity(on)),
        **window(since, until),
    }
    with session(settings) as opened:
        carry_out(settings, opened, RequestedChange(add={"grants": [row]}))
