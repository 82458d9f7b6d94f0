"""`privtab schema`: print the JSON Schema of policy files, or of logged decisions."""

from __future__ import annotations

from typing import Annotated, Literal

from privtab import _plugins
from privtab._staged import write
from privtab.cli._files import json_text
from privtab.cli._options import OutputOption
from privtab.cli._output import print_json
from privtab.cli._parameters import option

PANEL = "Write"


def run(
    of: Annotated[
        Literal["policy", "decisions"],
        option("--of policy|decisions", "Of policy files, or of rows of logged decisions."),
    ] = "policy",
    output: OutputOption = None,
) -> None:
    """Print the JSON Schema of policy files, for editors and validators, or of logged decisions.

    Example:
      privtab schema -o build/schema/policy.schema.json
      privtab schema --of decisions
    """
    if of == "policy":
        from privtab.syntax.keys import policy_schema

        schema = policy_schema()
    else:
        schema = _plugins.module(_plugins.SCHEMAS, of).log_schema()
    if output is None:
        print_json(schema)
    else:
        write(output, json_text(schema).encode())
