"""A complete build of a state in shards, as read from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privtab.errors import FileError
from privtab.spark.state.files import Root, place
from privtab.spark.state.worker import RESULTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MANIFEST, PREVIOUS = "manifest.json", "manifest.previous.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A complete build, as described by its manifest, and what this run changed."""

    folder: str
    manifest: Mapping[str, Any]
    rebuilt: tuple[str, ...] = ()
    """Root keys of the shards that were rebuilt."""
    removed: tuple[str, ...] = ()
    people: bool = False
    """Whether the `people` part changed."""
    signed: tuple[str, ...] = ()
    """The parts (`people`, root keys) that were signed in this run, or whose signatures were removed."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Duration by stage."""

    @property
    def shards(self) -> Mapping[str, Mapping[str, Any]]:
        """By root key: file, revision, bytes, and numbers of rows."""
        found: Mapping[str, Mapping[str, Any]] = self.manifest["shards"]
        return found

    @property
    def unchanged(self) -> bool:
        """Whether this run changed nothing, because the rows and signatures were those of the previous build."""
        return not (self.rebuilt or self.removed or self.people or self.signed)

    def file(self, key: str) -> Path | str:
        """The location of the bundle of `people` or of a root key."""
        part = self.manifest["people"] if key == "people" else self.shards[key]
        root = place(self.folder)
        return root.path(part["file"]) if root.local else f"{root.url}/{part['file']}"

    def findings(self, spark: SparkSession) -> DataFrame:
        """The findings about the rows, with the columns of `schemas.FINDINGS`."""
        rows = read_results(spark, place(self.folder), self.manifest["results"])
        return rows.filter("kind = 'finding'").drop("kind", "root")


def opened(folder: str | Path) -> Build:
    """The build in a folder; raises FileError if there is no complete one."""
    root = place(folder)
    manifest = root.read_json(MANIFEST)
    if manifest is None or manifest.get("kind") != "shards":
        raise FileError(f"no built state in {folder}: `{MANIFEST}` is missing or of another kind")
    return Build(folder=root.url, manifest=manifest)


def read_results(spark: SparkSession, root: Root, results: str) -> DataFrame:
    """The results of a build, from the workers and from the driver."""
    return spark.read.schema(RESULTS).option("recursiveFileLookup", "true").parquet(root.spark(results))
