"""The state of another system, by the import documents of `privtab state import`, for jobs on Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from privtab._deprecation import renamed_keyword
from privtab._install import how_to_install
from privtab.errors import StateInvalid, UsageError
from privtab.request import Entity
from privtab.spark.state.checked import DENIES, program_of

if TYPE_CHECKING:
    from privtab.importing.run import ImportResult


@renamed_keyword("given", "values")
def import_state(
    policy: object,
    document: str,
    source: str,
    *,
    values: Mapping[str, str] | None = None,
    entities: Iterable[str | Entity] = (),
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    strict: bool = False,
    allow_partial: bool = False,
    accept: Collection[str] = (),
) -> ImportResult:
    """Import the state of another system on the driver; its `state` is accepted wherever a state is.

    `document`: the name of a shipped import document (`postgresql`, `ranger`, …) or the path of one. `source`: the URL of the system or
    of its database, or a file or folder of saved answers. `values`: those that the document needs, by name (`--set`). `entities`: those that
    wildcards stand for. `accept`: names, in the result, of things that the state may lack. The result also says what was taken, what was
    translated, and what a state cannot express.

    Raises StateInvalid if something that denies or narrows could be lost (unless `allow_partial`) or, if `strict`, if there is anything that a state cannot
    express; UsageError for wrong arguments; FileError if the source does not answer.
    """
    try:
        from privtab.importing import answers, run
        from privtab.importing.document import load
    except ImportError as error:
        raise UsageError(f"`import_state` needs {error.name}: {how_to_install('import')}") from error
    program = program_of(policy)
    known = [entity if isinstance(entity, Entity) else Entity.parse(entity) for entity in entities]
    read = load(document)
    with answers.opened(source, token=token, headers=headers) as system:
        found = run.run(read, system, program, values=values, entities=known)
    if refused := found.refused(strict=strict, allow_partial=allow_partial, accept=accept):
        raise StateInvalid(refused, "`strict` accepts none" if strict else DENIES)
    return found
