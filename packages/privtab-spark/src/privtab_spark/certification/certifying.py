"""`certify`: write the entitlement matrix to a folder, as data and as a self-contained page."""

from __future__ import annotations

import csv
import getpass
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from privtab import __version__
from privtab.base import Entity, UsageError, count, no_formula
from privtab.state import State
from privtab_analysis.heat_map import HeatMap
from privtab_analysis.html import page, visible
from privtab_spark.certification import findings as found
from privtab_spark.certification.figures import TooLargeError, Totals, WrittenRows, write_matrix
from privtab_spark.certification.findings import KINDS
from privtab_spark.folders import atomic_folder
from privtab_spark.former import renamed_keyword
from privtab_spark.frames import is_frame, of_spark
from privtab_spark.matrix import Matrix, opening, report_omitted
from privtab_spark.matrix.opening import StateSource, open_matrix, open_state
from privtab_spark.matrix.question import AttributesLike, Question
from privtab_spark.policies import OpenPolicy, PolicyLike, open_policy
from privtab_spark.state.schemas import TABLES, is_written
from privtab_spark.states import wrong_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from privtab_spark.matrix.frame import EntitiesLike, UsersLike


SessionLike: TypeAlias = "SparkSession | Callable[[], SparkSession] | None"
"""A session, or a function that starts one if it is needed."""
ROWS = 1_000_000
"""Most rows of a state for which this process computes the matrix."""
MOST = 20_000_000
"""Most rows of a matrix that this process writes; beyond, Spark takes over unless the plan is `process`."""
PLANS = ("auto", "process", "spark")


@dataclass
class MatrixMaker:
    """Computes the rows of a matrix by the plan that it chooses.

    Raises UsageError for an unknown plan, and for `process` if an argument needs Spark.
    """

    policy: OpenPolicy
    state: object
    entities: EntitiesLike
    requested_users: UsersLike
    spark: SessionLike
    plan: str
    """As the caller gives it, then `process` or `spark`."""
    why: str = "the caller asks for it"
    _read: StateSource | None = None

    def __post_init__(self) -> None:
        """Choose the plan."""
        if self.plan not in PLANS:
            raise UsageError(f"unknown plan `{self.plan}`; there are: {', '.join(PLANS)}")
        self.forced = self.plan == "process"
        spark_input = _needs_spark(self.state, self.entities, self.requested_users)
        if spark_input is not None and self.forced:
            raise UsageError(f"{spark_input} is read by Spark: take the plan `spark` or `auto`")
        if self.plan == "spark" or spark_input is not None:
            self.plan, self.why = "spark", f"{spark_input} is read by Spark" if spark_input else self.why
            return
        self._read = open_state(self.policy, self.state)
        self.plan, self.why = self._by_size(self._read)

    def _by_size(self, source: StateSource) -> tuple[str, str]:
        if self.forced:
            return "process", self.why
        if source.rows is None:
            return "process", "a state bundle is an index already"
        count = sum(len(getattr(source.rows, table)) for table in TABLES)
        if count > ROWS:
            return "spark", f"the state has {count:,} rows, more than {ROWS:,}"
        return "process", f"the state has {count:,} rows"

    def session(self) -> SparkSession:
        """The session, started if necessary."""
        from privtab_spark.matrix.frame import session_of
        from privtab_spark.preflight import check_executors

        if callable(self.spark) and not hasattr(self.spark, "createDataFrame"):
            self.spark = self.spark()
        session = session_of(self.entities, self.requested_users, cast("SparkSession | None", self.spark))
        check_executors(session)
        return session

    def source(self) -> StateSource:
        """The state."""
        return self._read or open_state(self.policy, self.state, self.session())

    def users(self) -> Collection[str] | None:
        """The users that the matrix is restricted to, if any."""
        if not is_frame(self.requested_users):
            return cast("Collection[str] | None", self.requested_users)
        from privtab_spark.matrix.frame import user_names

        return user_names(self.requested_users)

    def rows(
        self,
        folder: Path,
        matrix: Matrix,
        source: StateSource,
        shown: int,
        progress: Callable[[str], None],
    ) -> WrittenRows:
        """Write the rows to a folder. `shown`: number of rows on the page."""
        if self.plan == "process":
            report_omitted(matrix)
            try:
                write_matrix(matrix, self._keys(source), folder, None if self.forced else MOST)
            except TooLargeError as error:
                shutil.rmtree(folder)
                progress(f"spark: {error}")
        if not folder.exists():
            from privtab_spark.matrix.frame import matrix_frame

            frame = matrix_frame(self.session(), self.policy, matrix, source, self.entities)
            frame.write.parquet(folder.as_uri())
        return WrittenRows(folder, self.policy.destructive, shown)

    def _keys(self, source: StateSource) -> list[str]:
        if self.entities is None:
            return opening.of_source(self.policy, source)
        return sorted(opening.texts(cast("Iterable[object]", self.entities)))


