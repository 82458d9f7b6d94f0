"""`privtab store delete`: delete entities, with every row about them and about what lies below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from privtab.cli._ask import RequestOptions
from privtab.cli._options import PolicyOption, VariantOption, with_options
from privtab.cli._output import out, print_error
from privtab.cli._store_changes import print_changes, store_class
from privtab.errors import PrivtabError
from privtab.exit_codes import ExitCode
from privtab.plural import count

if TYPE_CHECKING:
    from privtab.request import Request
    from privtab.store.planning import Plan
    from privtab.store.store import Outcome, Store


@with_options
def run(
    url: Annotated[
        str, typer.Argument(metavar="STORE", help="Path of an SQLite file, or postgresql+psycopg://USER@HOST/DATABASE.")
    ],
    user: Annotated[str, typer.Argument(metavar="USER", help="The user who deletes.")],
    action: Annotated[str, typer.Argument(metavar="OPERATION", help="Operation of the policy that deletes.")],
    resources: Annotated[list[str], typer.Argument(metavar="TYPE:PATH…", help="The entities to delete.")],
    policy: PolicyOption,
    *,
    options: RequestOptions,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the rows that would go; change nothing.")] = False,
    variant: VariantOption = None,
) -> None:
    """Delete entities from a store, with all rows on them and below, as far as the policy allows each.

    Exits with 1 if one is denied. The others are deleted, in one transaction.

    Example:

    \b
      privtab store delete grants.db ann drop table:web/old --policy lake.yaml
      privtab store delete grants.db ann drop table:web/a table:web/b -p lake.yaml --dry-run
    """
    from privtab.cli._stored import load_policy

    program = load_policy(policy, variant=variant)
    requests = [options.request(program, user, action, resource) for resource in resources]
    store = store_class().open(url, program)
    results: Sequence[Plan | Outcome | PrivtabError]
    results = [_proposed(store, request) for request in requests] if dry_run else store.delete_all(requests)
    for request, result in zip(requests, results, strict=True):
        if isinstance(result, PrivtabError):
            print_error(str(result))
            continue
        out().print(f"{request.resource}: {count(len(result.changes), 'row')}", soft_wrap=True)
        print_changes(result.changes)
    if any(isinstance(result, PrivtabError) for result in results):
        raise typer.Exit(ExitCode.FINDINGS)


def _proposed(store: Store, request: Request) -> Plan | PrivtabError:
    try:
        return store.propose(request, delete=True)
    except PrivtabError as error:
        return error


def add_to(app: typer.Typer) -> None:
    """Add the command to `privtab store`."""
    app.command("delete")(run)
