"""Shared by the commands that change one thing in a store: a store that is opened here, or one that a server serves."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias
from urllib.parse import urlencode

import typer

from privtab.base import Change, Entity, PrivtabError, StateInvalid, UsageError, count, needing
from privtab.command import argument, fail_if, load_policy, option, out, print_error, stop
from privtab.state import RawState, row_text
from privtab_analysis.commands._ask import AuthoriseOption, RequestOptions, entity, user_name
from privtab_server.addresses import TOKEN_VARIABLE, is_http, token_or_variable
from privtab_server.errors import StoreConflict, StoreError, expected_form
from privtab_server.store_states import rows_of_store

if TYPE_CHECKING:
    from privtab.base import Request
    from privtab_server.store.guarded import DesiredChange, GuardedStore
    from privtab_server.store.journal import Entry
    from privtab_server.store.planning import Plan
    from privtab_server.store.store import Outcome, Store

Row: TypeAlias = Mapping[str, str]
Tables: TypeAlias = Mapping[str, Sequence[Row]]
MOST_NAMES = 5
"""The most names in one line of an effect."""
_TIMEOUT = (10.0, 70.0)
"""Seconds to connect to a server, and to wait for its answer: it may wait for other writers for a minute."""
_LARGEST = 1 << 28
"""Bytes of one answer."""

UrlArgument = Annotated[str, argument("STORE", "Path of an SQLite file, or postgresql+psycopg://USER@HOST/DATABASE.")]
StoreArgument = Annotated[
    str, argument("STORE", "Path of an SQLite file, postgresql+psycopg://USER@HOST/DATABASE, or URL of a server.")
]
TokenOption = Annotated[
    str | None, option("--token-file FILE", f"Token for a server. (default: ${TOKEN_VARIABLE})", kind="TOKEN")
]
CaFileOption = Annotated[Path | None, option("--ca FILE", "CA certificates for a server, PEM.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedChange:
    """Rows to add and to remove, and the operation that authorises them or whose effects are wanted, if it is named."""

    add: RawState = field(default_factory=RawState)
    remove: RawState = field(default_factory=RawState)
    resource: Entity | None = None
    operation: str | None = None
    new: Entity | None = None

    def tables(self) -> dict[str, dict[str, list[dict[str, str]]]]:
        """The rows to add and to remove as texts."""
        named = {"add": self.add, "remove": self.remove}
        return {
            name: {table: [dict(row.cells) for row in rows] for table, rows in raw.rows.items()}
            for name, raw in named.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The store, and the options that all these commands have."""

    store: StoreArgument
    policy: Annotated[
        str | None,
        option("--policy -p POLICY", "A policy by name or path; a server has its own."),
    ] = None
    user: Annotated[str | None, option("--as USER", "User who makes the change; a server takes it from the token.")] = (
        None
    )
    authorise: AuthoriseOption = None
    dry_run: Annotated[bool, option("--dry-run", "Show who gains and loses what; change nothing.")] = False
    yes: Annotated[bool, option("--yes -y", "Also give sensitive operations, without confirmation.")] = False
    request_id: Annotated[str | None, option("--request-id ID", "Do nothing if this request was done before.")] = None
    expect: Annotated[int | None, option("--expect N", "Fail if a change after N concerns the same rows.", min=1)] = (
        None
    )
    token: TokenOption = field(default=None, repr=False)
    ca: CaFileOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The effect of a change, done or proposed: its rows, and the JSON of `diff --state`, or why that is not known."""

    number: int
    changes: Sequence[Change]
    repeated: bool = False
    effect: Mapping[str, Any] | None = None
    undecided: str = ""

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Answer:
        """Read the answer of a server."""
        known = {name: answer[name] for name in ("repeated", "effect", "undecided") if name in answer}
        return cls(number=answer["number"], changes=tuple(map(Change.from_json, answer["changes"])), **known)


Session: TypeAlias = "_Local | _Remote"
"""A store, here or behind a server."""


def session(settings: Settings, asked: RequestOptions) -> Session:
    """Open the store; `asked`: what a request for an operation that is named gives beside its user."""
    return _Remote(settings, asked) if is_http(settings.store) else _Local(settings, asked)


def carry_out(settings: Settings, opened: Session, intent: RequestedChange) -> None:
    """Show what a change does, ask before it gives sensitive operations, and make it."""
    done: Answer | Outcome | None = opened.done(intent, settings.request_id)
    if done is None:
        expected = settings.expect
        if settings.dry_run or not settings.yes:
            proposal = opened.propose(intent)
            confirm(proposal, dry_run=settings.dry_run)
            expected = proposal.number if expected is None else expected
        if settings.dry_run:
            return
        done = opened.change(intent, settings.request_id, expected)
    print_done(done)


Deleted: TypeAlias = Iterator[tuple[str, Sequence[Change] | PrivtabError]]
"""Each entity that was to be deleted, and the rows that went with it, or why it stays."""


class _Local:
    """A store that is opened here."""

    def __init__(self, settings: Settings, asked: RequestOptions) -> None:
        if settings.policy is None or settings.user is None:
            raise UsageError("a store that is opened here needs `--policy POLICY` and `--as USER`; a server has both")
        self._settings, self._asked, self._user = settings, asked, user_name(settings.user)
        self._program = load_policy(settings.policy)
        self._store = store_class().open(settings.store, self._program)

    def rows(self, table: str, **cells: str) -> list[Row]:
        return _matching(self._guarded.view.now().tables[table], cells)

    def inverse(self, number: int) -> tuple[Tables, Tables]:
        return self._store.inverse(number)

    def done(self, intent: RequestedChange, request_id: str | None) -> Outcome | None:
        """What an earlier request with this id did, of one that names its operation."""
        known = intent.operation is not None and request_id is not None
        return self._store.done(str(request_id), **self._named(intent)) if known else None

    def propose(self, intent: RequestedChange) -> Answer:
        from privtab_server.store.guarded import proposal_json

        if intent.operation is not None:
            return Answer.of(proposal_json(self._store.propose(**self._named(intent))))
        return Answer.of(proposal_json(self._guarded.propose("change", self._desired(intent))))

    def change(self, intent: RequestedChange, request_id: str | None, expect: int | None) -> Outcome:
        from privtab_server.store.guarded import WriteOptions

        if intent.operation is not None:
            return self._store.change(**self._named(intent), request_id=request_id, expect=expect)
        how = WriteOptions(request_id=request_id, expect=expect)
        return self._guarded.carry_out("change", self._desired(intent), how)

    def delete(self, named: Sequence[tuple[str, str | None]]) -> Deleted:
        """Delete entities, each by its operation, as far as each is allowed."""
        settings = self._settings
        requests = [self._request(operation or self._deleting(text), text) for text, operation in named]
        results: Sequence[Plan | Outcome | PrivtabError]
        if settings.dry_run:
            results = [self._deletion(request) for request in requests]
        else:
            results = self._store.delete_all(requests, request_id=settings.request_id, expect=settings.expect)
        for (text, _), result in zip(named, results, strict=True):
            yield text, result if isinstance(result, PrivtabError) else result.changes

    def _deletion(self, request: Request) -> Plan | PrivtabError:
        try:
            return self._store.propose(request, delete=True)
        except PrivtabError as error:
            return error

    def _deleting(self, text: str) -> str:
        type_ = entity(text).type
        known = type_ in self._program.entities
        operation = self._guarded.authority.deleting(type_) if known else None
        if operation is None:
            raise UsageError(
                f"the policy has no operation that is known to delete a `{type_}`: name it, as in `by drop`"
            )
        return operation

    def _request(self, operation: str, resource: str) -> Request:
        return self._asked.request(self._program, self._user, operation, resource)

    def _named(self, intent: RequestedChange) -> dict[str, Any]:
        """The arguments of a change whose operation is named: whoever opens the store is trusted with the choice."""
        request = self._request(str(intent.operation), str(intent.resource))
        add, remove = (rows if rows.rows else None for rows in (intent.add, intent.remove))
        return {"request": request, "add": add, "remove": remove, "new": intent.new}

    def _desired(self, intent: RequestedChange) -> DesiredChange:
        from privtab_server.store.guarded import DesiredChange

        tables = intent.tables()
        return DesiredChange(user=self._user, add=tables["add"], remove=tables["remove"], resource=intent.resource)

    @cached_property
    def _guarded(self) -> GuardedStore:
        from privtab.pipeline import policy_artifacts
        from privtab_server.store.authority import Authority
        from privtab_server.store.guarded import GuardedStore
        from privtab_server.store.view import View

        view = View(self._store, self._program, policy_artifacts(self._program).program)
        return GuardedStore(self._store, view, Authority(self._program, self._settings.authorise or ()))


class _Remote:
    """A store that a server serves."""

    def __init__(self, settings: Settings, asked: RequestOptions) -> None:
        from privtab.client import Sender

        if asked != RequestOptions():
            raise UsageError(
                "requests to a server of a store give the user's token alone: leave out what they would give beside it"
            )

        if settings.user is not None or settings.policy is not None or settings.authorise:
            raise UsageError(
                "a server has its policy, and knows the user by the token: leave out `--policy`, `--as`, `--authorise`"
            )
        self._settings = settings
        self._url = settings.store.rstrip("/") + "/store/v1"
        self._sender = Sender(
            timeout=_TIMEOUT,
            seconds=sum(_TIMEOUT),
            largest=_LARGEST,
            token=token_or_variable(settings.token),
            verify=True if settings.ca is None else os.fspath(settings.ca),
        )

    def rows(self, table: str, **cells: str) -> list[Row]:
        about = next(cells[name] for name in ("grantee", "principal", "entity") if name in cells)
        return _matching([entry["row"] for entry in self.listed(f"/rows/{table}", {"about": about})], cells)

    def listed(self, path: str, query: dict[str, str]) -> list[dict[str, Any]]:
        """The rows of all pages."""
        listed: list[dict[str, Any]] = []
        after: str | None = None
        while True:
            page = self._ask("GET", path, query | {"limit": "1000"} | ({} if after is None else {"after": after}))
            with self._expected():
                listed += [{"table": row["table"], "row": dict(row["row"])} for row in page["rows"]]
                after = page["next"]
            if after is None:
                return listed

    def inverse(self, number: int) -> tuple[Tables, Tables]:
        raise UsageError(f"`undo {number}` reads the journal: give the database of the store, not its server")

    def done(self, intent: RequestedChange, request_id: str | None) -> None:
        """Nothing: the server knows what was done before."""

    def propose(self, intent: RequestedChange) -> Answer:
        return self._changed(intent, {"dry_run": "true"}, {})

    def change(self, intent: RequestedChange, request_id: str | None, expect: int | None) -> Answer:
        return self._changed(intent, {}, _headers(request_id, expect))

    def delete(self, named: Sequence[tuple[str, str | None]]) -> Deleted:
        """Delete entities, as far as the server allows each."""
        if any(operation for _, operation in named):
            raise UsageError("a server finds in its policy what deletes an entity: leave out `by OPERATION`")
        settings = self._settings
        query = {"dry_run": "true"} if settings.dry_run else {}
        body = {"entities": [text for text, _ in named]}
        answer = self._ask("POST", "/deletions", query, body, _headers(settings.request_id, settings.expect))
        with self._expected():
            results = [
                StoreConflict(str(result["error"]["message"])) if "error" in result else Answer.of(result).changes
                for result in answer["results"]
            ]
            found = list(zip((text for text, _ in named), results, strict=True))
        yield from found

    def _changed(self, intent: RequestedChange, query: Mapping[str, str], headers: Mapping[str, str]) -> Answer:
        named = {"resource": intent.resource, "operation": intent.operation, "new": intent.new}
        body: dict[str, Any] = {name: str(value) for name, value in named.items() if value is not None}
        rows = {name: tables for name, tables in intent.tables().items() if tables}
        path = "/changes" if rows or intent.operation is None else "/operations"
        answer = self._ask("POST", path, query, body | rows, headers)
        with self._expected():
            return Answer.of(answer)

    def _expected(self) -> AbstractContextManager[None]:
        return expected_form(self._url, StoreError)

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        from privtab.client import SendError

        try:
            answer = self._sender.send(
                method, f"{self._url}{path}{'?' if query else ''}{urlencode(query)}", body, headers=headers
            )
        except SendError as problem:
            raise StoreError(f"{self._url} cannot be reached: {problem.why}") from None
        try:
            content = answer.json()
        except SendError:
            raise StoreError(
                f"{self._url} answered {answer.status} without JSON: is it the URL of `privtab serve store:STORE`?"
            ) from None
        error = content.get("error") if isinstance(content, dict) else {}
        if answer.status == 200 and error is None:
            return content
        error = error if isinstance(error, dict) else {}
        message = str(error.get("message") or f"{self._url} answered {answer.status}")
        match error.get("kind"):
            case "denied" | "conflict":
                raise StoreConflict(message)
            case "wrong_rows":
                raise StateInvalid(tuple(map(str, error.get("findings", ()))))
            case "invalid" | "malformed" | "not_found" | "refused":
                raise UsageError(message)
            case _:
                raise StoreError(message)


def listed(settings: Settings, name: str | None, at: str | None = None) -> list[tuple[str, Row]]:
    """The rows that name a principal or an entity, or all, of a store or of a server: (table, row). `at`: at a moment of a store's journal."""
    if is_http(settings.store):
        if at is not None:
            raise UsageError("a server shows the rows of now: leave `--at` out, or give the database")
        entries = _Remote(settings, RequestOptions()).listed("/rows", {} if name is None else {"about": name})
        return [(entry["table"], entry["row"]) for entry in entries]
    from privtab_server.store.view import names_in

    _, tables = rows_of_store(settings.store, at)
    return [(table, row) for table, rows in tables.items() for row in rows if name is None or name in names_in(row)]


