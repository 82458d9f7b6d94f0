"""The HTTP endpoints of a store: who asks comes from the bearer token, what authorises a change from the policy."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Never, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from privtab.errors import (
    AccessDenied,
    InvalidRequest,
    PrivtabError,
    StateInvalid,
    StoreConflict,
    UsageError,
)
from privtab.printable import printable_json
from privtab.serving.endpoint import JSON, LOG, answered, read_json_body
from privtab.serving.envelope import note
from privtab.serving.guard import Refused, authorize
from privtab.serving.tokens import Tokens
from privtab.store.guarded import DesiredChange, GuardedStore, effect_of, is_about
from privtab.store.planning import Plan
from privtab.store.schema import row_id
from privtab.store.server.calls import (
    Call,
    Malformed,
    NotFound,
    read_desired,
    read_entity,
    read_object,
    read_rows,
    read_tables,
)
from privtab.store.server.openapi import MOST_LISTED, PREFIX, TABLES, openapi
from privtab.store.store import Outcome

Answer: TypeAlias = tuple[int, Any]
"""The status and the JSON of an answer."""
_NAMES = {"users": "user", "groups": "group", "roles": "role"}


class StoreScope(StrEnum):
    """The scopes of tokens for a server of a store: those of the AuthZEN API, and reading and writing the store."""

    EVALUATE = "evaluate"
    SEARCH = "search"
    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreServer:
    """A store, and who may ask for what."""

    guarded: GuardedStore
    base: str
    """The address that callers use, without a trailing slash."""
    tokens: Tokens | None = None
    anonymous: str | None = None
    """The user of requests without a token; None: they are refused."""
    max_body: int = 1024 * 1024

    def caller(self, request: Request, scope: StoreScope) -> str:
        """The user who makes a request: the name of the token. Raises Refused."""
        if "authorization" not in request.headers and self.anonymous is not None:
            return self.anonymous
        bearer = authorize(self.tokens, scope, request)
        if bearer is None:
            raise Refused(401, "this server knows no tokens", WWW_Authenticate='Bearer realm="privtab"')
        return bearer.name


Handler: TypeAlias = Callable[[StoreServer, Call], Answer]


def routes(server: StoreServer) -> list[Route]:
    """The endpoints of a store."""
    read, write = StoreScope.READ, StoreScope.WRITE
    document = openapi(server.guarded.program, server.base)

    async def describe(request: Request) -> Response:
        del request
        return json_response(200, document)

    return [
        Route(f"{PREFIX}/openapi.json", describe, methods=["GET"]),
        route(server, f"{PREFIX}/authority", _authority, read),
        route(server, f"{PREFIX}/journal", _journal, read),
        *(route(server, f"{PREFIX}/{kind}", partial(_list_names, kind), read) for kind in (*_NAMES, "entities")),
        route(server, f"{PREFIX}/entities", _delete_entity, write, "DELETE"),
        route(server, f"{PREFIX}/operations", _perform, write, "POST"),
        route(server, f"{PREFIX}/changes", _change, write, "POST"),
        route(server, f"{PREFIX}/rows", partial(_list_rows, TABLES), read),
        *(route(server, f"{PREFIX}/rows/{table}", partial(_list_rows, (table,)), read) for table in TABLES),
        *(route(server, f"{PREFIX}/rows/{table}", partial(_add_rows, table), write, "POST") for table in TABLES),
        *(
            route(server, f"{PREFIX}/rows/{table}/{{id}}", partial(_remove_row, table), write, "DELETE")
            for table in TABLES
        ),
    ]


def route(
    server: StoreServer,
    path: str,
    handler: Handler,
    scope: StoreScope,
    method: str = "GET",
    *,
    failed: Callable[[PrivtabError | Refused], Answer] | None = None,
    media: str = JSON,
) -> Route:
    """An endpoint that finds out who asks, reads the body, and turns errors into answers. `failed`: the answer to an error."""
    shape = failed or failure

    async def answer(request: Request) -> Response:
        try:
            user = server.caller(request, scope)
            body: Mapping[str, Any] = {}
            if method in ("POST", "PUT"):
                body = read_object(await read_json_body(request, server.max_body))
            call = Call(
                user=user,
                body=body,
                query=request.query_params,
                path=request.path_params,
                headers=request.headers,
                raw_path=request.scope["raw_path"].decode("latin-1"),
            )
            status, content = await asyncio.to_thread(handler, server, call)
            note(request.scope, None, caller=user)
            return json_response(status, content, media=media)
        except (PrivtabError, Refused) as error:
            status, content = shape(error)
            if status >= 500:
                LOG.warning("%s: %s", request.url.path[:200], error)
            headers = dict(error.headers) if isinstance(error, Refused) else {}
            if status == 503:
                headers["Retry-After"] = "1"
            return json_response(status, content, headers, media=media)

    async def endpoint(request: Request) -> Response:
        return await answered(request, answer, _no_error)

    return Route(path, endpoint, methods=[method])


def json_response(
    status: int, content: Any, headers: Mapping[str, str] | None = None, *, media: str = JSON
) -> Response:
    """An answer as JSON, with the number of the last change as its ETag."""
    found = dict(headers or {})
    if status < 300 and isinstance(content, Mapping) and isinstance(content.get("number"), int):
        found["ETag"] = f'"{content["number"]}"'
    return Response(printable_json(content).encode(), status, found, media_type=media)


def failure(error: PrivtabError | Refused) -> Answer:
    """The answer to an error."""
    message = str(error)
    match error:
        case Refused():
            return error.status, _error("refused", message)
        case AccessDenied():
            return 403, _error("denied", message, decision=error.decision.to_json())
        case StateInvalid():
            return 422, _error("wrong_rows", message, findings=[str(finding) for finding in error.findings])
        case StoreConflict():
            return 409, _error("conflict", message)
        case NotFound():
            return 404, _error("not_found", message)
        case Malformed():
            return 400, _error("malformed", message)
        case UsageError() | InvalidRequest():
            return 422, _error("invalid", message)
        case _:
            # What the database says is for the log.
            return 503, _error("unavailable", "the store cannot be read or written at the moment")


def _error(kind: str, message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message, **more}}


def _no_error(request: Request, error: PrivtabError) -> Never:
    del request
    raise error


# --- changes ---------------------------------------------------------------------------------------------------------


def _add_rows(table: str, server: StoreServer, call: Call) -> Answer:
    rows = call.body.get("rows")
    return _changed(server, call, read_desired(call, {"rows"}, add={table: read_rows(rows, "rows")}))


def _change(server: StoreServer, call: Call) -> Answer:
    add, remove = (read_tables(call.body.get(name, {}), name) for name in ("add", "remove"))
    return _changed(server, call, read_desired(call, {"add", "remove"}, add=add, remove=remove))


def _remove_row(table: str, server: StoreServer, call: Call) -> Answer:
    _, row = server.guarded.view.now().rows.tables[table].get(call.path["id"], (0, None))
    if row is None and (done := _done_before(server, call)) is not None:
        return _made(done)
    if row is None or not _sees(server, call.user, table, row):
        raise NotFound(f"there is no row {call.path['id']:.64} in {table}")
    resource = read_entity(call.query["resource"], "resource") if "resource" in call.query else None
    return _changed(server, call, DesiredChange(user=call.user, remove={table: [row]}, resource=resource))


def _done_before(server: StoreServer, call: Call) -> Outcome | None:
    """What an earlier request with the same id did, which removed just this row; None if there was none."""
    id_ = call.headers.get("idempotency-key")
    if id_ is None:
        return None
    entry = server.guarded.store.requested(id_)
    if entry is None or entry.actor != call.user:
        return None
    removed = {row_id(change.row or {}) for change in entry.changes if change.action == "remove"}
    return Outcome.of(entry) if call.path["id"] in removed else None


def _sees(server: StoreServer, user: str, table: str, row: Mapping[str, str]) -> bool:
    _, visible = server.guarded.visible(user, (table,))
    return row in visible[table]


def _perform(server: StoreServer, call: Call) -> Answer:
    desired = read_desired(call, set())
    if call.dry_run:
        return _proposed(server.guarded.propose_performed(desired))
    return _made(server.guarded.perform(desired, call.write_options))


def _delete_entity(server: StoreServer, call: Call) -> Answer:
    if "entity" not in call.query:
        raise Malformed("`entity` is missing from the query")
    desired = DesiredChange(
        user=call.user, resource=read_entity(call.query["entity"], "entity"), operation=call.query.get("operation")
    )
    if call.dry_run:
        return _proposed(server.guarded.propose_deleted(desired))
    return _made(server.guarded.delete(desired, call.write_options))


def _changed(server: StoreServer, call: Call, desired: DesiredChange) -> Answer:
    if call.dry_run:
        return _proposed(server.guarded.propose(desired))
    return _made(server.guarded.change(desired, call.write_options))


def _made(outcome: Outcome) -> Answer:
    changes = [change.to_json() for change in outcome.changes]
    answer = {"number": outcome.number, "repeated": outcome.repeated, "changes": changes}
    return 200, {**answer, "decision": outcome.decision.to_json()}


def _proposed(planned: Plan) -> Answer:
    """What a change would do: its rows, and who gains and loses which operations."""
    answer: dict[str, Any] = {
        "number": planned.number,
        "dry_run": True,
        "changes": [change.to_json() for change in planned.changes],
        "decision": planned.decision.to_json(),
    }
    effect, undecided = effect_of(planned)
    return 200, {**answer, "effect": effect, **({"undecided": undecided} if effect is None else {})}


# --- reads -----------------------------------------------------------------------------------------------------------


def _list_rows(tables: Sequence[str], server: StoreServer, call: Call) -> Answer:
    """The rows that the caller may see, sorted by table and content, page by page."""
    number, found = server.guarded.visible(call.user, tables)
    about = call.query.get("about")
    rows = [
        {"table": table, "id": row_id(row), "row": dict(row)}
        for table, listed in found.items()
        for row in listed
        if about is None or is_about(row, about)
    ]
    rows.sort(key=lambda entry: (entry["table"], json.dumps(entry["row"])))
    return _page(call, number, "rows", rows, lambda entry: f"{entry['table']} {json.dumps(entry['row'])}")


def _list_names(kind: str, server: StoreServer, call: Call) -> Answer:
    """The names in the rows that the caller may see."""
    number, found = server.guarded.visible(call.user, TABLES)
    names: set[str] = set()
    for row in (row for listed in found.values() for row in listed):
        if kind == "entities":
            names |= {row[name] for name in ("entity", "of", "scope", "parent") if name in row}
            continue
        column = _NAMES[kind]
        names |= {row[column].removeprefix(f"{column}:")} if column in row and ":" not in row[column] else set()
        cells = (row[name] for name in ("grantee", "principal", "owner", "user") if name in row)
        names |= {cell.removeprefix(f"{column}:") for cell in cells if cell.startswith(f"{column}:")}
    if (type_ := call.query.get("type")) is not None:
        names = {name for name in names if name.startswith(f"{type_}:")}
    return _page(call, number, kind, sorted(names), str)


def _page(call: Call, number: int, name: str, items: list[Any], key: Callable[[Any], str]) -> Answer:
    """One page of sorted items: those after the cursor, which names the last one that was read."""
    text = call.query.get("limit", "100")
    if not text.isdecimal() or not text.isascii() or len(text) > 6 or not 1 <= int(text) <= MOST_LISTED:
        raise Malformed(f"`limit` is a number from 1 to {MOST_LISTED}")
    after = _cursor(call.query.get("after"))
    later = items if after is None else [item for item in items if key(item) > after]
    page = later[: int(text)]
    more = len(later) > len(page)
    next_ = base64.urlsafe_b64encode(key(page[-1]).encode()).decode() if more else None
    return 200, {"number": number, name: page, "next": next_}


def _cursor(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise Malformed("`after` is the `next` of an earlier page") from None


def _authority(server: StoreServer, call: Call) -> Answer:
    del call
    authority = server.guarded.authority
    types = server.guarded.program.entities
    deleting = {type_: operation for type_ in types if (operation := authority.deleting(type_)) is not None}
    return 200, {"system": server.guarded.program.system, "rows": authority.to_json(), "delete": deleting}


def _journal(server: StoreServer, call: Call) -> Answer:
    if call.user not in server.guarded.auditors:
        raise Refused(403, f"user:{call.user} is no auditor: `privtab store serve --auditor` names them")
    text = call.query.get("after", "0")
    if not text.isdecimal() or not text.isascii() or len(text) > 18:
        raise Malformed("`after` is the number of a change")
    entries = server.guarded.store.log(int(text), MOST_LISTED)
    return 200, {"entries": [entry.to_json() for entry in entries]}
