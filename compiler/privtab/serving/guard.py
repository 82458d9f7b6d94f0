"""Authorize requests by bearer tokens before reading their bodies."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from starlette.requests import Request

from privtab.serving.access_log import note
from privtab.serving.tokens import Bearer, Tokens


class HttpError(Exception):
    """An error answer: a status, a message and headers."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def authorize(tokens: Tokens | None, scope: StrEnum, request: Request) -> Bearer | None:
    """The bearer of the request's token; raises HttpError unless it has the scope. None if the server has no tokens."""
    sent = request.headers.getlist("authorization")
    if len(sent) > 1:  # a proxy may have checked another one than the server would
        raise HttpError(400, "a request has one `Authorization` header")
    if tokens is None:
        return None
    kind, _, token = "".join(sent).partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise HttpError(401, "a bearer token is needed", WWW_Authenticate='Bearer realm="privtab"')
    bearer = tokens.find(token.strip())
    if bearer is None:
        challenge = 'Bearer realm="privtab", error="invalid_token"'
        raise HttpError(401, "the bearer token is not known", WWW_Authenticate=challenge)
    note(request.scope, None, caller=bearer.name)
    if scope not in bearer.scopes:
        challenge = f'Bearer realm="privtab", error="insufficient_scope", scope="{scope}"'
        raise HttpError(403, f"the bearer token is not good for `{scope}`", WWW_Authenticate=challenge)
    return bearer


def check_binding(tokens: Tokens | None, bearer: Bearer | None, instance: str, labels: Mapping[str, str]) -> None:
    """Raise Refused for a sidecar with a token bound to another one, or with a name bound to another token."""
    if tokens is None or bearer is None:
        return
    stated = f"and the request says `{instance}`" if instance else "and the request has no `X-Privtab-Instance`"
    if bearer.instance and not bearer.is_for(instance):
        raise HttpError(403, f"the bearer token is for the sidecar `{bearer.instance}`, {stated}")
    if not bearer.instance and instance and tokens.bound(instance):
        raise HttpError(403, f"`{instance}` is a sidecar with its own bearer token, and this is another one")
    mismatched = {name: value for name, value in bearer.labels.items() if labels.get(name) != value}
    if mismatched:
        shown = ",".join(f"{name}={value}" for name, value in mismatched.items())
        raise HttpError(403, f"the bearer token is for sidecars with the labels `{shown}`")