def _matching(rows: Sequence[Row], cells: Mapping[str, str]) -> list[Row]:
    return [row for row in rows if cells.items() <= row.items()]


def _headers(request_id: str | None, expect: int | None) -> dict[str, str]:
    headers = {} if request_id is None else {"Idempotency-Key": request_id}
    return headers if expect is None else headers | {"If-Match": f'"{expect}"'}


def _print_effect(proposal: Answer) -> None:
    """Print who gains and loses which operations on what."""
    if proposal.effect is None:
        print_error(f"who gains and loses what is not known: {proposal.undecided}")
        return
    for access in proposal.effect["access"]:
        names, entities = (_names(access[key]) for key in ("subjects", "entities"))
        several = access["subjects"]["count"] != 1
        verb = ("gain" if access["change"] == "gained" else "lose") + ("" if several else "s")
        objects = "".join(f" with {slot} {_names(found)}" for slot, found in access["with"].items())
        out().print(f"  {names} {verb} {_operation(access)} on {entities}{objects}")
    if not proposal.effect["access"]:
        out().print("  no user gains or loses an operation")
    for text in proposal.effect["undecided"]:
        print_error(f"not decided: {text}")


def _operation(access: Mapping[str, Any]) -> str:
    """An operation, what a request for it gives, and whether it is sensitive."""
    from privtab.ir import value_text

    given = dict(access["attributes"])
    owners = given.pop("with", {}).items()
    values = [f"{of}.{n} = {value_text(v)}" for of, named in (*given.items(), *owners) for n, v in named.items()]
    flags = f" with {' and '.join(access['flags'])}" if access["flags"] else ""
    condition = f" if {' and '.join(values)}" if values else ""
    return f"`{access['operation']}`{flags}{condition}{' (sensitive)' if access['sensitive'] else ''}"


