"""privtab: privilege tables in, decisions out. The light front door: nothing beyond the standard library is imported here.

>>> from privtab import Client, Entity, Request
>>> Request(user="alice", action="load", resource=Entity.parse("table:m/c/s/t")).to_json()["resource"]
{'type': 'table', 'id': 'm/c/s/t'}
"""

from __future__ import annotations

from privtab.client import Client
from privtab.errors import (
    AccessDenied,
    DecisionError,
    DecisionUnavailable,
    InvalidRequest,
    PolicyError,
    PrivtabError,
    UsageError,
)
from privtab.request import Decision, Entity, Request

__version__ = "0.1.0"

__all__ = [
    "AccessDenied",
    "Client",
    "Decision",
    "DecisionError",
    "DecisionUnavailable",
    "Entity",
    "InvalidRequest",
    "PolicyError",
    "PrivtabError",
    "Request",
    "UsageError",
    "__version__",
]
