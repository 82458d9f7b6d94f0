"""A folder with the things that examples of `--help` name, and what runs such lines in it using the wheel."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from checkout import ROOT
from decision_logs import entry
from documentation_pages import read
from environments import Environment

from privtab.command._app import command

ELSEWHERE = re.compile(
    r"(?:https?|s3|postgresql\S*):|sources\.yaml|policies\.json|warehouse\.yaml|drive\.yaml|my_lake|"
    r"trino\.log|gone\.yaml|tokens|\b[0-9a-f]{8,}\b|--engine both|--canary|--at 20|^privtab diff [a-z]+/[a-z]+$"
)
"""Servers, databases, revisions and moments of the reader's."""
FOREVER = ("lsp", "explore", "serve", "opa", "conform", "state build", "spark", "certify")
"""They run until they are ended, build an OPA, or want another system or Spark."""
ENDS = re.compile(r"--export|--skeleton")
"""Options with which such a command writes files and ends."""

LAKE = """
privtab: 1
system: lake
version: "1"
entities: {lake: {schema: {table: }, user: , role: }}
privileges:
  CREATE: {on: [lake, schema]}
  SELECT: {on: [lake, schema, table]}
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user]}}
tables:
  lake:
    create: {requires: service admin, becomes: owner}
    grant: {requires: owner (lake), sensitive: true}
  schema:
    create: {requires: CREATE (lake) or owner (lake), becomes: owner, grants: CREATE}
    grant: {requires: "owner (schema, lake)", sensitive: true}
    drop: {requires: "owner (schema, lake)", destructive: true}
  table:
    create: {requires: CREATE (schema) or owner (schema), becomes: owner, grants: SELECT}
    grant: {requires: "owner (table, schema)", sensitive: true}
    read: SELECT (table)
  role:
    grant: {requires: owner (lake), sensitive: true}
"""
SHOP = """
privtab: 1
system: shop
version: "1"
entities: {shelf: {item: }}
privileges: [READ]
semantics: {inheritance: down}
tables: {item: {read: READ (item)}}
"""
CEDAR_SCHEMA = """entity User in [Team]; entity Team; entity Folder = { readers: Team };
action read appliesTo { principal: User, resource: Folder };
"""
CEDAR_POLICIES = 'permit (principal, action == Action::"read", resource) when { principal in resource.readers };'
MODEL = """
model
  schema 1.1
type user
type document
  relations
    define viewer: [user]
    define can_view: viewer
"""
APP = """
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route


async def item(request):
    return PlainTextResponse("bread")


app = Starlette(routes=[Route("/items/{name}", item)])
"""
OPENAPI = """
openapi: 3.1.0
info: {title: shop, version: "1"}
paths: {"/items/{name}": {get: {responses: {"200": {description: an item}}}}}
"""
MATRIX = """
Entity,Operation,Needed
Programs,run,READ (Programs)
Programs,stop,READ + WRITE (Programs)
Programs,drop,ALL (Programs)
"""
WIKI = """
<h1>Lake</h1><table><tr><th>Entity</th><th>Operation</th><th>Required</th></tr><tr><td>table</td><td>read</td><td>SELECT (table)</td></tr>
<tr><td>schema</td><td>open</td><td>USE (schema)</td></tr><tr><td>catalog</td><td>open</td><td>USE (catalog)</td></tr></table>
"""
KEEP = "keep: [{principal: role:l/reader, why: it is new}]\n"
STATE = """
assignments: [{principal: user:ben, role: l/reader}]
grants:
  - {grantee: user:ann, effect: allow, privilege: CREATE, entity: lake:l}
  - {grantee: user:ann, effect: allow, privilege: SELECT, entity: schema:l/web}
  - {grantee: role:l/reader, effect: allow, privilege: SELECT, entity: table:l/web/t}
owners: [{entity: lake:l, owner: user:ann}, {entity: schema:l/web, owner: user:ann}, {entity: schema:l/old, owner: user:ann}]
service_admins: [{user: root}]
"""
SCENARIOS = """
scenarios: 1
needs:
  - {ask: read table:l/web/t, by: [["SELECT (table:l/web/t)"]]}
"""
PREPARED = """
privtab import permissions.md -o policy.yaml
privtab store create grants.db -p lake.yaml --admin root
privtab store change grants.db "perform create on lake:l" --as root -p lake.yaml --yes
privtab store change grants.db "perform grant on lake:l" "add owners:{entity: lake:l, owner: user:ann}" --as root -p lake.yaml --yes
privtab store change grants.db "perform create on schema:l/web" --as ann -p lake.yaml --yes
privtab store change grants.db "perform create on schema:l/old" --as ann -p lake.yaml --yes
privtab store change grants.db "grant SELECT (table:l/web/t) to role:l/reader" --as ann -p lake.yaml --yes
privtab store change grants.db "assign l/reader to user:ben" --as ann -p lake.yaml --yes
privtab store create empty.db -p lake.yaml --admin root
privtab bundle keys prod.pem --new ES256
privtab bundle keys prod.pem --format pem > prod.pub.pem
privtab bundle keys next.pem --new ES256
privtab bundle keys next.pem --format pem > next.pub.pem
privtab compile lake.yaml -o build
privtab bundle sign build/lake/1/policy.tar.gz --signing-key prod.pem --signature scope=prod -o signed.tar.gz
privtab state pack state.yaml -p lake.yaml -o state.tar.gz --signing-key prod.pem --signature sequence=1
privtab state pack state.yaml -p lake.yaml -o old/state.tar.gz --signing-key prod.pem --signature sequence=1
privtab state pack state.yaml -p lake.yaml -o new/state.tar.gz --signing-key prod.pem --signature sequence=2
privtab registry put registry/ build/lake/1 state.tar.gz --channel prod
privtab compile next.yaml -o next
privtab state pack narrower.yaml -p next.yaml -o next/lake/1/state.tar.gz
privtab registry put registry/ next/lake/1 --channel prod
privtab registry get registry/ prod lake -o running/
"""
"""The content of the folder besides files, made by the commands themselves."""
RUNNER = """
import contextlib, io, json, os, shlex, shutil, sys, tempfile
from privtab.command._app import run

def ran(line):
    line, _, target = line.partition(" > ")
    line, _, source = line.partition(" < ")
    sys.stdin = open(source or os.devnull)
    out, err = io.TextIOWrapper(io.BytesIO(), write_through=True), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(shlex.split(line)[1:])
    printed = out.buffer.getvalue()
    if target:
        with open(target, "wb") as file:
            file.write(printed)
    return code, printed.decode() + err.getvalue()

asked, home = json.load(sys.stdin), os.getcwd()
answers = []
for line in asked["lines"]:
    if asked["apart"]:
        folder = tempfile.mkdtemp()
        shutil.copytree(home, folder, dirs_exist_ok=True)
        os.chdir(folder)
    answers.append(ran(line))
json.dump(answers, sys.__stdout__)
"""
"""Runs lines from standard input in its folder, or each in a copy of it: their exit codes and outputs as JSON."""


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, found in group.commands.items():
        if hasattr(found, "commands"):
            yield from commands(found, (*words, name))
        else:
            yield " ".join((*words, name)), found


