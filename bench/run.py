"""Run the benchmarks, print the figures and write them to docs/internals/benchmarks.md.

python bench/run.py                      everything, about half an hour
python bench/run.py decisions --sizes S  one part, one size
python bench/run.py --quick              few repetitions, nothing is written
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import activation
import americas
import authzen
import client
import compile as compile_times
import conformance
import decisions
import doors
import embedded
import exact
import explore
import features
import filtering
import imports
import keys
import load
import memory
import narrowing
import operate_fleet
import operate_state
import pack
import pipeline
import questions
import replaying
import spark
import spark_scale
import store
import store_feed
import store_reads
import tables
import waits
from measure import Report, WrongAnswerError, markdown, targets_table, with_earlier_rows
from rich.console import Console
from rich.table import Table as RichTable
from workload import SIZES

from privtab.base.errors import PrivtabError
from privtab.engines.opa import binary

PAGE = Path(__file__).resolve().parent.parent / "docs" / "internals" / "benchmarks.md"
PARTS: Mapping[str, Callable[[Sequence[str], int], Report]] = {
    "decisions": decisions.report,
    "features": features.report,
    "keys": keys.report,
    "client": client.report,
    "memory": memory.report,
    "compile": compile_times.report,
    "activation": activation.report,
    "embedded": embedded.report,
    "tables": tables.report,
    "start": waits.report_commands,
    "waits": waits.report,
    "authzen": authzen.report,
    "load": load.report,
    "spark": spark.report,
    "scale": spark_scale.report,
    "first": spark_scale.report_first,
    "americas": americas.report,
    "pipeline": pipeline.report,
    "replaying": replaying.report,
    "replaying_large": replaying.report_large,
    "narrowing": narrowing.report,
    "state": operate_state.report,
    "fleet": operate_fleet.report,
    "questions": questions.report,
    "explore": explore.report,
    "conformance": conformance.report,
    "pack": pack.report,
    "imports": imports.report,
    "hostile": exact.report,
    "filters": filtering.report,
    "doors": doors.report,
    "store": store.report,
    "store_feed": store_feed.report,
    "store_reads": store_reads.report,
}
QUIET_LOAD = 0.7

console = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 120)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named parts; exit code 1 for wrong answers, 3 for failures such as a missing OPA."""
    options = _options(arguments)
    sizes = options.sizes.split(",")
    if unknown := [size for size in sizes if size not in SIZES]:
        console.print(f"unknown size `{unknown[0]}`; there are: {', '.join(SIZES)}", markup=False)
        return 2
    try:
        opa = binary.find()
        # Every part starts OPA: make sure that all contestants use the same one.
        os.environ["PRIVTAB_OPA"] = str(opa)
        # An installed package has its modules compiled: commands keep what they compile, whatever the environment says.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        for part in options.parts or PARTS:
            waited = _wait(options.wait)
            load = os.getloadavg()[0]
            report = PARTS[part](sizes, 1 if options.quick and part != "decisions" else options.reps)
            _show(report)
            if not options.quick:
                _write(report, options.reps, load)
            if waited and load > QUIET_LOAD:
                console.print(f"the machine was never quiet: load {load:.1f} at the start of `{part}`", style="yellow")
    except WrongAnswerError as error:
        console.print(f"wrong answers: {error}", style="red", markup=False)
        return 1
    except PrivtabError as error:
        console.print(str(error), style="red", markup=False)
        return 3
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)}; all where left off")
    parser.add_argument("--sizes", default="S,L", help="any of S, L and R, with commas (default: S,L)")
    parser.add_argument("--reps", type=int, default=7, help="repetitions (7)")
    parser.add_argument("--quick", action="store_true", help="few repetitions; the page is left as it is")
    parser.add_argument(
        "--wait", type=float, default=0, help=f"wait at most that many seconds for a load below {QUIET_LOAD}"
    )
    options = parser.parse_args(arguments)
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"unknown part `{unknown[0]}`; there are: {', '.join(PARTS)}")
    if options.reps < 1:
        parser.error("--reps must be 1 or more")
    if options.quick:
        options.reps = min(options.reps, 3)
    return options


def _wait(seconds: float) -> bool:
    """Wait for a quiet machine, at most that many seconds; returns whether it waited at all."""
    deadline = time.monotonic() + seconds
    waited = False
    while os.getloadavg()[0] > QUIET_LOAD and time.monotonic() < deadline:
        waited = True
        time.sleep(5)
    return waited


def _show(report: Report) -> None:
    tables = (*report.tables, *((targets_table(report.targets),) if report.targets else ()))
    for table in tables:
        shown = RichTable(title=table.title, title_justify="left")
        for at, column in enumerate(table.columns):
            shown.add_column(column, justify="right" if at else "left")
        for row in table.rows:
            shown.add_row(*(cell.replace("`", "").replace("**", "") for cell in row))
        console.print(shown)


def _write(report: Report, repetitions: int, load: float) -> None:
    """Write a part's figures between its markers on the page."""
    text = PAGE.read_text(encoding="utf-8")
    begin, end = f"<!-- {report.part}: begin -->", f"<!-- {report.part}: end -->"
    if begin not in text or end not in text:
        console.print(f"{PAGE.name} has no place for `{report.part}`: nothing was written", style="yellow")
        return
    if report.adds:
        report = with_earlier_rows(report, text[text.index(begin) : text.index(end)])
    repeated = report.repetitions or f"{repetitions} repetitions"
    machine = f"{_machine()}; {repeated}; load of the machine at the start {load:.1f}."
    content = f"{begin}\n{markdown(report)}\n\n{machine}\n{end}"
    text = re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: content, text, flags=re.DOTALL)
    PAGE.write_text(text, encoding="utf-8")


def _machine() -> str:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {memory_gib:.0f} GiB, {platform.system()}; "
        f"OPA {binary.PINNED}, Python {platform.python_version()}, requests {version('requests')}"
    )


if __name__ == "__main__":
    sys.exit(main())
