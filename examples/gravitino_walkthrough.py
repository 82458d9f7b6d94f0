"""The example of the Gravitino documentation in thirteen steps, each decided by a running OPA.

A step is a question, the answer with its reason, and the rows that success adds to the state. The state bundle is then
written anew; OPA takes it over by itself, and the next question is asked.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from rich.console import Console

from privtab import Client, Decision
from privtab.bundle.pack import state_bundle
from privtab.engines.opa.server import OpaServer
from privtab.ir.nodes import Program
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.index import index_document
from privtab.state.load import from_tables, validate

Rows: TypeAlias = Mapping[str, Sequence[Mapping[str, str]]]

LAKE = "metalake:lake"
SHOWN = 2
"""How many ways to an allow are shown."""
console = Console(highlight=False, emoji=False)


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One question and the answer that the document gives."""

    user: str
    action: str
    resource: str
    allowed: bool = True


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of the document: its questions in order, and what its success changes in the state."""

    text: str
    asks: Sequence[Ask]
    add: Rows = field(default_factory=dict)
    remove: Rows = field(default_factory=dict)


def owned(entity: str, user: str) -> Rows:
    """The row that says that a user owns an entity."""
    return {"owners": [{"entity": entity, "owner": f"user:{user}"}]}


def made(text: str, resource: str) -> Step:
    """Staff creates something, and owns it from then on."""
    return Step(text=text, asks=[Ask(user="staff", action="create", resource=resource)], add=owned(resource, "staff"))


STEPS = (
    Step(
        text="Service admin configures the Gravitino server to enable authorization and creates a metalake",
        asks=[
            Ask(user="manager", action="create", resource=LAKE, allowed=False),
            Ask(user="root", action="create", resource=LAKE),
        ],
        add={**owned(LAKE, "root"), "members": [{"user": "root", "of": LAKE}]},
    ),
    Step(
        text="Service admin adds the user Manager to the metalake",
        asks=[Ask(user="root", action="add", resource="user:lake/manager")],
        add={"members": [{"user": "manager", "of": LAKE}]},
    ),
    Step(
        text="Service admin sets the Manager as the owner of the metalake",
        asks=[
            Ask(user="manager", action="set_owner", resource=LAKE, allowed=False),
            Ask(user="root", action="set_owner", resource=LAKE),
        ],
        add=owned(LAKE, "manager"),
        remove=owned(LAKE, "root"),
    ),
    Step(
        text="Manager adds the user Staff",
        asks=[
            Ask(user="root", action="add", resource="user:lake/staff", allowed=False),
            Ask(user="manager", action="add", resource="user:lake/staff"),
        ],
        add={"members": [{"user": "staff", "of": LAKE}]},
    ),
    Step(
        text="Manager creates a specific role catalog_manager with CREATE_CATALOG privilege",
        asks=[Ask(user="manager", action="create", resource="role:lake/catalog_manager")],
        add={
            **owned("role:lake/catalog_manager", "manager"),
            "grants": [
                {"grantee": "role:catalog_manager", "effect": "allow", "privilege": "CREATE_CATALOG", "entity": LAKE}
            ],
        },
    ),
    Step(
        text="Manager grants the role catalog_manager to the user Staff",
        asks=[
            Ask(user="staff", action="create", resource="catalog:lake/hive", allowed=False),
            Ask(user="manager", action="grant", resource="role:lake/catalog_manager"),
        ],
        add={"assignments": [{"principal": "user:staff", "role": "catalog_manager"}]},
    ),
    made("Staff creates a Hive type catalog", "catalog:lake/hive"),
    made("Staff creates a schema hive_db for Hive catalog", "schema:lake/hive/hive_db"),
    made("Staff creates a table hive_table under the schema hive_db", "table:lake/hive/hive_db/hive_table"),
    made("Staff creates a MySQL type catalog", "catalog:lake/mysql"),
    made("Staff creates a schema mysql_db", "schema:lake/mysql/mysql_db"),
    made("Staff creates a table mysql_table under the schema mysql_db", "table:lake/mysql/mysql_db/mysql_table"),
    Step(
        text="Staff can use Gravitino connector to query the tables from different catalogs",
        asks=[
            Ask(user="staff", action="load", resource="table:lake/hive/hive_db/hive_table"),
            Ask(user="staff", action="load", resource="table:lake/mysql/mysql_db/mysql_table"),
            Ask(user="manager", action="load", resource="table:lake/hive/hive_db/hive_table"),
            Ask(user="root", action="load", resource="table:lake/hive/hive_db/hive_table", allowed=False),
            Ask(user="guest", action="load", resource="table:lake/hive/hive_db/hive_table", allowed=False),
        ],
    ),
)


def main() -> int:
    """Walk through all steps; exit code 1 where an answer is not the document's."""
    program = load_program("gravitino/1.1.0")
    state: dict[str, list[dict[str, str]]] = {"service_admins": [{"user": "root"}]}
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="privtab-walk-") as name:
        policy, bundle = Path(name, "policy.tar.gz"), Path(name, "state.tar.gz")
        policy.write_bytes(policy_artifacts(program).bundle())
        publish(program, state, bundle)
        with OpaServer({"policy": policy, "state": bundle}) as opa, Client(opa.url, system=program.system) as client:
            for number, step in enumerate(STEPS, start=1):
                console.print(f"{number:2}  {step.text}", style="bold", soft_wrap=True)
                for ask in step.asks:
                    decision = client.decide(ask.user, ask.action, ask.resource)
                    wrong += decision.allowed is not ask.allowed
                    show(ask, decision)
                if step.add:
                    change(state, step)
                    wait(client, publish(program, state, bundle))
    console.print(f"\n{sum(len(step.asks) for step in STEPS)} questions, {wrong} answered against the document")
    return 1 if wrong else 0


