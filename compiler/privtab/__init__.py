"""privtab: privilege tables in, decisions out. Importing it loads nothing beyond the standard library.

>>> from privtab import Client, Entity, Request
>>> Request(user="alice", action="load", resource=Entity.parse("table:m/c/s/t")).to_json()["resource"]
{'type': 'table', 'id': 'm/c/s/t'}
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.errors import (
    AccessDenied,
    DecisionError,
    DecisionUnavailable,
    InvalidRequest,
    PolicyError,
    PrivtabError,
    UsageError,
)
from privtab.base.lazy import face
from privtab.base.request import Decision, Entity, Request

if TYPE_CHECKING:
    from privtab.client import AsyncClient, Client, Embedded, Mode, connect

__version__ = "0.1.0"

__all__ = [
    "AccessDenied",
    "AsyncClient",
    "Client",
    "Decision",
    "DecisionError",
    "DecisionUnavailable",
    "Embedded",
    "Entity",
    "InvalidRequest",
    "Mode",
    "PolicyError",
    "PrivtabError",
    "Request",
    "UsageError",
    "__version__",
    "connect",
]

__getattr__ = face(__name__, {"client": "AsyncClient Client Embedded Mode connect"})[0]


def __dir__() -> list[str]:
    return __all__
