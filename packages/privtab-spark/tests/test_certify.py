"""A certification says what the matrix says, and no name in it is more than a text."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from time import time_ns
from typing import Any

import decision_rows
import generated_programs
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from privtab import pipeline
from privtab.base import Entity, UsageError, Window, moment_text
from privtab.state import Assignment, Grant, State
from privtab_analysis.html import visible
from privtab_spark import certify
from privtab_spark.certification import certifying, findings
from privtab_spark.certification.certifying import script_json
from privtab_spark.folders import atomic_folder

NASTY = "<script>alert(1)</script>"
QUOTED = "\"'><img src=x onerror=alert(1)>{{7*7}}</script><!--"
FORMULA = "=cmd() "
POLICY = """
privtab: 1
system: depot
version: '1'
title: The <b>depot</b>
entities: {depot: {box: , user: , group: , role: }}
privileges: [READ, DROP]
semantics: {inheritance: down, owner: {kinds: [user]}}
roles: {keeper: {grants: {box: [READ]}}}
tables:
  box: {look: READ (box), drop: {requires: DROP (box) or owner (box), destructive: true}, smell: anyone}
"""
STATE = State(
    memberships=(("ann", "packers"),),
    assignments=(Assignment(principal="group:packers", role="reader"), Assignment(principal="user:ann", role="hollow")),
    grants=(
        Grant(grantee="role:reader", effect="allow", privilege="READ", entity=Entity("depot", "d")),
        Grant(grantee="role:dormant", effect="allow", privilege="READ", entity=Entity("depot", "d")),
        Grant(
            grantee=f"user:{NASTY}",
            effect="allow",
            privilege="DROP",
            entity=Entity("box", f"d/{QUOTED.replace('/', '%2F')}"),
        ),
        Grant(grantee=f"user:{FORMULA}", effect="allow", privilege="DROP", entity=Entity("box", "d/1")),
    ),
    owners=((Entity("box", "d/1"), "user:gone"),),
)


class Page(HTMLParser):
    """What a browser would make of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[str] = []
        self._script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._script = tag == "script"
        if self._script:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002  (as the base class has it)
        self._script = False

    def handle_data(self, data: str) -> None:
        if self._script:
            self.scripts[-1] += data


