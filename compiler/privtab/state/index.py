"""The index of a state, as OPA holds it: a document in which every query is a look-up by key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from privtab._collection import no_collection
from privtab.ir.formula import uses_below
from privtab.ir.nodes import Program
from privtab.moments import WINDOWED
from privtab.state import attribute_rows, roles_of_roles, row_index
from privtab.state.hierarchy import closed
from privtab.state.nodes import State


def index(program: Program, state: State) -> dict[str, Any]:
    """The document below `data.privtab_state.<system>`; the same rows in any order give the same document.

    `revision` is the hash of everything else. Parts that the policy does not use are empty maps.

    A role that is held within a scope becomes a principal of its own, `scoped:[scope, role]`. Its grants are entered where
    they take effect: at their entity if that lies in the scope, at the scope if their entity contains it. So an engine looks up
    a user's principals without checking scopes. Such an entry lists the entities that the rows name.
    """
    state = closed(program, state)
    if by_columns(program, state):
        document: dict[str, Any] = json.loads(index_bytes(program, state)[1])
        return document
    return stamped(without_revision(program, state))


def index_bytes(program: Program, state: State) -> tuple[str, bytes]:
    """The revision of a state's index, and the index as JSON: keys sorted, no spaces, UTF-8; serialised once for both."""
    state = closed(program, state)
    if not by_columns(program, state):
        return stamped_bytes(without_revision(program, state))
    from privtab.state import json_columns
    from privtab.state.large_index import coded_parts

    parts, within = coded_parts(program, state)
    return json_columns.stamped(
        {**parts, **roles_of_roles.part(program, state), **attribute_rows.part(program, state), "within": within}
    )


def by_columns(program: Program, state: State) -> bool:
    """Whether the index of a state is made from its columns: it has them, and no part of the index needs rows."""
    return state.has_columns and not (state.windows or uses_below(program) or program.flat)


def revision(document: Mapping[str, Any]) -> str:
    """The content hash of an index without its revision: 16 hexadecimal digits."""
    return _digest(JSON(document), document)


def stamped(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document with its revision, the hash of everything else in it; keys are sorted.

    The revision of a state with windows is beside what they concern.
    """
    if WINDOWED in document:
        parts = dict(document)
        parts[WINDOWED] = {"revision": revision(document), **parts[WINDOWED]}
        return {part: parts[part] for part in sorted(parts)}
    return {"revision": revision(document), **{part: document[part] for part in sorted(document)}}


def stamped_bytes(document: Mapping[str, Any]) -> tuple[str, bytes]:
    """The revision of a document without one, and the document with the revision, as JSON."""
    if WINDOWED in document:
        complete = stamped(document)
        return complete[WINDOWED]["revision"], JSON(complete).encode()
    texts = {part: f"{JSON(part)}:{JSON(document[part])}" for part in sorted(document)}
    found = _digest("{" + ",".join(texts.values()) + "}", document)
    texts["revision"] = f'"revision":"{found}"'
    return found, ("{" + ",".join(texts[part] for part in sorted(texts)) + "}").encode()


JSON = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
"""A document as text: keys sorted, no spaces."""


def _digest(text: str, document: Mapping[str, Any]) -> str:
    """The hash is that of JSON in ASCII, which nearly all texts already are."""
    if not text.isascii() or "\x7f" in text:
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def without_revision(program: Program, state: State) -> dict[str, Any]:
    """The index without its revision, which is the hash of this."""
    state = closed(program, state)
    with no_collection():
        if by_columns(program, state):
            document: dict[str, Any] = json.loads(index_bytes(program, state)[1])
            return {part: value for part, value in document.items() if part != "revision"}
        return row_index.document(program, state)
