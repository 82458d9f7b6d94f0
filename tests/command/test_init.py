"""`privtab init`: what it writes is a whole that passes every check, and what is there stays as it is."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests
import yaml
from checkout import PYTHONPATH

from privtab import __version__

FILES = [
    ".github/workflows/policy.yml",
    ".gitignore",
    "policy-requirements.txt",
    "policy_src/shop/1.scenarios.yaml",
    "policy_src/shop/1.yaml",
    "policy_src/shop/state.yaml",
    "privtab.toml",
    "service.py",
    f"vendor/privtab-{__version__}-py3-none-any.whl",
]


def written(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
@pytest.mark.parametrize("start", ["data", "service"])
def test_the_written_policy_passes_every_check(
    privtab: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    ran = privtab("init", tmp_path / "shop", "--start", start)
    assert (ran.code, ran.err) == (0, "")
    assert written(tmp_path / "shop") == FILES
    monkeypatch.chdir(tmp_path / "shop")
    assert "no findings" in privtab("lint", "--fail-on", "note").out
    assert privtab("fmt", "--check").code == 0
    tested = privtab("test", "--min", "coverage=100", "--min", "mutation=100")
    assert (tested.code, tested.err) == (0, "")
    assert privtab("compile", "shop/1", "--state", "policy_src/shop/state.yaml").code == 0
    explain = next(line.split()[1:] for line in ran.out.splitlines() if "privtab explain" in line)
    assert privtab(*explain).out.startswith("DENY")


@pytest.mark.slow
def test_the_workflow_runs_commands_that_there_are(
    privtab: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    privtab("init", tmp_path / "shop")
    monkeypatch.chdir(tmp_path / "shop")
    workflow = yaml.safe_load(Path(".github/workflows/policy.yml").read_text(encoding="utf-8"))
    commands = [step["run"] for step in workflow["jobs"]["policy"]["steps"] if "run" in step]
    gates = [command.split()[1:] for command in commands if command.startswith("privtab") and "diff" not in command]
    assert [gate[0] for gate in gates] == ["fmt", "lint", "test", "compile"]
    assert [privtab(*gate).code for gate in gates] == [0, 0, 0, 0]
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "Begin"]):
        subprocess.run([*git, *command], check=True)
    diff = commands[-1].replace('"origin/$BASE"', "HEAD").split()[1:]
    assert privtab(*diff).code == 0
    table = Path("policy_src/shop/1.yaml")
    table.write_text(table.read_text(encoding="utf-8").replace("drop: can load", "drop: anyone or can load"))
    assert privtab(*diff).code == 1


def test_the_workflow_trusts_nothing_that_can_change(privtab: Callable[..., Any], tmp_path: Path) -> None:
    """Actions by commit, packages by hash, no text of a pull request in a script, and a token that can only read."""
    privtab("init", tmp_path / "shop")
    workflow = yaml.safe_load((tmp_path / "shop" / ".github/workflows/policy.yml").read_text(encoding="utf-8"))
    assert workflow["permissions"] == {}
    [job] = workflow["jobs"].values()
    assert job["permissions"] == {"contents": "read"}
    actions = {name: step["with"] for step in job["steps"] if (name := step.get("uses"))}
    assert [name for name in actions if not re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", name)] == []
    assert [options["persist-credentials"] for name, options in actions.items() if "/checkout@" in name] == [False]
    scripts = [step["run"] for step in job["steps"] if "run" in step]
    assert [script for script in scripts if "${{" in script] == []
    installs = [script for script in scripts if "pip install" in script]
    assert len(installs) == 1
    assert "--require-hashes" in installs[0]
    listed = (tmp_path / "shop" / "policy-requirements.txt").read_text(encoding="utf-8")
    (vendored,) = (tmp_path / "shop" / "vendor").iterdir()
    digest = hashlib.sha256(vendored.read_bytes()).hexdigest()
    assert f"./vendor/{vendored.name}[compiler] --hash=sha256:{digest}\n" in listed


def test_the_name_of_the_folder_becomes_a_name_of_a_system(privtab: Callable[..., Any], tmp_path: Path) -> None:
    assert privtab("init", tmp_path / "My Shop-2").code == 0
    assert (tmp_path / "My Shop-2" / "policy_src" / "my_shop_2" / "1.yaml").is_file()
    assert privtab("init", tmp_path / "42").code == 0
    assert (tmp_path / "42" / "policy_src" / "system_42").is_dir()


def test_nothing_is_overwritten(privtab: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text("mine", encoding="utf-8")
    ran = privtab("init", tmp_path, "--system", "shop")
    assert ran.code == 2
    assert "service.py" in ran.err
    assert written(tmp_path) == ["service.py"]


PAGE = """# Project permissions

