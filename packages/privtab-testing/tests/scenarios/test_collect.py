"""Which scenario files there are, and what they are about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from privtab.base import PolicyInvalid, UsageError
from privtab_testing.scenarios.collect import plans

POLICY = """\
privtab: 1
system: SYSTEM
version: "1"
entities: {store: }
privileges: [READ, WRITE]
tables:
  store:
    open: {requires: READ (store), ambiguous: {readings: {strict: READ + WRITE (store)}}}
    close: READ (store)
variants: {night: {tables: {store: {open: WRITE (store)}}}}
"""
CASE = "cases: [{user: x, action: open, resource: 'store:s', decision: deny}]\n"


def write(folder: Path, **files: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        path = folder / f"{name.replace('__', '.')}.yaml"
        path.write_text(POLICY.replace("SYSTEM", name) if text == POLICY else text, encoding="utf-8")


def subjects(*paths: Path) -> list[tuple[str, str | None, int]]:
    return [(p.subject.policy.name, p.subject.variant, len(p.cases)) for p in plans(paths)]


def test_a_policy_has_the_files_beside_it_that_are_about_it(tmp_path: Path) -> None:
    write(
        tmp_path,
        a=POLICY,
        b=POLICY,
        a__scenarios="scenarios: 1\n" + CASE,
        b__scenarios="scenarios: 1\n" + CASE,
        more__scenarios="scenarios: 1\npolicy: a.yaml\n" + CASE,
        other="scenarios: 1\npolicy: a\n" + CASE,
    )
    assert subjects(tmp_path / "a.yaml") == [("a.yaml", None, 3)]
    assert subjects(tmp_path) == [("a.yaml", None, 3), ("b.yaml", None, 1)]
    assert subjects(tmp_path / "more.scenarios.yaml") == [("a.yaml", None, 1)]


def test_the_only_policy_of_a_folder(tmp_path: Path) -> None:
    write(tmp_path, a=POLICY, scenarios="scenarios: 1\n" + CASE)
    assert subjects(tmp_path) == [("a.yaml", None, 1)]
    write(tmp_path, b=POLICY)
    with pytest.raises(PolicyInvalid, match="T101 the file names no policy"):
        plans([tmp_path])


def test_a_policy_without_scenarios_has_no_cases(tmp_path: Path) -> None:
    write(tmp_path, a=POLICY)
    assert subjects(tmp_path) == [("a.yaml", None, 0)]


def test_variants_and_readings_are_subjects_of_their_own_and_cover_what_they_change(tmp_path: Path) -> None:
    write(
        tmp_path,
        a=POLICY,
        a__scenarios="scenarios: 1\n" + CASE,
        a__night__scenarios="scenarios: 1\npolicy: a.yaml\nvariant: night\n" + CASE,
        a__strict__scenarios="scenarios: 1\npolicy: a.yaml\nreadings: {store/open: strict}\n" + CASE,
    )
    found = plans([tmp_path])
    assert [p.subject.options_text() for p in found] == ["", " (night)", " (store/open=strict)"]
    assert [list(p.rules) for p in found] == [
        [("store", "open"), ("store", "close")],
        [("store", "open")],
        [("store", "open")],
    ]


def test_readings_of_the_command_line_replace_those_of_the_files(tmp_path: Path) -> None:
    write(tmp_path, a=POLICY, a__scenarios="scenarios: 1\n" + CASE)
    [plan] = [p for p in plans([f"{tmp_path / 'a.yaml'}@store/open=strict"]) if p.cases]
    assert plan.subject.readings == (("store/open", "strict"),)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("policy: nowhere.yaml", "T101 there is no policy"),
        ("variant: day", "T101"),
        ("readings: {store/open: loose}", "T101"),
        ("scenarios: 1", "T005 `scenarios` occurs twice"),
        ("suits: []", "T001 unknown key `suits` in a scenario file"),
    ],
)
def test_mistakes_in_a_head(tmp_path: Path, head: str, message: str) -> None:
    write(tmp_path, a=POLICY, a__scenarios=f"scenarios: 1\n{head}\n{CASE}")
    with pytest.raises(PolicyInvalid, match=message):
        plans([tmp_path])


def test_mistakes_of_two_files_come_together(tmp_path: Path) -> None:
    bad = "scenarios: 1\n" + CASE.replace("deny", "no")
    write(tmp_path, a=POLICY, b=POLICY, a__scenarios=bad, b__scenarios=bad)
    with pytest.raises(PolicyInvalid) as caught:
        plans([tmp_path])
    assert [Path(d.span.path).name for d in caught.value.diagnostics] == ["a.scenarios.yaml", "b.scenarios.yaml"]


def test_invalid_yaml_is_reported_where_it_is(tmp_path: Path) -> None:
    write(tmp_path, a=POLICY, a__scenarios="scenarios: 1\ncases: [\n")
    with pytest.raises(PolicyInvalid, match="P002"):
        plans([tmp_path])


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "P003"), ('scenarios: 1\npolicy: "{', "P002"), ("scenarios: 1\npolicy: no.yaml\n", "T101")],
)
def test_a_named_file_is_reported_whatever_is_wrong_with_it(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, bad__scenarios=text)
    with pytest.raises(PolicyInvalid, match=message):
        plans([tmp_path / "bad.scenarios.yaml"])


def test_an_empty_file_is_reported_with_an_example(tmp_path: Path) -> None:
    write(tmp_path, bad__scenarios="")
    with pytest.raises(PolicyInvalid) as caught:
        plans([tmp_path / "bad.scenarios.yaml"])
    [found] = caught.value.diagnostics
    assert found.help == "a scenario file begins with `scenarios: 1` and `policy: FILE.yaml`"


def test_each_bad_reading_is_reported_at_its_place(tmp_path: Path) -> None:
    head = "variant: night\nreadings:\n  store/open: loose\n  store/opne: strict\n"
    write(
        tmp_path,
        a=POLICY.replace("SYSTEM", "a").replace("open: W", "close: W"),
        a__scenarios=f"scenarios: 1\n{head}{CASE}",
    )
    with pytest.raises(PolicyInvalid) as caught:
        plans([tmp_path])
    assert [(d.code, d.span.line, d.span.column, d.message.partition(";")[0]) for d in caught.value.diagnostics] == [
        ("T101", 4, 15, "the row `store/open` has no reading `loose`"),
        ("T101", 5, 3, "no row `store/opne`"),
    ]


def test_a_bad_reading_of_the_command_line_is_bad_usage(tmp_path: Path) -> None:
    write(tmp_path, a=POLICY, a__scenarios="scenarios: 1\nreadings: {store/open: strict}\n" + CASE)
    with pytest.raises(UsageError, match="no reading `loose`"):
        plans([f"{tmp_path / 'a.yaml'}@store/open=loose"])


def test_a_system_is_all_its_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "policy_src").mkdir()
    write(tmp_path / "policy_src" / "shops", a=POLICY, b=POLICY, a__scenarios="scenarios: 1\n" + CASE)
    monkeypatch.chdir(tmp_path)
    assert subjects(Path("shops")) == [("a.yaml", None, 1), ("b.yaml", None, 0)]
    with pytest.raises(UsageError, match="did you mean `shops/"):
        plans(["shop"])


def test_files_in_json_are_read_like_those_in_yaml(tmp_path: Path) -> None:
    policy = yaml.safe_load(POLICY.replace("SYSTEM", "a"))
    cases = yaml.safe_load(CASE)
    (tmp_path / "a.json").write_text(json.dumps(policy, indent=2))
    (tmp_path / "a.scenarios.json").write_text(json.dumps({**cases, "scenarios": 1}))
    (tmp_path / "more.json").write_text(json.dumps({"policy": "a.json", **cases, "scenarios": 1}, indent=2))
    (tmp_path / "s.json").write_text('{"grants": [], "note": "scenarios"}')
    assert subjects(tmp_path / "a.json") == [("a.json", None, 2)]
    assert subjects(tmp_path) == [("a.json", None, 2)]


@pytest.mark.parametrize(
    "text", ['"scenarios": 1\npolicy: a.yaml\n' + CASE, "\ufeffscenarios: 1\npolicy: a.yaml\n" + CASE]
)
def test_the_key_is_found_however_it_is_written(tmp_path: Path, text: str) -> None:
    write(tmp_path, a=POLICY, other=text)
    assert subjects(tmp_path) == [("a.yaml", None, 1)]


@pytest.mark.parametrize("name", ["a.scenarios.yaml", "a.scenarios.yml", "a.scenarios.json"])
def test_a_file_that_is_named_as_scenarios_and_cannot_be_read_as_such_is_a_finding(tmp_path: Path, name: str) -> None:
    write(tmp_path, a=POLICY)
    (tmp_path / name).write_text('{"cases": []')
    with pytest.raises(PolicyInvalid):
        subjects(tmp_path)
