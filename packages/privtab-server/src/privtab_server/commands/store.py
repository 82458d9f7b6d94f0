"""`privtab store`: a database of who holds what, changed as the policy allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from privtab.base import Entity, PrivtabError, StateInvalid, UsageError, count, write_file
from privtab.command import (
    Commands,
    FormatOption,
    PolicyOptions,
    argument,
    deliver,
    fail_if,
    load_rows,
    option,
    out,
    print_error,
    print_if_data,
)
from privtab.state import (
    TABLE_COLUMNS,
    RawReader,
    RawState,
    from_tables,
    load_raw_state,
    read_yaml_rows,
    row_text,
    validate,
)
from privtab_analysis.commands._ask import RequestOptions, entity
from privtab_server.addresses import is_http
from privtab_server.commands._sentences import Sentence, read_sentences
from privtab_server.commands._store_session import (
    CaFileOption,
    RequestedChange,
    Row,
    Session,
    Settings,
    StoreArgument,
    Tables,
    TokenOption,
    UrlArgument,
    carry_out,
    listed,
    print_changes,
    session,
    show_entries,
    store_class,
)
from privtab_server.errors import StoreConflict
from privtab_server.store_states import opened_store

PANEL = "Grant"

app = Commands(help="Keep who holds what in a database, and change it as the policy allows.", no_args_is_help=True)


@app.command("create")
def create(
    url: UrlArgument,
    policy: PolicyOptions,
    admin: Annotated[list[str] | None, option("--admin USER", "First service administrator; repeatable.")] = None,
    state: Annotated[Path | None, option("--state -s STATE", "The first rows, in any form of a state.")] = None,
    actor: Annotated[str, option("--actor NAME", "Name for the journal.")] = "operator",
) -> None:
    """Create a store for the system of a policy, with its first rows.

    The first service administrators are named by `--admin`, and by `store.administrators` in privtab.toml, or in
    `[tool.privtab]` of pyproject.toml, in the working directory or above. No decision is made for them, nor for the rows of
    `--state`; later changes are requests: `privtab store change`.

    Example:
      privtab store create new.db --policy lake.yaml --admin root
      privtab store create new.db -p lake.yaml --state state.yaml
      privtab store create postgresql+psycopg://privtab@db/grants -p lake.yaml --state import:ranger:policies.json
    """
    from privtab.checks import settings_above

    program = policy.program()
    settings = settings_above(Path("privtab.toml"))
    administrators = [*(admin or []), *settings.administrators]
    rows = None if state is None else load_rows(program, state)
    if rows is not None and (wrong := [found for found in validate(program, rows)[1] if found.severity == "error"]):
        raise StateInvalid(tuple(wrong), "no store was created")
    store = store_class().create(url, program, administrators=administrators, actor=actor)
    out().print(f"{store.database.shown}: a store of {store.system}")
    if settings.administrators:
        out().print(f"service administrators by {settings.file}: {', '.join(settings.administrators)}")
    if rows is not None:
        out().print(f"{count(store.load(rows, actor=actor), 'row')} loaded")


@app.command("show")
def show(
    store: StoreArgument,
    name: Annotated[
        str | None, argument("NAME", "user:NAME, group:NAME, role:NAME or TYPE:PATH. Default: all.")
    ] = None,
    at: Annotated[str | None, option("--at MOMENT", "Time, or number of a change. Default: now.")] = None,
    after: Annotated[
        int | None, option("--after N", "Show who changed what instead, after change N; 0: all changes.", min=0)
    ] = None,
    page: Annotated[Path | None, option("--page FILE", "Write all changes to an HTML page, the newest first.")] = None,
    verify: Annotated[bool, option("--verify", "Check instead that hashes, changes and rows agree.")] = False,
    token: TokenOption = None,
    ca: CaFileOption = None,
    format_: FormatOption = "text",
) -> None:
    """Show the rows of a store, all or those that name a principal or an entity, now or at a moment; or its changes.

    All rows of a database as JSON are a state: commands take it for `--state`. They also take `store:STORE` and
    `store:STORE@MOMENT`. A server shows the rows that the user of the token may see.

    `--verify` checks that the journal is unaltered and that its changes give exactly the rows of the store, and exits with 1
    if not.

    Example:
      privtab store show grants.db role:l/reader
      privtab store show grants.db --at 2026-03-03T12:00Z --format json > state.json
      privtab store show https://grants.example user:ben --token-file token
      privtab store show grants.db --after 0 --format json
      privtab store show grants.db --page journal.html
      privtab store show grants.db --verify
    """
    if after is not None or page is not None or verify:
        given = {"NAME": name, "--at": at, "--token-file": token, "--ca": ca}
        if wrong := [word for word, value in given.items() if value is not None]:
            raise UsageError(f"{wrong[0]} is for rows: leave it out with `--after`, `--page` and `--verify`")
        _show_changes(store, after, page, format_, verify=verify)
        return
    rows = listed(Settings(store=store, token=token, ca=ca), name, at)
    value: Any = [{"table": table, "row": dict(row)} for table, row in rows]
    if name is None and not is_http(store):
        value = {table: [dict(row) for of, row in rows if of == table] for table in dict.fromkeys(of for of, _ in rows)}
    if format_ == "json":
        deliver(value, numbered=False)  # a state has no key but its tables
        return
    for table, row in rows:
        out().print(row_text(table, row))


@app.command("change")
def change(
    sentences: Annotated[list[str], argument("SENTENCE…", "What to change, as below; all of it or nothing.")],
    *,
    settings: Settings,
    asked: RequestOptions,
) -> None:
    """Change a store as the policy allows: rights, roles, owners, rows, and the effects of operations.

    The policy says which operation authorises rows; `perform` names one. With `delete`, each entity goes with all rows on it and
    below, as far as the policy allows each. Exits with 1 if something is denied, a row is wrong, or another change came first.

    Sentences: `grant PRIVILEGE (ENTITY) to PRINCIPAL [since TIME] [until TIME]`; `deny PRIVILEGE (ENTITY) to
    PRINCIPAL [since TIME] [until TIME]`; `revoke PRIVILEGE (ENTITY) from PRINCIPAL`; `revoke deny PRIVILEGE (ENTITY)
    from PRINCIPAL`; `assign ROLE to PRINCIPAL [for ENTITY] [since TIME] [until TIME]`; `unassign ROLE from PRINCIPAL
    [for ENTITY]`; `make PRINCIPAL owner of ENTITY`; `add ROWS`; `remove ROWS`; `undo CHANGE`; `about ENTITY`;
    `perform OPERATION on ENTITY [creating ENTITY]`; `delete ENTITY [by OPERATION]`. Several privileges have `+`
    between them, and names with spaces or parentheses stand in double quotes.

    Example:
      privtab store change grants.db "grant SELECT (table:l/web/t) to role:l/reader" --as ann -p lake.yaml --dry-run
      privtab store change grants.db "deny SELECT (schema:l/web) to ben until 2030-01-01T00:00Z" --as ann -p lake.yaml
      privtab store change grants.db "assign l/reader to group:hr" "assign l/reader to user:eve" --as ann -p lake.yaml --yes
      privtab store change grants.db "perform create on table:l/web/new" --as ann -p lake.yaml
      privtab store change grants.db "delete schema:l/old" --as ann -p lake.yaml --dry-run
      privtab store change https://grants.example "make ben owner of table:m/c/s/t" --yes
    """
    read = read_sentences(sentences)
    deleted = [(each.given["ENTITY"], each.given.get("by")) for each in read if each.verb == "delete"]
    if deleted and len(deleted) < len(read):
        raise UsageError("sentences that `delete` are a change of their own: each is decided for itself")
    named = any(each.verb == "perform" for each in read)
    if asked != RequestOptions() and not named and not deleted:
        raise UsageError("what a request gives beside its user is for sentences that `perform` or `delete`")
    opened = session(settings, asked)
    if not deleted:
        carry_out(settings, opened, requested(read, opened))
        return
    stay = False
    for text, result in opened.delete(deleted):
        if isinstance(result, PrivtabError):
            print_error(str(result))
            stay = True
        else:
            out().print(f"{text}: {count(len(result), 'row')}")
            print_changes(result)
    fail_if(stay)


def _show_changes(url: str, after: int | None, page: Path | None, format_: FormatOption, *, verify: bool) -> None:
    """Show the changes in the journal of a store, or write them to a page, or check the journal."""
    store = opened_store(url)
    if verify:
        if after is not None or page is not None or format_ != "text":
            raise UsageError("`--verify` looks at the whole journal, and lists nothing")
        faults = store.verify()
        for fault in faults:
            print_error(fault)
        fail_if(faults)
        head = store.head()
        out().print(f"{count(head.number, 'change')}, the last with hash {head.hash}")
        return
    found = store.log(after or 0)
    if page is not None:
        from privtab_server.store.journal import journal_page

        write_file(page, journal_page(found, store.system, store.database.shown).encode())
        deliver(f"{page}\n")
    elif not print_if_data(format_, found):
        show_entries(found)


def requested(sentences: Sequence[Sentence], opened: Session) -> RequestedChange:
    """The change that sentences want. Raises UsageError, StateInvalid, StoreConflict."""
    rows: dict[str, RawReader] = {"add": RawReader(), "remove": RawReader()}
    about: list[tuple[Entity, str | None, Entity | None]] = []
    for number, sentence in enumerate(sentences, start=1):
        given, shown = sentence.given, f"sentence {number}"
        match sentence.verb:
            case "perform":
                new = given.get("creating")
                about.append((entity(given["ENTITY"]), given["OPERATION"], None if new is None else entity(new)))
            case "about":
                about.append((entity(given["ENTITY"]), None, None))
            case "add" | "remove" as verb:
                _take(rows[verb], _rows(given["ROWS"], shown))
            case _:
                for reader, tables in zip(rows.values(), _tables(sentence, opened), strict=True):
                    _take(reader, from_tables(tables, shown))
    owned = [sentence.given["ENTITY"] for sentence in sentences if sentence.verb == "make"]
    if twice := next((text for text in owned if owned.count(text) > 1), None):
        raise UsageError(f"two sentences make owners of {twice}, and each makes the only one: `add ROWS` adds others")
    if len(about) > 1:
        raise UsageError("one sentence says what a change is about: write one `perform` or one `about`")
    resource, operation, new = about[0] if about else (None, None, None)
    if errors := [error for reader in rows.values() for error in reader.findings if error.severity == "error"]:
        raise StateInvalid(tuple(errors))
    found = {verb: reader.done() for verb, reader in rows.items()}
    return RequestedChange(resource=resource, operation=operation, new=new, **found)


def _tables(sentence: Sentence, opened: Session) -> tuple[Tables, Tables]:
    """The rows that a sentence adds and removes."""
    given = sentence.given
    window = {column: given[word] for word, column in (("since", "from"), ("until", "until")) if word in given}
    match sentence.verb:
        case "grant" | "deny" | "revoke":
            denial = sentence.form.startswith(("deny", "revoke deny"))
            cells = {"grantee": given["PRINCIPAL"], "effect": "deny" if denial else "allow"}
            each = [cells | {"privilege": name, "entity": given["ENTITY"]} for name in given["PRIVILEGE"]]
            if sentence.verb != "revoke":
                return {"grants": [row | window for row in each]}, {}
            held = [_held(opened.rows("grants", **row), f"{row['privilege']} on {row['entity']}", row) for row in each]
            return {}, {"grants": [row for found in held for row in found]}
        case "assign" | "unassign":
            scope = {"scope": given["for"]} if "for" in given else {}
            row = {"principal": given["PRINCIPAL"], "role": given["ROLE"], **scope}
            if sentence.verb == "assign":
                return {"assignments": [row | window]}, {}
            found = [held for held in opened.rows("assignments", **row) if bool(scope) == ("scope" in held)]
            return {}, {"assignments": _held(found, f"role:{row['role']}", row)}
        case "make":
            row = {"entity": given["ENTITY"], "owner": given["PRINCIPAL"]}
            others = [other for other in opened.rows("owners", entity=row["entity"]) if other != row]
            return {"owners": [row]}, {"owners": others} if others else {}
        case "undo":
            return opened.inverse(given["CHANGE"])
        case _:
            raise AssertionError(sentence.form)


def _held(rows: Sequence[Row], what: str, cells: Row) -> Sequence[Row]:
    """Rows that are taken back, whatever time they hold for. Raises StoreConflict if there are none."""
    if not rows:
        holder = cells.get("grantee") or cells["principal"]
        raise StoreConflict(f"the store does not hold {what} for {holder}, or it may not be seen")
    return rows


def _rows(text: str, shown: str) -> RawState:
    """The rows in `TABLE:{…}` or in a file. Raises UsageError and the errors of a state."""
    table, colon, row = text.partition(":")
    if not colon or not row.lstrip().startswith("{"):
        return load_raw_state(Path(text))
    if table not in TABLE_COLUMNS:
        raise UsageError(f"{shown}: `{table}:…`: the tables are {', '.join(TABLE_COLUMNS)}")
    reader = RawReader()
    read_yaml_rows(f"{table}: [{row}]", shown, reader)
    return reader.done()


def _take(reader: RawReader, found: RawState) -> None:
    """Add rows of one source to others: their numbers tell them apart."""
    for table, rows in found.rows.items():
        into = reader.rows.setdefault(table, [])
        into += [replace(row, number=number) for number, row in enumerate(rows, start=len(into) + 1)]
    reader.findings += found.findings