def _needs_spark(state: object, entities: EntitiesLike, users: UsersLike) -> str | None:
    """The argument that only Spark can read, for messages; None: there is none."""
    for description, value in (("the DataFrame of entities", entities), ("the DataFrame of users", users)):
        if is_frame(value):
            return description
    if isinstance(state, str | os.PathLike):
        return f"{os.fspath(state)}, which Spark wrote," if is_written(state) else None
    return None if isinstance(state, State) or state is None else f"a state given as a {type(state).__name__}"


SHOWN = 2_000
"""Default number of rows of the matrix on the page."""
DATA = "entitlements"
NAMED = 8
"""Most names that the page lists of each part of the question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The result of `certify`: the folder, the figures and the findings."""

    folder: Path
    origin: Origin
    totals: Totals
    findings: tuple[found.Finding, ...]
    shown: int
    left_out: Mapping[str, str]
    unchecked: Mapping[str, str]
    """Kinds of findings that were not checked, each with the reason."""

    def to_json(self) -> dict[str, Any]:
        """The certificate as JSON, as in `summary.json`."""
        return {
            "origin": asdict(self.origin) | {"asked": dict(self.origin.asked)},
            "totals": asdict(self.totals) | {"kinds": dict(self.totals.kinds)},
            "findings": dict(_counted(self.findings)),
            "shown": self.shown,
            "left_out": dict(self.left_out),
            "not_looked_for": dict(self.unchecked),
        }


