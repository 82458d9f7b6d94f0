"""Build the sharded bundles of a state from rows in Spark, on the executors and in a shared folder; unchanged shards are kept.

```
state/
  manifest.json            describes the build; only it says which files belong together
  manifest.previous.json   the previous build, whose files stay for current readers
  shards.json              the list of bundles, as written by `privtab state pack --shards`
  bundles/*.tar.gz         the bundles of both builds, named by content
  results-…/*/             findings, and the principals of grants and owners, by root (Parquet)
```
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn

from privtab.base import StateInvalid, sharded_revision
from privtab.bundle import listing_file
from privtab.ir import Program, Tool, vocabulary
from privtab.state import PartText
from privtab_spark.frames import union
from privtab_spark.preflight import check_executors
from privtab_spark.state import shards
from privtab_spark.state.files import Root, at_once, place
from privtab_spark.state.read import SHOWN, Read, finding_of, read_state
from privtab_spark.state.row_checks import closed
from privtab_spark.state.schemas import schema, tables_of
from privtab_spark.state.sealing import Parts, parts_of, parts_to_sign, signed_parts
from privtab_spark.state.tables import policy_digest
from privtab_spark.state.worker import MANIFEST, PREVIOUS, RESULTS, Build, build_shards, read_results, written_people

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from privtab.bundle import Provenance, SigningKey


FORMAT = 2
"""Version of the manifest's format; in version 1, fingerprints had two hashes of each row."""
BY_NAME = ("assignments", "memberships", "service_admins", "attributes")
"""The tables whose rows are judged before the rows of shards."""
ROWS_OF_A_TASK = 150_000
MOST_TASKS = 2_000

Progress = Callable[[str], None]


def build(
    spark: SparkSession,
    configuration: object,
    policy: object,
    folder: str | Path,
    *,
    allow_partial: bool = False,
    full: bool = False,
    provenance: Provenance | None = None,
    signing: SigningKey | None = None,
    progress: Progress | None = None,
) -> Build:
    """Validate, index and bundle a state in shards, in a folder that the driver and the executors share.

    Shards whose rows did not change since the previous build are kept (`full`: all are rebuilt). If rows are invalid, raises
    StateInvalid unless `allow_partial`; the folder is then unchanged except for `rejected/`, which contains all findings.

    `provenance` is recorded in the `people` bundle. `signing`: every bundle is signed by this process, so that executors never see
    the key; unchanged bundles are signed again only if they were signed with another key or for another scope.
    """
    read = configuration if isinstance(configuration, Read) else read_state(spark, configuration, policy)
    check_executors(spark)
    Tool.SPARK_BUILD.check(read.program)
    if read.sources.window(*read.sources.tables):
        PartText.check_windows(read.program)
    manifest_entries = {} if provenance is None else {"provenance": provenance.to_json()}
    return _Builder(spark, read, place(folder), progress or (lambda _: None), manifest_entries, signing).run(
        allow_partial=allow_partial, full=full
    )


