"""A state, from whatever it is given as, made ready for the kernel on the driver."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privtab.engines.batches import Batches
from privtab.engines.index import Index, Numbers, Part, in_parts
from privtab.engines.python import PythonEngine
from privtab.errors import DecisionUnavailable, UsageError
from privtab.spark.policies import OpenPolicy
from privtab.spark.shipping import Packed
from privtab.state.nodes import TABLES, State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ARCHIVES = (".tar.gz", ".tgz")
REMEMBERED = 2
"""States that stay packed on the driver, for the next call with the same."""

_known: list[tuple[object, Any, Any]] = []
"""(what it is known by, the state, what was made of it), the last used at the end."""
_lock = threading.Lock()


def is_bundle(state: Any) -> bool:
    """Whether a state is given as the path or the address of a bundle, or as a folder with bundles: the parts of a state."""
    if not isinstance(state, str | os.PathLike):
        return False
    if is_address(state):
        return True
    path = Path(state)
    if path.is_dir():
        return (path / ".manifest").is_file() or any(file.name.endswith(_ARCHIVES) for file in path.iterdir())
    return path.name.endswith(_ARCHIVES)


def is_address(state: str | os.PathLike[str]) -> bool:
    """Whether a state is the address of a bundle."""
    return str(state).startswith(("http://", "https://"))


def counted(policy: OpenPolicy, state: Any, spark: SparkSession) -> Mapping[str, int]:
    """How many rows each table of a state has."""
    rows = opened(policy, state, spark)
    if isinstance(rows, State):
        return {table: len(getattr(rows, table)) for table in TABLES}
    counts: Mapping[str, int] = rows.counts()
    return counts


def prepared(policy: OpenPolicy, state: Any, spark: SparkSession) -> Packed:
    """A state packed with its policy; made once for as long as it is asked for again and again."""
    key = ("packed", policy.digest, *mark(state))
    packed: Packed = _remembered(key, state, lambda: _packed(policy, state, spark))
    return packed


def spark_state(policy: OpenPolicy, state: Any, spark: SparkSession) -> Any:
    """The state as tables of Spark."""
    from privtab.spark.state.tables import SparkState

    key = ("tables", policy.digest, id(spark), *mark(state))
    # The session is kept as well: another one may not come to be known by its number.
    return _remembered(key, (state, spark), lambda: SparkState.of(spark, policy, state))


def index_of(policy: OpenPolicy, state: Any, spark: SparkSession | None = None) -> Index:
    """The index of a state on the driver."""
    from privtab.state.index import index

    if is_bundle(state):
        return bundled(policy, os.fspath(state))
    rows = opened(policy, state, spark)
    if not isinstance(rows, State):
        # The caller wants it here, or it was found to be small enough.
        rows = rows.local(1 << 40)
    return Index(index(_program(policy), rows))


def _packed(policy: OpenPolicy, state: Any, spark: SparkSession) -> Packed:
    return Packed.of(Batches(PythonEngine(policy.json, whole(index_of(policy, state, spark)))))


def _program(policy: OpenPolicy) -> Any:
    from privtab.spark.state.checked import program_of

    return program_of(policy)


def opened(policy: OpenPolicy, state: Any, spark: SparkSession | None) -> Any:
    """A State that is here, or a SparkState."""
    if state is None:
        raise UsageError("there is no state: give rows, a path, a bundle or tables of Spark")
    if isinstance(state, State):
        return state
    if isinstance(state, str | os.PathLike) and not (Path(state) / "_MANIFEST.json").is_file():
        from privtab.spark.state.checked import checked_rows

        key = ("rows", policy.digest, *mark(state))
        return _remembered(key, state, lambda: checked_rows(_program(policy), Path(state)))
    if spark is None:
        raise UsageError(
            f"a {type(state).__name__} is a state that Spark reads, and there is no session: make one, or give it as `spark=`"
        )
    return spark_state(policy, state, spark)


def _remembered(key: tuple[object, ...], state: Any, make: Any) -> Any:
    with _lock:
        for at, (known, _, made) in enumerate(_known):
            if known == key:
                _known.append(_known.pop(at))
                return made
    made = make()
    with _lock:
        _known.append((key, state, made))
        of_kind = [entry for entry in _known if entry[0][0] == key[0]]  # type: ignore[index]
        if len(of_kind) > REMEMBERED:
            _known.remove(of_kind[0])
    return made


def mark(state: Any) -> tuple[object, ...]:
    """What a state is known by: files by name and age, anything else by being the same object, which is kept meanwhile.

    An address is never known: only its server can tell.
    """
    if not isinstance(state, str | os.PathLike):
        return (id(state),)
    if is_address(state):
        return (state, object())
    path = Path(state)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return (
        str(path.absolute()),
        *(
            (str(f), s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_size)
            for f in files
            if f.is_file()
            for s in [f.stat()]
        ),
    )


def forgotten(state: Any) -> None:
    """Let go of what was made of a state that nobody gives again."""
    from privtab.spark.joins.prepare import forget

    with _lock:
        made = [
            entry for entry in _known if entry[1] is state or (isinstance(entry[1], tuple) and entry[1][0] is state)
        ]
        _known[:] = [entry for entry in _known if all(entry is not one for one in made)]
    for tables in (state, *(entry[2] for entry in made)):
        forget(tables)


def whole(index: Index) -> Index:
    """The index; raises DecisionUnavailable where shards are missing: of what lies there nobody can tell."""
    if index.missing:
        raise lacking(index.missing)
    return index


def lacking(roots: Collection[str]) -> DecisionUnavailable:
    """What is raised where shards of a state are missing."""
    named = ", ".join(f"`{root}`" for root in sorted(roots)[:3])
    return DecisionUnavailable(
        f"the state is not whole: {len(roots)} of its shards are not here, such as {named}", retry=False
    )


def rows_of_bundles(policy: OpenPolicy, where: str) -> State:
    """The rows behind a bundle, or behind those of a folder.

    Raises UsageError where none is of the policy's system, DecisionUnavailable where shards are missing.
    """
    from privtab.client import _config
    from privtab.client.embedded import _place
    from privtab.shard_names import shard_name
    from privtab.spark.state.bundles import from_index
    from privtab.state.shards import PEOPLE, merged

    bundled(policy, where)  # tells what is wrong
    bundles = _place(where, _config.resolve({})).read({}, lambda document: document)
    found = (bundle.content.states for bundle in bundles)
    documents: list[Mapping[str, Any]] = [states[policy.system] for states in found if policy.system in states]
    people = [document for document in documents if "shards" in document]
    if not people:
        return from_index(documents[0])
    shards = {name: shard for document in documents for name, shard in document.get("at", {}).items()}
    names = {root: shard_name(root) for root in people[0]["shards"]}
    if missing := [root for root, name in names.items() if name not in shards]:
        raise lacking(missing)
    return from_index(merged({PEOPLE: people[0], **{root: shards[name] for root, name in names.items()}}))


def bundled(policy: OpenPolicy, where: str) -> Index:
    """The index in a bundle, or in the bundles of a folder; raises UsageError where there is none of the policy's system."""
    from privtab.client import _config
    from privtab.client.embedded import _place

    numbers = Numbers()

    def keep(document: Mapping[str, Any]) -> Index | Part:
        return Part(document, numbers) if in_parts(document) else Index(document)

    states: dict[str, list[Any]] = {}
    for found in _place(where, _config.resolve({})).read({}, keep):
        for name, index in found.content.states.items():
            states.setdefault(name, []).append(index)
    of_system = states.get(policy.system)
    if not of_system:
        held = ", ".join(f"`{name}`" for name in sorted(states)) or "no state"
        raise UsageError(f"{where} holds {held}, and none of `{policy.system}`")
    one = [index for index in of_system if isinstance(index, Index)]
    if one and len(of_system) > 1:
        raise UsageError(f"{where} holds several states of `{policy.system}`: name one of them")
    return one[0] if one else Index.of(of_system)


def bundle_size(state: str | os.PathLike[str]) -> int:
    """Bytes of a bundle, or of those in a folder; 0 for one behind an address, whose size nobody knows beforehand."""
    path = Path(state)
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
