"""Import the state of another system in one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from privtab.base import Entity
from privtab.ir import Program
from privtab_connect.importing import answers, run
from privtab_connect.importing.document import load


def imported(
    program: Program,
    document: str,
    source: str,
    *,
    values: Mapping[str, str] | None = None,
    entities: Iterable[str | Entity] = (),
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> run.ImportResult:
    """Ask the system at `source` what the document asks; what the result lacks is for the caller to refuse.

    Raises UsageError for wrong arguments, FileError if the source does not answer.
    """
    known = [entity if isinstance(entity, Entity) else Entity.parse(entity) for entity in entities]
    read = load(document)
    with answers.opened(source, token=token, headers=headers) as system:
        return run.run(read, system, program, values=values, entities=known)
