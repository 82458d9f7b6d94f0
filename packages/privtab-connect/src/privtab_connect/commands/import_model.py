"""`privtab import fga`: a model of OpenFGA as a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from privtab.base import SourceFile, read_text
from privtab.command import OutputOption, argument, deliver, err, fail_if, option, show_findings


def fga(
    model: Annotated[Path, argument("MODEL", "An OpenFGA model: its language (`.fga`) or JSON.")],
    *,
    system: Annotated[str | None, option("--system NAME", "The system. (default: the name of the file)")] = None,
    allow_partial: Annotated[
        bool, option("--allow-partial", "Leave out what a table cannot say instead of stopping.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Read an OpenFGA model as a policy.

    Each relation becomes an operation, and those that users have directly become privileges. The policy allows nothing that
    the model does not: `but not`, conditions, and usersets other than the members of groups and the assignees of
    roles are named and left out. Without `--allow-partial` the command then writes nothing.

    Example:
      privtab import fga model.fga --system drive -o drive.yaml
    """
    from privtab.pipeline import load_program
    from privtab_connect.fga import Derived, read

    name = system or model.stem.partition(".")[0].replace("-", "_")
    derived = Derived(read(read_text(model), str(model)), name, model.name)
    show_findings(derived.unsaid)
    fail_if(derived.unsaid and not allow_partial)
    load_program(SourceFile.of("policy.yaml", derived.text))
    deliver(derived.text, output)
    given = "".join(f" --set {key}={value}" for key, value in derived.values().items())
    err().print(f"read its tuples using: privtab state import openfga TUPLES --policy POLICY{given}")
