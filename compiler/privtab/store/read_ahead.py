"""Reads together what several requests look for, so that each costs no statement of its own."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from privtab.errors import InvalidRequest
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.request import Request
from privtab.store.excerpt import Excerpt
from privtab.store.lookups import Reader


def read_ahead(program: Program, reader: Reader, shown: str, requests: Iterable[Request]) -> None:
    """Read by few statements what `Excerpt.read_for` will look for, for each of some requests."""
    if program.flat:
        return  # Their keys depend on rows that requests before them may change.
    lookups: list[tuple[set[str], set[str]]] = []
    excerpt = Excerpt(program, reader, shown)
    for request in requests:
        with suppress(InvalidRequest):
            vocabulary(program).check(request)
            lookups.append(excerpt.keys_and_principals(request))
    if len(lookups) > 1:
        reader.prefetch("grants", [{"entity": sorted(e), "grantee": sorted(p)} for e, p in lookups])
        if program.semantics.owner is not None:
            reader.prefetch("owners", [{"entity": sorted(keys)} for keys, _ in lookups])
