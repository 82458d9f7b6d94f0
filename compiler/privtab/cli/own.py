"""`privtab own`: set the owner of an entity in a store."""

from __future__ import annotations

from typing import Annotated

import typer

from privtab.cli._ask import entity
from privtab.cli._options import with_options
from privtab.cli._store_session import (
    RequestedChange,
    Settings,
    carry_out,
    principal,
    session,
)

PANEL = "Grant"


@with_options
def run(
    on: Annotated[str, typer.Argument(metavar="TYPE:PATH", help="Entity that is owned.")],
    to: Annotated[str, typer.Option("--to", metavar="PRINCIPAL", help="The only owner from now on.")],
    *,
    settings: Settings,
) -> None:
    """Set the owner of an entity: the owners that it has lose it.

    Exits with 1 if the policy denies it, a row is wrong, or another change came first.

    Example:

    \b
      privtab own grants.db schema:l/web --to user:ben --as ann -p lake.yaml --authorise owners=grant --dry-run
      privtab own https://grants.example table:m/c/s/t --to user:ben --yes
    """
    row = {"entity": str(entity(on)), "owner": principal(to, "--to")}
    with session(settings) as opened:
        owners = [other for other in opened.rows("owners", entity=row["entity"]) if other != row]
        remove = {"owners": owners} if owners else {}
        carry_out(settings, opened, RequestedChange(add={"owners": [row]}, remove=remove))
