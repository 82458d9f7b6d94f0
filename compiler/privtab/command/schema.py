"""`privtab schema`: print the JSON Schema of policy files, or of logged decisions."""

from __future__ import annotations

from typing import Annotated, Literal

from privtab.base import plugins
from privtab.command._files import json_text
from privtab.command._options import OutputOption
from privtab.command._output import deliver
from privtab.command._parameters import argument

PANEL = "Write"


def run(
    of: Annotated[
        Literal["policy", "decisions"],
        argument("[policy|decisions]", "Of policy files, or of rows of logged decisions."),
    ] = "policy",
    output: OutputOption = None,
) -> None:
    """Print the JSON Schema of policy files, for editors and validators, or of logged decisions.

    Example:
      privtab schema -o build/schema/policy.schema.json
      privtab schema decisions
    """
    if of == "policy":
        from privtab.language.syntax.keys import policy_schema

        schema = policy_schema()
    else:
        schema = plugins.load_plugin("privtab.schemas", of).log_schema()
    deliver(schema if output is None else json_text(schema), output, numbered=False)
