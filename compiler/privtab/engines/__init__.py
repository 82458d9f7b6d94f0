"""The engine in process: it runs the program of a policy bundle over the index of a state bundle, without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import face

if TYPE_CHECKING:
    from privtab.engines.batches import Batches
    from privtab.engines.columns import GivenColumns, Unevaluated
    from privtab.engines.conditions import Atom, Condition
    from privtab.engines.index import Index, combined_document, require_kept
    from privtab.engines.lookups import TextDictionary
    from privtab.engines.opa.server import OpaServer
    from privtab.engines.python import OpenEngine, Opener
    from privtab.engines.rows import RowEngine
else:
    __getattr__, __dir__, __all__ = face(__name__)
