"""Exit codes, help and errors of the whole command line."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from typer.testing import CliRunner

from privtab import command as cli
from privtab.command import _app, _typer, argument
from privtab.command._line import tab_lines
from privtab.filters import sql
from privtab_analysis.commands.filter import DIALECTS


def every_command(group: Any, *above: str) -> Iterator[list[str]]:
    """The commands of the application, but for the jobs of Spark, whose help is their own."""
    for name, command in group.commands.items():
        if name not in ("spark", "certify") and not command.hidden:
            yield from every_command(command, *above, name) if hasattr(command, "commands") else [[*above, name]]


COMMANDS = sorted(every_command(_app.command()))
MAIN = "import sys; from privtab.command import main; main()"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_a_summary_and_an_example(privtab: Callable[..., Any], command: list[str]) -> None:
    ran = privtab(*command, "--help")
    assert ran.code == 0
    lines = [line.strip() for line in ran.out.splitlines() if line.strip()]
    assert lines[0].startswith(f"Usage: privtab {' '.join(command)}")
    assert lines[1].endswith(".")
    assert "Example:" in lines
    examples = lines[lines.index("Example:") + 1 :]
    assert f"privtab {' '.join(command)}" in examples[0]


def test_help_texts_are_complete(privtab: Callable[..., Any]) -> None:
    assert "[tool.privtab.lint]" in privtab("lint", "--help").out


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_paragraphs_of_help_flow(
    privtab: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line.strip() for line in privtab(*command, "--help").out.splitlines()]
    description = lines[: lines.index("Example:")]
    for line, following in itertools.pairwise(description):
        word = following.split(" ")[0]
        assert not line or not following or len(line) + 1 + len(word) > 78, line


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["state.import"],
        ["state.import", "--help"],
        ["bundle.verify", "policy.tar.gz"],
        ["compile", "--nope"],
        ["decide"],
        ["describe"],
        ["describe", "no/such_policy"],
        ["describe", "cdap/final", "--format", "xml"],
        ["describe", "cdap/final@namespace/lst=parent"],
        ["decide", "--policy", "cdap/final"],
        ["compile", "no/such_policy"],
        ["opa", "run", "--policy", "cdap/final", "--port", "99999"],
    ],
    ids=" ".join,
)
def test_bad_usage_is_exit_code_2(privtab: Callable[..., Any], arguments: list[str]) -> None:
    ran = privtab(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert "Traceback" not in ran.err
    assert ran.err.strip()


def test_an_unknown_policy_gets_a_hint(privtab: Callable[..., Any]) -> None:
    ran = privtab("describe", "cdap/finale")
    assert ran.code == 2
    assert "did you mean `cdap/final`?" in ran.err


def test_the_world_failing_is_exit_code_3_without_a_traceback(
    privtab: Callable[..., Any], policy: Path, state: Path, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way", encoding="utf-8")
    ran = privtab("state", "pack", state, "--policy", policy, "-o", blocked / "below" / "state.tar.gz")
    assert ran.code == 3
    assert ran.err.startswith("privtab: cannot write ")
    assert "Traceback" not in ran.err


def test_no_opa_is_exit_code_3(privtab: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PRIVTAB_OPA", str(tmp_path / "nothing"))
    ran = privtab("opa", "path")
    assert ran.code == 3
    assert ran.err.startswith("privtab: ")


@pytest.mark.slow
def test_without_a_terminal_there_are_no_colours(policy: Path, state: Path) -> None:
    ask = ["explain", "ann", "read", "item:s/a/x", "-p", str(policy), "-s", str(state)]
    ran = subprocess.run([sys.executable, "-c", MAIN, *ask], check=True, capture_output=True, text=True, timeout=60)
    assert "ALLOW" in ran.stdout
    assert "\x1b" not in ran.stdout + ran.stderr


def test_help_loads_none_of_the_compiler(tmp_path: Path) -> None:
    heavy = ("yaml", "lark", "jinja2", "pyspark", "numpy", "pyarrow", "requests", "privtab.pipeline")
    source = (
        "import sys\nfrom privtab.command._app import run\ncode = run(['compile', '--help'])\n"
        f"sys.stderr.write(repr([n for n in {heavy!r} if n in sys.modules]))\nsys.exit(code)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", source], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60
    )
    assert ran.stderr == "[]"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_no_success(policy: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-c", MAIN, "describe", str(policy), "--format", "json"],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    assert ran.returncode != 0


@pytest.mark.slow
def test_a_reader_that_goes_away_gets_no_traceback(policy: Path, state: Path, tmp_path: Path) -> None:
    request = '{"subject": {"type": "user", "id": "ann"}, "action": {"name": "open"}, "resource": {"type": "store", "id": "s"}}\n'
    requests = tmp_path / "requests.jsonl"
    requests.write_text(request * 3000, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "decide", "-p", str(policy), "-s", str(state), "-r", str(requests)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait(60) != 0
    assert b"Traceback" not in errors


def test_version(privtab: Callable[..., Any]) -> None:
    import privtab as package

    ran = privtab("--version")
    assert (ran.code, ran.out) == (0, f"privtab {package.__version__}\n")


def completed(line: str, **environment: str) -> list[str]:
    """What Bash would be offered at the end of a line, by the script that `--install-completion` installs."""
    words = line.split(" ")
    variables = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_PRIVTAB_COMPLETE": "complete_bash"}
    ran = subprocess.run(
        [sys.executable, "-c", MAIN],
        env=os.environ | variables | environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.stderr == ""
    return ran.stdout.split()


@pytest.mark.parametrize("shell", [shell for shell in ("bash", "zsh", "fish") if shutil.which(shell)])
def test_the_script_for_the_shell_that_calls_is_shown(shell: str) -> None:
    # The second command keeps the shell in its place: it is found by looking at the parent of the process.
    line = f"{sys.executable} -c '{MAIN}' --show-completion; :"
    ran = subprocess.run([shell, "-c", line], check=False, capture_output=True, text=True, timeout=60)
    assert "_PRIVTAB_COMPLETE" in ran.stdout, ran.stderr


def test_the_dialects_that_are_completed_are_those_of_filters() -> None:
    assert set(DIALECTS) == set(sql.DIALECTS)


@pytest.mark.slow
def test_names_of_policies_and_channels_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "registry" / "channels" / "dev").mkdir(parents=True)
    (tmp_path / "registry" / "channels" / "prod").mkdir()
    assert completed("privtab registry roll") == ["rollback"]
    assert completed("privtab describe cdap/f") == ["cdap/final"]
    assert completed("privtab who-can read x:y -p cdap/f") == ["cdap/final"]
    assert completed("privtab filter ann read table --dialect s") == ["snowflake", "spark", "sqlite"]
    assert completed("privtab explain -p cdap/final ann read_") == ["read_events", "read_metadata"]
    assert completed("privtab who-can -p cdap/final read st") == ["stream:"]
    assert completed("privtab filter -p cdap/final ann read da") == ["dataset"]
    assert completed("privtab explain ann read_") == [], "no policy is named yet"
    assert completed("privtab explain -p nowhere/x ann read_") == []
    assert completed("privtab deploy -r registry -c d") == ["dev"]
    assert completed("privtab registry rollback -c ", PRIVTAB_REGISTRY="registry") == ["dev", "prod"]
    assert completed("privtab deploy -r nowhere -c d") == []
    (tmp_path / "privtab.toml").write_text("policies = 1\n", encoding="utf-8")
    assert completed("privtab describe cdap/f") == [], "wrong settings are reported by the command"


def test_commands_are_listed_in_groups(privtab: Callable[..., Any]) -> None:
    lines = privtab("--help").out.splitlines()
    panels = [line.strip("╭─╮ ") for line in lines if line.startswith("╭")]
    assert panels == ["Options", "Start here", "Write", "Check", "Ask", "Grant", "Ship", "Serve"]
    serve = lines.index(next(line for line in lines if line.startswith("╭─ Serve")))
    assert {line.split()[1] for line in lines[serve + 1 : -2] if line[2:3].strip()} >= {"opa", "spark"}


TOY = """\
'''`privtab shout-out`: a command of a test.'''

