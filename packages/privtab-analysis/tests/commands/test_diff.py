from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT
from jsonschema import Draft202012Validator

from privtab_analysis.commands import _diff

HISTORIES = {
    "internals/history-cdap.md": 3,
    "internals/history-gravitino.md": 3,
    "internals/history-polaris.md": 1,
    "internals/history-kafka.md": 1,
    "internals/history-trino.md": 1,
    "internals/history-unitycatalog.md": 1,
}
"""Pages below docs/ with reports, and how many."""
SCHEMA = ROOT / "tests" / "report" / "sarif.schema.json"

OLD = """\
privtab: 1
system: shop
version: "1"
entities: {store: {item: }}
privileges: [READ, WRITE]
tables:
  store: {open: READ (store)}
  item:
    read: READ (item)
    write:
      requires: WRITE (item)
      ambiguous: {cell: WRITE, readings: {both: READ + WRITE (item)}, why: as it says}
    drop: {requires: WRITE (item), revokes: READ (item)}
variants:
  open: {tables: {item: {read: anyone}}}
"""
NEW = OLD.replace("read: READ (item)", "read: READ/WRITE (item)").replace(
    "    drop: {requires: WRITE", "    erase: {requires: READ"
)

Run = Callable[..., Any]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an old and a new policy, in which commands run."""
    (tmp_path / "old.yaml").write_text(OLD, encoding="utf-8")
    (tmp_path / "new.yaml").write_text(NEW, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with two commits: the policy is widened in the second, and once more in the working tree."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "gitconfig").write_text("[user]\n\tname = ann\n\temail = ann@example.org\n", encoding="utf-8")
    top = tmp_path / "repository"
    policy = top / "policy_src" / "shop" / "now.yaml"
    policy.parent.mkdir(parents=True)
    monkeypatch.chdir(top)
    git("init", "--quiet", "--initial-branch=main")
    policy.write_text(OLD, encoding="utf-8")
    (policy.parent / "state.yaml").write_text("grants: []\n", encoding="utf-8")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    policy.write_text(NEW, encoding="utf-8")
    git("commit", "--quiet", "-a", "-m", "second")
    policy.write_text(NEW.replace("open: READ (store)", "open: anyone"), encoding="utf-8")
    return top


def git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True)  # noqa: S607  whichever git is there


def changed(ran: Any) -> dict[str, str]:
    """The operations that changed, from JSON."""
    return {
        f"{row['entity']}/{row['operation']}": row["verdict"]
        for comparison in json.loads(ran.out)["comparisons"]
        for row in comparison["operations"]
        if row["verdict"] != "equal"
    }


# --- what is compared -------------------------------------------------------------------------------------------------


def test_two_files(privtab: Run, files: Path) -> None:
    ran = privtab("diff", "old.yaml", "new.yaml")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[:2] == [
        "old.yaml → new.yaml",
        "3 of 5 operations changed: 1 wider, 1 added, 1 removed",
    ]
    assert "before  requires  READ (item)" in ran.out
    assert "after   requires  READ/WRITE (item)" in ran.out
    assert "deny → allow  alice read item:store1/item1\n      alice holds WRITE on item:store1/item1\n" in ran.out
    assert "new.yaml:9" in ran.out


@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_the_screen_is_as_wide_as_it_may_be(
    privtab: Run, files: Path, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("privtab.command._output.PLAIN_WIDTH", int(columns))
    ran = privtab("diff", "old.yaml", "new.yaml")
    assert max(map(len, ran.out.splitlines())) <= int(columns)


def test_a_policy_by_name_and_itself(privtab: Run) -> None:
    ran = privtab("diff", "cdap/final", "cdap/final")
    assert ran.out.splitlines() == ["cdap/final → cdap/final", "130 operations: nothing changed"]


@pytest.mark.slow
def test_readings_and_variants(privtab: Run, files: Path) -> None:
    assert changed(privtab("diff", "old.yaml", "old.yaml@item/write=both", "--format", "json")) == {
        "item/write": "narrower"
    }
    from_both = privtab("diff", "old.yaml@item/write=both", "old.yaml", "--format", "json")
    assert changed(from_both) == {"item/write": "wider"}
    assert changed(privtab("diff", "old.yaml", "old.yaml@open", "--format", "json")) == {"item/read": "wider"}
    assert changed(privtab("diff", "old.yaml@open", "old.yaml", "--format", "json")) == {"item/read": "narrower"}
    assert "old.yaml → old.yaml@item/write=both" in privtab("diff", "old.yaml", "old.yaml@item/write=both").out
    assert privtab("diff", "old.yaml", "old.yaml@item/write=other").code == 2
    refused = privtab("diff", "old.yaml", "--from-variant", "open")
    assert (refused.code, "write the variant behind the first policy" in refused.err) == (2, True)


def test_files_and_revisions(privtab: Run, repository: Path) -> None:
    path = "policy_src/shop/now.yaml"
    both = privtab("diff", f"HEAD~1:{path}", f"HEAD:{path}", "--format", "json")
    assert both.code == 0, both.err
    assert changed(both) == {"item/read": "wider", "item/erase": "added", "item/drop": "removed"}
    assert changed(privtab("diff", f"HEAD:{path}", "shop/now", "--format", "json")) == {"store/open": "wider"}
    assert changed(privtab("diff", f"HEAD:{path}", "--format", "json")) == {"store/open": "wider"}
    row = json.loads(both.out)["comparisons"][0]["operations"][0]
    assert row["before"]["path"] == f"HEAD~1:{path}"


def test_one_policy_alone_is_compared_with_head(privtab: Run, repository: Path) -> None:
    for name in ("shop/now", "policy_src/shop/now.yaml"):
        ran = privtab("diff", name, "--format", "json")
        assert changed(ran) == {"store/open": "wider"}, ran.err
    variant = privtab("diff", "shop/now@open")
    assert "HEAD:policy_src/shop/now.yaml@open → policy_src/shop/now.yaml@open" in variant.out
    assert "wider    store/open" in variant.out
    new = repository / "policy_src" / "shop" / "next.yaml"
    new.write_text(OLD, encoding="utf-8")
    assert set(changed(privtab("diff", "shop/next", "--format", "json")).values()) == {"added"}


def test_a_revision_alone_is_every_policy(privtab: Run, repository: Path) -> None:
    ran = privtab("diff", "HEAD~1", "--format", "json")
    assert changed(ran)["store/open"] == "wider"
    assert changed(ran)["item/read"] == "wider"
    assert len(json.loads(ran.out)["comparisons"]) == 1, "a state is no policy"
    assert changed(privtab("diff", "--format", "json")) == {"store/open": "wider"}
    (repository / "policy_src" / "shop" / "now.yaml").unlink()
    gone = privtab("diff", "HEAD", "--format", "json")
    assert set(changed(gone).values()) == {"removed"}
    git("checkout", "--quiet", ".")
    assert privtab("diff").out == "no policy changed\n"


def test_policies_in_json_are_compared_with_their_revision(privtab: Run, repository: Path) -> None:
    policy = repository / "policy_src" / "shop" / "json.json"
    text = json.dumps(yaml.safe_load((repository / "policy_src" / "shop" / "now.yaml").read_text()))
    policy.write_text(text)
    git("add", ".")
    git("commit", "--quiet", "-m", "in JSON")
    policy.write_text(text.replace('"requires": "WRITE (item)"', '"requires": "READ/WRITE (item)"'))
    ran = privtab("diff", "HEAD", "--fail-on", "wider", "--format", "json")
    assert ran.code == 1
    assert changed(ran)["item/write"] == "wider"


def test_from_a_folder_below(privtab: Run, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository / "policy_src")
    assert changed(privtab("diff", "HEAD:policy_src/shop/now.yaml", "--format", "json")) == {"store/open": "wider"}
    assert changed(privtab("diff", "HEAD:./shop/now.yaml", "shop/now.yaml", "--format", "json")) == {
        "store/open": "wider"
    }


@pytest.mark.slow
def test_policies_are_found_by_the_settings_as_lint_finds_them(
    privtab: Run, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git("checkout", "--quiet", ".")
    (repository / "privtab.toml").write_text('policies = ["tables", "more/one.yaml"]\n', encoding="utf-8")
    git("mv", "policy_src", "tables")
    (repository / "more").mkdir()
    (repository / "more" / "one.yaml").write_text(OLD, encoding="utf-8")
    git("add", ".")
    git("commit", "--quiet", "-m", "elsewhere")
    assert privtab("diff", "HEAD", "--fail-on", "wider").out == "no policy changed\n"
    for name in ("tables/shop/now.yaml", "more/one.yaml"):
        (repository / name).write_text(NEW.replace("open: READ (store)", "open: anyone"), encoding="utf-8")
    ran = privtab("diff", "HEAD", "--fail-on", "wider", "--format", "json")
    assert (ran.code, ran.err) == (1, "")
    assert [c["after"]["shown"] for c in json.loads(ran.out)["comparisons"]] == [
        "more/one.yaml",
        "tables/shop/now.yaml",
    ]
    monkeypatch.chdir(repository / "more")
    below = privtab("diff", "HEAD", "--fail-on", "wider", "--format", "json")
    assert below.code == 1, below.err
    assert [c["after"]["shown"] for c in json.loads(below.out)["comparisons"]] == [
        "../tables/shop/now.yaml",
        "one.yaml",
    ]


def test_settings_that_point_elsewhere_hide_no_policy(privtab: Run, repository: Path) -> None:
    git("checkout", "--quiet", ".")
    (repository / "privtab.toml").write_text('policies = ["tables"]\n', encoding="utf-8")
    (repository / "tables").mkdir()
    (repository / "tables" / "small.yaml").write_text(OLD, encoding="utf-8")
    (repository / "policy_src" / "shop" / "now.yaml").write_text(
        NEW.replace("open: READ (store)", "open: anyone"), encoding="utf-8"
    )
    ran = privtab("diff", "HEAD", "--fail-on", "wider", "--format", "json")
    assert (ran.code, ran.err) == (1, "")
    assert [c["after"]["shown"] for c in json.loads(ran.out)["comparisons"]] == [
        "policy_src/shop/now.yaml",
        "tables/small.yaml",
    ]


def test_a_gate_that_finds_no_policy_is_bad_usage(privtab: Run, repository: Path) -> None:
    git("mv", "policy_src", "elsewhere")
    git("commit", "--quiet", "-m", "elsewhere")
    (repository / "elsewhere" / "shop" / "now.yaml").write_text(OLD, encoding="utf-8")
    for arguments in (("HEAD",), ()):
        ran = privtab("diff", *arguments, "--fail-on", "wider")
        assert (ran.code, ran.out) == (2, "")
        assert "no policy in policy_src, now or in `HEAD`" in ran.err
        assert "`policies` in privtab.toml" in ran.err


def test_missing_policies_and_revisions(
    privtab: Run, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments, code, message in [
        (("HEAD~9:policy_src/shop/now.yaml", "shop/now"), 2, "git knows no revision `HEAD~9`"),
        (("HEAD:policy_src/shop/no.yaml", "shop/now"), 3, "no `policy_src/shop/no.yaml` in `HEAD`"),
        (("shop/no", "shop/now"), 2, "no policy `shop/no`"),
        (("origin/main",), 2, "git knows no revision `origin/main`: fetch it first"),
        (("HEAD~9",), 2, "git knows no revision `HEAD~9`: fetch it first"),
        (("shop/no",), 2, "no policy `shop/no`"),
        (("no.yaml",), 3, "no such file: no.yaml"),
    ]:
        ran = privtab("diff", *arguments)
        assert (ran.code, ran.out) == (code, ""), ran.err
        assert message in ran.err
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "old.yaml").write_text(OLD, encoding="utf-8")
    monkeypatch.chdir(outside)
    ran = privtab("diff", "old.yaml")
    assert ran.code == 3
    assert "no git repository here" in ran.err


def test_without_git(privtab: Run, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(files / "nowhere"))
    assert privtab("diff", "old.yaml", "new.yaml").code == 0, "two files need none"
    ran = privtab("diff", "HEAD:old.yaml", "new.yaml")
    assert ran.code == 3
    assert "git is not installed" in ran.err


def test_a_broken_policy_is_reported_with_its_revision(privtab: Run, repository: Path) -> None:
    policy = repository / "policy_src" / "shop" / "now.yaml"
    policy.write_text(OLD.replace("READ (store)", "REED (store)"), encoding="utf-8")
    git("commit", "--quiet", "-a", "-m", "broken")
    policy.write_text(OLD, encoding="utf-8")
    ran = privtab("diff", "shop/now")
    assert ran.code == 1
    assert "HEAD:policy_src/shop/now.yaml:7" in ran.err
    assert ran.out == ""


def test_large_files_are_read_by_two_processes(privtab: Run, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_diff, "LARGE", 1)
    ran = privtab("diff", "old.yaml", "new.yaml", "--format", "json")
    assert changed(ran) == {"item/read": "wider", "item/erase": "added", "item/drop": "removed"}
    (files / "old.yaml").write_text(OLD.replace("READ (store)", "REED (store)"), encoding="utf-8")
    ran = privtab("diff", "old.yaml", "new.yaml")
    assert ran.code == 1
    assert ran.err.count("REED") == 2, "the message and the line, nothing twice"


# --- the gate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ((), 0),
        (("--fail-on", "wider"), 1),
        (("--fail-on", "narrower"), 0),
        (("--fail-on", "narrower,removed"), 1),
        (("--fail-on", "narrower", "--fail-on", "added"), 1),
        (("--fail-on", "any"), 1),
        (("--fail-on", "wide"), 2),
    ],
)
def test_fail_on(privtab: Run, files: Path, options: tuple[str, ...], code: int) -> None:
    assert privtab("diff", "old.yaml", "new.yaml", *options).code == code
    if code == 1:
        assert privtab("diff", "old.yaml", "old.yaml", *options).code == 0


def waiver(until: str = "", change: str = "wider") -> str:
    day = until or (datetime.now(tz=UTC) + timedelta(days=2)).date().isoformat()
    return f"waivers:\n  - {{operation: item/read, change: {change}, who: ann, why: agreed, until: {day}}}\n"


def test_waivers(privtab: Run, files: Path) -> None:
    (files / "privtab-waivers.yaml").write_text(waiver(), encoding="utf-8")
    ran = privtab("diff", "old.yaml", "new.yaml", "--fail-on", "wider")
    assert ran.code == 0, "the usual file is taken where it is there"
    assert "1 wider, 1 added, 1 removed (1 waived)" in ran.out
    assert "waived by ann until" in ran.out
    (files / "other.yaml").write_text(waiver(until="2020-01-01"), encoding="utf-8")
    ran = privtab("diff", "old.yaml", "new.yaml", "--fail-on", "wider", "--waivers", "other.yaml")
    assert ran.code == 1
    assert "other.yaml:2:5: warning[D202 expired-waiver]" in ran.err
    assert privtab("diff", "old.yaml", "new.yaml", "--waivers", "none.yaml").code == 3


def test_an_unused_waiver_is_reported_and_changes_nothing(privtab: Run, files: Path) -> None:
    (files / "privtab-waivers.yaml").write_text(waiver(change="narrower"), encoding="utf-8")
    ran = privtab("diff", "old.yaml", "new.yaml")
    assert ran.code == 0
    assert "D203 unused-waiver" in ran.err


def test_a_waiver_that_says_too_little_fails(privtab: Run, files: Path) -> None:
    (files / "privtab-waivers.yaml").write_text(waiver().replace("who: ann, ", ""), encoding="utf-8")
    ran = privtab("diff", "old.yaml", "new.yaml")
    assert ran.code == 1
    assert "privtab-waivers.yaml:2:5: error[D201 bad-waiver]: `who` is missing in a waiver" in ran.err


# --- formats ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_json_holds_witnesses_that_decide_takes(privtab: Run, tmp_path: Path) -> None:
    ran = privtab("diff", "cdap/initial", "cdap/final", "--format", "json")
    (comparison,) = json.loads(ran.out)["comparisons"]
    assert comparison["before"] == {"shown": "cdap/initial", "system": "cdap", "version": "initial"}
    rows = [row for row in comparison["operations"] if row["witnesses"]][:6]
    assert comparison["summary"]["operations"] == sum(v for k, v in comparison["summary"].items() if k != "operations")
    for number, row in enumerate(rows):
        for witness in row["witnesses"]:
            state, requests_file = tmp_path / f"{number}.json", tmp_path / f"{number}.jsonl"
            state.write_text(json.dumps(witness["state"]), encoding="utf-8")
            requests_file.write_text(json.dumps(witness["request"]) + "\n", encoding="utf-8")
            for policy, side in (("cdap/initial", "before"), ("cdap/final", "after")):
                decided = privtab(
                    "decide",
                    "-p",
                    policy,
                    "-s",
                    state,
                    "--requests",
                    requests_file,
                    "--engine",
                    "reference",
                )
                assert json.loads(decided.out)["decision"] == (witness[side]["answer"] == "allow"), decided.err


def test_markdown(privtab: Run, files: Path) -> None:
    lines = privtab("diff", "old.yaml", "new.yaml", "--format", "markdown").out.splitlines()
    assert lines[0] == "## `old.yaml` → `new.yaml`"
    assert "| **wider** | `item/read` | `READ (item)` | `READ/WRITE (item)` |" in lines
    assert "<details><summary><code>item/read</code>: wider</summary>" in lines
    assert lines.count("</details>") == 1
    columns = {line.count("|") for line in lines if line.startswith("|")}
    assert columns == {5}, "every row of the table has its cells"


def test_markdown_escapes_what_it_would_read(privtab: Run, files: Path) -> None:
    (files / "privtab-waivers.yaml").write_text(waiver().replace("why: agreed", "why: '<b>*a|b*'"), encoding="utf-8")
    out = privtab("diff", "old.yaml", "new.yaml", "--format", "markdown").out
    assert r"\<b\>\*a\|b\*" in out


def test_sarif(privtab: Run, files: Path) -> None:
    (files / "privtab-waivers.yaml").write_text(waiver(), encoding="utf-8")
    ran = privtab("diff", "old.yaml", "new.yaml", "--format", "sarif", "--fail-on", "removed,wider")
    log = json.loads(ran.out)
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(log)
    results = {result["ruleId"]: result for result in log["runs"][0]["results"]}
    assert {code: result["level"] for code, result in results.items()} == {
        "D101": "error",
        "D104": "note",
        "D105": "error",
    }
    assert results["D101"]["suppressions"] == [{"kind": "external", "justification": "ann: agreed"}]
    assert "`alice read item:store1/item1`: deny → allow" in results["D101"]["message"]["text"]
    place = results["D105"]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "new.yaml", "what is gone is shown in the file that it is gone from"


def test_help_has_examples(privtab: Run) -> None:
    ran = privtab("diff", "--help")
    assert ran.code == 0
    assert "privtab diff cdap/revised cdap/final" in ran.out


# --- the page that the command writes ---------------------------------------------------------------------------------

_COMMAND = re.compile(r"(<!-- privtab ([^>]*) -->\n).*?(<!-- end -->)", re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", HISTORIES)
def test_the_history_is_what_the_command_writes(
    page: str, privtab: Run, golden: Callable[[Path, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)

    def written(part: re.Match[str]) -> str:
        out = re.sub(r"^## ", "### ", privtab(*part[2].split()).out, flags=re.MULTILINE)
        return f"{part[1]}\n{out}\n{part[3]}"

    path = ROOT / "docs" / page
    text = path.read_text(encoding="utf-8")
    assert len(_COMMAND.findall(text)) == HISTORIES[page]
    golden(path, _COMMAND.sub(written, text))
