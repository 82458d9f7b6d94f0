"""A state, from whatever it is given as, made ready for the kernel on the driver."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privtab.engines.batches import Batches
from privtab.engines.index import Index
from privtab.engines.python import PythonEngine
from privtab.errors import StateInvalid, UsageError
from privtab.spark.policies import OpenPolicy
from privtab.spark.shipping import Packed
from privtab.state.nodes import State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ARCHIVES = (".tar.gz", ".tgz")


def is_bundle(state: Any) -> bool:
    """Whether a state is given as a bundle's path."""
    if not isinstance(state, str | os.PathLike):
        return False
    return os.fspath(state).endswith(_ARCHIVES) or (Path(state) / ".manifest").is_file()


def prepared(policy: OpenPolicy, state: Any, spark: SparkSession | None = None) -> Packed:
    """A state packed with its policy."""
    del spark
    return Packed.of(Batches(PythonEngine(policy.json, index_of(policy, state))))


def index_of(policy: OpenPolicy, state: Any) -> Index:
    """The index of a state on the driver."""
    from privtab.state.index import index

    if is_bundle(state):
        return _bundled(policy, os.fspath(state))
    return Index(index(policy.checked("a state of rows"), rows_of(policy, state)))


def rows_of(policy: OpenPolicy, state: Any) -> State:
    """The checked rows of a state; raises StateInvalid where some are wrong."""
    if isinstance(state, State):
        return state
    from privtab.state.load import load
    from privtab.state.validate import validate

    rows, findings = validate(policy.checked("a state of rows"), load(Path(state)))
    errors = tuple(finding for finding in findings if finding.severity == "error")
    if errors:
        raise StateInvalid(errors)
    return rows


def _bundled(policy: OpenPolicy, where: str) -> Index:
    from privtab.client._bundles import LocalPlace

    states: dict[str, Index] = {
        name: index for found in LocalPlace(where).read({}, Index) for name, index in found.content.states.items()
    }
    if policy.system not in states:
        held = ", ".join(f"`{name}`" for name in sorted(states)) or "no state"
        raise UsageError(f"{where} holds {held}, and none of `{policy.system}`")
    return states[policy.system]
