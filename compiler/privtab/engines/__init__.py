"""The engine in process: it runs the program of a policy bundle over the index of a state bundle, without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import face

if TYPE_CHECKING:
    from privtab.engines.arrays import Arrays
    from privtab.engines.batches import Batches
    from privtab.engines.build_arrays import arrays_of_tables
    from privtab.engines.columns import GivenColumns, Unevaluated, distinct_requests
    from privtab.engines.conditions import Atom, AtomWord, Condition, ConditionReader
    from privtab.engines.index import Index, combined_document, require_kept
    from privtab.engines.lookups import TextDictionary
    from privtab.engines.opa.server import OpaServer
    from privtab.engines.plan import FormPlan
    from privtab.engines.python import OpenEngine, Opener, PythonEngine, WindowedIndex
    from privtab.engines.rows import RowEngine
else:
    __getattr__, __dir__, __all__ = face(
        __name__,
        {
            "arrays": "Arrays",
            "batches": "Batches",
            "build_arrays": "arrays_of_tables",
            "columns": "GivenColumns Unevaluated distinct_requests",
            "conditions": "Atom AtomWord Condition ConditionReader",
            "index": "Index combined_document require_kept",
            "lookups": "TextDictionary",
            "opa.server": "OpaServer",
            "plan": "FormPlan",
            "python": "OpenEngine Opener PythonEngine WindowedIndex",
            "rows": "RowEngine",
        },
    )
