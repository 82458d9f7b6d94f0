"""Look once at the Python of a session's executors, and send them privtab's code if they lack it.

Tiny tasks report which packages a worker can import and whether its privtab is the driver's. Other code, or none, is replaced by a
zip file of the driver's package, which the session distributes as an artifact. numpy and pyarrow cannot be sent like that.
In a new session it takes seconds until workers run and have imported what they need, so it begins before the result is needed, and the
tasks have the form of a decision, for which Spark then has loaded and compiled most of its own code.
"""

from __future__ import annotations

import importlib.util
import io
import json
import re
import sys
import threading
import weakref
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from privtab.base import DecisionUnavailable
from privtab_spark.failures import first_lines, spark_errors
from privtab_spark.shipping import session_file

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

NEEDED = ("pyarrow", "numpy")
"""Packages that every function on executors imports."""
_OPTIONAL = ("requests",)
_ADVICE = "install privtab with the extra `spark` there, or set PYSPARK_PYTHON (or `spark.pyspark.python`) to a Python that has it before Spark starts"
_TASKS = 2
"""Tasks that look, each of which leaves a worker that has imported what decisions need: small sessions have two cores."""
_ROWS = 10_000
"""Rows of each of these tasks: a batch of Arrow."""
_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """The Python of a session's executors, as one worker reports it."""

    python: str
    version: str
    lacking: tuple[str, ...]
    code: Literal["own", "other", "none"]
    """The worker's privtab: the driver's own code, another version, or none."""
    origin: str | None
    """The place from which the worker would import privtab."""
    broken: str | None = None
    """The reason why no worker could run at all."""

    def lacks(self, needed: Sequence[str] = NEEDED) -> tuple[str, ...]:
        """The packages, among some, that the worker cannot import."""
        return tuple(name for name in needed if name in self.lacking)

    def why(self, needed: Sequence[str] = NEEDED) -> str | None:
        """The obstacle that keeps privtab from running there, as part of a sentence; None if there is none."""
        if self.broken is not None:
            return f"Spark's executors cannot run Python: {self.broken}"
        lacking = " and no ".join(f"`{name}`" for name in self.lacks(needed))
        return f"the Python of Spark's executors, {self.python} ({self.version}), has no {lacking}" if lacking else None

    def step(self) -> str:
        """The way in which executors get privtab, as a line of a plan."""
        python_text = f"the Python of the executors, {self.python} ({self.version}),"
        match self.code:
            case "own":
                return f"{python_text} has this version of privtab"
            case "other":
                return f"{python_text} has another version of privtab: this one is sent to it"
            case "none":
                return f"{python_text} has no privtab: it is sent to it"


_WORKERS_OF_SESSION: weakref.WeakKeyDictionary[SparkSession, Future[Workers]] = weakref.WeakKeyDictionary()
_READY: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def begin(spark: SparkSession) -> Future[Workers]:
    """Begin to look at the Python of the executors in another thread, once for each session in which they can run Python."""
    with _LOCK:
        known = _WORKERS_OF_SESSION.get(spark)
        if known is None or (known.done() and (known.exception() or known.result().broken) is not None):
            known = _WORKERS_OF_SESSION[spark] = Future()
            # A daemon, since the program may end without the result.
            threading.Thread(target=_complete, args=(known, spark), daemon=True).start()
        return known


def workers(spark: SparkSession) -> Workers:
    """The Python of the executors."""
    return begin(spark).result()


def check_executors(spark: SparkSession, *packages: str) -> Workers:
    """Make sure that the executors can run this privtab, which is sent to them if they lack it.

    `packages`: packages that are needed beside NEEDED. Raises DecisionUnavailable, which tells what the executors' Python lacks and how to
    set another.
    """
    found = workers(spark)
    if (why := found.why((*NEEDED, *packages))) is not None:
        raise DecisionUnavailable(f"{why}: {_ADVICE}; this program runs {sys.executable}", retry=False)
    with _LOCK:
        if spark in _READY:
            return found
    if found.code != "own":
        path = session_file(f"privtab-{code_digest()}.zip", archive())
        spark.addArtifacts(str(path), pyfile=True)
        after_sending = _inspect(spark)
        if after_sending.code != "own":
            raise DecisionUnavailable(
                f"Spark's executors take privtab from {after_sending.origin}, which is another version than that of this program and was not "
                f"replaced by it: {_ADVICE}; this program runs {sys.executable}",
                retry=False,
            )
    with _LOCK:
        _READY.add(spark)
    return found


def _complete(future: Future[Workers], spark: SparkSession) -> None:
    try:
        future.set_result(_inspect(spark))
    except BaseException as error:  # noqa: BLE001  (for whoever waits)
        future.set_exception(error)


