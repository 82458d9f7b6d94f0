"""The index of a state, as OPA holds it: a document in which every query is a look-up by key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from privtab.base.collection import no_collection
from privtab.base.moments import WINDOWED
from privtab.ir.formula import uses_below
from privtab.ir.nodes import Program
from privtab.state import attribute_rows, row_index
from privtab.state.links import with_derived_rows
from privtab.state.names import kept_part
from privtab.state.nodes import State


def index_document(program: Program, state: State) -> dict[str, Any]:
    """The document below `data.privtab_state.<system>`; the same rows in any order give the same document.

    `revision` is the hash of everything else. Parts that the policy does not use are empty maps.

    A role that is held within a scope becomes a principal of its own, `scoped:[scope, role]`. Its grants are entered where
    they take effect: at their entity if that lies in the scope, at the scope if their entity contains it. So an engine looks up
    a user's principals without checking scopes. Such an entry lists the entities that the rows name.

        index = Index(index_document(program, state))
    """
    parts = parts_of(program, state)
    found: dict[str, Any] = stamped(parts) if _are_maps(parts) else json.loads(stamped_bytes(parts)[1])
    return found


def index_bytes(program: Program, state: State) -> tuple[str, bytes]:
    """The revision of a state's index, and the index as JSON: keys sorted, no spaces, UTF-8; serialised once for both.

    For example:

        revision, content = index_bytes(program, state)
    """
    return stamped_bytes(parts_of(program, state))


def without_revision(program: Program, state: State) -> dict[str, Any]:
    """The index without its revision, which is the hash of this."""
    parts = parts_of(program, state)
    if _are_maps(parts):
        return parts
    return {name: json.loads(b"".join(_json(parts[name]))) for name in sorted(parts)}


def parts_of(program: Program, state: State) -> dict[str, Any]:
    """The parts of the index of a state, without its revision; those of coded columns are columns, too (`large_index.Part`)."""
    state = with_derived_rows(program, state)
    with no_collection():
        if not by_columns(program, state):
            return row_index.row_index_document(program, state)
        from privtab.state.large_index import coded_parts

        further = row_index.brought_part(program, state) | attribute_rows.attribute_parts(program, state)
        return coded_parts(program, state) | further | kept_part(program, state)


def _are_maps(parts: Mapping[str, Any]) -> bool:
    return all(isinstance(part, Mapping) for part in parts.values())


def by_columns(program: Program, state: State) -> bool:
    """Whether the index of a state is made from its columns: it has them, and no part of the index needs rows."""
    return state.coded and not (state.windows or uses_below(program) or program.flat)


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
    """The pieces of a document, given those of its parts."""
    for number, part in enumerate(sorted(pieces)):
        yield f'{"," if number else "{"}"{part}":'.encode()
        yield from pieces[part]
    yield b"}"


def _hash(parts: Mapping[str, Any], pieces: Mapping[str, Sequence[bytes]]) -> str:
    """The hash is that of JSON in ASCII, which nearly all texts already are."""
    if not all(piece.isascii() and b"\x7f" not in piece for own in pieces.values() for piece in own):
        pieces = _pieces(parts, ascii_only=True)
    found = hashlib.sha256()
    for piece in _document(pieces):
        found.update(piece)
    return found.hexdigest()[:16]
