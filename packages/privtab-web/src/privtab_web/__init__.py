"""Guard services with decisions: a decorator and context managers here, web frameworks in separate modules.

`privtab_web.asgi`, `.wsgi`, `.fastapi` (needs FastAPI) and `.otel` (needs the extra `otel`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base import face

if TYPE_CHECKING:
    from privtab_web._answers import Caller, Tell, acting_as, caller, decision
    from privtab_web._guard import Guard, allowed, bind, requires
else:
    __getattr__, __dir__, __all__ = face(__name__)
