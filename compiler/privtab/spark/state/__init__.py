"""States from any Spark source: read, validated, quarantined, indexed and bundled in shards."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privtab.spark.state.builder import build
    from privtab.spark.state.builds import Build, opened
    from privtab.spark.state.opening import import_state, state_tables
    from privtab.spark.state.read import Read, read_state
    from privtab.spark.state.tables import SparkState

_WHERE = {
    "Build": "privtab.spark.state.builds",
    "Read": "privtab.spark.state.read",
    "SparkState": "privtab.spark.state.tables",
    "build": "privtab.spark.state.builder",
    "import_state": "privtab.spark.state.opening",
    "opened": "privtab.spark.state.builds",
    "read_state": "privtab.spark.state.read",
    "state_tables": "privtab.spark.state.opening",
}

__all__ = [
    "Build",
    "Read",
    "SparkState",
    "build",
    "import_state",
    "opened",
    "read_state",
    "state_tables",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)
