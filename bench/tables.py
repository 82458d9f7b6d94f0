"""Wall time of the commands for policy authors, as whole processes, on the largest shipped policy and on generated ones."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from compile import SHIPPED, Cost, cost, policy_text, short_name, spread
from measure import Report, Table, Target

from privtab.pipeline import find_policies, load_program

ROWS = 10_000
CHANGED = 100
OPERATIONS_PER_LINE = 2
_ALTERNATIVES = re.compile(r"^ {4}\w+: .*\) or ")
_SECOND = 1.0
_FIVE = 5.0
_TEN = 10.0


def report(_sizes: Sequence[str], repetitions: int) -> Report:
    """Each command on the largest shipped policy, `test` on all of them, and comparisons of generated ones."""
    with tempfile.TemporaryDirectory(prefix="privtab-bench-") as name:
        commands = _commands(Path(name))
        costs: dict[str, list[Cost]] = {what: [] for what in commands}
        for _ in range(repetitions):
            for what, (arguments, _limit) in commands.items():
                costs[what].append(cost(arguments, codes=(0, 1)))
    table = Table(
        title="Seconds of a command: median (min..max)",
        columns=("command", "wall", "processor"),
        rows=tuple(
            (what, spread(spent, "wall").text(2), spread(spent, "processor").text(2)) for what, spent in costs.items()
        ),
    )
    targets = tuple(
        Target(what=what, spread=spread(costs[what], "wall"), wanted=limit, sense="at most", unit=" s")
        for what, (_, limit) in commands.items()
        if limit is not None
    )
    return Report(part="tables", tables=(table,), targets=targets)


def _commands(folder: Path) -> Mapping[str, tuple[list[str], float | None]]:
    """Command lines by description, each with its limit in seconds; input files are written to the folder."""
    largest = max(find_policies([SHIPPED]), key=lambda path: len(load_program(path).rules))
    name = short_name(largest)
    changed = _written(folder / "changed.yaml", _with_less(largest.read_text(encoding="utf-8").splitlines()))
    generated = list(policy_text(ROWS))
    one, same, other = (
        _written(folder / f"{file}.yaml", lines)
        for file, lines in (("one", generated), ("same", generated), ("other", _with_more(generated)))
    )
    return {
        "nothing: `privtab --help`": (["--help"], None),
        f"`lint`, {name}": (["lint", str(largest)], _SECOND),
        f"`describe`, {name}": (["describe", str(largest)], _SECOND),
        f"`diff`, {name} and itself": (["diff", str(largest), str(largest)], _SECOND),
        f"`diff`, {name} and a changed copy": (["diff", str(largest), changed], _SECOND),
        f"`fmt --check`, {name}": (["fmt", "--check", str(largest)], None),
        "`test`, every shipped policy": (["test", str(SHIPPED)], _TEN),
        f"`diff`, generated, {ROWS:,} rows, equal": (["diff", one, same], _FIVE),
        f"`diff`, generated, {ROWS:,} rows, {CHANGED} changed": (["diff", one, other], _FIVE),
    }


def _written(path: Path, lines: Iterable[str]) -> str:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def _with_less(lines: Iterable[str]) -> list[str]:
    """A policy whose first ten rows with an alternative require both parts."""
    changed: list[str] = []
    left = 10
    for line in lines:
        hit = left > 0 and _ALTERNATIVES.match(line)
        changed.append(line.replace(") or ", ") and ", 1) if hit else line)
        left -= bool(hit)
    return changed


def _with_more(lines: Sequence[str]) -> list[str]:
    """The generated policy with an additional alternative privilege in rows that are spread over the file."""
    places = [at for at, line in enumerate(lines) if line.startswith("    update, rename: ")]
    step = len(places) * OPERATIONS_PER_LINE // CHANGED
    chosen = frozenset(places[::step])
    return [re.sub(r"\(WRITE_(\d+) ", r"(READ_\1/WRITE_\1 ", s) if at in chosen else s for at, s in enumerate(lines)]
