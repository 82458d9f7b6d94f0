"""ci/ and the hooks: valid, with commands and options that exist, and tried on a repository."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT
from command_lines import commands_in, problems

from privtab.command._app import MODULES, run

CHECK = ROOT / "ci" / "check.sh"


def loaded(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_commands_of_the_script_exist_with_these_options() -> None:
    found = commands_in(CHECK.read_text(encoding="utf-8"))
    assert {words[0] for words in found} == {"fmt", "lint", "test", "diff", "docs", "replay"}
    present = [words for words in found if words[0] in MODULES]
    assert [problem for words in present for problem in problems(words)] == []


def test_the_check_of_commands_finds_what_is_wrong() -> None:
    assert problems(["lint", "--formt", "json"]) == ["`lint` has no option `--formt`"]
    assert problems(["lint", "--format", "xml"]) == ["`--format` of `lint` does not take `xml`"]
    assert problems(["lnt"]) == ["no command `lnt`"]
    assert problems(["serve", "registry:/registry", "--prt=1"]) == ["`serve` has no option `--prt`"]


def test_both_pipelines_run_this_script() -> None:
    gitlab = loaded("ci/gitlab.yml")["privtab"]
    assert gitlab["script"] == [CHECK.read_text(encoding="utf-8")]
    assert gitlab["artifacts"]["paths"] == ["privtab-reports/"]
    documented = set(re.findall(r"^#   (PRIVTAB_\w+)", CHECK.read_text(encoding="utf-8"), re.MULTILINE))
    used = set(re.findall(r"PRIVTAB_\w+", CHECK.read_text(encoding="utf-8")))
    assert documented == used
    steps = loaded("ci/action.yml")["runs"]["steps"]
    (step,) = [step for step in steps if step["run"] == 'exec sh "$CHECK"']
    assert {name for name in step["env"] if name.startswith("PRIVTAB_")} == used


def test_the_action_takes_inputs_as_variables_alone() -> None:
    action = loaded("ci/action.yml")
    assert action["runs"]["using"] == "composite"
    used = set(re.findall(r"inputs\.([\w-]+)", json.dumps(action["runs"])))
    assert used == action["inputs"].keys()
    for step in action["runs"]["steps"]:
        assert "${{" not in step["run"], "an input could be a part of the script"
        assert step["shell"] == "sh"
    assert all("uses" not in step for step in action["runs"]["steps"]), "other actions are pinned by their commit"


def test_a_merge_queue_has_something_to_compare_with() -> None:
    """Its event has no `base_ref`: without the other, a group would pass uncompared."""
    (base,) = [
        step["env"]["PRIVTAB_BASE"]
        for step in loaded("ci/action.yml")["runs"]["steps"]
        if "PRIVTAB_BASE" in step["env"]
    ]
    assert base.removeprefix("${{").split("||")[0].strip() == "github.event.merge_group.base_sha"
    (rule, _) = loaded("ci/gitlab.yml")["privtab"]["rules"]
    assert rule["if"] == '$CI_PIPELINE_SOURCE == "merge_request_event"', "trains are such pipelines"


def test_commands_of_the_hooks_exist() -> None:
    for hook in loaded(".pre-commit-hooks.yaml"):
        assert problems(shlex.split(hook["entry"])[1:]) == []


# --- on a repository ---


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a policy, its page, and the revision `base`."""
    assert run(["init", str(tmp_path), "--system", "shop", "--start", "data"]) == 0
    policy = tmp_path / "policy_src" / "shop" / "1.yaml"
    assert run(["docs", str(policy), "-o", str(tmp_path / "shop.md")]) == 0
    for command in ("init -q", "add -A", "-c user.email=a@example.com -c user.name=a commit -qm one", "tag base"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)  # noqa: S607  whichever git there is
    return tmp_path


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """This privtab as the command `privtab`."""
    command = folder / ".git" / "bin" / "privtab"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m privtab "$@"\n')
    command.chmod(0o755)
    return {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}", **variables}


def checked(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CHECK],
        cwd=folder,
        env=environment(folder, **variables),
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def widen(folder: Path) -> None:
    policy = folder / "policy_src" / "shop" / "1.yaml"
    text = policy.read_text(encoding="utf-8")
    assert "SELECT" in text
    policy.write_text(re.sub(r"(load: ?)[^\n]*SELECT[^\n]*", r"\1anyone", text, count=1), encoding="utf-8")
    assert policy.read_text(encoding="utf-8") != text


@pytest.mark.slow
def test_a_change_that_allows_more_fails_and_is_reported(repository: Path) -> None:
    same = {"PRIVTAB_BASE": "base", "PRIVTAB_PAGES": "shop/1=shop.md", "PRIVTAB_MIN_COVERAGE": "100"}
    ran = checked(repository, **same)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    reports = repository / "privtab-reports"
    assert json.loads((reports / "lint.sarif").read_text())["version"] == "2.1.0"
    widen(repository)
    ran = checked(repository, **same)
    assert ran.returncode == 1
    failed = set(re.findall(r"this check failed: privtab (\w+)", ran.stderr))
    assert failed >= {"test", "diff", "docs"}, "every check runs, and says so"
    assert "table/load" in (reports / "diff.md").read_text()
    assert json.loads((reports / "diff.sarif").read_text())["runs"][0]["results"]


@pytest.mark.slow
def test_a_check_that_cannot_run_fails(repository: Path) -> None:
    assert checked(repository, PRIVTAB_BASE="no-such-revision").returncode == 1
    assert checked(repository, PRIVTAB_POLICIES="nowhere/").returncode == 1
    assert checked(repository, PRIVTAB_REPLAY="shop/1").returncode != 0, "no logs are named"


@pytest.mark.slow
def test_hooks_pass_on_a_clean_repository_and_fail_on_another(repository: Path) -> None:
    arguments = {"privtab-docs": ["shop/1", "--output=shop.md"]}
    hooks = {
        hook["id"]: shlex.split(hook["entry"]) + arguments.get(hook["id"], [])
        for hook in loaded(".pre-commit-hooks.yaml")
    }

    def ran(hook: str) -> int:
        return subprocess.run(
            hooks[hook], cwd=repository, env=environment(repository), check=False, capture_output=True
        ).returncode

    assert [ran(hook) for hook in hooks] == [0, 0, 0]
    widen(repository)
    assert ran("privtab-docs") == 1
    policy = repository / "policy_src" / "shop" / "1.yaml"
    policy.write_text(policy.read_text(encoding="utf-8").replace("anyone", "REED (table)"), encoding="utf-8")
    assert ran("privtab-lint") == 1
    policy.write_text("privtab: [\n")
    assert ran("privtab-fmt") == 1
