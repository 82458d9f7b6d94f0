"""No command writes over what it read: an output that is an input is refused, however its path is spelt, and the input stays."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from seeds import seeds

from privtab.command._app import run

POLICY = """\
privtab: 1
system: lake
version: "1"
entities: {cat: {tab:}}
privileges: [READ]
tables:
  tab:
    read: READ (tab)
"""
SCENARIOS = """\
scenarios: 1
policy: lake.yaml
state: state.yaml
cases:
  - {user: ann, action: read, resource: "tab:a/b", decision: allow}
"""
STATE = 'grants:\n  - {grantee: "user:ann", effect: allow, privilege: READ, entity: "tab:a/b"}\n'
CSV = "grantee,effect,privilege,entity\nuser:ann,allow,READ,tab:a/b\nuser:bob,allow,READ,tab:a/b\n"
PAGE = "# tab\n\n| Operation | Privileges |\n|---|---|\n| read | READ (tab) |\n"
ENTRY = {
    "decision_id": "1",
    "path": "privtab/lake/decision",
    "input": {
        "subject": {"type": "user", "id": "ann"},
        "action": {"name": "read"},
        "resource": {"type": "tab", "id": "a/b"},
    },
    "result": {"decision": True},
    "timestamp": "2026-11-28T10:00:00Z",
}
# A command line, where `OUT` is an output, and what it reads.
COMMANDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("unused d.jsonl -p lake.yaml -s state.yaml --propose OUT", ("state.yaml", "lake.yaml")),
    ("unused d.jsonl -p lake.yaml -s state.yaml --html OUT", ("state.yaml", "lake.yaml")),
    ("unused d.jsonl -p lake.yaml -s state --propose OUT", ("state",)),
    ("unused d.jsonl -p lake.yaml -s state --html OUT", ("state/grants.csv", "lake.yaml")),
    ("replay d.jsonl -p lake.yaml -s state.yaml -o OUT", ("state.yaml", "lake.yaml")),
    ("lint lake.yaml --format sarif -o OUT", ("lake.yaml",)),
    ("test lake.yaml --format json -o OUT", ("lake.yaml", "lake.scenarios.yaml", "state.yaml")),
    ("state pack state.yaml -p lake.yaml -o OUT", ("lake.yaml", "state.yaml")),
    ("state pack state -p lake.yaml -o OUT", ("lake.yaml", "state/grants.csv")),
    ("import page.md --system wiki --policy-version 1 -o OUT", ("page.md",)),
    ("docs lake.yaml --format markdown -o OUT", ("lake.yaml",)),
    ("filter ann read tab -p lake.yaml -s state.yaml --rows OUT", ("lake.yaml", "state.yaml")),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    texts = {"lake.yaml": POLICY, "lake.scenarios.yaml": SCENARIOS, "state.yaml": STATE, "page.md": PAGE}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "grants.csv").write_text(CSV)
    (tmp_path / "d.jsonl").write_text(json.dumps(ENTRY) + "\n")
    return tmp_path


def _content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()}


def _spelt(path: str, rng: random.Random, folder: Path) -> str:
    """A path that leads to the same file."""
    match rng.randrange(5):
        case 0:
            return str(folder / path)
        case 1:
            return f"../{folder.name}/./{path}"
        case 2:
            link = folder / f"link{Path(path).suffix}"
            link.symlink_to(folder / path)
            return link.name
        case 3:
            (folder / "linked").symlink_to(folder, target_is_directory=True)
            return f"linked/{path}"
        case _:
            return path


def _tried(seed: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(seed)
    line, inputs = COMMANDS[seed % len(COMMANDS)]
    output = _spelt(rng.choice(inputs), rng, folder)
    before = _content(folder)
    code = run(line.replace("OUT", output).split())
    said = capsys.readouterr()
    assert code == 2, (line, output, said)
    assert "was read, and is not written over" in said.err, (line, output, said)
    assert _content(folder) == before, (line, output)


@pytest.mark.parametrize("seed", seeds(range(48), quick=len(COMMANDS)))
def test_an_output_that_is_an_input_is_refused(seed: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _tried(seed, folder, capsys)


@pytest.mark.long
@pytest.mark.parametrize("part", range(100))
def test_many_outputs_that_are_inputs_are_refused(
    part: int, search_seed: int, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(100):
        place = tmp_path_factory.mktemp("it")
        with pytest.MonkeyPatch.context() as patch:
            folder.__wrapped__(place, patch)  # type: ignore[attr-defined]
            _tried(search_seed + part * 100 + number, place, capsys)


@pytest.mark.parametrize("line", [line for line, _ in COMMANDS])
def test_another_output_is_written(line: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suffix = ".html" if "html" in line else ".csv" if "rows" in line else ".tar.gz" if "pack" in line else ".yaml"
    suffix = ".md" if line.startswith("docs") else "" if line.endswith("state --propose OUT") else suffix
    assert run(line.replace("OUT", f"new{suffix}").split()) == 0, capsys.readouterr()
    assert (folder / f"new{suffix}").exists()


@pytest.mark.parametrize("state", ["state.yaml", "state"])
def test_a_state_is_narrowed_in_place_if_that_is_asked_for(state: str, folder: Path) -> None:
    assert run([*f"unused d.jsonl -p lake.yaml -s {state} --propose {state} --in-place".split()]) == 0
    if state == "state":
        assert (folder / "state" / "grants.csv").read_text() == CSV.rpartition("user:bob")[0]


def test_suggestions_are_laid_out_as_fmt_does(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "\n".join(f"    see_configuration_number_{number}: READ (cat)" for number in range(12))
    (folder / "many.yaml").write_text(
        POLICY.replace("system: lake", "system: many").partition("  tab:")[0] + f"  cat:\n{rows}\n"
    )
    assert run(["test", "many.yaml", "--suggest", "-o", "many.scenarios.yaml"]) == 0
    capsys.readouterr()
    assert run(["fmt", "--check", "many.scenarios.yaml"]) == 0, capsys.readouterr()
    assert run(["test", "many.yaml"]) == 0, capsys.readouterr()


def test_what_init_writes_is_laid_out_and_has_no_findings(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "shop"]) == 0
    os.chdir(folder / "shop")
    capsys.readouterr()
    assert run(["fmt", "--check"]) == 0, capsys.readouterr()
    assert run(["lint"]) == 0, capsys.readouterr()
