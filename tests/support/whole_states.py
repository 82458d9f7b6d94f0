"""A state from its shards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privtab.base.moments import WINDOWED
from privtab.engines.index import combined_document
from privtab.state.index import stamped
from privtab.state.shards import content


def merged(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The index of which these are all parts, by key, with the revision that it has when it is not in parts."""
    document, missing = combined_document(content(key, part) for key, part in parts.items())
    assert not missing
    document.get(WINDOWED, document).pop("revision")
    return stamped(document)
