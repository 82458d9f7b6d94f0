"""Run concurrent callers against an OPA whose bundles change every second, and which is killed and restarted once.

python bench/load.py                                   one minute
python bench/load.py --minutes 3 --threads 16 --tasks 64
python bench/load.py --minutes 0.2 --out /tmp/load     a quick run

Every answer is compared with the answers of the reference for all revisions that may have been active between sending and
answering. Exit code 1: an answer was wrong, a call failed unexpectedly, or something leaks; 3: no OPA.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from load_run import Load, Progress, Result, Settings
from load_show import load_report, picture, result_json, text
from measure import Report, WrongAnswerError, markdown
from rich.console import Console

from privtab.base.errors import PrivtabError

OUT = Path(__file__).resolve().parent.parent / "build" / "load"

# Errors during the restart are counted here; the clients' log messages about them would be noise.
logging.getLogger("privtab").addHandler(logging.NullHandler())
console = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 120)


def report(sizes: Sequence[str], repetitions: int) -> Report:
    """The part of `bench/run.py`: a minute, or a quarter of one for few repetitions."""
    del sizes
    result = Load(Settings(minutes=1.0 if repetitions > 3 else 0.25), _progress()).run()
    written(result, OUT)
    if result.failures:
        raise WrongAnswerError("\n".join(result.failures))
    return load_report(result)


def written(result: Result, folder: Path) -> None:
    """Write `load.json`, `load.svg` and the tables as `load.md` to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "load.json").write_text(json.dumps(result_json(result), indent=2) + "\n", encoding="utf-8")
    (folder / "load.svg").write_text(picture(result), encoding="utf-8")
    (folder / "load.md").write_text(markdown(load_report(result)) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run once, show the result and write it to files."""
    options = _options(arguments)
    settings = Settings(**{name: getattr(options, name) for name in _NAMES}, restart=not options.no_restart)
    try:
        result = Load(settings, _progress()).run()
    except PrivtabError as error:
        console.print(str(error), style="red", markup=False)
        return 3
    text(result, console)
    written(result, options.out)
    console.print(f"\n{options.out}: load.json, load.svg, load.md", style="dim", soft_wrap=True)
    return 1 if result.failures else 0


_NAMES = ("minutes", "threads", "eager", "tasks", "embedded", "think", "swap", "down", "late")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    usual = Settings()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=usual.minutes, help=f"how long ({usual.minutes:g})")
    parser.add_argument(
        "--threads", type=int, default=usual.threads, help=f"threads that share a Client ({usual.threads})"
    )
    parser.add_argument(
        "--eager", type=int, default=usual.eager, help=f"threads that share a Client without a circuit ({usual.eager})"
    )
    parser.add_argument(
        "--tasks", type=int, default=usual.tasks, help=f"tasks that share an AsyncClient ({usual.tasks})"
    )
    parser.add_argument(
        "--embedded", type=int, default=usual.embedded, help=f"threads that share an Embedded ({usual.embedded})"
    )
    parser.add_argument(
        "--think",
        type=float,
        default=usual.think,
        help=f"seconds between the calls of a caller, on average ({usual.think:g})",
    )
    parser.add_argument(
        "--swap", type=float, default=usual.swap, help=f"seconds from bundle to bundle ({usual.swap:g})"
    )
    parser.add_argument("--down", type=float, default=usual.down, help=f"seconds that OPA stays dead ({usual.down:g})")
    parser.add_argument(
        "--late",
        type=float,
        default=usual.late,
        help=f"seconds that its state comes late to a new OPA ({usual.late:g})",
    )
    parser.add_argument("--no-restart", action="store_true", help="OPA lives")
    parser.add_argument("--out", type=Path, default=OUT, help="the folder for load.json and load.svg (build/load)")
    options = parser.parse_args(arguments)
    if options.minutes <= 0 or options.swap <= 0 or min(options.think, options.down, options.late) < 0:
        parser.error("--minutes and --swap must be above zero, --think, --down and --late not below it")
    crowds = (options.threads, options.eager, options.tasks, options.embedded)
    if min(crowds) < 0 or not sum(crowds):
        parser.error("there must be callers: --threads, --eager, --tasks or --embedded")
    return options


def _progress() -> Progress:
    """Progress as a line that is updated in place, or as a new line every ten seconds if the output is no terminal."""
    if console.is_terminal:
        return lambda line: console.print(f"\r{line}", end="", soft_wrap=True)
    last = [0.0]

    def say(line: str) -> None:
        if time.monotonic() - last[0] >= 10:
            last[0] = time.monotonic()
            console.print(line, soft_wrap=True)

    return say


if __name__ == "__main__":
    sys.exit(main())
