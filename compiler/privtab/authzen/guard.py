"""Who may ask: bearer tokens before anything of a request is read, and how a refusal is said."""

from __future__ import annotations

from enum import StrEnum

from starlette.requests import Request

from privtab.authzen.envelope import note
from privtab.authzen.tokens import Tokens


class Refused(Exception):
    """An answer that is no answer of the service: a status, a message and headers."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def authorize(tokens: Tokens | None, scope: StrEnum, request: Request) -> None:
    """Raise Refused unless the request shows a token that is good for this; without tokens anybody may."""
    if tokens is None:
        return
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise Refused(401, "a bearer token is needed", WWW_Authenticate='Bearer realm="privtab"')
    bearer = tokens.find(token.strip())
    if bearer is None:
        says = 'Bearer realm="privtab", error="invalid_token"'
        raise Refused(401, "the bearer token is not known", WWW_Authenticate=says)
    note(request.scope, None, caller=bearer.name)
    if scope not in bearer.scopes:
        says = f'Bearer realm="privtab", error="insufficient_scope", scope="{scope}"'
        raise Refused(403, f"the bearer token is not good for `{scope}`", WWW_Authenticate=says)
