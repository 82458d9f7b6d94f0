from __future__ import annotations

import json
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from checkout import ROOT
from rich.cells import cell_len

from privtab.checks._every import codes


def broken(policy: Path) -> None:
    text = policy.read_text(encoding="utf-8")
    policy.write_text(text.replace("open: READ", "open: REED").replace("create: WRITE (shelf)", "create: WRIT (shelf)"))


def test_a_clean_policy_is_reported_as_clean(privtab: Callable[..., Any], policy: Path) -> None:
    ran = privtab("lint", policy)
    assert ran.code == 0, ran.err
    assert ran.err == ""


def test_all_findings_come_at_once_sorted_by_place(privtab: Callable[..., Any], policy: Path, tmp_path: Path) -> None:
    broken(policy)
    other = tmp_path / "another.yaml"
    other.write_text(policy.read_text(encoding="utf-8").replace("system: shop", "system: shop2"), encoding="utf-8")
    ran = privtab("lint", policy, other, "--format", "json")
    assert ran.code == 1
    found = [finding for finding in json.loads(ran.out) if finding["severity"] == "error"]
    places = [(finding["path"], finding["line"], finding["column"]) for finding in found]
    assert len(places) == 4
    assert places == sorted(places)
    assert {finding["name"] for finding in found} == {"unknown-privilege"}
    assert "READ" in found[0]["help"]


def test_for_people_findings_stand_by_file_with_line_and_caret(privtab: Callable[..., Any], policy: Path) -> None:
    broken(policy)
    for words in ([], ["--format", "pretty"], ["--format", "text"]):
        ran = privtab("lint", policy, *words)
        assert ran.code == 1
        lines = ran.out.splitlines()
        assert lines[0] == str(policy)
        number = next(n for n, text in enumerate(policy.read_text().splitlines(), start=1) if "REED" in text)
        at = next(n for n, text in enumerate(lines) if text.strip().startswith(f"{number}:11 "))
        assert lines[at].split()[1:] == ["error", "P101", "unknown-privilege"]
        assert lines[at + 1].strip() == "unknown privilege `REED`"
        assert lines[at + 2].endswith("│ open: REED (store)")
        assert lines[at + 3].endswith("│       ^^^^")
        assert lines[at + 4].strip() == "help: did you mean `READ`?"
        assert "2 errors in 1 policy" in lines
        assert "  2  P101  unknown-privilege" in lines
        assert lines[-1].startswith("`privtab lint --explain P101`")
        assert not any(line != line.rstrip() for line in lines)


