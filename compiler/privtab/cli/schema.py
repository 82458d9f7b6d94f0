"""`privtab schema`: print the JSON Schema of policy files."""

from __future__ import annotations

from privtab._staged import write
from privtab.cli._files import json_text
from privtab.cli._options import OutputOption
from privtab.cli._output import print_json

PANEL = "Write"


def run(
    output: OutputOption = None,
) -> None:
    """Print the JSON Schema of policy files, for editors and validators.

    Example:
      privtab schema -o build/schema/policy.schema.json
    """
    from privtab.syntax.schema import policy_schema

    if output is None:
        print_json(policy_schema())
    else:
        write(output, json_text(policy_schema()).encode())
