"""A driver of `privtab conform airflow/3.3`: a class, since Airflow takes all permissions of a role, and all roles of a user, in one call.

    privtab conform airflow/3.3 --driver airflow_driver:Driver --url http://127.0.0.1:8080 --set secret=FILE

`secret`: a file with `NAME:PASSWORD` of an administrator. Run it in the folder of this file, against a test server.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests

from privtab.base import Entity, Request
from privtab.ir import Rule
from privtab_testing.conform import SystemAnswer, World
from privtab_testing.conform.driver import Driver as BaseDriver
from privtab_testing.conform.driver import DriverError

READS = {
    "read_config": "/api/v2/config",
    "list_event_logs": "/api/v2/eventLogs",
    "list_import_errors": "/api/v2/importErrors",
    "list_assets": "/api/v2/assets",
    "list_asset_events": "/api/v2/assets/events",
    "list_providers": "/api/v2/providers",
    "list_pools": "/api/v2/pools",
    "list_variables": "/api/v2/variables",
    "list_connections": "/api/v2/connections",
    "list_users": "/auth/fab/v1/users",
    "list_roles": "/auth/fab/v1/roles",
    "health": "/api/v2/monitor/health",
    "version": "/api/v2/version",
}
"""The paths of the operations of the instance."""
RESOURCES = {"IMPORT_ERROR": "ImportError", "DAGS": "DAGs"}
"""The names of resources that are not those of privileges, written with capitals."""
SECONDS = 60


class Driver(BaseDriver):
    """Makes roles with their permissions, then users with their roles, and asks by the token of each user."""

    gives_attributes = False
    odd_names = False
    through_groups = False

    def __init__(self, url: str, secret: str) -> None:
        self._url = url.rstrip("/")
        self._session = requests.Session()
        name, _, password = Path(secret).read_text(encoding="utf-8").strip().partition(":")
        self._password = secrets.token_hex(16)
        self._tokens = {"": self._token(name, password)}
        self._made: list[str] = []

    def restores(self, rule: Rule) -> bool:
        """As BaseDriver.restores: what is changed is put back at once."""
        return rule.operation in ("update", "delete")

    def changes(self, rule: Rule) -> bool:
        """As BaseDriver.changes: what is created has a name of its own, and is removed at once."""
        return rule.operation == "create"

    def lacks(self, world: World, requests: Iterable[Request] = ()) -> Sequence[str]:
        """As BaseDriver.lacks: roles of roles and groups."""
        del requests
        return [
            f"{row.principal} cannot have roles"
            for row in world.state.assignments
            if not row.principal.startswith("user:")
        ]

    def prepare(self, world: World) -> None:
        """As BaseDriver.prepare."""
        permissions, roles = defaultdict(list), defaultdict(list)
        for grant in world.state.grants:
            permissions[grant.grantee.partition(":")[2]].append(grant.privilege)
        for row in world.state.assignments:
            roles[row.principal.partition(":")[2]].append(row.role)
        for entity in world.entities:
            if entity.names:
                self._make(*_of_entity(entity))
        for role in world.roles:
            actions = [_action(privilege) for privilege in dict.fromkeys(permissions[role])]
            self._make("/auth/fab/v1/roles", f"/{quote(role)}", {"name": role, "actions": actions})
        for user in world.users:
            body: dict[str, Any] = {
                "username": user,
                "email": f"{user}@localhost",
                "first_name": user,
                "last_name": user,
                "password": self._password,
            }
            body |= {"roles": [{"name": role} for role in dict.fromkeys(roles[user] or ["Public"])]}
            self._make("/auth/fab/v1/users", f"/{quote(user)}", body)

    def ask(self, request: Request) -> SystemAnswer:
        """As BaseDriver.ask."""
        entity, action = request.resource, request.action
        if request.user not in self._tokens:
            self._tokens[request.user] = self._token(request.user, self._password)
        if entity.type == "instance":
            return self._answer(self._send("GET", READS[action], user=request.user))
        folder, path, body = _of_entity(entity)
        if not entity.names[-1]:
            return SystemAnswer.UNSUPPORTED
        method = {"create": "POST", "get": "GET", "update": "PATCH", "delete": "DELETE"}[action]
        where = folder if action == "create" else folder + path
        answer = self._answer(
            self._send(method, where, body if method in ("POST", "PATCH") else None, user=request.user)
        )
        if answer is SystemAnswer.ALLOWED and action == "create":
            self._checked(self._send("DELETE", folder + path), "removed")
        if answer is SystemAnswer.ALLOWED and action == "delete":
            self._checked(self._send("POST", folder, body), "put back")
        return answer

    def clean(self) -> tuple[str, ...]:
        """As BaseDriver.clean."""
        left = []
        for where in reversed(self._made):
            status = self._send("DELETE", where).status_code
            left += [f"{where}: {status}"] if status not in (200, 204, 404) else []
        return tuple(left)

    def _make(self, folder: str, path: str, body: dict[str, Any]) -> None:
        self._checked(self._send("POST", folder, body), "made")
        self._made.append(folder + path)

    def _checked(self, answer: requests.Response, word: str) -> None:
        if answer.status_code not in (200, 201, 204):
            raise DriverError(f"{answer.url} cannot be {word}: {answer.status_code} {answer.text[:200]}")

    def _answer(self, answer: requests.Response) -> SystemAnswer:
        if answer.status_code in (401, 403):
            return SystemAnswer.REFUSED
        return SystemAnswer.ALLOWED if answer.status_code < 300 else SystemAnswer.BROKEN

    def _send(self, method: str, path: str, body: object = None, *, user: str = "") -> requests.Response:
        headers = {"Authorization": f"Bearer {self._tokens[user]}"}
        return self._session.request(method, self._url + path, json=body, headers=headers, timeout=SECONDS)

    def _token(self, name: str, password: str) -> str:
        given = {"username": name, "password": password}
        answer = self._session.post(f"{self._url}/auth/token", json=given, timeout=SECONDS)
        if answer.status_code not in (200, 201):
            raise DriverError(f"{self._url} gives no token to {name}: {answer.status_code}")
        return str(answer.json()["access_token"])


def _of_entity(entity: Entity) -> tuple[str, str, dict[str, Any]]:
    """The folder of an entity in the API, its path there, and the body that makes it."""
    name = entity.decoded_names[-1]
    bodies: dict[str, dict[str, Any]] = {
        "pool": {"name": name, "slots": 1, "include_deferred": False},
        "variable": {"key": name, "value": "1"},
        "connection": {"connection_id": name, "conn_type": "http"},
    }
    return f"/api/v2/{entity.type}s", f"/{quote(name)}", bodies[entity.type]


def _action(privilege: str) -> dict[str, Any]:
    """A permission as Airflow writes it: `Pools.can_read` of POOLS_CAN_READ."""
    resource, _, action = privilege.partition("_CAN_")
    name = RESOURCES.get(resource, resource.replace("_", " ").title())
    return {"action": {"name": f"can_{action.lower()}"}, "resource": {"name": name}}
