"""`privtab store`: a database of who holds what, changed as the policy allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from privtab.base import PrivtabError, StateInvalid, UsageError, count, write_file
from privtab.command import (
    Commands,
    FormatOption,
    PolicyChoice,
    argument,
    deliver,
    fail_if,
    load_rows,
    option,
    out,
    print_error,
    print_if_data,
)
from privtab.state import TABLE_COLUMNS, RawReader, row_text
from privtab_analysis.commands._ask import RequestOptions, entity
from privtab_server.addresses import is_http
from privtab_server.commands._store_session import (
    CaFileOption,
    RequestedChange,
    ResourceOption,
    ScopeOption,
    Settings,
    SinceOption,
    StoreArgument,
    TokenOption,
    UntilOption,
    UrlArgument,
    carry_out,
    confirm,
    found,
    listed,
    principal,
    print_changes,
    print_done,
    proposed,
    resource_of,
    session,
    show_entries,
    store_class,
    window,
)
from privtab_server.store_states import opened_store

if TYPE_CHECKING:
    from privtab.base import Request
    from privtab.state import RawState
    from privtab_server.store.planning import Plan
    from privtab_server.store.store import Outcome, Store

PANEL = "Grant"

app = Commands(help="Keep who holds what in a database, and change it as the policy allows.", no_args_is_help=True)

ActorOption = Annotated[str, option("--actor NAME", "Name for the journal.")]


@app.command("create")
def create(
    url: UrlArgument,
    policy: PolicyChoice,
    admin: Annotated[list[str] | None, option("--admin USER", "First service administrator; repeatable.")] = None,
    actor: ActorOption = "operator",
) -> None:
    """Create a store for the system of a policy.

    The first service administrators are named by `--admin`, and by `store.administrators` in privtab.toml, or in
    `[tool.privtab]` of pyproject.toml, in the working directory or above.

    Example:
      privtab store create new.db --policy lake.yaml --admin root
      privtab store create postgresql+psycopg://privtab@db/grants -p lake.yaml
    """
    from privtab.checks import settings_above

    settings = settings_above(Path("privtab.toml"))
    administrators = [*(admin or []), *settings.administrators]
    store = store_class().create(url, policy.program(), administrators=administrators, actor=actor)
    out().print(f"{store.database.shown}: a store of {store.system}")
    if settings.administrators:
        out().print(f"service administrators by {settings.file}: {', '.join(settings.administrators)}")


@app.command("load")
def load(
    url: UrlArgument,
    state: Annotated[Path, argument("STATE", "The first rows, in any form of a state.")],
    policy: PolicyChoice,
    actor: ActorOption = "operator",
) -> None:
    """Load the first rows into a new store.

    No decision is made. Later changes are requests: `privtab store change`.

    Example:
      privtab store load empty.db state.yaml --policy lake.yaml
      privtab store load empty.db import:ranger:policies.json -p lake.yaml --actor migration
    """
    program = policy.program()
    rows = load_rows(program, state)
    done = store_class().open(url, program).load(rows, actor=actor)
    out().print(f"{count(done, 'row')} loaded")


@app.command("show")
def show(
    store: StoreArgument,
    name: Annotated[
        str | None, argument("NAME", "user:NAME, group:NAME, role:NAME or TYPE:PATH. Default: all.")
    ] = None,
    at: Annotated[str | None, option("--at MOMENT", "Time, or number of a change. Default: now.")] = None,
    token: TokenOption = None,
    ca: CaFileOption = None,
    format_: FormatOption = "text",
) -> None:
    """Show the rows of a store, all or those that name a principal or an entity, now or at a moment of its journal.

    All rows of a database as JSON are a state: commands take it for `--state`. They also take `store:STORE` and
    `store:STORE@MOMENT`. A server shows the rows that the user of the token may see.

    Example:
      privtab store show grants.db role:l/reader
      privtab store show grants.db --at 2026-03-03T12:00Z --format json > state.json
      privtab store show https://grants.example user:ben --token-file token
    """
    rows = listed(Settings(store=store, token=token, ca=ca), name, at)
    value: Any = [{"table": table, "row": dict(row)} for table, row in rows]
    if name is None and not is_http(store):
        value = {}
        for table, row in rows:
            value.setdefault(table, []).append(dict(row))
    if not print_if_data(format_, value):
        for table, row in rows:
            out().print(row_text(table, row))


@app.command("verify")
def verify(url: UrlArgument) -> None:
    """Check that the journal is unaltered and that its changes give exactly the rows of the store.

    Exits with 1 if not.

    Example:
      privtab store verify grants.db
    """
    journal = opened_store(url)
    found = journal.verify()
    for problem in found:
        print_error(problem)
    fail_if(found)
    head = journal.head()
    out().print(f"{count(head.number, 'change')}, the last with hash {head.hash}")


@app.command("change")
def change(
    url: UrlArgument,
    user: Annotated[str, argument("USER", "The user who makes the change.")],
    action: Annotated[str, argument("OPERATION", "Operation of the policy that allows the change.")],
    resource: Annotated[str, argument("TYPE:PATH", "The entity of the operation.")],
    policy: PolicyChoice,
    add: Annotated[
        list[str] | None,
        option("--add ROWS", "Rows to add: a file, or TABLE:{COLUMN: VALUE, …}; repeatable.", show_default=False),
    ] = None,
    remove: Annotated[
        list[str] | None, option("--remove ROWS", "Rows to remove, as `show` prints them; repeatable.")
    ] = None,
    new: Annotated[
        str | None, option("--new TYPE:ID", "Entity with a flat id to create in TYPE:PATH, as in document:folder:f1/.")
    ] = None,
    *,
    options: RequestOptions,
    request_id: Annotated[str | None, option("--request-id ID", "Do nothing if this request was done before.")] = None,
    expect: Annotated[int | None, option("--expect N", "Fail if a change after N concerns the same rows.")] = None,
    dry_run: Annotated[bool, option("--dry-run", "Show who gains and loses what; change nothing.")] = False,
    yes: Annotated[bool, option("--yes -y", "Also give sensitive operations, without confirmation.")] = False,
) -> None:
    """Change a store by an operation that the policy allows the user: its effects, and rows that it authorises.

    Exits with 1 if the operation is denied, a row is wrong, or another change came first.

    Example:
      privtab store change grants.db ann create table:l/web/new -p lake.yaml
      privtab store change grants.db ann grant schema:l/web -p lake.yaml \\
        --add 'grants:{grantee: user:ben, effect: allow, privilege: SELECT, entity: schema:l/web}' --dry-run
      privtab store change grants.db ann grant schema:l/web -p lake.yaml --remove gone.yaml --yes
      privtab store change grants.db ann create document:folder:f1/ --new document:d7 -p drive.yaml
    """
    program = policy.program()
    request = options.request(program, user, action, resource)
    added, removed = _rows(add, "--add"), _rows(remove, "--remove")
    created = None if new is None else entity(new)
    store = store_class().open(url, program)
    done = None if request_id is None else store.done(request_id, request, add=added, remove=removed, new=created)
    if done is None:
        planned = store.propose(request, add=added, remove=removed, new=created)
        if dry_run or not yes:
            confirm(proposed(planned), dry_run=dry_run)
        if dry_run:
            return
        expected = planned.number if expect is None else expect
        done = store.change(request, add=added, remove=removed, new=created, request_id=request_id, expect=expected)
    print_done(done)


def _rows(texts: list[str] | None, option: str) -> RawState | None:
    """The rows in files and in `TABLE:{…}`; raises UsageError, StateInvalid."""
    from privtab.state import load_raw_state as load_file
    from privtab.state import read_yaml_rows

    if not texts:
        return None
    reader = RawReader()
    for text in texts:
        table, colon, row = text.partition(":")
        if colon and row.lstrip().startswith("{"):
            if table not in TABLE_COLUMNS:
                raise UsageError(f"`{option} {table}:…`: the tables are {', '.join(TABLE_COLUMNS)}")
            read_yaml_rows(f"{table}: [{row}]", option, reader)
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


@app.command("delete")
def delete(
    url: UrlArgument,
    user: Annotated[str, argument("USER", "The user who deletes.")],
    action: Annotated[str, argument("OPERATION", "Operation of the policy that deletes.")],
    resources: Annotated[list[str], argument("TYPE:PATH…", "The entities to delete.")],
    policy: PolicyChoice,
    *,
    options: RequestOptions,
    dry_run: Annotated[bool, option("--dry-run", "Show the rows that would go; change nothing.")] = False,
) -> None:
    """Delete entities from a store, with all rows on them and below, as far as the policy allows each.

    Exits with 1 if one is denied. The others are deleted, in one transaction.

    Example:
      privtab store delete grants.db ann drop schema:l/old --policy lake.yaml
      privtab store delete grants.db ann drop schema:l/web schema:l/old -p lake.yaml --dry-run
    """
    program = policy.program()
    requests = [options.request(program, user, action, resource) for resource in resources]
    store = store_class().open(url, program)
    results: Sequence[Plan | Outcome | PrivtabError]
    results = [_proposed(store, request) for request in requests] if dry_run else store.delete_all(requests)
    for request, result in zip(requests, results, strict=True):
        if isinstance(result, PrivtabError):
            print_error(str(result))
            continue
        out().print(f"{request.resource}: {count(len(result.changes), 'row')}")
        print_changes(result.changes)
    fail_if(any(isinstance(result, PrivtabError) for result in results))


def _proposed(store: Store, request: Request) -> Plan | PrivtabError:
    try:
        return store.propose(request, delete=True)
    except PrivtabError as error:
        return error


@app.command("log")
def log(
    url: UrlArgument,
    after: Annotated[int, option("--after N", "Only changes after this number.", min=0)] = 0,
    page: Annotated[Path | None, option("--page FILE", "Write an HTML page instead, the newest change first.")] = None,
    format_: FormatOption = "text",
) -> None:
    """List who changed what in a store, and when.

    Example:
      privtab store log grants.db
      privtab store log grants.db --after 1 --format json
      privtab store log grants.db --page journal.html
    """
    store = opened_store(url)
    found = store.log(after)
    if page is not None:
        from privtab_server.store.journal import journal_page

        write_file(page, journal_page(found, store.system, store.database.shown).encode())
        deliver(f"{page}\n")
    elif not print_if_data(format_, found):
        show_entries(found)


@app.command("undo")
def undo(
    url: UrlArgument,
    number: Annotated[int, argument("CHANGE", "Number of the change to undo.", min=1)],
    policy: PolicyChoice,
    by: Annotated[
        list[str] | None,
        argument(
            "[USER …]",
            "User who undoes it, and the operation that allows it: USER OPERATION TYPE:PATH.",
            show_default=False,
        ),
    ] = None,
    *,
    options: RequestOptions,
    yes: Annotated[bool, option("--yes -y", "Also give sensitive operations, without confirmation.")] = False,
) -> None:
    """Show the rows that undo a change of a store and their effect, or undo it as a user.

    Without a user, nothing is changed. The operation must allow the user, as in `privtab store change`.

    Example:
      privtab store undo grants.db 4 --policy lake.yaml
      privtab store undo grants.db 4 ann grant schema:l/web --policy lake.yaml --yes
    """
    program = policy.program()
    store = store_class().open(url, program)
    add, remove = store.inverse(number)
    if not by:
        planned = store.propose_undo(number)
        confirm(proposed(planned), dry_run=True)
        return
    if len(by) != 3:
        raise UsageError("write the user, the operation and its entity, as in `ann grant schema:l/web`")
    user, action, resource = by
    request = options.request(program, user, action, resource)
    planned = store.propose(request, add=add or None, remove=remove or None)
    if not yes:
        confirm(proposed(planned), dry_run=False)
    done = store.change(request, add=add or None, remove=remove or None, expect=planned.number)
    print_done(done)


PrivilegeArgument = Annotated[str, argument("PRIVILEGE", "Privilege, or set of privileges.")]
RoleArgument = Annotated[str, argument("ROLE", "Name or path of a role.")]
ToOption = Annotated[str, option("--to PRINCIPAL", "user:NAME, group:NAME or role:NAME.")]
FromOption = Annotated[str, option("--from PRINCIPAL", "user:NAME, group:NAME or role:NAME.")]


@app.command()
def grant(
    privilege: PrivilegeArgument,
    on: Annotated[str, argument("TYPE:PATH", "Entity to grant the privilege on.")],
    to: ToOption,
    deny: Annotated[bool, option("--deny", "Deny the privilege instead.")] = False,
    since: SinceOption = None,
    until: UntilOption = None,
    *,
    settings: Settings,
) -> None:
    """Grant a privilege on an entity, or deny it, as the policy allows.

    Exits with 1 if the policy denies it, a row is wrong, or another change came first.

    Example:
      privtab store grant grants.db SELECT table:l/web/t --to role:l/reader --as ann -p lake.yaml --dry-run
      privtab store grant grants.db SELECT schema:l/web --to user:ben --deny --as ann -p lake.yaml
      privtab store grant https://grants.example SELECT table:l/web/t --to group:hr --until 2026-12-31T00:00Z
    """
    row = _grant(privilege, on, principal(to, "--to"), deny=deny) | window(since, until)
    carry_out(settings, session(settings), RequestedChange(add={"grants": [row]}))


@app.command()
def revoke(
    privilege: PrivilegeArgument,
    on: Annotated[str, argument("TYPE:PATH", "Entity to revoke the privilege on.")],
    from_: FromOption,
    deny: Annotated[bool, option("--deny", "Take back a denial instead.")] = False,
    *,
    settings: Settings,
) -> None:
    """Take back a privilege on an entity, or a denial, whatever time it holds for.

    Exits with 1 if the policy denies it, there is no such grant, or another change came first.

    Example:
      privtab store revoke grants.db SELECT table:l/web/t --from role:l/reader --as ann -p lake.yaml --dry-run
      privtab store revoke https://grants.example SELECT schema:l/web --from user:ben --deny --yes
    """
    cells = _grant(privilege, on, principal(from_, "--from"), deny=deny)
    opened = session(settings)
    rows = found(opened.rows("grants", **cells), f"{privilege} on {on} for {cells['grantee']}")
    carry_out(settings, opened, RequestedChange(remove={"grants": rows}))


def _grant(privilege: str, on: str, grantee: str, *, deny: bool) -> dict[str, str]:
    """The columns of a grant, but for its time."""
    effect = "deny" if deny else "allow"
    return {"grantee": grantee, "effect": effect, "privilege": privilege, "entity": str(entity(on))}


@app.command()
def assign(
    role: RoleArgument,
    to: ToOption,
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
      privtab store assign grants.db l/reader --to user:ben --as ann -p lake.yaml --dry-run
      privtab store assign grants.db l/reader --to group:hr --as ann -p lake.yaml
      privtab store assign https://grants.example operator --to user:ben --scope instance:d/i --yes
    """
    row = _assignment(role, principal(to, "--to"), scope) | window(since, until)
    about = resource_of(resource)
    carry_out(settings, session(settings), RequestedChange(add={"assignments": [row]}, resource=about))


