"""`privtab import model`: a model of OpenFGA, or a schema and policies of Cedar, as a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from privtab.base import SourceFile, read_text
from privtab.command import OutputOption, argument, deliver, err, fail_if, option, show_findings


def model(
    file: Annotated[Path, argument("MODEL", "An OpenFGA model or a Cedar schema, language or JSON.")],
    policies: Annotated[
        Path | None, argument("POLICIES", "The Cedar policies of the schema, language or JSON.")
    ] = None,
    *,
    system: Annotated[str | None, option("--system NAME", "The system. (default: the name of the file)")] = None,
    allow_partial: Annotated[
        bool, option("--allow-partial", "Leave out what a table cannot say instead of stopping.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Read a model of OpenFGA or Cedar as a policy.

    In OpenFGA, each relation becomes an operation, and those that users have directly become privileges; in Cedar, each action becomes an
    operation, and attributes that are users or groups become privileges. The policy allows nothing that the model does
    not: what a table cannot say is named and left out. Without `--allow-partial` the command then writes nothing.

    Example:
      privtab import model model.fga --system drive -o drive.yaml
      privtab import model app.cedarschema app.cedar -o app.yaml
    """
    from privtab.pipeline import load_program
    from privtab_connect.models import cedar, fga

    name = system or file.stem.partition(".")[0].replace("-", "_")
    if policies is None:
        derived = fga.Derived(fga.read(read_text(file), str(file)), name, file.name)
    else:
        made = cedar.read(read_text(file), read_text(policies), (str(file), str(policies)))
        derived = fga.Derived(made.model, name, file.name, made.operations)
        derived.unsaid[:0] = made.unsaid
    show_findings(derived.unsaid)
    fail_if(derived.unsaid and not allow_partial)
    load_program(SourceFile.of("policy.yaml", derived.text))
    deliver(derived.text, output)
    given = "".join(f" --set {key}={value}" for key, value in derived.values().items())
    if policies is None:
        err().print(f"read its tuples using: privtab state import openfga TUPLES --policy POLICY{given}")
