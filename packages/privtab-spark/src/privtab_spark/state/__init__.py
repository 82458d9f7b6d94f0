"""States from any Spark source: read, validated, quarantined, indexed and bundled in shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base import face

if TYPE_CHECKING:
    from privtab_spark.state.builder import build
    from privtab_spark.state.opening import import_state, state_tables
    from privtab_spark.state.read import Read, read_state
    from privtab_spark.state.tables import SparkState
    from privtab_spark.state.worker import Build, opened
else:
    __getattr__, __dir__, __all__ = face(__name__)
