"""States of other systems, imported now: `import:ranger:policies.json`, `import:gravitino?metalake=prod:https://…`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from privtab.base import StateInvalid, UsageError, count
from privtab.command import print_error
from privtab.state import StateFinding
from privtab_server.addresses import with_slashes

if TYPE_CHECKING:
    from privtab.ir import Program
    from privtab.state import RawState

_IMPORT = re.compile(r"import:(?P<document>[^:?]+)(?:\?(?P<values>[^:]*))?:(?P<source>.+)")


def rows(program: Program | None, location: str) -> RawState:
    """The rows that an import document gives of another system, now."""
    from privtab.state import from_tables
    from privtab_connect.importing.imported import imported

    found = _IMPORT.fullmatch(location)
    if found is None:
        raise UsageError(
            f"`{location}`: write import:DOCUMENT:SOURCE, as in import:ranger:policies.json, or "
            "import:gravitino?metalake=prod:https://gravitino.acme.example"
        )
    if program is None:
        raise UsageError(f"{location} is imported for a policy: give `--policy`")
    given = parse_qsl(found["values"] or "", keep_blank_values=True)
    values = {name: value for name, value in given if name != "accept"}
    accept = [value for name, value in given if name == "accept"]
    source = with_slashes(found["source"])
    result = imported(program, found["document"], source, values=values)
    if refused := result.refused(strict=False, allow_partial=False, accept=accept):
        raise StateInvalid(refused, StateFinding.MAY_DENY)
    if result.not_taken:
        print_error(
            f"{count(len(result.not_taken), 'thing')} of {location} cannot be expressed; `privtab state import` lists them"
        )
    return from_tables(result.state, location)
