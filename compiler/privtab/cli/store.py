"""`privtab store`: a database of who holds what, changed as the policy allows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privtab.cli import _store_delete, _store_history, _store_rights
from privtab.cli._ask import (
    RequestOptions,
    entity,
)
from privtab.cli._options import FormatOption, PolicyOption, VariantOption, with_options
from privtab.cli._output import Format, out, print_error, print_if_data
from privtab.cli._store_changes import confirm, print_done, store_class
from privtab.cli._store_session import CaFileOption, Settings, StoreArgument, TokenFileOption, is_server, listed
from privtab.errors import AccessDenied, StateInvalid, UsageError
from privtab.exit_codes import ExitCode
from privtab.plural import count
from privtab.state.row_text import row_text

if TYPE_CHECKING:
    from privtab.ir.nodes import Program
    from privtab.state.raw import RawState

PANEL = "Grant"

app = typer.Typer(help="Keep who holds what in a database, and change it as the policy allows.", no_args_is_help=True)

UrlArgument = Annotated[
    str, typer.Argument(metavar="STORE", help="Path of an SQLite file, or postgresql+psycopg://USER@HOST/DATABASE.")
]
ActorOption = Annotated[str, typer.Option("--actor", metavar="NAME", help="Name for the journal.")]
RowsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--add",
        metavar="ROWS",
        help="Rows to add: a file, or TABLE:{COLUMN: VALUE, …}; repeatable.",
        show_default=False,
    ),
]


for _module in (_store_delete, _store_history, _store_rights):
    _module.add_to(app)


@app.command("create")
def create(
    url: UrlArgument,
    policy: PolicyOption,
    admin: Annotated[
        list[str] | None, typer.Option("--admin", metavar="USER", help="First service administrator; repeatable.")
    ] = None,
    actor: ActorOption = "operator",
    variant: VariantOption = None,
) -> None:
    """Create a store for the system of a policy.

    The first service administrators are those of `--admin`, and of `store.administrators` in privtab.toml, or in
    `[tool.privtab]` of pyproject.toml, in the working directory or above.

    Example:

    \b
      privtab store create grants.db --policy gravitino/1.1.0 --admin root
      privtab store create postgresql+psycopg://privtab@db/grants -p lake.yaml
    """
    from privtab.lint.config import settings_for

    settings = settings_for(Path("privtab.toml"))
    administrators = [*(admin or []), *settings.administrators]
    store = store_class().create(url, _program(policy, variant), administrators=administrators, actor=actor)
    out().print(f"{store.database.shown}: a store of {store.system}", soft_wrap=True)
    if settings.administrators:
        out().print(f"service administrators by {settings.file}: {', '.join(settings.administrators)}", soft_wrap=True)


@app.command("load")
def load(
    url: UrlArgument,
    state: Annotated[Path, typer.Argument(metavar="STATE", help="The first rows, in any form of a state.")],
    policy: PolicyOption,
    actor: ActorOption = "operator",
    variant: VariantOption = None,
) -> None:
    """Load the first rows into a new store.

    No decision is made. Later changes are requests: `privtab store change`.

    Example:

    \b
      privtab store load grants.db state.yaml --policy gravitino/1.1.0
      privtab store load grants.db import:ranger:policies.json -p lake.yaml --actor migration
    """
    from privtab.cli._stored import load_rows

    program = _program(policy, variant)
    rows = load_rows(program, state)
    done = store_class().open(url, program).load(rows, actor=actor)
    out().print(f"{count(done, 'row')} loaded")


@app.command("show")
def show(
    store: StoreArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="user:NAME, group:NAME, role:NAME or TYPE:PATH. Default: all.")
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="MOMENT", help="Time, or number of a change. Default: now.")
    ] = None,
    token_file: TokenFileOption = None,
    ca: CaFileOption = None,
    format_: FormatOption = Format.TEXT,
) -> None:
    """Show the rows of a store, all or those that name a principal or an entity, now or at a moment of its journal.

    All rows of a database as JSON are a state: commands take it for `--state`. They also take `store:STORE` and
    `store:STORE@MOMENT`. A server shows the rows that the user of the token may see.

    Example:

    \b
      privtab store show grants.db role:reader
      privtab store show grants.db --at 2026-03-03T12:00Z --format json > state.json
      privtab store show https://grants.example user:ben --token-file token
    """
    rows = listed(Settings(store=store, token_file=token_file, ca=ca), name, at)
    if name is None and not is_server(store):
        tables: dict[str, list[Any]] = {}
        for table, row in rows:
            tables.setdefault(table, []).append(dict(row))
        value: Any = tables
    else:
        value = [{"table": table, "row": dict(row)} for table, row in rows]
    if print_if_data(format_, value):
        return
    for table, row in rows:
        out().print(row_text(table, row), soft_wrap=True)


@app.command("verify")
def verify(url: UrlArgument) -> None:
    """Check that the journal is unaltered and that its changes give exactly the rows of the store.

    Exits with 1 if not.

    Example:

    \b
      privtab store verify grants.db
    """
    from privtab.cli._stored import opened_store

    journal = opened_store(url)
    found = journal.verify()
    for problem in found:
        print_error(problem)
    if found:
        raise typer.Exit(ExitCode.FINDINGS)
    head = journal.head()
    out().print(f"{count(head.number, 'change')}, the last with hash {head.hash}", soft_wrap=True)


@app.command("change")
@with_options
def change(
    url: UrlArgument,
    user: Annotated[str, typer.Argument(metavar="USER", help="The user who makes the change.")],
    action: Annotated[str, typer.Argument(metavar="OPERATION", help="Operation of the policy that allows the change.")],
    resource: Annotated[str, typer.Argument(metavar="TYPE:PATH", help="The entity of the operation.")],
    policy: PolicyOption,
    add: RowsOption = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="ROWS", help="Rows to remove, as `show` prints them; repeatable."),
    ] = None,
    new: Annotated[
        str | None,
        typer.Option(
            "--new", metavar="TYPE:ID", help="Entity with a flat id to create in TYPE:PATH, as in document:folder:f1/."
        ),
    ] = None,
    *,
    options: RequestOptions,
    request_id: Annotated[
        str | None, typer.Option("--request-id", metavar="ID", help="Do nothing if this request was done before.")
    ] = None,
    expect: Annotated[
        int | None, typer.Option("--expect", metavar="N", help="Fail if a change after N concerns the same rows.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show who gains and loses what; change nothing.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Also give sensitive operations, without a question.")
    ] = False,
    variant: VariantOption = None,
) -> None:
    """Change a store by an operation that the policy allows the user: its effects, and rows that it authorises.

    Exits with 1 if the operation is denied, a row is wrong, or another change came first.

    Example:

    \b
      privtab store change grants.db ann create_table table:web/new -p lake.yaml
      privtab store change grants.db ann grant schema:web -p lake.yaml \\
        --add 'grants:{grantee: user:ben, effect: allow, privilege: SELECT, entity: schema:web}' --dry-run
      privtab store change grants.db ann grant schema:web -p lake.yaml --remove gone.yaml --yes
      privtab store change grants.db ann create document:folder:f1/ --new document:d7 -p drive.yaml
    """
    program = _program(policy, variant)
    request = options.request(program, user, action, resource)
    added, removed = _rows(add, "--add"), _rows(remove, "--remove")
    created = None if new is None else entity(new)
    store = store_class().open(url, program)
    try:
        done = None if request_id is None else store.done(request_id, request, add=added, remove=removed, new=created)
        if done is None:
            planned = store.propose(request, add=added, remove=removed, new=created)
            confirm(store, planned, dry_run=dry_run, yes=yes)
            if dry_run:
                return
            expected = planned.number if expect is None else expect
            done = store.change(request, add=added, remove=removed, new=created, request_id=request_id, expect=expected)
    except AccessDenied as denied:
        print_error(str(denied))
        raise typer.Exit(ExitCode.FINDINGS) from None
    print_done(done.number, done.changes, repeated=done.repeated)


def _rows(texts: list[str] | None, option: str) -> RawState | None:
    """The rows in files and in `TABLE:{…}`; raises UsageError, StateInvalid."""
    from privtab.state.load import load as load_file
    from privtab.state.nodes import ALL_TABLES
    from privtab.state.raw import RawReader
    from privtab.state.read_yaml import read_yaml

    if not texts:
        return None
    reader = RawReader()
    for text in texts:
        table, colon, row = text.partition(":")
        if colon and row.lstrip().startswith("{"):
            if table not in ALL_TABLES:
                raise UsageError(f"`{option} {table}:…`: the tables are {', '.join(ALL_TABLES)}")
            read_yaml(f"{table}: [{row}]", option, reader)
            continue
        found = load_file(Path(text))
        for name, rows in found.rows.items():
            reader.rows.setdefault(name, []).extend(rows)
        reader.findings += found.findings
    # Numbers tell rows of several sources apart.
    for name, rows in reader.rows.items():
        reader.rows[name] = [replace(row, number=number) for number, row in enumerate(rows, start=1)]
    if errors := tuple(finding for finding in reader.findings if finding.severity == "error"):
        raise StateInvalid(errors)
    return reader.done()


def _program(policy: str, variant: str | None) -> Program:
    from privtab.cli._stored import load_policy

    return load_policy(policy, variant=variant)
