"""`privtab show`: show what a store holds about a principal or an entity."""

from __future__ import annotations

from typing import Annotated

import typer

from privtab.cli._options import FormatOption
from privtab.cli._output import Format, out, print_if_data
from privtab.cli._store_session import CaFileOption, Settings, StoreArgument, TokenFileOption, listed
from privtab.state.row_text import row_text

PANEL = "Grant"


def run(
    store: StoreArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="user:NAME, group:NAME, role:NAME or TYPE:PATH. Default: all.")
    ] = None,
    token_file: TokenFileOption = None,
    ca: CaFileOption = None,
    format_: FormatOption = Format.TEXT,
) -> None:
    """Show the rows of a store that name a principal or an entity.

    A server shows the rows that the user of the token may see.

    Example:

    \b
      privtab show grants.db role:reader
      privtab show grants.db table:l/web/t --format json
      privtab show https://grants.example user:ben --token-file token
    """
    rows = listed(Settings(store=store, token_file=token_file, ca=ca), name)
    if print_if_data(format_, [{"table": table, "row": dict(row)} for table, row in rows]):
        return
    for table, row in rows:
        out().print(row_text(table, row), soft_wrap=True)
