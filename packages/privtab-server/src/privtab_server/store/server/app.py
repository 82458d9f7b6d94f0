"""The HTTP endpoints of a store: the bearer token names the caller, the policy says what authorises a change."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from privtab.base import (
    AccessDenied,
    InvalidRequest,
    PrivtabError,
    StateInvalid,
    UsageError,
    load_plugin,
    plugin_names,
    printable_json,
)
from privtab_analysis.html import PAGE_HEADERS
from privtab_server.errors import StoreConflict
from privtab_server.serving.access_log import note
from privtab_server.serving.endpoint import JSON, LOG, HttpError, answered, authorize, read_json_body
from privtab_server.serving.tokens import Tokens
from privtab_server.store.database import row_id
from privtab_server.store.guarded import ChangeKind, DesiredChange, GuardedStore, WriteOptions, proposal_json
from privtab_server.store.journal import journal_page
from privtab_server.store.planning import Plan
from privtab_server.store.server import calls
from privtab_server.store.server.openapi import MOST_LISTED, PREFIX, TABLES, openapi
from privtab_server.store.store import Outcome


class StoreScope(StrEnum):
    """The scopes of tokens for a server of a store: the scopes of the AuthZEN API, and reading and writing the store."""

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
    metrics: calls.Metrics
    max_body: int = 1024 * 1024

    def caller(self, request: Request, scope: StoreScope) -> str:
        """The user who makes a request: the name of the token. Raises Refused."""
        if "authorization" not in request.headers and self.anonymous is not None:
            return self.anonymous
        bearer = authorize(self.tokens, scope, request)
        if bearer is None:
            raise HttpError(401, "this server knows no tokens", WWW_Authenticate='Bearer realm="privtab"')
        return bearer.name


Handler: TypeAlias = Callable[[StoreServer, calls.Call], calls.JsonResponse]


def routes(server: StoreServer) -> list[Route]:
    """The endpoints of a store."""
    write = StoreScope.WRITE
    document = openapi(server.guarded.program, server.base)

    async def describe(request: Request) -> Response:
        del request
        return json_response(200, document)

    def text(path: str, make: Callable[[str], bytes | str], media: str, headers: Mapping[str, str]) -> Route:
        """Return a route to a text that is not JSON."""

        def response(status: int, made: Any) -> Response:
            return Response(made, status, headers, media_type=media)

        reads = StoreScope.READ
        return route(server, f"{PREFIX}/{path}", lambda _, call: (200, make(call.user)), reads, response=response)

    def listing(path: str, handler: Callable[[GuardedStore, calls.Call], calls.JsonResponse]) -> Route:
        return route(server, f"{PREFIX}/{path}", lambda server, call: handler(server.guarded, call), StoreScope.READ)

    return [
        Route(f"{PREFIX}/openapi.json", describe, methods=["GET"]),
        listing("authority", authority),
        listing("journal", journal),
        *(listing(kind, partial(list_names, kind)) for kind in (*NAMES, "entities")),
        listing("rows", partial(list_rows, TABLES)),
        *(listing(f"rows/{table}", partial(list_rows, (table,))) for table in TABLES),
        text("metrics", lambda _: server.metrics.text(), calls.CONTENT_TYPE, {}),
        text("journal.html", partial(page, server.guarded), "text/html", PAGE_HEADERS),
        route(server, f"{PREFIX}/entities", _delete_entity, write, "DELETE"),
        route(server, f"{PREFIX}/deletions", _delete_entities, write, "POST"),
        route(server, f"{PREFIX}/operations", _perform, write, "POST"),
        route(server, f"{PREFIX}/changes", _change, write, "POST"),
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
    failed: Callable[[PrivtabError | HttpError], calls.JsonResponse] | None = None,
    media: str = JSON,
    response: Callable[[int, Any], Response] | None = None,
) -> Route:
    """An endpoint that finds the caller, reads the body, and turns errors into answers.

    `failed`: the answer to an error; `response`: what is sent otherwise, if that is no JSON.
    """
    shape = failed or failure

    async def answer(request: Request) -> Response:
        try:
            user = server.caller(request, scope)
            body: Mapping[str, Any] = {}
            if method in ("POST", "PUT"):
                body = calls.read_object(await read_json_body(request, server.max_body))
            call = calls.Call(
                user=user,
                body=body,
                query=request.query_params,
                path=request.path_params,
                headers=request.headers,
                raw_path=request.scope["raw_path"].decode("latin-1"),
            )
            status, content = await asyncio.to_thread(handler, server, call)
            note(request.scope, None, caller=user)
            return json_response(status, content, media=media) if response is None else response(status, content)
        except (PrivtabError, HttpError) as error:
            status, content = shape(error)
            server.metrics.refused.labels(failure(error)[1]["error"]["kind"]).inc()
            if status >= 500:
                LOG.warning("%s: %s", request.url.path[:200], error)
            headers = dict(error.headers) if isinstance(error, HttpError) else {}
            if status == 503:
                headers["Retry-After"] = "1"
            return json_response(status, content, headers, media=media)

    return Route(path, partial(answered, endpoint=answer), methods=[method])


def json_response(
    status: int, content: Any, headers: Mapping[str, str] | None = None, *, media: str = JSON
) -> Response:
    """An answer as JSON, with the number of the last change as its ETag."""
    found = dict(headers or {})
    if status < 300 and isinstance(content, Mapping) and isinstance(content.get("number"), int):
        found["ETag"] = f'"{content["number"]}"'
    return Response(printable_json(content).encode(), status, found, media_type=media)


def failure(error: PrivtabError | HttpError) -> calls.JsonResponse:
    """The answer to an error."""
    message = str(error)
    match error:
        case HttpError():
            return error.status, _error("refused", message)
        case AccessDenied():
            return 403, _error("denied", message, decision=error.decision.to_json())
        case StateInvalid():
            return 422, _error("wrong_rows", message, findings=[str(finding) for finding in error.findings])
        case StoreConflict():
            return 409, _error("conflict", message)
        case calls.NotFound():
            return 404, _error("not_found", message)
        case calls.Malformed():
            return 400, _error("malformed", message)
        case UsageError() | InvalidRequest():
            return 422, _error("invalid", message)
        case _:
            # What the database says is for the log.
            return 503, _error("unavailable", "the store cannot be read or written at the moment")


def _error(kind: str, message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message, **more}}


# --- changes ---------------------------------------------------------------------------------------------------------


def _add_rows(table: str, server: StoreServer, call: calls.Call) -> calls.JsonResponse:
    rows = call.body.get("rows")
    return _changed(server, call, calls.read_desired(call, {"rows"}, add={table: calls.read_rows(rows, "rows")}))


def _change(server: StoreServer, call: calls.Call) -> calls.JsonResponse:
    add, remove = (calls.read_tables(call.body.get(name, {}), name) for name in ("add", "remove"))
    return _changed(server, call, calls.read_desired(call, {"add", "remove"}, add=add, remove=remove))


def _remove_row(table: str, server: StoreServer, call: calls.Call) -> calls.JsonResponse:
    _, row = server.guarded.view.now().rows.tables[table].get(call.path["id"], (0, None))
    if row is None and (done := _done_before(server, call)) is not None:
        return 200, done.to_json()
    if row is None or not server.guarded.may_read(call.user, table, row):
        raise calls.NotFound(f"there is no row {call.path['id']:.64} in {table}")
    resource = calls.read_entity(call.query["resource"], "resource") if "resource" in call.query else None
    return _changed(server, call, DesiredChange(user=call.user, remove={table: [row]}, resource=resource))


def _done_before(server: StoreServer, call: calls.Call) -> Outcome | None:
    """Return the outcome of an earlier request with the same id, which removed just this row; None if there was none."""
    id_ = call.headers.get("idempotency-key")
    if id_ is None:
        return None
    entry = server.guarded.store.requested(id_)
    if entry is None or entry.actor != call.user:
        return None
    removed = {row_id(change.row or {}) for change in entry.changes if change.action == "remove"}
    return Outcome.of(entry) if call.path["id"] in removed else None


def _perform(server: StoreServer, call: calls.Call) -> calls.JsonResponse:
    new = call.body.get("new")
    desired = calls.read_desired(call, {"new"}, new=None if new is None else calls.read_entity(new, "new"))
    return _changed(server, call, desired, "perform")


def _delete_entity(server: StoreServer, call: calls.Call) -> calls.JsonResponse:
    if "entity" not in call.query:
        raise calls.Malformed("`entity` is missing from the query")
    desired = DesiredChange(
        user=call.user,
        resource=calls.read_entity(call.query["entity"], "entity"),
        operation=call.query.get("operation"),
    )
    return _changed(server, call, desired, "delete")


def _delete_entities(server: StoreServer, call: calls.Call) -> calls.JsonResponse:
    """Delete each entity that the caller may delete, and tell why not for the others."""
    if unknown := sorted(set(call.body) - {"entities"}):
        raise calls.Malformed(f"the body has `{unknown[0]:.80}`; it may have entities")
    entities = call.body.get("entities")
    if not isinstance(entities, list) or not 0 < len(entities) <= MOST_LISTED:
        raise calls.Malformed(f"`entities` must be a list of 1 to {MOST_LISTED} entities")
    desired = [DesiredChange(user=call.user, resource=calls.read_entity(entity, "entities")) for entity in entities]
    how, results = call.write_options, list[dict[str, Any]]()
    for entity, outcome in zip(entities, _deleted_or_proposed(server, call, desired, how), strict=True):
        if isinstance(outcome, PrivtabError):
            status, content = failure(outcome)
            server.metrics.refused.labels(content["error"]["kind"]).inc()
        else:
            status, content = 200, proposal_json(outcome) if isinstance(outcome, Plan) else outcome.to_json()
        results.append({"entity": entity, "status": status, **content})
    return 200, {"results": results}


def _deleted_or_proposed(
    server: StoreServer, call: calls.Call, desired: Sequence[DesiredChange], how: WriteOptions
) -> Sequence[Outcome | Plan | PrivtabError]:
    if not call.dry_run:
        return server.guarded.delete_all(desired, how)
    found: list[Plan | PrivtabError] = []
    for change in desired:
        try:
            found.append(server.guarded.propose("delete", change, how.expect))
        except (AccessDenied, InvalidRequest, StoreConflict, UsageError) as error:
            found.append(error)
    return found


def _changed(
    server: StoreServer, call: calls.Call, desired: DesiredChange, kind: ChangeKind = "change"
) -> calls.JsonResponse:
    if call.dry_run:
        return 200, proposal_json(server.guarded.propose(kind, desired, call.write_options.expect))
    return 200, server.guarded.carry_out(kind, desired, call.write_options).to_json()


# --- listings --------------------------------------------------------------------------------------------------------


NAMES = {"users": "user", "groups": "group", "roles": "role"}
"""The listings of principals, and the column that names each."""


def list_rows(tables: Sequence[str], guarded: GuardedStore, call: calls.Call) -> calls.JsonResponse:
    """The rows that the caller may see, sorted by table and content, page by page."""
    number, found = guarded.visible(call.user, tables, call.query.get("about"))
    rows = [{"table": table, "id": row_id(row), "row": dict(row)} for table, listed in found.items() for row in listed]
    rows.sort(key=lambda entry: (entry["table"], json.dumps(entry["row"])))
    return _page(call, number, "rows", rows, lambda entry: f"{entry['table']} {json.dumps(entry['row'])}")


def list_names(kind: str, guarded: GuardedStore, call: calls.Call) -> calls.JsonResponse:
    """The names in the rows that the caller may see."""
    number, found = guarded.visible(call.user, TABLES)
    names: set[str] = set()
    for row in (row for listed in found.values() for row in listed):
        if kind == "entities":
            names |= {row[name] for name in ("entity", "of", "scope", "parent") if name in row}
            continue
        column = NAMES[kind]
        names |= {row[column].removeprefix(f"{column}:")} if column in row and ":" not in row[column] else set()
        cells = (row[name] for name in ("grantee", "principal", "owner", "user") if name in row)
        names |= {cell.removeprefix(f"{column}:") for cell in cells if cell.startswith(f"{column}:")}
    if (type_ := call.query.get("type")) is not None:
        names = {name for name in names if name.startswith(f"{type_}:")}
    return _page(call, number, kind, sorted(names), str)


def _page(call: calls.Call, number: int, name: str, items: list[Any], key: Callable[[Any], str]) -> calls.JsonResponse:
    """One page of sorted items: the items after the cursor, which names the last one that was read."""
    text = call.query.get("limit", "100")
    if not text.isdecimal() or not text.isascii() or len(text) > 6 or not 1 <= int(text) <= MOST_LISTED:
        raise calls.Malformed(f"`limit` is a number from 1 to {MOST_LISTED}")
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
        raise calls.Malformed("`after` is the `next` of an earlier page") from None


def authority(guarded: GuardedStore, call: calls.Call) -> calls.JsonResponse:
    """Return the operations that authorise changes of rows."""
    del call
    authority = guarded.authority
    types = guarded.program.entities
    deleting = {type_: operation for type_ in types if (operation := authority.deleting(type_)) is not None}
    return 200, {"system": guarded.program.system, "rows": authority.to_json(), "delete": deleting}


def journal(guarded: GuardedStore, call: calls.Call) -> calls.JsonResponse:
    """The changes after a number, for auditors."""
    _check_auditor(guarded, call.user)
    text = call.query.get("after", "0")
    if not text.isdecimal() or not text.isascii() or len(text) > 18:
        raise calls.Malformed("`after` is the number of a change")
    entries = guarded.store.log(int(text), MOST_LISTED)
    return 200, {"entries": [entry.to_json() for entry in entries]}


def page(guarded: GuardedStore, user: str) -> str:
    """The newest changes as an HTML page, for auditors."""
    _check_auditor(guarded, user)
    store = guarded.store
    entries = store.log(max(0, store.head().number - MOST_LISTED))
    return journal_page(entries, store.system, store.database.shown)


def _check_auditor(guarded: GuardedStore, user: str) -> None:
    if user not in guarded.auditors:
        raise HttpError(403, f"user:{user} is no auditor: `privtab serve store:STORE --auditor` names them")


def plugin_routes(name: str, server: StoreServer) -> list[Route]:
    """The endpoints of an API by its name, which its module's `routes` gives for a server. Raises UsageError if there is none, or if it does not fit the policy."""
    names = plugin_names("privtab.store_apis")
    if name not in names:
        raise UsageError(f"unknown API `{name}`; there are: {', '.join(names)}")
    found: list[Route] = load_plugin("privtab.store_apis", name).routes(server)
    return found
