"""Wall time of `privtab state import` for the same grants from the tables of a database and from policies of Apache Ranger."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path

from compile import Cost, cost, spread
from measure import Report, Table, Target, WrongAnswerError

SIZES = (100_000, 1_000_000)
PAGE = 200
USERS = 5_000
MOST = 3.0
POLICY = """
privtab: 1
system: lake
version: "1"
entities: {schema: {table: {column:}}}
privileges:
  SELECT: {on: [schema, table, column]}
semantics: {inheritance: down, deny: overrides}
tables:
  table:
    read: SELECT (table)
"""
TABLES = (
    'members("user", "of")',
    'memberships("user", "group")',
    "assignments(principal, role, scope)",
    "grants(grantee, effect, privilege, entity)",
    "owners(entity, owner)",
    'service_admins("user")',
)


def report(_sizes: Sequence[str], repetitions: int) -> Report:
    """Both imports of each size by turns; their states must be equal."""
    rows: list[tuple[str, ...]] = []
    targets = []
    for size in SIZES:
        with tempfile.TemporaryDirectory(prefix="privtab-bench-") as name:
            folder = Path(name)
            write(folder, size)
            tables, policies = zip(*(_both(folder) for _ in range(repetitions)), strict=True)
        for what, costs in (("tables", tables), ("ranger", policies)):
            rows.append((f"{size:,}", what, *(spread(costs, kind).text(1) for kind in ("wall", "processor"))))
        ratio = spread(policies, "wall").over(spread(tables, "wall"))
        targets.append(Target(what=f"{size:,} grants: ranger / tables", spread=ratio, wanted=MOST, sense="at most"))
    columns = ("grants", "import document", "wall", "processor")
    title = "Seconds of `privtab state import`: median (min..max)"
    return Report(
        part="imports", tables=(Table(title=title, columns=columns, rows=tuple(rows)),), targets=tuple(targets)
    )


def write(folder: Path, size: int) -> None:
    """A policy file, a database with the tables of a state, and the pages of a Ranger server: one policy for each grant."""
    (folder / "lake.yaml").write_text(POLICY, encoding="utf-8")
    database = sqlite3.connect(folder / "tables.db")
    for table in TABLES:
        database.execute(f"create table {table}")
    pages = folder / "ranger" / "service" / "plugins"
    pages.mkdir(parents=True)
    for first in range(0, size, PAGE):
        grants = [(f"u{n % USERS}", f"db{n // 1000}", f"t{n % 1000}") for n in range(first, first + PAGE)]
        rows = [(f"user:{user}", "allow", "SELECT", f"table:{schema}/{table}") for user, schema, table in grants]
        database.executemany("insert into grants values (?, ?, ?, ?)", rows)
        policies = [_policy(first + number, *grant) for number, grant in enumerate(grants)]
        page = {"startIndex": first, "pageSize": PAGE, "totalCount": size, "resultSize": PAGE, "policies": policies}
        file = f"policies.startIndex={first}.json" if first else "policies.json"
        (pages / file).write_text(json.dumps(page), encoding="utf-8")
    database.commit()
    database.close()


def _policy(number: int, user: str, schema: str, table: str) -> dict[str, object]:
    """A policy with all the fields that a server writes."""
    names = {"database": schema, "table": table, "column": "*"}
    item = {
        "accesses": [{"type": "select", "isAllowed": True}],
        "users": [user],
        **dict.fromkeys(("groups", "roles", "conditions"), ()),
        "delegateAdmin": False,
    }
    empty = ("additionalResources", "conditions", "denyPolicyItems", "allowExceptions", "denyExceptions")
    more = ("dataMaskPolicyItems", "rowFilterPolicyItems", "validitySchedules", "policyLabels")
    return {
        "id": number,
        "guid": f"{number:032x}",
        "isEnabled": True,
        "version": 1,
        "service": "hive",
        "name": f"p{number}",
        "policyType": 0,
        "policyPriority": 0,
        "description": "",
        "isAuditEnabled": True,
        "resources": {
            kind: {"values": [value], "isExcludes": False, "isRecursive": False} for kind, value in names.items()
        },
        "policyItems": [item],
        **dict.fromkeys((*empty, *more), ()),
        "serviceType": "hive",
        "options": {},
        "zoneName": "",
        "isDenyAllElse": False,
    }


def _both(folder: Path) -> tuple[Cost, Cost]:
    sources = {"tables": f"sqlite:///{folder / 'tables.db'}", "ranger": str(folder / "ranger")}
    policy, states = ["-p", str(folder / "lake.yaml"), "-o"], [folder / f"{name}.json" for name in sources]
    tables, ranger = (
        cost(["state", "import", name, source, *policy, str(state)])
        for (name, source), state in zip(sources.items(), states, strict=True)
    )
    if states[0].read_bytes() != states[1].read_bytes():
        raise WrongAnswerError("the two imports give different states")
    return tables, ranger
