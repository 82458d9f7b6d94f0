"""`privtab assign`: give a role in a store."""

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
    ResourceOption,
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
    role: Annotated[str, typer.Argument(metavar="ROLE", help="Name of a role.")],
    to: Annotated[str, typer.Option("--to", metavar="PRINCIPAL", help="user:NAME, group:NAME or role:NAME.")],
    scope: Annotated[
        str | None, typer.Option("--scope", metavar="TYPE:PATH", help="Entity in which the role counts.")
    ] = None,
    from_: Annotated[str | None, typer.Option("--since", metavar="TIME", help="Time from which the row holds.")] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Time until which the row holds.")
    ] = None,
    policy: OptionalPolicyOption = None,
    as_: UserOption = None,
    authorise: AuthoriseOption = None,
    resource: ResourceOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    request_id: RequestIdOption = None,
    expect: ExpectOption = None,
    token_file: TokenFileOption = None,
    ca: CaFileOption = None,
) -> None:
    """Give a role to a user, a group or a role, as the policy allows.

    Exits with 1 if the policy denies it, a row is wrong, or another change came first.

    Example:

    \b
      privtab assign grants.db reader --to user:ben --as ann -p lake.yaml --dry-run
      privtab assign grants.db reader --to group:hr --resource role:l/reader --as ann -p lake.yaml
      privtab assign https://grants.example operator --to user:ben --scope instance:d/i --yes
    """
    settings = Settings(
        store=store,
        policy=policy,
        user=as_,
        authorise=authorise or (),
        resource=resource,
        dry_run=dry_run,
        yes=yes,
        request_id=request_id,
        expect=expect,
        token_file=token_file,
        ca=ca,
    )
    row = {
        "principal": principal(to, "--to"),
        "role": role.removeprefix("role:"),
        **({} if scope is None else {"scope": str(entity(scope))}),
        **window(from_, until),
    }
    with session(settings) as opened:
        carry_out(settings, opened, Intent(add={"assignments": [row]}))
