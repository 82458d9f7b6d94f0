"""Guard services with decisions: a decorator and context managers here, web frameworks in separate modules.

`privtab.integrations.asgi`, `.wsgi`, `.fastapi` (needs FastAPI) and `.otel` (needs the extra `otel`).
"""

from __future__ import annotations

from privtab.integrations._answers import Caller, Tell, acting_as, caller, decision
from privtab.integrations._guard import GUARD, Guard

allowed = GUARD.allowed
bind = GUARD.bind
requires = GUARD.requires

__all__ = ["Caller", "Guard", "Tell", "acting_as", "allowed", "bind", "caller", "decision", "requires"]