@pytest.mark.parametrize("width", [80, 120])
def test_pretty_output_keeps_to_the_width(
    width: int, policy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from privtab.command import lint
    from privtab.command._output import recorder

    policy.write_text(policy.read_text().replace("open: READ (store)", f"open: READ (store){' or WRITE (store)' * 20}"))
    linted = lint.check([policy], None, lint.selection(None, None), None)
    console = recorder(StringIO(), width=width)
    lint.show(linted, console)
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().splitlines()
    assert any("…" in line for line in lines)
    assert all(cell_len(line) <= width for line in lines if str(policy) not in line)


def test_a_folder_is_searched_for_policies_alone(
    privtab: Callable[..., Any], policy: Path, state: Path, tmp_path: Path
) -> None:
    assert state.parent == tmp_path
    assert privtab("lint", tmp_path).code == 0
    broken(policy)
    assert privtab("lint", tmp_path).code == 1


def test_without_policies_there_is_nothing_to_check(
    privtab: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("lint", "compile", "test", "fmt"):
        ran = privtab(command)
        assert (ran.code, ran.out) == (2, "")
        assert "there is no policy_src/ here" in ran.err
        assert "`policies` in privtab.toml" in ran.err


@pytest.mark.parametrize("command", ["lint", "compile", "test", "fmt"])
def test_each_place_that_is_named_needs_a_policy(
    privtab: Callable[..., Any], policy: Path, tmp_path: Path, command: str
) -> None:
    (tmp_path / "empty").mkdir()
    ran = privtab(command, policy, tmp_path / "empty")
    assert (ran.code, ran.out) == (2, "")
    assert f"in {tmp_path / 'empty'}" in ran.err


def test_policies_lie_where_the_settings_say(
    privtab: Callable[..., Any], policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tables" / "more").mkdir(parents=True)
    policy.rename(tmp_path / "tables" / "shop.yaml")
    (tmp_path / "privtab.toml").write_text('policies = ["tables"]\n', encoding="utf-8")
    for folder, shown in ((tmp_path, "tables/shop.yaml"), (tmp_path / "tables" / "more", "../shop.yaml")):
        monkeypatch.chdir(folder)
        broken(tmp_path / "tables" / "shop.yaml")
        ran = privtab("lint", "--format", "json")
        assert ran.code == 1
        assert {finding["path"] for finding in json.loads(ran.out)} == {shown}
        assert privtab("describe", "shop").code == 1, "names are looked up there too"
        assert privtab("fmt", "--check").code == 1
    (tmp_path / "privtab.toml").write_text('policies = ["moved"]\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    ran = privtab("lint")
    assert ran.code == 2
    assert "there is no moved/ here" in ran.err


def test_the_hooks_run_for_policies_anywhere() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert {hook["id"] for hook in hooks} == {"privtab-fmt", "privtab-lint", "privtab-docs"}
    for hook in hooks:
        for name in ("tables/shop.yaml", "policy_src/cdap/final.yml", "privtab.toml", "pyproject.toml"):
            assert re.search(hook["files"], name), name
        assert not hook["pass_filenames"], "the command looks at every policy, and fails where there is none"


def test_shipped_policies_have_no_errors(privtab: Callable[..., Any]) -> None:
    ran = privtab(
        "lint", "cdap/initial", "cdap/draft", "cdap/revised", "cdap/final", "gravitino/1.1.0", "streams/teracloud"
    )
    assert ran.code == 0, ran.err


TWICE = "open: READ (store) or READ (store) and WRITE (store)"


def twice(policy: Path, comment: str = "") -> None:
    """Give the policy a finding P310, beside a comment."""
    policy.write_text(policy.read_text(encoding="utf-8").replace("open: READ (store)", TWICE + comment))


def found(ran: Any) -> set[str]:
    return {finding["code"] for finding in json.loads(ran.out) if finding["ignored"] is None}


def test_fail_on_says_from_which_severity_on_a_run_fails(privtab: Callable[..., Any], policy: Path) -> None:
    twice(policy)
    for words, code in [
        ([], 0),
        (["--fail-on", "error"], 0),
        (["--fail-on", "warning"], 1),
        (["--fail-on", "note"], 1),
    ]:
        assert privtab("lint", policy, "--select", "P310", *words).code == code, words
    broken(policy)
    assert privtab("lint", policy, "--fail-on", "never").code == 0


def test_select_and_ignore_take_codes_prefixes_and_names_but_errors_stay(
    privtab: Callable[..., Any], policy: Path
) -> None:
    twice(policy)
    every = found(privtab("lint", policy, "--format", "json"))
    assert "P310" in every
    assert len(every) > 1
    for word in ("P310", "shadowed-alternative", "p31"):
        assert "P310" in found(privtab("lint", policy, "--format", "json", "--select", word))
    assert found(privtab("lint", policy, "--format", "json", "--select", "P310")) == {"P310"}
    assert found(privtab("lint", policy, "--format", "json", "--ignore", "P310")) == every - {"P310"}
    broken(policy)
    assert found(privtab("lint", policy, "--format", "json", "--select", "P310")) == {"P101"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--select", "P3O1"], "did you mean `P301`?"),
        (["--select", ""], "`--select `"),
        (["--select", " , "], "`--select  , `"),
        (["--ignore", ""], "`--ignore `"),
        (["--ignore", "X"], "`privtab lint --explain all` lists them"),
        (["--ignore", "P101"], "cannot be ignored"),
        (["--explain", "shadow-alternative"], "did you mean `P310`?"),
        (["--format", "xml"], "xml"),
        (["--fail-on", "warn"], "warn"),
    ],
)
def test_wrong_words_are_bad_usage(privtab: Callable[..., Any], policy: Path, words: list[str], message: str) -> None:
    ran = privtab("lint", policy, *words)
    assert ran.code == 2
    assert message in ran.err


def test_a_comment_ignores_and_every_format_knows(privtab: Callable[..., Any], policy: Path) -> None:
    twice(policy, "  # privtab: ignore P310 both are in the document")
    ran = privtab("lint", policy)
    assert "P310" not in ran.out
    assert "1 ignored" in ran.out
    (ignored,) = (
        finding for finding in json.loads(privtab("lint", policy, "--format", "json").out) if finding["ignored"]
    )
    assert ignored["ignored"] == {"reason": "both are in the document", "by": "comment"}
    run = json.loads(privtab("lint", policy, "--format", "sarif").out)["runs"][0]
    (hidden,) = (result for result in run["results"] if "suppressions" in result)
    assert hidden["ruleId"] == "P310"
    assert hidden["suppressions"] == [{"kind": "inSource", "justification": "both are in the document"}]
    assert "P310" not in privtab("lint", policy, "--format", "github").out
    suite = ElementTree.fromstring(privtab("lint", policy, "--format", "junit").out)  # noqa: S314  our own text
    assert [s.get("message") for s in suite.iter("skipped")] == ["ignored: both are in the document"]


def test_settings_say_severities_failing_and_format(privtab: Callable[..., Any], policy: Path, tmp_path: Path) -> None:
    twice(policy)
    settings = tmp_path / "privtab.toml"
    settings.write_text(
        "[lint]\nformat = 'json'\nfail-on = 'warning'\nseverity = {P310 = 'note'}\n"
        "[[lint.overrides]]\npaths = ['*']\nseverity = {P302 = 'off', P305 = 'off', P322 = 'off'}\n"
    )
    ran = privtab("lint", policy, "--select", "P310,P302,P305")
    (reported,) = (finding for finding in json.loads(ran.out) if finding["ignored"] is None)
    assert (reported["code"], reported["severity"], ran.code) == ("P310", "note", 0)
    assert privtab("lint", policy, "--select", "P310", "--fail-on", "note").code == 1
    other = tmp_path / "other.toml"
    other.write_text("[lint]\nseverity = {P310 = 'error'}\n")
    ran = privtab("lint", policy, "--select", "P310", "--config", other)
    assert ran.code == 1
    assert "error P310" in ran.out


def test_the_other_commands_follow_the_settings_too(privtab: Callable[..., Any], policy: Path, tmp_path: Path) -> None:
    twice(policy)
    settings = tmp_path / "privtab.toml"
    settings.write_text("[lint]\nseverity = {P310 = 'error'}\n")
    ran = privtab("compile", policy, "-o", tmp_path / "out")
    assert ran.code == 1
    assert "error[P310" in ran.err
    settings.write_text("[lint]\nseverity = {P310 = 'error', P31 = 'off'}\n")
    ran = privtab("compile", policy, "-o", tmp_path / "out")
    assert ran.code == 2
    assert "there is no finding `P31`" in ran.err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_reports_for_programs_are_pure_and_a_file_takes_any_of_them(
    privtab: Callable[..., Any], policy: Path, tmp_path: Path
) -> None:
    broken(policy)
    for format_ in ("json", "sarif", "github", "junit", "pretty"):
        ran = privtab("lint", policy, "--format", format_)
        file = tmp_path / f"report.{format_}"
        written = privtab("lint", policy, "--format", format_, "-o", file)
        assert (ran.err, written.out, written.code) == ("", "", 1)
        assert "2 errors in 1 policy; written to" in written.err
        if format_ != "pretty":
            assert file.read_text(encoding="utf-8") == ran.out
    lines = (tmp_path / "report.github").read_text().splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error", "::error"]


def test_explain_prints_the_page(privtab: Callable[..., Any]) -> None:
    for word in ("P310", "p310", "shadowed-alternative"):
        ran = privtab("lint", "--explain", word)
        assert ran.code == 0
        assert ran.out.startswith("P310 shadowed-alternative\n")
        assert "    tables:\n      shop:\n" in ran.out
        assert "```" not in ran.out
    ran = privtab("lint", "--explain", "all")
    assert [line.split()[0] for line in ran.out.splitlines()[1:]] == sorted(codes())


def test_control_characters_of_a_file_do_not_reach_the_terminal(privtab: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text("privtab: 1\nsystem: \x1b[2Jodd\n", encoding="utf-8")
    for command in ("lint", "describe"):
        ran = privtab(command, file)
        assert ran.code == 1
        assert "\x1b" not in ran.out + ran.err
        assert r"\x1b[2Jodd" in ran.out + ran.err