def _names(named: Mapping[str, Any]) -> str:
    shown = ", ".join(named["names"][:MOST_NAMES])
    more = named["count"] - min(len(named["names"]), MOST_NAMES)
    return f"{shown} and {more:,} more" if more else shown


def confirm(proposal: Answer, *, dry_run: bool) -> None:
    """Show what a change does, if it gives sensitive operations or with `dry_run`; without, ask before it gives them.

    A dry run that cannot tell who gains what exits with 1.
    """
    effect = proposal.effect
    sensitive = effect is None or bool(effect["undecided"]) or effect["summary"]["gained"]["sensitive"] > 0
    if dry_run or sensitive:
        print_changes(proposal.changes)
        _print_effect(proposal)
    fail_if(dry_run and effect is None)
    if dry_run or not sensitive:
        return
    if not sys.stdin.isatty() or not typer.confirm("This gives sensitive operations. Change the store?"):
        stop("nothing was changed: the request gives sensitive operations; `--yes` confirms it")


def store_class() -> type[Store]:
    """The class; raises UsageError if its libraries are not installed."""
    with needing("a store", "store"):
        from privtab_server.store.store import Store
    return Store


def show_entries(entries: Iterable[Entry]) -> None:
    """Print changes: who did what, when, and the rows."""
    for entry in entries:
        what = entry.action if entry.resource is None else f"{entry.action} {entry.resource}"
        out().print(f"{entry.number} {entry.at} {entry.actor} {what}")
        print_changes(entry.changes)


def print_changes(changes: Iterable[Change]) -> None:
    """Print the rows that a change adds and removes."""
    for change_ in changes:
        sign = "+" if change_.action == "add" else "-"
        out().print(f"  {sign} {row_text(change_.table, change_.row or {})}")


def print_done(done: Answer | Outcome) -> None:
    """Print what a change did, or that an earlier request with the same id did it."""
    print_changes(done.changes)
    again = ", done before" if done.repeated else ""
    out().print(f"change {done.number}: {count(len(done.changes), 'row')}{again}")