def show(ask: Ask, decision: Decision) -> None:
    """One answer with its reason: by what it holds, or the shortest ways to an allow."""
    expected = decision.allowed is ask.allowed
    console.print("    ✓ " if decision.allowed else "    ✗ ", style="green" if decision.allowed else "red", end="")
    console.print(f"{ask.user} {ask.action} {ask.resource}", end="", style="none" if expected else "bold red")
    if decision.allowed:
        atoms = [str(reason["atom"]) for reason in decision.context.get("reasons", ())]
        console.print(f"   by {' and '.join(atoms)}", style="dim", soft_wrap=True)
        return
    console.print("   missing:", style="dim")
    for number, way in enumerate(decision.missing[:SHOWN]):
        console.print(f"        {'or ' if number else ''}{' and '.join(way)}", style="dim", soft_wrap=True)
    if len(decision.missing) > SHOWN:
        console.print(f"        or one of {len(decision.missing) - SHOWN} longer ways", style="dim")


def change(state: dict[str, list[dict[str, str]]], step: Step) -> None:
    """Take the step's rows out of the state and put the new ones in, and say so."""
    for table, rows in step.remove.items():
        for row in rows:
            state[table].remove(dict(row))
            console.print(f"      - {table}: {' '.join(row.values())}", style="yellow")
    for table, rows in step.add.items():
        for row in rows:
            state.setdefault(table, []).append(dict(row))
            console.print(f"      + {table}: {' '.join(row.values())}", style="cyan")


def publish(program: Program, tables: Mapping[str, object], path: Path) -> str:
    """Check the rows, write the state bundle in one piece, and return its revision."""
    state, findings = validate(program, from_tables(tables, "walkthrough"))
    if findings:
        raise SystemExit("\n".join(finding.message for finding in findings))
    fresh = path.with_suffix(".new")
    fresh.write_bytes(state_bundle(program, state))
    fresh.replace(path)
    return str(index_document(program, state)["revision"])


def wait(client: Client, revision: str, seconds: float = 20) -> None:
    """Wait until OPA answers by this state."""
    deadline = time.monotonic() + seconds
    while client.revision().state != revision:
        if time.monotonic() > deadline:
            raise SystemExit(f"OPA did not take over the state {revision} within {seconds:g} seconds")
        time.sleep(0.05)


if __name__ == "__main__":
    raise SystemExit(main())
