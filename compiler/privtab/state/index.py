"""The index of a state, as OPA holds it: a document in which every query is a look-up by key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from privtab.base.caching import no_collection
from privtab.base.moments import WINDOWED
from privtab.ir.formula import uses_below
from privtab.ir.nodes import Program
from privtab.state.index_parts import IndexParts
from privtab.state.nodes import State
from privtab.state.row_index import RowIndex


def index_document(program: Program, state: State, *, excerpt: bool = False) -> dict[str, Any]:
    """The document below `data.privtab_state.<system>`; the same rows in any order give the same document.

    `revision` is the hash of everything else; that of an `excerpt`, a few rows of a state, is empty. Parts that the policy does not
    use are empty maps.

    A role that is held within a scope becomes a principal of its own, `scoped:[scope, role]`. Its grants are entered where
    they take effect: at their entity if that lies in the scope, at the scope if their entity contains it. So an engine looks up
    a user's principals without checking scopes. Such an entry lists the entities that the rows name.

        index = Index(index_document(program, state))
    """
    with no_collection():
        if excerpt:
            return {"revision": "", **RowIndex(program, state).whole()}
        parts = index_parts(program, state)
        document = parts.whole()
    found: dict[str, Any] = stamped(document) if isinstance(parts, RowIndex) else json.loads(stamped_bytes(document)[1])
    return found


def index_bytes(program: Program, state: State) -> tuple[str, bytes]:
    """The revision of a state's index, and the index as JSON: keys sorted, no spaces, UTF-8; serialised once for both.

    For example:

        revision, content = index_bytes(program, state)
    """
    with no_collection():
        return stamped_bytes(index_parts(program, state).whole())


def without_revision(program: Program, state: State) -> dict[str, Any]:
    """The index without its revision, which is the hash of this."""
    with no_collection():
        parts = index_parts(program, state)
        document = parts.whole()
    if isinstance(parts, RowIndex):
        return document
    return {name: json.loads(b"".join(_json(document[name]))) for name in sorted(document)}


def index_parts(program: Program, state: State) -> IndexParts:
    """The parts of the index of a state, made from its columns if it has them and no part needs rows."""
    if not state.coded or state.windows or uses_below(program) or program.flat:
        return RowIndex(program, state)
    from privtab.state.large_index import ColumnIndex

    return ColumnIndex(program, state)


def revision(document: Mapping[str, Any]) -> str:
    """The content hash of an index without its revision: 16 hexadecimal digits."""
    return _hash(document, _pieces(document))


def stamped(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document with its revision, the hash of everything else in it; keys are sorted.

    The revision of a state with windows is beside what they concern.
    """
    if WINDOWED in document:
        parts = dict(document)
        parts[WINDOWED] = {"revision": revision(document), **parts[WINDOWED]}
        return {part: parts[part] for part in sorted(parts)}
    return {"revision": revision(document), **{part: document[part] for part in sorted(document)}}


def stamped_bytes(parts: Mapping[str, Any]) -> tuple[str, bytes]:
    """The revision of a document without one, given its parts, and the document with the revision, as JSON."""
    if WINDOWED in parts:
        complete = stamped(parts)
        return complete[WINDOWED]["revision"], JSON(complete).encode()
    pieces = _pieces(parts)
    found = _hash(parts, pieces)
    return found, b"".join(_document(pieces | {"revision": [JSON(found).encode()]}))


JSON = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
"""A document as text: keys sorted, no spaces."""
_ASCII = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False).encode


def _pieces(parts: Mapping[str, Any], *, ascii_only: bool = False) -> dict[str, list[bytes]]:
    """The JSON of each part, in pieces."""
    return {name: _json(part, ascii_only=ascii_only) for name, part in parts.items()}


def _json(part: Any, *, ascii_only: bool = False) -> list[bytes]:
    if hasattr(part, "json"):
        return list(part.json(ascii_only=ascii_only))
    return [(_ASCII if ascii_only else JSON)(part).encode()]


def _document(pieces: Mapping[str, Sequence[bytes]]) -> Iterator[bytes]:
    """The pieces of a document, given the pieces of its parts."""
    for number, part in enumerate(sorted(pieces)):
        yield f'{"," if number else "{"}"{part}":'.encode()
        yield from pieces[part]
    yield b"}"


def _hash(parts: Mapping[str, Any], pieces: Mapping[str, Sequence[bytes]]) -> str:
    """The hash is that of JSON in ASCII, which nearly all texts already are."""
    if not all(piece.isascii() and b"\x7f" not in piece for own in pieces.values() for piece in own):
        pieces = _pieces(parts, ascii_only=True)
    from hashlib import sha256

    found = sha256()
    for piece in _document(pieces):
        found.update(piece)
    return found.hexdigest()[:16]