@dataclass
class _Builder:
    """One run of `build`."""

    spark: SparkSession
    read: Read
    root: Root
    progress: Progress
    manifest_entries: Mapping[str, Any]
    signing: SigningKey | None

    def __post_init__(self) -> None:
        self.program = self.read.program
        self.seconds: dict[str, float] = {}
        self.counts: dict[str, DataFrame] = {}
        """For the tables of BY_NAME, the distinct valid rows with their counts."""
        self.id = uuid.uuid4().hex[:12]
        self.results_name = f"results-{self.id}"

    def run(self, *, allow_partial: bool, full: bool) -> Build:
        """Run the stages and record their durations."""
        before = self.root.read_json(MANIFEST)
        policy = policy_digest(self.program, self.read.sources.orphans, FORMAT)
        usable = before is not None and before.get("policy") == policy and before.get("format") == FORMAT and not full
        old: Mapping[str, Any] = (before or {}) if usable else {}
        known: Mapping[str, Any] = old.get("fingerprints", {})
        changed: list[str] | None = None
        work = f"work-{self.id}"
        try:
            if old:
                prints = self.timed(
                    "fingerprints", "reading the rows", lambda: self.fingerprints(tables_of(self.program))
                )
                if known == prints and (allow_partial or not _errors(old["findings"])):
                    return self.signed_anew(old)
                # With chains of roles, a row without a scope can concern every shard.
                every = self.program.semantics.hierarchy and known.get("assignments") != prints.get("assignments")
                changed = sorted(r for r, p in prints.items() if _is_root(r) and (every or known.get(r) != p))
                tables = self.timed("people's rows", "reading users and roles", lambda: self.by_name(work))
            else:
                # The workers that build the shards return the fingerprints of their rows.
                jobs: list[Callable[[], Any]] = [partial(self.fingerprints, BY_NAME), partial(self.by_name, work)]
                prints, tables = self.timed("people's rows", "reading users and roles", lambda: at_once(jobs))
            removed = sorted(r for r in known if _is_root(r) and r not in prints)
            return self.write_build(before, old, prints, policy, tables, changed, removed, allow_partial=allow_partial)
        finally:
            self.root.remove(work)
            if (self.root.read_json(MANIFEST) or {}).get("results") != self.results_name:
                self.root.remove(self.results_name)

    def signed_anew(self, old: Mapping[str, Any]) -> Build:
        """The last build, whose rows are unchanged, with its signatures updated if necessary."""
        if not parts_to_sign(parts_of(old), self.signing):
            return Build(folder=self.root.url, manifest=old, seconds=self.seconds)
        parts, signed = self.timed("signatures", "signing", lambda: self.sign_parts(parts_of(old), {}))
        manifest = {**old, "people": parts.pop(PartText.PEOPLE), "shards": parts}
        self.publish(old, manifest)
        return Build(folder=self.root.url, manifest=manifest, signed=tuple(signed), seconds=self.seconds)

    def sign_parts(self, parts: Parts, before: Parts) -> tuple[dict[str, dict[str, Any]], list[str]]:
        """The parts with up-to-date signatures, and the keys of the parts that were signed now."""
        return signed_parts(self.spark, self.root, parts, before, self.signing)

    def write_build(
        self,
        before: Mapping[str, Any] | None,
        old: Mapping[str, Any],
        prints: dict[str, list[int]],
        policy: str,
        tables: Mapping[str, DataFrame],
        changed: list[str] | None,
        removed: list[str],
        *,
        allow_partial: bool,
    ) -> Build:
        """Write a new build next to the old one, its manifest last. `changed`: None for all roots, which are not known yet."""
        rows = sum(prints[root][0] for root in changed or ())
        results = self.results_name
        message = "building all shards" if changed is None else f"building {len(changed)} shards"
        gone = [*(changed or ()), *removed]
        jobs = [
            partial(self.shards, tables, changed, rows, f"{results}/shards"),
            partial(self.others, old, gone, f"{results}/others"),
        ]
        self.timed("shards", message, lambda: at_once(jobs))
        reports, more, findings = self.timed("results", "gathering", lambda: self.results(results))
        for root, sums in more.items():
            prints[root] = [a + b for a, b in zip(prints[root], sums, strict=True)] if root in prints else sums
        changed = sorted(filter(_is_root, prints)) if changed is None else changed
        if _errors(findings) and not allow_partial:
            self.reject(results)
        shards = {r: s for r, s in old.get("shards", {}).items() if r not in changed and r not in removed} | reports
        people = self.timed("people", "computing principals", lambda: self.people(tables, results, sorted(shards)))
        bare = parts_of({"people": people, "shards": {root: shards[root] for root in sorted(shards)}})
        parts, signed = self.timed("signatures", "signing", lambda: self.sign_parts(bare, parts_of(old)))
        people = parts.pop(PartText.PEOPLE)
        manifest = {
            "format": FORMAT, "kind": "shards", "system": self.program.system, "version": self.program.version,
            "policy": policy, "revision": revision(people, shards), "people": people,
            "shards": parts, "findings": findings,
            "fingerprints": dict(sorted(prints.items())), "results": results,
        }  # fmt: skip
        self.publish(before, manifest)
        another = not old or old["people"]["revision"] != people["revision"]
        real = [root for root in changed if _is_shard(root)]
        return Build(
            folder=self.root.url, manifest=manifest, rebuilt=tuple(real), removed=tuple(filter(_is_shard, removed)),
            people=another, signed=tuple(signed), seconds=self.seconds,
        )  # fmt: skip

    def fingerprints(self, tables: Sequence[str]) -> dict[str, list[int]]:
        """The number of rows and four sums of hashes, by root and by table of BY_NAME; only for `tables`."""
        frame = shards.fingerprints(self.read, tables)
        rows = [] if frame is None else frame.collect()
        return {row["root"]: [int(row[c]) for c in ("rows", "h0", "h1", "g0", "g1")] for row in rows}

    def by_name(self, work: str) -> dict[str, DataFrame]:
        """The valid rows of the tables of BY_NAME that have sources, written to Parquet because they are used several times."""
        found: dict[str, DataFrame] = {}
        paths = {t: self.root.spark(f"{work}/{t}") for t in BY_NAME if t in self.read.sources.tables}
        at_once([partial(self.read.counted(table).write.parquet, path) for table, path in paths.items()])
        for table, path in paths.items():
            columns = schema(table, self.read.sources.window(table))
            self.counts[table] = self.spark.read.schema(f"{columns}, `rows` bigint").parquet(path)
            found[table] = self.read.listed(table, self.counts[table].drop("rows"))
        return found

    def shards(self, tables: Mapping[str, DataFrame], changed: list[str] | None, rows: int, results: str) -> None:
        """Build the changed shards on the executors; their reports and findings are written to `results`."""
        held = {table: tables[table] for table in ("assignments",) if table in tables}
        assignments = closed(self.program.semantics.hierarchy, vocabulary(self.program).keys, held).get("assignments")
        frame = shards.scanned(self.read, assignments, tables.get("attributes"), changed, prints=changed is None)
        if frame is None or changed == []:
            return
        if changed is None:
            # The number of rows is unknown: let Spark coalesce partitions to a good size.
            frame = frame.repartition("root")
        else:
            tasks = min(MOST_TASKS, max(1, min(2 * len(changed), rows // ROWS_OF_A_TASK)))
            frame = frame.repartition(tasks, "root")
        worker = partial(
            build_shards, self.program, self.root, self.not_text(),
            self.read.sources.orphans if self.read.sources.entities is not None else None,
        )  # fmt: skip
        frame.mapInArrow(worker, RESULTS).write.parquet(self.root.spark(results))

    def not_text(self) -> dict[str, dict[str, str]]:
        """The columns whose cells are not text in any of the sources, by table, with their types."""
        return {
            table: {c: type_name for source in sources for c, type_name in source.not_text.items()}
            for table, sources in self.read.sources.tables.items()
        }

    def others(self, old: Mapping[str, Any], gone: list[str], path: str) -> None:
        """Write the results that do not come from the workers: results of unchanged shards, and findings in the tables of BY_NAME."""
        parts: list[DataFrame] = []
        if old:
            unchanged = fn.col("kind").isin("finding", "principal") & ~fn.col("root").isin([*gone, *BY_NAME])
            parts.append(read_results(self.spark, self.root, old["results"]).filter(unchanged))
        for table, counts in self.counts.items():
            found = self.read.findings_of(table, counts)
            parts.append(found.withColumns({"kind": fn.lit("finding"), "root": fn.lit(table)}))
        results = union(self.spark.createDataFrame([], RESULTS), *parts)
        results.coalesce(8).write.parquet(self.root.spark(path))

    def results(self, results: str) -> tuple[dict[str, dict[str, Any]], dict[str, list[int]], list[list[Any]]]:
        """The reports of the shards that were built, the fingerprints of their rows, and the counted findings.

        A counted finding is a list of table, code, severity and number of rows.
        """
        result_rows = read_results(self.spark, self.root, results).filter("kind != 'principal'")
        not_finding = fn.col("kind") != "finding"
        keys = [fn.when(not_finding, fn.col(name)).alias(f"own_{name}") for name in ("root", "row")]
        grouped = result_rows.groupBy("kind", *keys, "table", "code", "severity")
        rows = grouped.agg(fn.sum("rows").alias("rows")).collect()
        shards, prints = (
            {r["own_root"]: json.loads(r["own_row"]) for r in rows if r["kind"] == kind}
            for kind in ("shard", "fingerprint")
        )
        findings = sorted([r["table"], r["code"], r["severity"], r["rows"]] for r in rows if r["kind"] == "finding")
        return shards, prints, findings

    def reject(self, results: str) -> None:
        """Write the findings to `rejected/` and raise StateInvalid with the first of them."""
        rows = read_results(self.spark, self.root, results).filter("kind = 'finding'")
        self.root.remove("rejected")
        rows.drop("kind", "root").write.parquet(self.root.spark("rejected"))
        wrong = rows.filter("severity = 'error'").orderBy("table", "code", "row").limit(SHOWN).collect()
        self.root.remove(results)
        self.sweep()
        raise StateInvalid(tuple(finding_of(row.asDict()) for row in wrong))

    def people(self, tables: Mapping[str, DataFrame], results: str, shards: list[str]) -> dict[str, Any]:
        """Build the `people` part in one task, and return its report."""
        principals = read_results(self.spark, self.root, results).filter("kind = 'principal'")
        granted = principals.select(fn.col("row").alias("who")).distinct()
        return written_people(self.program, tables, granted, shards, self.root, self.manifest_entries)

    def publish(self, before: Mapping[str, Any] | None, manifest: Mapping[str, Any]) -> None:
        """Write the new manifest, by which readers see the new build."""
        if before is not None:
            self.root.write(PREVIOUS, text(before))
        self.root.write(MANIFEST, text(manifest))
        self.root.write(*_listing_file(self.program, manifest))
        self.root.remove("rejected")
        self.sweep()

    def sweep(self) -> None:
        """Remove files that neither this build nor the previous one refers to."""
        manifests = [m for m in (self.root.read_json(MANIFEST), self.root.read_json(PREVIOUS)) if m is not None]
        files = {p["file"] for m in manifests for p in (m["people"], *m["shards"].values())}
        for name in self.root.names("bundles"):
            if f"bundles/{name}" not in files:
                self.root.remove(f"bundles/{name}")
        results = {m["results"] for m in manifests}
        for name in self.root.names(""):
            if name.startswith("results-") and name not in results:
                self.root.remove(name)

    def timed(self, stage: str, message: str, work: Callable[[], Any]) -> Any:
        """Run a stage and record its duration."""
        self.progress(message)
        started = time.perf_counter()
        found = work()
        self.seconds[stage] = time.perf_counter() - started
        return found


def _is_root(key: str) -> bool:
    """Return whether a fingerprint is for rows that go into shards, including invalid rows without a root."""
    return key not in BY_NAME


def _is_shard(key: str) -> bool:
    return ":" in key


def _errors(findings: list[list[Any]]) -> bool:
    return any(severity == "error" for _, _, severity, _ in findings)


def _listing_file(program: Program, manifest: Mapping[str, Any]) -> tuple[str, bytes]:
    """The name and the content of the list of the bundles, in the format of `state pack --shards`."""

    def row(key: str, part: Mapping[str, Any]) -> dict[str, Any]:
        named = {name: part[name] for name in ("file", "revision", "bytes")}
        windows, further = part.get("windows", False), part.get("further", ())
        return named | {"roots": sorted(PartText.roots(program.system, key, windows=windows, further=further))}

    rows = {key: row(key, part) for key, part in parts_of(manifest).items()}
    return listing_file(program.system, rows)


def revision(people: Mapping[str, Any], shards: Mapping[str, Mapping[str, Any]]) -> str:
    """The combined revision of all parts."""
    return sharded_revision(str(people["revision"]), {root: str(shard["revision"]) for root, shard in shards.items()})


def text(manifest: Mapping[str, Any]) -> bytes:
    """A manifest as the content of its file."""
    return (json.dumps(manifest, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()
