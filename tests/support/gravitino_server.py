"""A server of the tests with the REST API of Gravitino, as far as `examples/conform/gravitino.yaml` uses it; the table decides."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import unquote, urlsplit

from privtab.base.request import Entity, Request
from privtab.ir.nodes import Program
from privtab.reference.evaluate import Reference
from privtab.state.nodes import Grant, State

ADMIN = "gravitino"
TYPES = ("metalake", "catalog", "schema", "fileset")
WORDS = {"POST": "create", "PUT": "alter", "DELETE": "drop", "GET": "load"}


def error(status: int, code: int, kind: str, message: str) -> tuple[int, object]:
    """An answer as the ErrorModel of Gravitino's OpenAPI document."""
    return status, {"code": code, "type": kind, "message": message, "stack": []}


class Gravitino:
    """What the server holds. `lax`: rows that it does not check; `crashing`: rows that it answers with 500."""

    def __init__(
        self, program: Program, lax: frozenset[str] = frozenset(), crashing: frozenset[str] = frozenset()
    ) -> None:
        self.program, self.lax, self.crashing = program, lax, crashing
        self.entities: set[Entity] = set()
        self.users: set[tuple[str, str]] = set()
        self.roles: set[tuple[str, str]] = set()
        self.held: set[tuple[str, str, str]] = set()
        self.grants: list[tuple[str, Grant]] = []
        self.owners: dict[Entity, str] = {}
        self._reference: Reference | None = None

    def reference(self) -> Reference:
        if self._reference is None:
            grants = (
                Grant(grantee=f"user:{user}", effect=grant.effect, privilege=grant.privilege, entity=grant.entity)
                for role, grant in self.grants
                for metalake, user, held_role in self.held
                if held_role == role and metalake == grant.entity.names[0]
            )
            self._reference = Reference(
                self.program,
                State(
                    members=tuple((user, Entity("metalake", metalake)) for metalake, user in sorted(self.users)),
                    grants=tuple(dict.fromkeys(grants)),
                    owners=tuple((entity, f"user:{owner}") for entity, owner in self.owners.items()),
                    service_admins=(ADMIN,),
                ),
            )
        return self._reference

    def answer(self, method: str, path: str, user: str, body: dict[str, object]) -> tuple[int, object]:
        names = [unquote(part) for part in urlsplit(path).path.removeprefix("/api/metalakes").split("/") if part]
        if user == ADMIN:
            self._reference = None
        if len(names) > 1 and names[1] in ("users", "roles", "permissions", "owners") and user == ADMIN:
            return self.prepared(names, body)
        operation, entity, listed = self.parsed_request(method, names, body)
        row = f"{entity.type}/{operation}"
        if user != ADMIN:
            if row in self.crashing:
                return error(500, 1002, "RuntimeException", "Internal Server Error")
            call = Request(user=user, action=operation, resource=entity)
            if row not in self.lax and not self.reference().decide(call).allowed:
                return error(403, 1008, "ForbiddenException", f"User '{user}' is not authorized to perform {operation}")
        if listed:
            depth = len(entity.names) + 1
            shown = [
                item.names[-1]
                for item in self.entities
                if item.type == entity.type and item.names[: depth - 1] == entity.names and len(item.names) == depth
                and (row in self.lax or self.reference().decide(Request(user=user, action="list", resource=item)).allowed)
            ]  # fmt: skip
            found = [{"namespace": list(entity.names), "name": name} for name in shown]
            return 200, {"code": 0, "names": shown} if entity.type == "tag" else {"code": 0, "identifiers": found}
        if operation != "create" and entity not in self.entities:
            return error(404, 1003, "NoSuchMetadataObjectException", f"{entity} does not exist")
        if operation == "create":
            self.entities.add(entity)
        elif operation in ("drop", "delete"):
            self.entities = {e for e in self.entities if e.names[: len(entity.names)] != entity.names}
        elif operation == "set_owner":
            self.owners[entity] = user
            self._reference = None
        return 200, {"code": 0}

    def parsed_request(self, method: str, names: list[str], body: dict[str, object]) -> tuple[str, Entity, bool]:
        """The operation, its entity, and whether it lists."""
        if len(names) == 4 and names[1] == "owners":
            return "set_owner", self.named(names[0], names[2], names[3]), False
        if not names:
            return "create", Entity("metalake", str(body["name"])), False
        if names[-1] == "files":
            return "list_files", Entity("fileset", "/".join([names[0], *names[2:-1:2]])), False
        plural = names[-1] in ("catalogs", "schemas", "filesets", "tags") and len(names) % 2 == 0
        type_ = names[-1 if plural else -2].removesuffix("s") if len(names) > 1 else "metalake"
        path = [*names[:1], *names[2::2]]
        if method == "POST":
            return "create", Entity(type_, "/".join([*path, str(body["name"])])), False
        if plural:
            return "list", Entity(type_, "/".join(path)), True
        word = {"GET": "get", "DELETE": "delete"}.get(method, WORDS[method]) if type_ == "tag" else WORDS[method]
        return word, Entity(type_, "/".join(path)), False

    def named(self, metalake: str, type_: str, full_name: str) -> Entity:
        names = [] if type_ == "METALAKE" else full_name.split(".")
        return Entity(type_.lower(), "/".join([metalake, *names]))

    def prepared(self, names: list[str], body: dict[str, object]) -> tuple[int, object]:
        """Users, roles, grants and owners, which the administrator makes."""
        metalake, kind, *rest = names
        if kind in ("users", "roles"):
            known = self.users if kind == "users" else self.roles
            if (metalake, str(body["name"])) in known:
                return error(409, 1004, "UserAlreadyExistsException", "already exists")
            known.add((metalake, str(body["name"])))
        elif kind == "owners":
            if (metalake, str(body["name"])) not in self.users:
                return error(404, 1003, "NoSuchUserException", "no such user")
            self.owners[self.named(metalake, *rest)] = str(body["name"])
        elif rest[0] == "users":
            names_of_roles = body["roleNames"]
            assert isinstance(names_of_roles, list)
            assert (metalake, rest[1]) in self.users
            self.held |= {(metalake, rest[1], role) for role in names_of_roles if (metalake, role) in self.roles}
        else:
            _, role, type_, full_name, _ = rest
            if (metalake, role) not in self.roles:
                return error(404, 1003, "NoSuchRoleException", "no such role")
            privileges = body["privileges"]
            assert isinstance(privileges, list)
            for privilege in privileges:
                effect = {"ALLOW": "allow", "DENY": "deny"}[privilege["condition"]]
                entity = self.named(metalake, type_, full_name)
                grant = Grant(grantee=f"role:{role}", effect=effect, privilege=privilege["name"], entity=entity)  # type: ignore[arg-type]
                self.grants.append((role, grant))
        return 200, {"code": 0}


@contextmanager
def serving(system: Gravitino) -> Iterator[str]:
    """The address of a server."""
    lock = Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # headers and body in one packet

        def do(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            token = re.fullmatch("Basic (.*)", self.headers.get("Authorization", ""))
            assert token is not None
            with lock:
                user = b64decode(token[1]).decode().partition(":")[0]
                status, content = system.answer(self.command, self.path, user, body)
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.gravitino.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = do  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
