"""`privtab grant`: grant a privilege in a store."""

from __future__ import annotations

from typing import Annotated

import typer

from privtab.cli._ask import entity
from privtab.cli._store_session import (
    AuthoriseOption,
    CaFileOption,
    DryRunOption,
    ExpectOption,
    Intent,
    OptionalPolicyOption,
    RequestIdOption,
    Settings,
    StoreArgument,
    TokenFileOption,
    UserOption,
    YesOption,
    carry_out,
    principal,
    session,
    window,
)

PANEL = "Grant"


def run(
    store: StoreArgument,
    privilege: Annotated[str, typer.Argument(metavar="PRIVILEGE", help="Privilege, or set of privileges.")],
    on: Annotated[str, typer.Argument(metavar="TYPE:PATH", help="Entity that it is granted on.")],
    to: Annotated[str, typer.Option("--to", metavar="PRINCIPAL", help="user:NAME, group:NAME or role:NAME.")],
    deny: Annotated[bool, typer.Option("--deny", help="Deny the privilege instead.")] = False,
    from_: Annotated[str | None, typer.Option("--since", metavar="TIME", help="Time from which the row holds.")] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Time until which the row holds.")
    ] = None,
    policy: OptionalPolicyOption = None,
    as_: UserOption = None,
    authorise: AuthoriseOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    request_id: RequestIdOption = None,
    expect: ExpectOption = None,
    token_file: TokenFileOption = None,
    ca: CaFileOption = None,
) -> None:
    """Grant a privilege on an entity, or deny it, as the policy allows.

    Exits with 1 if the policy denies it, a row is wrong, or another change came first.

    Example:

    \b
      privtab grant grants.db SELECT table:l/web/t --to role:reader --as ann -p lake.yaml --dry-run
      privtab grant grants.db SELECT schema:l/web --to user:ben --deny --as ann -p lake.yaml
      privtab grant https://grants.example SELECT table:l/web/t --to group:hr --until 2026-12-31T00:00Z
    """
    settings = Settings(
        store=store,
        policy=policy,
        user=as_,
        authorise=authorise or (),
        dry_run=dry_run,
        yes=yes,
        request_id=request_id,
        expect=expect,
        token_file=token_file,
        ca=ca,
    )
    row = {
        "grantee": principal(to, "--to"),
        "effect": "deny" if deny else "allow",
        "privilege": privilege,
        "entity": str(entity(on)),
        **window(from_, until),
    }
    with session(settings) as opened:
        carry_out(settings, opened, Intent(add={"grants": [row]}))
