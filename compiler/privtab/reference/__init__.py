"""The reference engine: the semantics of policies as plain code, the oracle for every other engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import face

if TYPE_CHECKING:
    from privtab.reference.evaluate import EvaluationContext, Reference, Source
else:
    __getattr__, __dir__, __all__ = face(__name__)