@pytest.fixture(scope="module", params=["process", pytest.param("spark", marks=pytest.mark.slow)])
def written(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    program, _ = generated_programs.read(POLICY)
    assert program is not None
    folder = tmp_path_factory.mktemp("certified") / "it"
    certified = certify(
        program, STATE, folder, people=["ann", NASTY], by=QUOTED, title=f"For {NASTY}", format="csv", plan=request.param,
        spark=spark,
    )  # fmt: skip
    return folder, certified.to_json()


@pytest.mark.slow
def test_figures_are_of_the_matrix(written: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = written
    assert json.loads((folder / "summary.json").read_text()) == summary
    # Two boxes: four users smell each, ann looks at each, three drop one.
    assert summary["totals"]["kinds"] == {"anyone": 8, "grant": 4, "owner": 1}
    assert summary["totals"]["entitlements"] == 13
    assert (summary["totals"]["destructive"], summary["totals"]["principals"]) == (3, 4)
    rows = [row for file in folder.glob("entitlements/*.csv") for row in csv.DictReader(file.open(newline=""))]
    assert len(rows) == 13
    assert {row["principal"] for row in rows if row["operation"] == "drop"} == {
        f"user:{NASTY}",
        f"user:{FORMULA}",
        "user:gone",
    }
    # A name is written as it is, with its spaces, unless a spreadsheet would work it out.
    assert {row["user"] for row in rows if row["operation"] == "drop"} == {NASTY, f"'{FORMULA}", "gone"}
    assert not list(folder.glob(".rows"))


@pytest.mark.slow
def test_findings_are_reported(written: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = written
    found = list(csv.DictReader((folder / "findings.csv").open(newline="")))
    by_kind = {kind: [row["about"] for row in found if row["kind"] == kind] for kind in findings.KINDS}
    assert sorted(by_kind["destructive operations"]) == [f"user:{NASTY}", f"user:{FORMULA}", "user:gone"]
    assert by_kind["departed user"] == [f"user:{FORMULA}", "user:gone"]
    assert by_kind["orphaned owner"] == ["user:gone"]
    assert by_kind["dormant role"] == ["role:dormant", "role:keeper"]
    assert by_kind["empty role"] == ["role:hollow"]
    assert by_kind["open to anyone"] == ["box/smell"]
    assert summary["findings"]["direct grant"] == 2


def test_no_name_becomes_markup(written: tuple[Path, dict[str, Any]]) -> None:
    text = (written[0] / "report.html").read_text()
    page = Page(text)
    assert page.tags.count("script") == 2
    assert not {"img", "b"} & {
        tag for tag, (name, _) in zip(page.tags, page.attributes, strict=False) if name == "onerror"
    }
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert [value for name, value in page.attributes if name in ("src", "href")] == ["#main"]
    rows = json.loads(page.scripts[0])
    assert f"user:{NASTY}" in {row[0] for row in rows}
    assert {row[3] for row in rows} == {"d/1", f"d/{QUOTED.replace('/', '%2F')}"}
    # Nothing is fetched: no address but that of no document at all.
    assert not re.findall(r"(?:https?:)?//[a-z]", re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL))


def test_a_page_lists_what_it_covers_and_what_it_does_not_check(written: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = written
    text = (folder / "report.html").read_text()
    assert summary["origin"]["asked"]["operations"] == "all"
    assert "<dd>every user that the state names</dd>" in text
    assert "Not checked" not in text
    assert "user:=cmd()␣" in text


def test_nothing_hides_in_a_name() -> None:
    assert visible("rlo\u202egnp.exe") == "rlo⟨U+202E⟩gnp.exe"
    assert visible("ann\u200b") != visible("ann") == "ann"
    assert visible("a\u00a0b ") == "a⟨U+00A0⟩b␣"
    assert visible("אבג 日本 é") == "אבג 日本 é"


def test_more_findings_than_a_page_lists_are_counted() -> None:
    program, _ = generated_programs.read(POLICY)
    assert program is not None
    state = State(
        grants=tuple(
            Grant(grantee=f"user:u{n}", effect="allow", privilege="READ", entity=Entity("depot", "d"))
            for n in range(findings.EACH + 7)
        )
    )
    direct = [f for f in findings.of_state(program, state, None) if f.kind == "direct grant"]
    assert (len(direct), sum(f.count for f in direct)) == (findings.EACH + 1, findings.EACH + 7)


def test_json_in_a_script_ends_nothing() -> None:
    text = script_json(["</script>", "<!--", "\u2028", "&lt;"])
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == ["</script>", "<!--", "\u2028", "&lt;"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", pytest.param("csv", marks=pytest.mark.long)])
def test_this_process_certifies_as_spark_does(kind: Any, spark: SparkSession, tmp_path: Path) -> None:
    files = decision_rows.files(tmp_path)
    deck = pipeline.load_program(files[0])
    depot, _ = generated_programs.read(POLICY)
    for name, policy, state in (("deck", deck, files[1]), ("depot", depot, STATE), ("nobody", depot, State())):
        assert policy is not None
        for plan in ("process", "spark"):
            messages: list[str] = []
            certify(
                policy,
                state,
                tmp_path / name / plan,
                by="x",
                format=kind,
                shown=5,
                plan=plan,
                spark=spark,
                progress=messages.append,
            )
            assert f"{plan}: the caller asks for it" in messages
        by_process, by_spark = (tmp_path / name / plan for plan in ("process", "spark"))
        for file in ("report.html", "summary.json", "findings.csv"):
            texts = [
                re.sub(r"20\d\d-\d\d-\d\d \d\d:\d\d", "", (each / file).read_text()) for each in (by_process, by_spark)
            ]
            assert texts[0] == texts[1], file
        assert written_rows(by_process / "entitlements", kind) == written_rows(by_spark / "entitlements", kind)


def written_rows(folder: Path, kind: str) -> list[str]:
    if kind == "parquet":
        return sorted(map(repr, pq.read_table(folder).to_pylist()))
    return sorted(repr(row) for file in folder.glob("*.csv") for row in csv.DictReader(file.open(newline="")))


@pytest.mark.slow
def test_without_spark_nothing_of_it_is_loaded(tmp_path: Path) -> None:
    policy, state = decision_rows.files(tmp_path)
    code = (
        "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None; from privtab_spark.jobs import certify; "
        f"sys.exit(certify.main(['-p', {policy!r}, '-s', {state!r}, '-o', {str(tmp_path / 'it')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "process: the state has 8 rows" in done.stderr
    assert "WARN" not in done.stderr


@pytest.mark.slow
def test_spark_computes_a_too_large_matrix_unless_the_driver_is_requested(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, _ = generated_programs.read(POLICY)
    assert program is not None
    monkeypatch.setattr(certifying, "MOST", 5)
    certified: dict[str, Any] = {}
    messages: list[str] = []
    for plan, spoken in (
        ("auto", "spark: the matrix has more than 5 rows"),
        ("process", "process: the caller asks for it"),
    ):
        messages.clear()
        started: list[bool] = []

        def start(started: list[bool] = started) -> SparkSession:
            started.append(True)
            return spark

        certified[plan] = certify(program, STATE, tmp_path / plan, plan=plan, spark=start, progress=messages.append)
        assert spoken in messages
        assert started == [True] * (plan == "auto")
    assert certified["auto"].totals == certified["process"].totals
    monkeypatch.setattr(certifying, "ROWS", 5)
    assert (
        certify(program, STATE, tmp_path / "rows", spark=spark, progress=messages.append).totals
        == certified["auto"].totals
    )
    assert "spark: the state has 8 rows, more than 5" in messages
    with pytest.raises(UsageError, match="a state given as a dict is read by Spark: take the plan `spark` or `auto`"):
        certify(program, {}, tmp_path / "no", plan="process")
    with pytest.raises(UsageError, match="unknown plan `procss`; there are: auto, process, spark"):
        certify(program, STATE, tmp_path / "no", plan="procss")


def test_a_user_with_a_direct_right_to_destroy_is_named_once(tmp_path: Path) -> None:
    program, _ = generated_programs.read(POLICY)
    assert program is not None
    certified = certify(program, STATE, tmp_path / "it")
    texts = {f.about: f.text for f in certified.findings if f.kind == "destructive operations"}
    assert texts["user:gone"] == "box/drop on 1 entity, directly"
    both = State(
        assignments=(Assignment(principal="user:mia", role="reader"),),
        grants=tuple(
            Grant(grantee=who, effect="allow", privilege="DROP", entity=Entity("box", f"d/{who[0]}"))
            for who in ("user:mia", "role:reader")
        ),
    )
    certified = certify(program, both, tmp_path / "both")
    (text,) = (f.text for f in certified.findings if f.kind == "destructive operations")
    assert text == "box/drop on 2 entities, directly and through role:reader"


def test_what_a_policy_does_not_declare_is_said_to_be_missing(tmp_path: Path) -> None:
    program, _ = generated_programs.read(POLICY.replace(", destructive: true", ""))
    assert program is not None
    certified = certify(program, STATE, tmp_path / "it")
    assert certified.totals.destructive == 0
    assert certified.unchecked["destructive operations"] == "the policy declares no row `destructive`"


def test_rights_that_end_soon_are_named_with_their_end(tmp_path: Path) -> None:
    (tmp_path / "depot.yaml").write_text(POLICY, encoding="utf-8")
    at = time_ns()
    windows = tuple(Window(Window().begin, at + days * 86_400 * 10**9) for days in (10, 20, 40, -1))
    state = State(
        grants=tuple(
            Grant(grantee=f"user:{name}", effect="allow", privilege="READ", entity=Entity("depot", "d"))
            for name in ("ann", "ben", "cleo", "dan")
        ),
        windows={"grants": windows},
    )
    made = certify(tmp_path / "depot.yaml", state, tmp_path / "out", plan="process")
    ending = [finding for finding in made.findings if finding.kind == "ending soon"]
    assert [finding.about for finding in ending] == ["user:ann", "user:ben"]
    assert ending[0].text.endswith(f"until {moment_text(windows[0].end)}")
    assert made.to_json()["findings"]["ending soon"] == 2


def test_a_page_holds_a_part_and_says_so(spark: SparkSession, tmp_path: Path) -> None:
    program, _ = generated_programs.read(POLICY)
    assert program is not None
    certified = certify(
        program, STATE, tmp_path / "it", ["box:d/1"], operations=["smell", "drop"], shown=2, spark=spark
    )
    assert certified.shown == 2
    assert certified.unchecked == {"departed user": "no list of people was given"}
    text = (tmp_path / "it" / "report.html").read_text()
    assert "This page shows 2 of 6 rows" in text
    assert "Not checked, because no list of people was given: departed user." in text
    assert "<dd>drop, smell</dd>" in text
    # What destroys comes first.
    assert [row[1] for row in json.loads(Page(text).scripts[0])] == ["drop", "drop"]
    with pytest.raises(UsageError, match="exists"):
        certify(program, STATE, tmp_path / "it", spark=spark)


def test_a_folder_is_there_whole_or_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with pytest.raises(ZeroDivisionError), atomic_folder(target) as place:
        (place / "half").write_text(str(1 // 0))
    assert list(tmp_path.iterdir()) == []
    for text in ("one", "two"):
        with atomic_folder(target) as place:
            (place / "all").write_text(text)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (target / "all").read_text() == "two"
