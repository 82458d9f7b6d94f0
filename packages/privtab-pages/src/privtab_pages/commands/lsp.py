"""`privtab lsp`: the language server for editors."""

from __future__ import annotations

from privtab.base import needing

PANEL = "Write"


def run() -> None:
    """Serve editors using the Language Server Protocol on standard input and output, until they end it.

    Findings as you type, hover, completion, definitions, references, renaming and formatting, for policies and scenarios.

    Example:
      privtab lsp
    """
    with needing("`privtab lsp`", "compiler", "lsp"):
        from privtab_pages.lsp.features import build
    build().start_io()
