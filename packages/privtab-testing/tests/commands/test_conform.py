"""`privtab conform` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from authzen_server import start

from privtab.command._app import run

POLICY = """\
privtab: 1
system: library
version: "1"
entities: {folder: {page:}}
privileges: [READ, WRITE]
tables:
  page:
    read: READ (page)
    delete: WRITE (folder)
"""
DRIVER = """\
class Lax:
    def __init__(self, url):
        self.grants = set()

    def prepare(self, world):
        self.links = {(row.principal, f"role:{row.role}", row.scope and row.scope.id) for row in world.state.assignments}
        self.links |= {(f"user:{user}", f"group:{group}", None) for user, group in world.state.memberships}
        self.grants = {(g.grantee, g.privilege, g.entity.id) for g in world.state.grants}

    def ask(self, request):
        who = {f"user:{request.user}"}
        for _ in range(2):
            who |= {
                container
                for member, container, scope in self.links
                if member in who and (scope is None or f"{request.resource.id}/".startswith(f"{scope}/"))
            }
        held = any((name, "READ", request.resource.id) in self.grants for name in who)
        return "allowed" if held or request.action == "delete" else "refused"

    def clean(self):
        return ["a folder"] if self.grants and self.leaves else []

    leaves = False


class Leaving(Lax):
    leaves = True


class Nothing:
    def __init__(self, url=None):
        pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "library.yaml").write_text(POLICY, encoding="utf-8")
    (tmp_path / "lax_system.py").write_text(DRIVER, encoding="utf-8")
    return tmp_path