def examples() -> list[tuple[str, str]]:
    """Each example with its command, in one line."""
    found = []
    for name, one in commands(command()):
        text = re.sub(r"\\\n\s*", " ", (one.help or "").partition("Example:")[2].replace("[dim][/dim]", ""))
        found += [(name, line.strip()) for line in text.splitlines() if line.strip().startswith("privtab ")]
    return found


def runs_here(name: str, line: str) -> bool:
    forever = name.startswith(FOREVER) and not ENDS.search(line)
    return not (forever or ELSEWHERE.search(re.sub(r" -o \S+", "", line)))


def furnish(folder: Path, environment: Environment) -> Path:
    """Put the things that examples name into a folder, which is returned."""
    assert run(environment, folder, ["privtab init ."], apart=False)[0][0] == 0
    read("README.md").write(folder)
    (folder / "state.yaml").write_text(STATE, encoding="utf-8")
    (folder / "narrower.yaml").write_text("".join(STATE.splitlines(keepends=True)[:-1]), encoding="utf-8")
    (folder / "next.yaml").write_text(
        LAKE.replace("SELECT (table)", "SELECT (table) or owner (table)"), encoding="utf-8"
    )
    (folder / "model.fga").write_text(MODEL.lstrip(), encoding="utf-8")
    (folder / "app.cedarschema").write_text(CEDAR_SCHEMA, encoding="utf-8")
    (folder / "app.cedar").write_text(CEDAR_POLICIES, encoding="utf-8")
    (folder / "lake.scenarios.yaml").write_text(SCENARIOS, encoding="utf-8")
    for name in ("lake.yaml", "my.yaml", "mine.yaml"):
        (folder / name).write_text(LAKE, encoding="utf-8")
    (folder / "old.yaml").write_text(SHOP, encoding="utf-8")
    (folder / "new.yaml").write_text(SHOP.replace("{read:", "{peek:"), encoding="utf-8")
    for name in ("state", "yesterday", "today"):
        (folder / name).mkdir()
        for table, rows in yaml.safe_load(STATE).items():
            with (folder / name / f"{table}.csv").open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
    files = {
        "shop.yaml": SHOP,
        "shop_app.py": APP,
        "openapi.yaml": OPENAPI,
        "matrix.csv": MATRIX,
        "wiki.html": WIKI,
        "privtab-keep.yaml": KEEP,
    }
    for name, text in files.items():
        (folder / name).write_text(text.lstrip(), encoding="utf-8")
    request = {
        "subject": {"type": "user", "id": "ben"},
        "action": {"name": "read"},
        "resource": {"type": "table", "id": "l/web/t"},
    }
    (folder / "asked.jsonl").write_text(json.dumps(request) + "\n", encoding="utf-8")
    for name in ("logs", "old", "new"):
        (folder / name).mkdir()
    lines = PREPARED.strip().splitlines()
    prepared = run(environment, folder, lines, apart=False)
    for line, (code, output) in zip(lines, prepared, strict=True):
        assert code == 0, f"{line}\n{output}"
    # A repository that had another policy before.
    earlier = folder / "policy_src" / "cdap" / "final.yaml"
    earlier.parent.mkdir()
    earlier.write_bytes((ROOT / "policy_src" / "cdap" / "final.yaml").read_bytes())
    for words in (["init", "-q"], ["add", "policy_src"], ["commit", "-qm", "Begin"], ["rm", "-qr", "policy_src/cdap"]):
        git(folder, *words)
    git(folder, "commit", "-qm", "Leave it to others")
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    logged = json.dumps(entry(True, request, path="privtab/lake/allow", timestamp=now)) + "\n"
    for path in (folder / "logs" / "a.jsonl", folder / "opa.log"):
        path.write_text(logged, encoding="utf-8")
    return folder


def git(folder: Path, *words: str) -> None:
    named = ["git", "-c", "user.name=n", "-c", "user.email=n@example.com", *words]
    subprocess.run(named, cwd=folder, check=True)


def run(environment: Environment, folder: Path, lines: list[str], *, apart: bool) -> list[tuple[int, str]]:
    """Run lines using the wheel: their exit codes, and what they print."""
    asked = json.dumps({"lines": lines, "apart": apart})
    ran = environment.run(environment.python, "-c", RUNNER, cwd=folder, given=asked, seconds=1800)
    assert ran.returncode == 0, ran.stderr
    return [(code, output) for code, output in json.loads(ran.stdout)]
