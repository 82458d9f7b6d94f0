"""Protection against rollback: an engine in process refuses bundles that are older than what it has run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from privtab import strict_json
from privtab._staged import locked, write
from privtab.client._bundles import ReadBundle
from privtab.errors import BundleWriteError, FileError, SignatureRefused

Sequences: TypeAlias = Mapping[tuple[str, str], tuple[int, object]]
"""The highest sequence and its revision, by kind and name of a policy or a state."""


class RollbackGuard:
    """Refuses signed bundles that are older than before: tracks the highest sequence of each policy and state.

    `least`: the lowest sequence of all. `file`: keeps the highest ones for later processes, and others that run.
    """

    def __init__(self, least: int | None = None, file: str | None = None) -> None:
        self._least = least
        self._file = None if file is None else Path(file)
        self._highest: Sequences = {}

    def __getstate__(self) -> dict[str, Any]:
        """The sequences without the file: another process may run on another machine."""
        return {**self.__dict__, "_file": None}

    def check(self, bundles: Iterable[ReadBundle]) -> Sequences:
        """The argument for `keep` before these bundles are active.

        Raises SignatureRefused if one is older than before, FileError if the file cannot be read.
        """
        highest = dict(self._known(self._highest))
        for bundle in bundles:
            signed = bundle.content.signed
            if signed is None:
                continue
            sequence = signed.sequence
            if self._least is not None and (sequence is None or sequence < self._least):
                text = "no sequence" if sequence is None else f"the sequence {sequence}"
                raise SignatureRefused(
                    f"the bundle {bundle.where} is refused: its signature has {text}, and min_sequence is {self._least}"
                )
            for key, revision in _revisions(bundle):
                before, known_revision = max(
                    highest.get(key, (-1, None)), _other_layout(highest, key), key=lambda found: found[0]
                )
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

    def keep(self, highest: Sequences) -> None:
        """Remember the result of `check`. Raises FileError if the file cannot be written."""
        if self._file is not None:
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                with locked(self._file.parent):
                    if (known := self._known(highest)) != self._known({}):
                        write(self._file, _text(known))
            except (OSError, BundleWriteError) as error:
                raise FileError(f"sequence_file: {error}") from error
        self._highest = dict(highest)

    def _known(self, highest: Sequences) -> Sequences:
        """The highest of these sequences and of those in the file."""
        known = dict(highest)
        for key, found in _read(self._file).items() if self._file is not None else ():
            known[key] = max(known.get(key, found), found, key=lambda entry: entry[0])
        return known


def _read(file: Path) -> Sequences:
    try:
        document = strict_json.loads(file.read_bytes())
        return {
            (kind, name): (_number(sequence), revision)
            for kind, names in document.items()
            for name, (sequence, revision) in names.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise FileError(f"sequence_file: {file} cannot be read: {error}") from error


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"`{value}` is no sequence")
    return value


def _text(highest: Sequences) -> bytes:
    document: dict[str, dict[str, tuple[int, object]]] = {}
    for (kind, name), found in sorted(highest.items()):
        document.setdefault(kind, {})[name] = found
    return (json.dumps(document, indent=1) + "\n").encode()


def _other_layout(highest: Sequences, key: tuple[str, str]) -> tuple[int, object]:
    """The highest sequence of the same state in the other layout, whole or sharded.

    Otherwise switching the layout would let an older state return.
    """
    kind, name = key
    whole, slash, _ = name.partition("/")
    others = [(kind, whole)] if slash else [other for other in highest if other[1].startswith(f"{name}/")]
    sequences = [highest[other][0] for other in others if kind == "state" and other in highest]
    return max(sequences, default=-1), None


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
