"""`privtab store log` and `privtab store undo`: what changed a store, and the change that takes it back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privtab._staged import write
from privtab.cli._ask import (
    RequestOptions,
)
from privtab.cli._options import FormatOption, PolicyOption, VariantOption, with_options
from privtab.cli._output import Format, print_error, print_if_data, print_text
from privtab.cli._store_changes import confirm, print_changes, print_done, show_entries, store_class
from privtab.errors import AccessDenied, UsageError
from privtab.exit_codes import ExitCode

if TYPE_CHECKING:
    from privtab.store.store import Store

StoreArgument = Annotated[
    str, typer.Argument(metavar="STORE", help="Path of an SQLite file, or postgresql+psycopg://USER@HOST/DATABASE.")
]


def log(
    url: StoreArgument,
    after: Annotated[int, typer.Option("--after", min=0, metavar="N", help="Only changes after this one.")] = 0,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE", help="Write an HTML page instead, the newest change first.")
    ] = None,
    format_: FormatOption = Format.TEXT,
) -> None:
    """List who changed what in a store, and when.

    Example:

    \b
      privtab store log grants.db
      privtab store log grants.db --after 120 --format json
      privtab store log grants.db --page journal.html
    """
    from privtab.cli._stored import opened_store

    store = opened_store(url)
    found = store.log(after)
    if page is not None:
        from privtab.store.journal import journal_page

        write(page, journal_page(found, store.system, store.database.shown).encode())
        print_text(f"{page}\n")
        return
    if not print_if_data(format_, [entry.to_json() for entry in found]):
        show_entries(found)


@with_options
def undo(
    url: StoreArgument,
    number: Annotated[int, typer.Argument(metavar="CHANGE", min=1, help="Number of the change to take back.")],
    policy: PolicyOption,
    by: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[USER …]",
            help="USER OPERATION TYPE:PATH, who takes it back and the operation that allows it.",
            show_default=False,
        ),
    ] = None,
    *,
    options: RequestOptions,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Also give sensitive operations, without a question.")
    ] = False,
    variant: VariantOption = None,
) -> None:
    """Show what takes a change of a store back, for whom, and do it as a user by an operation.

    Without a user, nothing is changed. The change is authorised as any other: `privtab store change`.

    Example:

    \b
      privtab store undo grants.db 120 --policy lake.yaml
      privtab store undo grants.db 120 ann grant schema:web --policy lake.yaml --yes
    """
    from privtab.cli._stored import load_policy

    program = load_policy(policy, variant=variant)
    store = store_class().open(url, program)
    add, remove = store.inverse(number)
    if not by:
        _show(store, number)
        return
    if len(by) != 3:
        raise UsageError("write the user, the operation and its entity, as in `ann grant schema:web`")
    user, action, resource = by
    request = options.request(program, user, action, resource)
    try:
        planned = store.propose(request, add=add or None, remove=remove or None)
        confirm(store, planned, dry_run=False, yes=yes)
        done = store.change(request, add=add or None, remove=remove or None, expect=planned.number)
    except AccessDenied as denied:
        print_error(str(denied))
        raise typer.Exit(ExitCode.FINDINGS) from None
    print_done(done.number, done.changes, repeated=done.repeated)


def _show(store: Store, number: int) -> None:
    """The rows that take a change back, and who gains and loses what by them now."""
    planned = store.propose_undo(number)
    print_changes(planned.changes)
    confirm(store, planned, dry_run=True, yes=False)


def add_to(app: typer.Typer) -> None:
    """Add the commands to `privtab state`."""
    app.command("log")(log)
    app.command("undo")(undo)
