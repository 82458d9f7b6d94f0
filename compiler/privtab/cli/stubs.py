"""`privtab stubs`: generate typed Python names for a policy."""

from __future__ import annotations

from typing import Annotated

from privtab._staged import write
from privtab.cli._options import OutputOption, PolicyArguments
from privtab.cli._output import print_file, stop
from privtab.cli._parameters import option
from privtab.errors import UsageError

PANEL = "Write"


def run(
    policy: PolicyArguments,
    *,
    output: OutputOption = None,
    check: Annotated[bool, option("--check", "Write nothing; fail if the file is out of date.")] = False,
) -> None:
    """Write a Python module with the names of a policy, so that type checkers reject wrong ones.

    It has a class for each entity type, an enum of its operations, and a client that accepts only these, with their
    further objects and flags. The module needs only the base install of privtab.

    Example:
      privtab stubs gravitino/1.1.0 -o src/service/gravitino.py
      privtab stubs gravitino/1.1.0 -o src/service/gravitino.py --check
    """
    from privtab.backends.stubs import render

    if check and output is None:
        raise UsageError("`--check` compares with a file: give it with `--output`")
    text = render(policy.program())
    if output is None:
        print_file(text)
    elif not check:
        write(output, text.encode())
    elif not output.is_file() or output.read_bytes() != text.encode():
        stop(f"{output} is not what the policy says now; `privtab stubs {policy.policy} -o {output}` writes it")
