"""The waivers of a comparison, as commands take them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from privtab.base import SourceFile
from privtab.command import option

if TYPE_CHECKING:
    from privtab.base import Diagnostic
    from privtab_analysis.diff.nodes import Waiver

WAIVERS = Path("privtab-waivers.yaml")
"""The default file of waivers."""

WaiversOption = Annotated[
    Path | None, option("--waivers FILE", "File of waivers: intended changes.", show_default=str(WAIVERS))
]


def waivers_of(path: Path | None) -> tuple[tuple[Waiver, ...], tuple[Diagnostic, ...]]:
    """The waivers of the given file, else of `WAIVERS` if it exists; a file with errors waives nothing."""
    from privtab_analysis.diff.waivers import read_waivers

    if path is None and not WAIVERS.is_file():
        return (), ()
    waiver_file = read_waivers(SourceFile.load(path or WAIVERS))
    return waiver_file.waivers, waiver_file.found
