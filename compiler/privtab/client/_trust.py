"""Which bundles an engine in process accepts: verification keys and protection against rollback."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from privtab.client._bundles import ReadBundle
from privtab.client._observe import LOG
from privtab.errors import FileError, SignatureRefused, UsageError
from privtab.keys import PEM
from privtab.signatures import Trust


class Trusted:
    """Public keys, in files or as text, and a scope. Changed files are read again; if that fails, the last keys remain."""

    def __init__(self, sources: Sequence[str], scope: str) -> None:
        self._sources = tuple(sources)
        self._scope = scope
        self._stamps = self._file_stamps()
        try:
            self._trust = Trust.of(self._sources, scope)
        except (FileError, UsageError) as error:
            raise UsageError(f"verification_key: {error}") from error

    def now(self) -> Trust:
        """The current keys."""
        stamps = self._file_stamps()
        if stamps != self._stamps:
            try:
                self._trust = Trust.of(self._sources, self._scope)
            except (FileError, UsageError) as error:
                LOG.warning("the verification keys were not read again, the last ones stay in force: %s", error)
            self._stamps = stamps
        return self._trust

    def _file_stamps(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(source) for source in self._sources]


class RollbackGuard:
    """Refuses signed bundles that are older than before: tracks the highest sequence of each policy and state."""

    def __init__(self) -> None:
        self._highest: dict[tuple[str, str], tuple[int, object]] = {}

    def check(self, bundles: Iterable[ReadBundle]) -> dict[tuple[str, str], tuple[int, object]]:
        """The argument for `keep` once these bundles are active; raises SignatureRefused if one is older than before."""
        highest = dict(self._highest)
        for bundle in bundles:
            signed = bundle.content.signed
            if signed is None:
                continue
            for key, revision in _revisions(bundle):
                before, known_revision = max(
                    highest.get(key, (-1, None)), self._other_layout(key), key=lambda found: found[0]
                )
                sequence = signed.sequence
                if before >= 0 and (
                    sequence is None or sequence < before or (sequence == before and known_revision != revision)
                ):
                    text = "no sequence" if sequence is None else f"the sequence {sequence}"
                    raise SignatureRefused(
                        f"the bundle {bundle.where} is refused: it is older than what runs: its signature has {text}, "
                        f"and that of the {key[0]} of `{key[1]}` was {before} before"
                    )
                if sequence is not None:
                    highest[key] = sequence, revision
        return highest

    def _other_layout(self, key: tuple[str, str]) -> tuple[int, object]:
        """The highest sequence of the same state in the other layout, whole or sharded.

        Otherwise switching the layout would let an older state return.
        """
        kind, name = key
        whole, slash, _ = name.partition("/")
        others = [(kind, whole)] if slash else [other for other in self._highest if other[1].startswith(f"{name}/")]
        sequences = [self._highest[other][0] for other in others if kind == "state" and other in self._highest]
        return max(sequences, default=-1), None

    def keep(self, highest: Mapping[tuple[str, str], tuple[int, object]]) -> None:
        """Remember the result of `check`."""
        self._highest = dict(highest)


def _revisions(bundle: ReadBundle) -> Iterable[tuple[tuple[str, str], Any]]:
    from privtab.engines.index import revisions

    for name, program in bundle.content.programs.items():
        yield ("policy", name), program.get("revision")
    for name, state in bundle.content.states.items():
        if (parts := revisions(state)) is not None:
            # Shards of a state are signed separately.
            yield from ((("state", f"{name}/{part}"), revision) for part, revision in parts.items())
            continue
        yield ("state", name), state.get("revision") if isinstance(state, dict) else getattr(state, "revision", None)


def _stamp(source: str) -> tuple[int, int, int] | None:
    if source.lstrip().startswith(PEM):
        return None
    try:
        status = Path(source).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
