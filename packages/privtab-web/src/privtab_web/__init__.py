"""Guard services with decisions: a decorator and context managers here, web frameworks in separate modules.

`privtab_web.asgi`, `.wsgi`, `.fastapi` (needs FastAPI) and `.otel` (needs the extra `otel`).
"""

from __future__ import annotations

from privtab_web._answers import Caller, Tell, acting_as, caller, decision
from privtab_web._guard import GUARD, Guard

allowed = GUARD.allowed
bind = GUARD.bind
requires = GUARD.requires

__all__ = ["Caller", "Guard", "Tell", "acting_as", "allowed", "bind", "caller", "decision", "requires"]
