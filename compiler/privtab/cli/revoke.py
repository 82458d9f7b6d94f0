"""`privtab revoke`: take back a privilege in a store."""

from __future__ import annotations

from typing import Annotated

import typer

from privtab.cli._ask import entity
from privtab.cli._options import with_options
from privtab.cli._store_session import (
    RequestedChange,
    Settings,
    carry_out,
    found,
    principal,
    session,
)

PANEL = "Grant"


@with_options
def run(
    privilege: Annotated[str, typer.Argument(metavar="PRIVILEGE", help="Privilege, or set of privileges.")],
    on: Annotated[str, typer.Argument(metavar="TYPE:PATH", help="Entity that it was granted on.")],
    from_: Annotated[str, typer.Option("--from", metavar="PRINCIPAL", help="user:NAME, group:NAME or role:NAME.")],
    deny: Annotated[bool, typer.Option("--deny", help="Take back a denial instead.")] = False,
    *,
    settings: Settings,
) -> None:
    """Take back a privilege on an entity, or a denial, whatever time it holds for.

    Exits with 1 if the policy denies it, there is no such grant, or another change came first.

    Example:

    \b
      privtab revoke grants.db SELECT table:l/web/t --from role:l/reader --as ann -p lake.yaml --dry-run
      privtab revoke https://grants.example SELECT schema:l/web --from user:ben --deny --yes
    """
    cells = {
        "grantee": principal(from_, "--from"),
        "effect": "deny" if deny else "allow",
        "privilege": privilege,
        "entity": str(entity(on)),
    }
    with session(settings) as opened:
        rows = found(opened.rows("grants", **cells), f"{privilege} on {on} for {cells['grantee']}")
        carry_out(settings, opened, RequestedChange(remove={"grants": rows}))
