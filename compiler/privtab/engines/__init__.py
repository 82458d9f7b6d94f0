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
        ALWAYS_TRUE,
        AllOf,
        Atom,
        AtomWord,
        Comparison,
        Condition,
        ConditionReader,
        RequestValues,
        condition_atoms,
        condition_places,
        fold_condition,
    )
    from privtab.engines.index import (
        OWNER_BIT,
        Index,
        PrivilegeNumbers,
        StatePart,
        combined_document,
        is_state_part,
        require_kept,
    )
    from privtab.engines.lookups import TextDictionary
    from privtab.engines.opa.server import OpaServer
    from privtab.engines.plan import FormPlan, GrantSemantics, named_prefix
    from privtab.engines.python import OpenEngine, Opener, PythonEngine, WindowedIndex, is_windowed
    from privtab.engines.rows import MinimalSets, Place, RowEngine
else:
    __getattr__, __dir__, __all__ = face(
        __name__,
        {
            "arrays": "Arrays",
            "batches": "Batches",
            "build_arrays": "arrays_of_tables",
            "columns": "GivenColumns Unevaluated distinct_requests",
            "conditions": "ALWAYS_TRUE AllOf Atom AtomWord Comparison Condition ConditionReader RequestValues condition_atoms condition_places fold_condition",
            "index": "Index OWNER_BIT PrivilegeNumbers StatePart combined_document is_state_part require_kept",
            "lookups": "TextDictionary",
            "opa.server": "OpaServer",
            "plan": "FormPlan GrantSemantics named_prefix",
            "python": "OpenEngine Opener PythonEngine WindowedIndex is_windowed",
            "rows": "MinimalSets Place RowEngine",
        },
    )