def test_a_wider_row_fails_with_its_request(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["conform", "library.yaml", "--driver", "lax_system:Lax", "--url", "lax://here"]
    assert run([*command, "--format", "json", "-o", "report.json"]) == 1
    errors = capsys.readouterr().err
    assert "questions about" in errors
    assert "calls to make" in errors
    result = json.loads((folder / "report.json").read_text())
    verdicts = {row["row"]: row["verdict"] for row in result["rows"]}
    assert verdicts == {"page/read": "agrees", "page/delete": "wider"}
    [row] = [row for row in result["rows"] if row["findings"]]
    finding = row["findings"][0]
    assert (finding["expected"], finding["answer"], finding["state"]) == ("refused", "allowed", {})
    assert finding["request"]["action"] == {"name": "delete"}
    assert run([*command, "--fail-on", "none"]) == 0
    assert run([*command, "--filter", "*/read"]) == 0


def test_a_variant_says_what_the_system_does(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    driver = ["--driver", "lax_system:Lax", "--url", "lax://here"]
    command = ["conform", "library.yaml", *driver]
    assert run(["conform", "library.yaml@page/read=other", *driver, "--write-variant", "lax"]) == 2
    assert run([*command, "--write-variant", "lax"]) == 1
    assert "library.yaml: variant `lax` with 1 row" in capsys.readouterr().err
    written = (folder / "library.yaml").read_text(encoding="utf-8")
    assert written.startswith(POLICY)
    assert written.endswith("        delete: anyone\n")
    assert run(["conform", "library.yaml@lax", *driver]) == 0
    assert run([*command, "--write-variant", "lax"]) == 2


def test_a_small_system_without_the_state_is_not_called_narrower(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty_system.py").write_text(
        "from lax_system import Lax\n\n\nclass Empty(Lax):\n    def ask(self, request):\n        return 'refused'\n",
        encoding="utf-8",
    )
    command = ["conform", "library.yaml", "--driver", "empty_system:Empty", "--url", "lax://here"]
    assert run(command) == 3
    assert "the system does not have the prepared state" in capsys.readouterr().err
    assert run([*command, "--filter", "*/delete"]) == 1, "one row may be refused to everybody"


def test_nothing_is_made_when_every_answer_is_known(folder: Path) -> None:
    (folder / "counting_system.py").write_text(
        "from lax_system import Lax\n\n\nclass Counting(Lax):\n    def prepare(self, world):\n"
        "        open('made', 'a').write('x')\n        super().prepare(world)\n",
        encoding="utf-8",
    )
    command = ["conform", "library.yaml", "--driver", "counting_system:Counting", "--url", "lax://here"]
    assert [run([*command, "--resume", "answers.jsonl"]) for _ in range(2)] == [1, 1]
    assert (folder / "made").read_text() == "x"


def test_known_differences_are_waived(folder: Path) -> None:
    (folder / "known.yaml").write_text(
        "waivers:\n  - {operation: page/delete, change: wider, who: ann, why: known, until: 2999-01-01}\n"
    )
    command = ["conform", "library.yaml", "--driver", "lax_system:Lax", "--url", "lax://here"]
    assert run([*command, "--waivers", "known.yaml"]) == 0


def test_a_dry_run_and_a_state_ask_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["conform", "library.yaml", "--driver", "authzen", "--url", "http://127.0.0.1:1"]
    assert run([*command, "--dry-run"]) == 0
    assert run([*command, "--write-state", "state.json"]) == 0
    assert json.loads((folder / "state.json").read_text())["grants"]
    assert run(command) == 3
    assert "gave no answer" in capsys.readouterr().err


@pytest.mark.slow
def test_a_served_state_is_tested_and_that_of_another_policy_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = "".join(f"    read{number}: READ (page)\n" for number in range(30))
    (folder / "other.yaml").write_text(POLICY + many, encoding="utf-8")
    command = ["--driver", "authzen", "--url"]
    assert run(["conform", "other.yaml", *command, "http://127.0.0.1:1", "--write-state", "state.json"]) == 0
    server = start(["-p", "other.yaml", "-s", "state.json"], folder)
    try:
        assert run(["conform", "other.yaml", *command, server.url]) == 0
        assert run(["conform", "other.yaml", *command, server.url, "--filter", "page/read1*", "--sample", "9"]) == 0
        (folder / "other.yaml").write_text(POLICY + many + "    write: WRITE (page)\n", encoding="utf-8")
        capsys.readouterr()
        assert run(["conform", "other.yaml", *command, server.url, "--filter", "page/read*"]) == 3
        assert "the system does not have the prepared state" in capsys.readouterr().err
    finally:
        server.stop()


@pytest.mark.slow
def test_a_server_that_reads_a_file_gets_the_state_and_the_file_is_put_back(folder: Path) -> None:
    (folder / "state.yaml").write_text("grants: []\n", encoding="utf-8")
    assert run(["compile", "library.yaml", "-o", "build", "--state", "state.yaml"]) == 0
    [policy] = folder.glob("build/**/policy.tar.gz")
    state = policy.with_name("state.tar.gz")
    before = state.read_bytes()
    server = start(["--bundles", policy.parent, "--refresh", "0.2"], folder)
    try:
        command = ["conform", "library.yaml", "--driver", "authzen", "--url", server.url, "--set", f"state={state}"]
        assert run(command) == 0
        assert state.read_bytes() == before
    finally:
        server.stop()


def test_leftovers_that_could_not_be_removed_are_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    del folder
    command = ["conform", "library.yaml", "--driver", "lax_system:Leaving", "--url", "lax://here"]
    assert run(command) == 1
    assert "left behind: a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--driver", "nobody"], "name `authzen`, a YAML file, or a class as `module:Class`"),
        (["--driver", "no_such_module:Driver"], "no driver `no_such_module:Driver`"),
        (["--driver", "lax_system:Nothing"], "it needs the methods `prepare`, `ask` and `clean`"),
        (["--driver", "lax_system:Lax"], "`lax_system:Lax` cannot be made"),
        (["--driver", "authzen"], "needs `--url`"),
        (["--driver", "lax_system:Lax", "--url", "x", "--filter", "book/*"], "no row is named `book/*`"),
        (["--driver", "lax_system:Lax", "--url", "x", "--prefix", ""], "`--prefix` is empty"),
    ],
)
def test_wrong_usage_is_reported(
    folder: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    del folder
    assert run(["conform", "library.yaml", *arguments]) == 2
    assert says in " ".join(capsys.readouterr().err.split())