def _inspect(spark: SparkSession) -> Workers:
    from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

    inspection = _inspection((*NEEDED, *_OPTIONAL), code_digest())
    try:
        try:  # by Arrow, as decisions are made
            (answer,), *_ = _reports(spark, inspection).collect()
        except spark_errors():  # as it is without pyarrow
            plain = F.udf(inspection, "string", useArrow=False)
            ((answer,),) = spark.range(0, 1, 1, 1).select(plain("id")).collect()
    except spark_errors() as error:
        broken = first_lines(str(error))
        return Workers(python="", version="", lacking=(), code="none", origin=None, broken=broken)
    found = json.loads(answer)
    code: Literal["own", "other", "none"] = "none"
    if found["code"] is not None:
        code = "own" if found["code"] == code_digest() else "other"
    return Workers(**found | {"lacking": tuple(found["lacking"]), "code": code})


def _reports(spark: SparkSession, inspection: Callable[[int], str]) -> DataFrame:
    """The report of each task, by a function of texts as `decide_by_kernel` has it."""
    import pyarrow as pa
    from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

    def cells(number: int, rows: int) -> Any:
        return pa.array([None if number else inspection(0)] + [None] * (rows - 1), pa.string())

    def reports(columns: Any) -> Any:
        for number, (texts, _) in enumerate(columns):
            yield cells(number, len(texts))

    # Spark reads these annotations.
    reports.__annotations__ = {"columns": Iterator[tuple[pa.Array, ...]], "return": Iterator[pa.Array]}

    def mapped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield pa.RecordBatch.from_arrays([cells(number, len(batch))], ["report"])

    rows = spark.range(0, _TASKS * _ROWS, 1, _TASKS).select(F.concat(F.lit("user:"), "id").alias("user"))
    name = F.when(F.col("user").startswith("user:"), F.substring("user", 6, _ROWS)).otherwise(F.col("user"))
    try:
        from pyspark.sql.pandas.functions import arrow_udf
    except ImportError:  # Spark 4.0
        found = rows.mapInArrow(mapped, "report string")
    else:
        report = arrow_udf(reports, "string").asNondeterministic()  # type: ignore[call-overload]
        found = rows.select("*", report(name, "user").alias("report")).select("report")
    return found.where(F.col("report") > "")


def _inspection(needed: tuple[str, ...], own: str | None = None) -> Callable[[int], str]:
    """A self-contained function: it imports privtab modules only from code with the digest `own`, since the executor may lack them."""
    read, packages = _reader(), _packages()

    def inspection(_: int) -> str:
        import hashlib
        import importlib
        import importlib.util
        import json
        import platform
        import sys

        def lacks(name: str) -> bool:
            try:
                importlib.import_module(name)
            except Exception:  # noqa: BLE001  (a package that cannot be imported for any reason is of no use)
                return True
            return False

        spec = importlib.util.find_spec("privtab")
        files = read(packages)
        digest = hashlib.sha256()
        for name in sorted(files):
            digest.update(b"%d %s %d " % (len(name), name.encode(), len(files[name])))
            digest.update(files[name])
        code = digest.hexdigest()[:32] if files else None
        lacking = [name for name in needed if lacks(name)]
        if code == own and not lacking:
            for name in ("pyarrow.compute", "privtab_spark.kernel", "privtab.engines.batches"):
                lacks(name)  # those that decide import them anyway
        return json.dumps(
            {
                "python": sys.executable,
                "version": platform.python_version(),
                "lacking": lacking,
                "code": code,
                "origin": spec.origin if spec is not None else None,
            }
        )

    return inspection


def _reader() -> Callable[[tuple[str, ...]], dict[str, bytes]]:
    """A self-contained function that reads the modules of packages, from folders or zip files, by their paths in an archive."""

    def read(packages: tuple[str, ...]) -> dict[str, bytes]:
        import zipfile
        from pathlib import Path

        found: dict[str, bytes] = {}
        for package in packages:
            spec = importlib.util.find_spec(package)
            if spec is None or not spec.origin:
                continue
            archive = getattr(spec.loader, "archive", None)
            if archive is not None:
                with zipfile.ZipFile(archive) as file:
                    names = [name for name in file.namelist() if name.startswith(f"{package}/")]
                    found |= {name: file.read(name) for name in names if name.endswith((".py", ".lark"))}
                continue
            folder = Path(spec.origin).parent
            paths = {path.relative_to(folder.parent).as_posix(): path for path in folder.rglob("*.*")}
            found |= {
                name: path.read_bytes()
                for name, path in paths.items()
                if path.suffix in (".py", ".lark") and not name.startswith(f"{package}/_data/")
            }
        return found

    return read


@cache
def _packages() -> tuple[str, ...]:
    """The import packages of privtab that this program has loaded, and that executors need therefore."""
    return tuple(
        sorted({name.partition(".")[0] for name in sys.modules if re.match(r"privtab(?:_\w+)?(?:\.|$)", name)})
    )


@cache
def _code() -> dict[str, bytes]:
    """The modules of the driver's packages, by path."""
    return _reader()(_packages())


@cache
def code_digest() -> str:
    """The hash of the driver's privtab, as a worker computes that of its own."""
    return str(json.loads(_inspection(())(0))["code"])


@cache
def archive() -> bytes:
    """The driver's privtab as a zip file, the same bytes for the same code."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in sorted(_code().items()):
            file.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