@renamed_keyword("tell", "progress")
def certify(
    policy: PolicyLike,
    state: object,
    folder: str | os.PathLike[str],
    entities: EntitiesLike = None,
    *,
    operations: Collection[str] | None = None,
    users: UsersLike = None,
    principals: Collection[str] | None = None,
    with_: Mapping[str, str | Entity] | None = None,
    flags: Iterable[str] = (),
    attributes: AttributesLike = None,
    people: Collection[str] | None = None,
    format: Literal["parquet", "csv"] = "parquet",  # noqa: A002  (as Spark calls it)
    title: str | None = None,
    by: str | None = None,
    shown: int = SHOWN,
    overwrite: bool = False,
    plan: str = "auto",
    spark: SessionLike = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Certificate:
    """Write the matrix with figures, findings and a page to a folder, atomically.

    `plan`: `process` works in this process, without Spark; `spark` needs executors that share the folder with the driver; `auto`
    uses this process for up to 1,000,000 rows of state and 20,000,000 rows of the matrix, unless an argument needs Spark. `spark`:
    the session, or a function that starts one if it is needed.

    The folder contains `report.html`, `summary.json`, `findings.csv` and `entitlements/` (all rows, as Parquet or CSV). The page
    shows `shown` rows and says so. `people`: the users that exist; others are reported as having left. `by`: who requested the certification. `progress` is called with progress messages. The other
    arguments are as in `entitlements`. Raises UsageError if the folder exists and `overwrite` is false.
    """
    if format not in ("parquet", "csv"):
        raise UsageError(f"unknown format `{format}`; there are: parquet, csv")
    target = Path(folder)
    if target.exists() and not overwrite:
        raise UsageError(f"{target} exists: name another folder, or say that it may be overwritten")
    progress("reading the policy and the state")
    opened = open_policy(policy)
    entities, users = of_spark(entities), of_spark(users)
    maker = MatrixMaker(opened, state, entities, users, spark, plan)
    progress(f"{maker.plan}: {maker.why}")
    source = maker.source()
    question = Question.of(operations, with_, flags, attributes)
    matrix = open_matrix(opened, source, question, users=maker.users(), principals=principals)
    origin = Origin(
        title=title or f"Entitlements of {opened.json.get('title') or opened.system}",
        system=opened.system,
        version=str(opened.json.get("version", "")),
        policy=_name(policy),
        policy_digest=opened.digest,
        state=_name(state),
        state_revision=matrix.revision,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        by=by or _user(),
        privtab=__version__,
        asked=tuple(_scope(opened, matrix.question, users, principals, entities, wrong_rows(opened, state))),
    )
    with atomic_folder(target) as place:
        progress("writing the matrix")
        rows = maker.rows(place / ".rows", matrix, source, shown, progress)
        progress("counting")
        counted = rows.totals()
        progress("looking for findings")
        certificate = Certificate(
            folder=target,
            origin=origin,
            totals=counted,
            findings=found.in_order(_findings(rows, matrix, opened, source, people)),
            shown=min(shown, counted.entitlements),
            left_out=matrix.left_out(),
            unchecked=_kinds_not_checked(opened, source, people),
        )
        progress("writing the page")
        _write(place, rows, certificate, format)
    return certificate


def _findings(
    rows: WrittenRows, matrix: Matrix, policy: OpenPolicy, source: StateSource, people: Collection[str] | None
) -> Iterator[found.Finding]:
    yield from found.of_matrix(rows)
    if source.rows is not None:
        yield from found.of_state(policy.checked("a state"), source.rows, people)
    if isinstance(source.timed, State):
        yield from found.of_times(source.timed)
    yield from found.without_entitlement(matrix.users, rows.users)


def _kinds_not_checked(policy: OpenPolicy, source: StateSource, people: Collection[str] | None) -> dict[str, str]:
    """The kinds of findings that are not checked, each with the reason."""
    unchecked = {} if policy.destructive else {found.DESTRUCTIVE: "the policy declares no row `destructive`"}
    if source.rows is None:
        return unchecked | dict.fromkeys((found.DEPARTED, *found.OF_ROWS), "a state bundle does not have the rows")
    if people is None:
        unchecked[found.DEPARTED] = "no list of people was given"
    if source.timed is not None and not isinstance(source.timed, State):
        unchecked[found.ENDING] = "the state is read by Spark"
    return unchecked


def _scope(
    policy: OpenPolicy,
    question: Question,
    users: UsersLike,
    principals: Collection[str] | None,
    entities: EntitiesLike,
    wrong: int,
) -> Iterator[tuple[str, str]]:
    """Describe the scope of the matrix, so that a gap is not mistaken for a denial. `wrong`: findings about rows that are left out."""
    yield "operations", "all" if question.operations is None else found.abbreviated(sorted(question.operations), NAMED)
    subjects = [_described(names) for names in (users, principals) if names is not None]
    yield "who", ", ".join(filter(None, subjects)) if subjects else "every user that the state names"
    listed_entities = f"{len(entities):,} listed" if isinstance(entities, list | tuple) else "from a table"
    yield "entities", "all entities of the state, and their ancestors" if entities is None else listed_entities
    if wrong:
        yield "wrong rows", f"left out: {count(wrong, 'finding')} of `privtab state validate`"
    if question.withs:
        objects = [f"{slot} = {entity}" for slot, entity in sorted(question.withs.items())]
        yield "with", found.abbreviated(objects, NAMED)
    if any(shape.flags for shapes in policy.vocabulary.operations.values() for shape in shapes.values()):
        flag_names = found.abbreviated(sorted(question.flags), NAMED)
        yield "flags", flag_names or "none: requirements that flags add are left out"
    if policy.vocabulary.attributes:
        texts = sorted(f"{slot or kind}.{name} = {value}" for kind, slot, name, value in question.attributes.each())
        yield "attributes", found.abbreviated(texts, NAMED) or "those of the state alone"
    if "request" in policy.json["semantics"]["groups"]:
        yield "groups", "groups of requests do not count: query a group itself"


def _described(users: UsersLike) -> str:
    is_listed = isinstance(users, Sized)
    return found.abbreviated(sorted(cast("Collection[str]", users)), NAMED) if is_listed else "users of a table"


def _write(place: Path, rows: WrittenRows, certificate: Certificate, kind: str) -> None:
    """Write everything except the rows of the matrix, which are already written."""
    maps, shown = rows.heat_maps(), rows.first
    data = place / DATA
    if kind == "csv":
        rows.write_csv(data)
        shutil.rmtree(place / ".rows")
    else:
        (place / ".rows").rename(data)
    (place / "report.html").write_text(render(certificate, maps, shown), encoding="utf-8")
    with (place / "findings.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("kind", "level", "about", "text"))
        writer.writerows((f.kind, f.level, no_formula(f.about), no_formula(f.text)) for f in certificate.findings)
    summary = json.dumps(certificate.to_json(), indent=2, ensure_ascii=False)
    (place / "summary.json").write_text(summary + "\n", encoding="utf-8")


def _counted(findings: Iterable[found.Finding]) -> Mapping[str, int]:
    counted: Counter[str] = Counter()
    for finding in findings:
        counted[finding.kind] += finding.count
    return counted


def _name(source: object) -> str:
    """The path or name of a policy or state if it was given as one, otherwise its type."""
    return os.fspath(source) if isinstance(source, str | os.PathLike) else f"a {type(source).__name__}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


_COLUMNS = ("principal", "operation", "type", "path", "via_kind", "via_principal", "via_entity", "destructive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of a certification: its basis, and the requester."""

    title: str
    system: str
    version: str
    policy: str
    policy_digest: str
    state: str
    state_revision: str
    made: str
    by: str
    privtab: str
    asked: tuple[tuple[str, str], ...] = ()
    """The scope of the matrix, as pairs of label and description."""


def render(certificate: Certificate, maps: Sequence[HeatMap], rows: Sequence[Mapping[str, Any]]) -> str:
    """The page as HTML. `rows`: the rows that it shows."""
    kinds = {kind: [f for f in certificate.findings if f.kind == kind] for kind in KINDS}
    counts = _counted(certificate.findings)
    return page(
        "certify/report",
        origin=certificate.origin,
        totals=certificate.totals,
        maps=[heat.shaded() for heat in maps],
        findings=[
            {"kind": kind, "what": KINDS[kind][1], "level": KINDS[kind][0], "found": found, "count": counts[kind]}
            for kind, found in kinds.items()
            if found
        ],
        quiet=[kind for kind, found in kinds.items() if not found and kind not in certificate.unchecked],
        unchecked=certificate.unchecked,
        shown=len(rows),
        data=f"{DATA}/",
        left_out=sorted(certificate.left_out.items()),
        rows=script_json([[_visible(row.get(column)) for column in _COLUMNS] for row in rows]),
    )


def _visible(value: object) -> object:
    return visible(value) if isinstance(value, str) else value


def script_json(value: object) -> str:
    r"""JSON that is safe inside a `script` element: it cannot end the element or begin a comment.

    >>> script_json("</script><!--")
    '"\\u003c/script\\u003e\\u003c!--"'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in ("<", ">", "&", "\u2028", "\u2029"):
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
