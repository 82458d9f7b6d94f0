"""The engine in process: it runs the program of a policy bundle over the index of a state bundle, without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import face

if TYPE_CHECKING:
    from privtab.engines.arrays import Arrays
    from privtab.engines.batches import Batches
    from privtab.engines.build_arrays import arrays_of_tables
    from privtab.engines.columns import GivenColumns, Unevaluated, distinct_requests
    from privtab.engines.conditions import (
        AllOf,
        Atom,
        AtomWord,
        Condition,
        ConditionReader,
        RequestValues,
    )
    from privtab.engines.index import (
        OWNER_BIT,
        Index,
        combined_document,
        require_kept,
    )
    from privtab.engines.lookups import TextDictionary
    from privtab.engines.opa.server import OpaServer
    from privtab.engines.plan import FormPlan, named_prefix
    from privtab.engines.python import OpenEngine, Opener, PythonEngine, WindowedIndex
    from privtab.engines.rows import MinimalSets, RowEngine
else:
    __getattr__, __dir__, __all__ = face(
        __name__,
        {
            "arrays": "Arrays",
            "batches": "Batches",
            "build_arrays": "arrays_of_tables",
            "columns": "GivenColumns Unevaluated distinct_requests",
            "conditions": "AllOf Atom AtomWord Condition ConditionReader RequestValues",
            "index": "Index OWNER_BIT combined_document require_kept",
            "lookups": "TextDictionary",
            "opa.server": "OpaServer",
            "plan": "FormPlan named_prefix",
            "python": "OpenEngine Opener PythonEngine WindowedIndex",
            "rows": "MinimalSets RowEngine",
        },
    )
