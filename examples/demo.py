"""The whole road on one page: compile every policy, serve one from OPA, gate Spark with it, walk through an example.

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

from privtab.opa.server import OpaServer

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
POLICY = "gravitino/1.1.0"
STATE = ROOT / "policy_src" / "gravitino" / "state.yaml"

console = Console(highlight=False, emoji=False)


def main() -> int:
    """Run every part in order; the first one that fails ends the demo with its exit code."""
    started = time.monotonic()
    console.print(Panel.fit("privtab: privilege tables in, decisions out", style="bold"))
    try:
        heading("1", "Compile the tables to bundles", "privtab compile")
        run("-m", "privtab", "compile", "-o", str(BUILD))

        bundle = BUILD / "demo" / "state.tar.gz"
        heading("2", "Pack who holds what", f"privtab state pack {STATE.relative_to(ROOT)} --policy {POLICY}")
        run("-m", "privtab", "state", "pack", str(STATE), "--policy", POLICY, "-o", str(bundle))

        heading("3", "Ask why", f"privtab explain bob load table:demo/hive/sales/orders --policy {POLICY} --state …")
        run("-m", "privtab", "explain", "bob", "load", "table:demo/hive/sales/orders", "-p", POLICY, "-s", str(STATE))

        heading("4", "Gate a Spark driver", "OPA_URL=… python examples/driver_gate.py")
        with OpaServer({"policy": BUILD / POLICY / "policy.tar.gz", "state": bundle}) as opa:
            console.print(f"OPA answers at {opa.url}\n", style="dim")
            run(str(ROOT / "examples" / "driver_gate.py"), OPA_URL=opa.url)

        heading("5", "Grants change, OPA follows", "python examples/gravitino_walkthrough.py")
        run(str(ROOT / "examples" / "gravitino_walkthrough.py"))
    except subprocess.CalledProcessError as error:
        console.print(
            f"\nthe demo stopped: {' '.join(error.cmd[1:3])} ended with exit code {error.returncode}", style="red"
        )
        return error.returncode
    console.print(Rule(style="dim"))
    console.print(f"Done in {time.monotonic() - started:.0f} seconds. Everything that was started has ended.")
    console.print("What was written lies below build/: bundles, readable Rego, and build/demo/ with the decisions.")
    return 0


def heading(number: str, title: str, command: str) -> None:
    """A section of the page: what it shows, and the command to do it by hand."""
    console.print()
    console.print(Rule(f"[bold]{number}  {title}", align="left", style="cyan"))
    console.print(f"$ {command}\n", style="dim")


def run(*arguments: str, **environment: str) -> None:
    """Run Python with these arguments in the root of the checkout; raises CalledProcessError where it fails."""
    subprocess.run([sys.executable, *arguments], cwd=ROOT, env={**os.environ, **environment}, check=True)


if __name__ == "__main__":
    sys.exit(main())
