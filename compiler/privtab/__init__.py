"""privtab: privilege tables in, decisions out. Importing it loads nothing beyond the standard library.

>>> from privtab import Client, Entity, Request
>>> Request(user="alice", action="load", resource=Entity.parse("table:m/c/s/t")).to_json()["resource"]
{'type': 'table', 'id': 'm/c/s/t'}
"""

from __future__ import annotations

from privtab.base.lazy import TYPE_CHECKING, face

__version__ = "0.1.0"

if TYPE_CHECKING:
    from privtab.base.errors import (
        DecisionError,
        DecisionUnavailable,
        InvalidRequest,
        PolicyError,
        PrivtabError,
        UsageError,
    )
    from privtab.base.request import AccessDenied, Decision, Entity, Request
    from privtab.client import AsyncClient, Client, Embedded, Mode, connect
else:
    __getattr__, __dir__, __all__ = face(__name__, "__version__")
