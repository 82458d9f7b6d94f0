"""The REST API of Apache Gravitino for access control, and for creating what it controls, in front of a store.

Paths and payloads follow the Access Control pages of versions 1.1.0 to 1.3.0, and the client `apache-gravitino` 1.3.1. What describes an
object (type, columns, properties, comment) is kept in the journal; no decision reads it.
"""

from __future__ import annotations

from functools import partial
from urllib.parse import unquote

from starlette.routing import Route

from privtab import __version__
from privtab.base import AccessDenied, InvalidRequest, PrivtabError, StateInvalid, UsageError
from privtab_connect.apis.gravitino.answers import ApiRequest
from privtab_connect.apis.gravitino.objects import Named
from privtab_server.errors import StoreConflict
from privtab_server.serving.endpoint import HttpError
from privtab_server.store.server.app import StoreScope, StoreServer, route
from privtab_server.store.server.calls import Call, JsonResponse, NotFound

VERSION, PREFIX = "/api/version", "/api/metalakes"
MEDIA = "application/vnd.gravitino.v1+json"
_KINDS = {
    400: "IllegalArgumentException",
    403: "ForbiddenException",
    404: "NotFoundException",
    405: "UnsupportedOperationException",
}
_CODES = {400: 1001, 403: 1008, 404: 1003, 405: 1006}


def routes(server: StoreServer) -> list[Route]:
    """The endpoints. Raises UsageError unless the policy is of this system."""
    needed = {"metalake", "catalog", "schema", "user", "group", "role"}
    if not needed <= server.guarded.program.entities.keys():
        raise UsageError(f"the policy of {server.guarded.program.system} has no {', '.join(sorted(needed))}")
    return [
        route(server, VERSION, _version, StoreScope.READ, failed=failure, media=MEDIA),
        *(
            route(server, path, partial(_answer, method), scope, method, failed=failure, media=MEDIA)
            for path in (PREFIX, f"{PREFIX}/{{rest:path}}")
            for method, scope in (
                ("GET", StoreScope.READ),
                ("POST", StoreScope.WRITE),
                ("PUT", StoreScope.WRITE),
                ("PATCH", StoreScope.WRITE),
                ("DELETE", StoreScope.WRITE),
            )
        ),
    ]


def failure(error: PrivtabError | HttpError) -> JsonResponse:
    """The answer to an error, as the system's ErrorResponse."""
    match error:
        case HttpError():
            status = error.status
        case AccessDenied():
            status = 403
        case NotFound():
            status = 404
        case StoreConflict():
            status = 409
        case StateInvalid() | UsageError() | InvalidRequest():
            status = 400
        case _:
            status = 503
    kind = error.kind if isinstance(error, Named) else _KINDS.get(status, "RuntimeException")
    code = error.code if isinstance(error, Named) else _CODES.get(status, 1002)
    message = str(error) if status != 503 else "the store cannot be read or written at the moment"
    return status, {"code": code, "type": kind, "message": message, "stack": []}


def _version(server: StoreServer, call: Call) -> JsonResponse:
    """The version of the policy: clients refuse a server that is older than they are."""
    del call
    made = f"privtab {__version__}"
    return 200, {
        "code": 0,
        "version": {"version": server.guarded.program.version, "compileDate": made, "gitCommit": made},
    }


def _answer(method: str, server: StoreServer, call: Call) -> JsonResponse:
    try:
        names = [unquote(part, errors="strict") for part in call.raw_path.removeprefix(PREFIX).split("/") if part]
    except UnicodeDecodeError:
        raise UsageError("the path is not UTF-8") from None
    return 200, {"code": 0, **ApiRequest(server.guarded, call).answer(method, names)}
