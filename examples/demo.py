"""The whole road on one page: a decision, every policy compiled, one served from OPA, Spark gated with it, an example.

Run with `make demo`. Everything that is started here has ended when the script ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule

from privtab.engines.opa.server import OpaServer

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path("build")
POLICY = "gravitino/1.1.0"
STATE = "policy_src/gravitino/state.yaml"
REST = "one to two minutes on two cores"
TABLE = "table:demo/hive/sales/orders"

console = Console(highlight=False, emoji=False)


def main() -> int:
    """Run every part in order; the first one that fails ends the demo with its exit code."""
    started = time.monotonic()
    os.chdir(ROOT)
    console.print(Panel.fit("privtab: privilege tables in, decisions out", style="bold"))
    try:
        heading("1", "Ask why", f"privtab explain bob load {TABLE} --policy {POLICY} --state {STATE}")
        run("-m", "privtab", "explain", "bob", "load", TABLE, "--policy", POLICY, "--state", STATE)
        first = time.monotonic() - started
        console.print(
            f"\nThe first decision took {first:.0f} seconds. The rest takes {REST}: OPA and Spark start several times.",
            style="bold",
            soft_wrap=True,
        )

        heading("2", "Compile the tables to bundles", "privtab compile")
        run("-m", "privtab", "compile")

        bundle = BUILD / "demo" / "state.tar.gz"
        heading("3", "Pack who holds what", f"privtab state pack {STATE} --policy {POLICY} -o {bundle}")
        run("-m", "privtab", "state", "pack", STATE, "--policy", POLICY, "-o", str(bundle))

        heading("4", "Gate a Spark driver", "OPA_URL=… python examples/driver_gate.py")
        with OpaServer({"policy": BUILD / POLICY / "policy.tar.gz", "state": bundle}) as opa:
            run("examples/driver_gate.py", OPA_URL=opa.url)

        heading("5", "Grants change, OPA follows", "python examples/gravitino_walkthrough.py")
        run("examples/gravitino_walkthrough.py")

        heading("6", "Whole tables on Spark", "python examples/spark_walkthrough.py")
        run("examples/spark_walkthrough.py")
    except subprocess.CalledProcessError as error:
        sys.stderr.write(error.stderr)
        console.print(
            f"\nthe demo stopped: {' '.join(error.cmd[1:4])} ended with exit code {error.returncode}", style="red"
        )
        return int(error.returncode)
    console.print(Rule(style="dim"))
    console.print(f"Done in {time.monotonic() - started:.0f} seconds. Everything that was started has ended.")
    console.print("What was written lies below build/: bundles, readable Rego, and build/demo/ with the decisions.")
    return 0


def heading(number: str, title: str, command: str) -> None:
    """A section of the page: what it shows, and the command to do it by hand."""
    console.print()
    console.print(Rule(f"[bold]{number}  {title}", align="left", style="cyan"))
    console.print(f"$ {command}\n", style="dim", soft_wrap=True)


def run(*arguments: str, **environment: str) -> None:
    """Run Python with these arguments; raises CalledProcessError where it fails, with what it said on standard error.

    Otherwise that is kept from the page: Java greets with warnings that no setting turns off.
    """
    command = [sys.executable, *arguments]
    subprocess.run(command, env={**os.environ, **environment}, check=True, stderr=subprocess.PIPE, text=True)


if __name__ == "__main__":
    sys.exit(main())