def _assignment(role: str, holder: str, scope: str | None) -> dict[str, str]:
    """The columns of an assignment, but for its time."""
    cells = {"principal": holder, "role": role.removeprefix("role:")}
    return cells if scope is None else cells | {"scope": str(entity(scope))}


@app.command()
def unassign(
    role: RoleArgument,
    from_: FromOption,
    scope: ScopeOption = None,
    resource: ResourceOption = None,
    *,
    settings: Settings,
) -> None:
    """Take back a role from a user, a group or a role, whatever time it holds for.

    Exits with 1 if the policy denies it, there is no such assignment, or another change came first.

    Example:
      privtab store unassign grants.db l/reader --from user:ben --as ann -p lake.yaml --dry-run
      privtab store unassign https://grants.example l/reader --from group:hr
    """
    cells = _assignment(role, principal(from_, "--from"), scope)
    opened = session(settings)
    rows = [row for row in opened.rows("assignments", **cells) if (scope is None) == ("scope" not in row)]
    remove = {"assignments": found(rows, f"role:{cells['role']} for {cells['principal']}")}
    carry_out(settings, opened, RequestedChange(remove=remove, resource=resource_of(resource)))


@app.command()
def own(
    on: Annotated[str, argument("TYPE:PATH", "Entity that is owned.")],
    to: Annotated[str, option("--to PRINCIPAL", "The only owner from now on.")],
    *,
    settings: Settings,
) -> None:
    """Set the owner of an entity; previous owners lose it.

    Exits with 1 if the policy denies it, a row is wrong, or another change came first.

    Example:
      privtab store own grants.db schema:l/web --to user:ben --as ann -p lake.yaml --authorise owners=grant --dry-run
      privtab store own https://grants.example table:m/c/s/t --to user:ben --yes
    """
    row = {"entity": str(entity(on)), "owner": principal(to, "--to")}
    opened = session(settings)
    owners = [other for other in opened.rows("owners", entity=row["entity"]) if other != row]
    remove = {"owners": owners} if owners else {}
    carry_out(settings, opened, RequestedChange(add={"owners": [row]}, remove=remove))