| Action | Viewer | Admin |
|---|---|---|
| open | ✓ | ✓ |
| delete | - | ✓ |
"""


def test_a_page_becomes_a_project(privtab: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "wiki.md"
    page.write_text(PAGE, encoding="utf-8")
    ran = privtab("init", tmp_path / "shop", "--from", page)
    assert (ran.code, ran.err) == (0, "")
    assert written(tmp_path / "shop") == sorted([*FILES, "policy_src/shop/wiki.md"])
    monkeypatch.chdir(tmp_path / "shop")
    workflow = yaml.safe_load(Path(".github/workflows/policy.yml").read_text(encoding="utf-8"))
    commands = [step["run"] for step in workflow["jobs"]["policy"]["steps"] if "run" in step]
    gates = [shlex.split(text)[1:] for text in commands if text.startswith("privtab") and "diff" not in text]
    assert [gate[0] for gate in gates] == ["fmt", "lint", "test", "import", "compile"]
    assert [privtab(*gate).code for gate in gates] == [0] * 5
    explain = next(line.split()[1:] for line in ran.out.splitlines() if "privtab explain" in line)
    assert privtab(*explain).out.startswith("DENY")
    assert privtab(*[word.replace(":other", ":main") for word in explain]).out.startswith("ALLOW")
    assert privtab("compile", "shop/1", "--state", "policy_src/shop/state.yaml").code == 0
    compile(Path("service.py").read_text(encoding="utf-8"), "service.py", "exec")
    copy = Path("policy_src/shop/wiki.md")
    copy.write_text(PAGE.replace("| delete | - |", "| delete | ✓ |"), encoding="utf-8")
    assert [privtab(*gate).code for gate in gates] == [0, 0, 0, 1, 0]


def test_what_a_page_loses_is_accepted_by_name_also_in_the_workflow(
    privtab: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "wiki.md"
    more = "\n## People: who\n\n| Name | Town |\n|---|---|\n| Ann | Rome |\n"
    page.write_text(f"{PAGE.replace('| delete |', '| delete * |')}\n\\* Not on Sundays.\n{more}", encoding="utf-8")
    found = privtab("init", tmp_path / "shop", "--from", page)
    names = ["footnote", "table People: who"]
    assert (found.code, all(f"--accept {shlex.quote(name)}" in found.err for name in names)) == (1, True), found.err
    assert f"--from '{page}?accept=NAME'" in found.err
    options = [word for name in names for word in ("--accept", name)]
    location = f"{page}?{'&'.join(f'accept={quote(name)}' for name in names)}"
    assert privtab("init", tmp_path / "shop", "--from", location).code == 0
    monkeypatch.chdir(tmp_path / "shop")
    workflow = yaml.safe_load(Path(".github/workflows/policy.yml").read_text(encoding="utf-8"))
    (step,) = (
        text for step in workflow["jobs"]["policy"]["steps"] if "privtab import" in (text := step.get("run", ""))
    )
    compared = privtab(*shlex.split(step)[1:])
    assert compared.code == 0, compared.err
    assert privtab(*[word for word in shlex.split(step)[1:] if word not in options]).code == 1


@pytest.mark.parametrize("name", ["${{ secrets }}", "a%0Arun: b"])
def test_a_name_to_accept_writes_no_other_workflow(privtab: Callable[..., Any], tmp_path: Path, name: str) -> None:
    (tmp_path / "wiki.md").write_text(PAGE, encoding="utf-8")
    ran = privtab("init", tmp_path / "shop", "--from", f"{tmp_path / 'wiki.md'}?accept={name}")
    assert (ran.code, "`accept` takes no name" in ran.err) == (2, True)
    assert not (tmp_path / "shop").exists()


def test_what_git_ignores_in_a_repository_stays(privtab: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("/mine/\n", encoding="utf-8")
    assert privtab("init", tmp_path, "--system", "shop").code == 0
    assert (tmp_path / ".gitignore").read_text(encoding="utf-8") == "/mine/\n"
    assert privtab("init", tmp_path / "new", "--system", "shop").code == 0
    assert "/build/" in (tmp_path / "new" / ".gitignore").read_text(encoding="utf-8")


def test_a_page_of_conditions_becomes_a_project(privtab: Callable[..., Any], tmp_path: Path) -> None:
    page = tmp_path / "wiki.md"
    page.write_text("# Shop\n\n| Operation | Requires |\n|---|---|\n| see | READ |\n", encoding="utf-8")
    assert privtab("init", tmp_path / "shop", "--from", page).code == 0
    state = tmp_path / "shop" / "policy_src" / "shop" / "state.yaml"
    assert privtab("state", "validate", state, "--policy", state.with_name("1.yaml")).code == 0


@pytest.mark.parametrize(
    ("name", "text", "code", "message"),
    [
        ("wiki.md", PAGE.replace("| delete | - |", "| delete | maybe |"), 1, "wiki.md:6:12"),
        ("wiki.md", "Nothing here.\n", 2, "has no table"),
        ("my wiki.md", PAGE, 2, "cannot name a file of the project"),
        ("state.yaml", PAGE, 2, "state.yaml"),
    ],
)
def test_a_page_that_is_not_read_writes_nothing(
    privtab: Callable[..., Any], tmp_path: Path, name: str, text: str, code: int, message: str
) -> None:
    page = tmp_path / name
    page.write_text(text, encoding="utf-8")
    ran = privtab("init", tmp_path / "shop", "--from", page)
    assert ran.code == code
    assert message in ran.err
    assert not (tmp_path / "shop").exists()


def test_files_are_written_all_or_none(privtab: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / ".github").write_text("in the way of the workflow", encoding="utf-8")
    ran = privtab("init", tmp_path, "--system", "shop", "--start", "data")
    assert ran.code != 0
    assert written(tmp_path) == [".github"]
    assert privtab("init", tmp_path / "new", "--start", "data", "--from", "page.md").code == 2


def test_a_name_that_cannot_be_is_refused(privtab: Callable[..., Any], tmp_path: Path) -> None:
    ran = privtab("init", tmp_path / "new", "--system", "My-Shop")
    assert ran.code == 2
    assert "lower case letters, digits and `_`" in ran.err
    assert not (tmp_path / "new").exists()


def test_an_interactive_run_asks_two_questions(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "TERM": "dumb"}
    command = [sys.executable, "-c", "from privtab.command import main; main()", "init", str(tmp_path / "shop")]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    os.write(ours, b"till\nfour\n2\n")
    shown = b""
    with contextlib.suppress(OSError):  # as a terminal ends on Linux
        while more := os.read(ours, 1024):
            shown += more
    os.close(ours)
    assert process.wait(60) == 0
    assert b"Name of the system [shop]" in shown
    assert b"answer with one of 1, data, 2, service" in shown
    assert "workspace" in (tmp_path / "shop" / "policy_src" / "till" / "1.yaml").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "allowed", "denied"),
    [
        ("data", "/tables/main/sales/orders", "/tables/main/sales/payroll"),
        ("service", "/documents/acme/site/plan", "/documents/acme/books/plan"),
    ],
)
def test_the_service_asks_before_it_answers(
    privtab: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    start: str,
    allowed: str,
    denied: str,
) -> None:
    privtab("init", tmp_path / "shop", "--start", start)
    monkeypatch.chdir(tmp_path / "shop")
    assert privtab("compile", "shop/1", "--state", "policy_src/shop/state.yaml").code == 0
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "PORT": "0"}
    with subprocess.Popen(
        [sys.executable, "service.py"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as service:
        try:
            assert service.stdout is not None
            url = service.stdout.readline().strip()
            alice = {"Authorization": "Bearer alice"}
            assert requests.get(url + "/health", timeout=30).status_code == 200
            assert requests.get(url + allowed, headers=alice, timeout=30).status_code == 200
            refused = requests.get(url + denied, headers=alice, timeout=30)
            assert (refused.status_code, json.loads(refused.text)["title"]) == (403, "access denied")
            assert requests.get(url + allowed, timeout=30).status_code == 401
            assert requests.delete(url + allowed, headers=alice, timeout=30).status_code == 403
            assert requests.get(url + "/elsewhere", headers=alice, timeout=30).status_code == 403
        finally:
            service.terminate()
