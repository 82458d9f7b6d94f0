"""The command line, `privtab`: one file for each command."""

from __future__ import annotations

import gc
import sys
from importlib.machinery import PathFinder
from io import TextIOWrapper

from privtab import __version__
from privtab.base.lazy import TYPE_CHECKING, face

if TYPE_CHECKING:
    from privtab.command._engines import Answers
    from privtab.command._files import is_stored, load_policy, load_rows, row_counts
    from privtab.command._options import (
        AtOption,
        OutputOption,
        PartialOption,
        PolicyArguments,
        PolicyOptions,
        QuestionOptions,
        SigningKeyOption,
        SigningOptions,
        VerificationOptions,
        load_state,
        open_doors,
    )
    from privtab.command._output import (
        FormatOption,
        deliver,
        err,
        fail_if,
        out,
        print_error,
        print_if_data,
        show_findings,
        stop,
        table,
    )
    from privtab.command._parameters import argument, option
    from privtab.command._terminal import Terminal
    from privtab.command._typer import Commands
else:
    __getattr__, __dir__, __all__ = face(__name__)

NEEDED = ("typer", "rich", "yaml", "lark", "jinja2")
_ALLOCATIONS = 200_000
"""Allocations between garbage collections: trees of large policies have no cycles, and collecting would take a third of
the time."""


def main() -> None:
    """Run the command line. Without the `compiler` extra, only `--version` works; the rest prints how to install it."""
    version = sys.argv[1:] == ["--version"]
    if version:
        sys.stdout.write(f"privtab {__version__}\n")
    if missing := [name for name in NEEDED if PathFinder.find_spec(name) is None]:
        from privtab.base.errors import ExitCode
        from privtab.base.resources import how_to_install

        sys.stderr.write(
            f"privtab: the command line needs the extra `compiler` (missing: {', '.join(missing)}): "
            f"{how_to_install('compiler')}\n"
        )
        sys.exit(ExitCode.OK if version else ExitCode.EXTERNAL)
    if version:
        return
    gc.set_threshold(_ALLOCATIONS)
    from privtab.command._app import run

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # The same bytes under every locale. A lone surrogate becomes `\udXXX`, as in JSON.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    code = run(sys.argv[1:])
    gc.freeze()  # nothing is searched for cycles when the process ends
    sys.exit(code)