import typer

PANEL = "Ask"


def run(name: str) -> None:
    '''Greet somebody loudly.'''
    typer.echo(name.upper())
"""


def test_a_module_in_the_folder_of_commands_is_a_command(
    privtab: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shout_out.py").write_text(TOY, encoding="utf-8")
    monkeypatch.setattr(cli, "__path__", [*cli.__path__, str(tmp_path)])
    monkeypatch.setattr(_app, "MODULES", _app.modules_of(cli.__path__))
    monkeypatch.setattr(_app, "command", _app.command.__wrapped__)
    assert privtab("shout-out", "ann").out == "ANN\n"
    assert "Greet somebody loudly." in privtab("--help").out


@pytest.mark.parametrize("name", ["rollback", "status"])
def test_words_that_programs_call_are_commands_of_registries(privtab: Callable[..., Any], name: str) -> None:
    ran = privtab(name, "--help")
    assert (ran.code, f"privtab registry {name} " in ran.out) == (0, True)


MOVED = tab_lines("moved.tsv")


@pytest.mark.parametrize(("earlier", "now"), MOVED, ids=[was for was, _ in MOVED])
def test_an_earlier_name_says_what_to_write(privtab: Callable[..., Any], earlier: str, now: str) -> None:
    ran = privtab(*earlier.split(), "page.md")
    assert (ran.code, f"there is no `privtab {earlier}`: write `privtab {now}`" in ran.err) == (2, True)
    words = list(itertools.takewhile(lambda word: re.fullmatch("[a-z-]*[a-z]", word) and word[0] != "-", now.split()))
    written = privtab(*words, "--help")
    assert written.code == 0
    assert f"Usage: privtab {' '.join(words)} " in written.out
    assert [word for word in now.split() if word.startswith("--") and word not in written.out] == []


def test_a_former_option_is_refused_with_what_is_written_instead(privtab: Callable[..., Any]) -> None:
    for option, now in tab_lines("former.tsv"):
        ran = privtab("opa", "path", option, "x")
        assert (ran.code, f"`{option}` is no option any more: {now}" in ran.err) == (2, True)


@pytest.mark.parametrize("command", ["describe"])
@pytest.mark.parametrize(
    "given", [("cdap/final",), ("-p", "cdap/final"), ("--policy=cdap/final",), ("--policy", "cdap/final")]
)
def test_commands_about_one_policy_take_it_as_an_option(
    privtab: Callable[..., Any], command: str, given: tuple[str, ...]
) -> None:
    ran = privtab(command, *given)
    assert (ran.code, "cdap" in ran.out) == (0, True)


def test_a_text_that_is_made_for_help_stands_in_the_help_of_any_command() -> None:
    app = _typer.Commands()

    @app.command("show")
    def show(*, name: Annotated[str, argument("NAME", lambda: "A name that help looks for.")]) -> None:
        """Show."""

    ran = CliRunner().invoke(app, ["--help"])
    assert ran.exit_code == 0, ran.exception
    assert "A name that help looks for." in ran.output
