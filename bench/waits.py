"""Measure the waits of users in this tree and in another, by turns, beside something that others know.

The Python of the other checkout's environment, if there is one, stands in PRIVTAB_BENCH_OTHER. Everything is asked as users ask it, of commands,
of `Embedded` and over sockets, so that both trees understand it. Figures are processor time of whole processes, for Spark with the JVM
and the workers from the call to the last answer.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from urllib.error import HTTPError

import questions
import replaying
import spark_scale
import start
from activation import load
from compile import policy_text
from measure import Report, Spread, Table, WrongAnswerError
from prepared import POLICY, Prepared, serve
from prepared import policy_text as lake_text
from workload import World, world

OPA_ROWS = (1_000, 5_000)
DECISIONS, BATCH, ROUNDS = 2_000, 100, 5
GRANTS = 1_000_000
LOGGED = 1_000_000
LONGEST, LONGEST_ELSEWHERE = 1_200, 45
"""Seconds of a clock after which a row of this tree, and of another, is not repeated: the table says how many repetitions there were."""
USUAL = 5
"""Repetitions of a figure that says no number."""
_URL = re.compile(r"http://[\w.:]+\b")
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A figure: `ask` measures it for a Python, and `beside` measures what is compared with it."""

    what: str
    unit: str
    ask: Callable[[str], float]
    beside: str = ""
    measured_beside: Callable[[], float] | None = None
    digits: int = 2
    longest_elsewhere: int = LONGEST_ELSEWHERE


Groups = Mapping[str, Callable[[Path], list[Row]]]


def report(_sizes: Sequence[str], repetitions: int) -> Report:
    """Every row in each tree by turns, `repetitions` times; PRIVTAB_BENCH_GROUPS names groups of rows, and rows of other groups stay."""
    named = os.environ.get("PRIVTAB_BENCH_GROUPS", "").split()
    return _report(
        "waits", "What people wait for", {name: ROWS[name] for name in named or ROWS}, repetitions, adds=bool(named)
    )


def report_commands(_sizes: Sequence[str], repetitions: int) -> Report:
    """The same for commands, which have a table of their own."""
    return _report("start", "Seconds of processor time of a command", {"commands": _commands}, repetitions)


def _report(part: str, title: str, groups: Groups, repetitions: int, *, adds: bool = False) -> Report:
    found: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory(prefix="privtab-bench-") as name:
        for group, rows in groups.items():
            folder = Path(name) / group
            folder.mkdir()
            found += [_measured(row, repetitions) for row in rows(folder)]
    trees = start.pythons()
    columns = ("what", *trees, *(["this / other"] if len(trees) > 1 else []), "beside it")
    table = Table(title=f"{title}: median (min..max)", columns=columns, rows=tuple(found))
    said = f"{USUAL} repetitions where a figure names no other number"
    return Report(part=part, tables=(table,), repetitions=said, adds=adds)


def _measured(row: Row, repetitions: int) -> tuple[str, ...]:
    """A line of the table: after a turn that warms up, each tree in every repetition, until its turns have taken LONGEST seconds."""
    pythons = [*start.pythons().values()]
    times: dict[str, list[float]] = {python: [] for python in pythons}
    others: list[float] = []
    spent = dict.fromkeys(pythons, 0.0)
    for number in range(-1, repetitions):
        for python in pythons[:: -1 if number % 2 else 1]:
            if spent[python] < (LONGEST if python == pythons[0] else row.longest_elsewhere):
                begun = time.monotonic()
                times[python].append(row.ask(python))
                spent[python] += time.monotonic() - begun
        if row.measured_beside is not None:
            others.append(row.measured_beside())
    # The first turn compiles modules and reads files into memory; where it took all of the time, it is the figure.
    spreads = [Spread(values=tuple(values[1:] or values)) for values in times.values()]
    full = all(len(spread.values) == repetitions for spread in spreads)
    ratio = [spreads[0].over(spreads[1]).text(2) if full else f"{spreads[0].median / spreads[1].median:.2f}"] if len(spreads) > 1 else []  # fmt: skip
    said = f"{row.beside}: {_text(Spread(values=tuple(others[1:])), row)}" if others else row.beside
    line = (", ".join(filter(None, (row.what, row.unit))), *(_text(spread, row) for spread in spreads), *ratio, said)
    print(" | ".join(line), file=sys.stderr, flush=True)
    return line


def _text(spread: Spread, row: Row) -> str:
    count = len(spread.values)
    return spread.text(row.digits) + ("" if count == USUAL else f", of {count}")


def _commands(folder: Path) -> list[Row]:
    beside = start.beside(folder)
    rows: list[Row] = []
    for what, (line, environment) in start.commands(folder).items():
        shown = _COMPARED.get(what.partition(", ")[2], _NOTHING)
        other = beside.get(shown)
        rows.append(
            Row(
                what=what,
                unit="",
                digits=3,
                beside=shown,
                ask=partial(_command, line, environment),
                measured_beside=partial(start.seconds, other, {}) if other else None,
            )
        )
    return rows


_NOTHING = "`python -c pass`"
_COMPARED = {"20 rows": "`opa check`, one module", "5,000 rows": ""}


def _command(line: Sequence[str], environment: Mapping[str, str], python: str) -> float:
    return start.seconds(start.line_of(python, line), environment)


def _activation(folder: Path) -> list[Row]:
    def loaded(rows: int, python: str) -> float:
        out = folder / f"{rows}-{python.replace('/', '-')}"
        if not out.exists():
            policy = folder / f"rows_{rows}.yaml"
            policy.write_text("\n".join(policy_text(rows)) + "\n", encoding="utf-8")
            _run(python, "-m", "privtab", "compile", str(policy), "-o", str(out))
        (bundle,) = out.rglob("policy.tar.gz")
        return load(bundle).processor

    title = "OPA takes up a bundle of {:,} rows"
    return [Row(what=title.format(rows), unit="s", ask=partial(loaded, rows)) for rows in OPA_ROWS]


def _embedded(folder: Path) -> list[Row]:
    """Small batches over the world S, and the first load of a million grants."""
    bundles = Prepared(size="S", folder=folder).ours()
    asked = world("S").requests[:DECISIONS]
    (folder / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
    large = folder / "large"
    large.mkdir()
    spark_scale.Numbers(GRANTS).write(large)

    def decided(how: str, python: str) -> float:
        arguments = (bundles["policy"], bundles["state"], folder / "asked.json")
        return float(_run(python, "-c", _DECIDE, *map(str, arguments), how, str(BATCH)))

    def opened(python: str) -> float:
        packed = large / python.replace("/", "-")
        if not packed.exists():
            _run(python, "-m", "privtab", "compile", str(large / "lake.yaml"), "-o", str(packed))
            _run(python, "-m", "privtab", "state", "pack", str(large / "state"), "-p", str(large / "lake.yaml"), "-o", str(packed / "state.tar.gz"))  # fmt: skip
        (policy,) = packed.rglob("policy.tar.gz")
        return float(_run(python, "-c", _OPEN, str(policy), str(packed / "state.tar.gz")))

    def opened_by_opa() -> float:
        return load(large / sys.executable.replace("/", "-") / "state.tar.gz").processor

    return [
        Row(what="`check(Request)`", unit="µs", digits=1, ask=partial(decided, "request")),
        Row(what=f"`check_many` of {BATCH}, a decision", unit="µs", digits=1, ask=partial(decided, "many")),
        Row(what=f"`Embedded` loads {GRANTS:,} grants", unit="s", ask=opened, beside="OPA", measured_beside=opened_by_opa),
    ]  # fmt: skip


_DECIDE = """
import json, sys, time
from privtab import Entity, Request
from privtab.client.embedded import Embedded
policy, state, asked, how, size = sys.argv[1:]
client, size = Embedded(policy, state), int(size)
many = [Request(user=user, action="select", resource=Entity("table", table)) for user, table in json.load(open(asked))]
def run():
    if how == "request":
        return [client.check(one) for one in many]
    return [a for n in range(0, len(many), size) for a in client.check_many(many[n:n + size])]
run()
spent = []
for _ in range(5):
    begun = time.process_time()
    run()
    spent.append(time.process_time() - begun)
print(sorted(spent)[2] / len(many) * 1e6)
"""
_OPEN = """
import sys, time
from privtab.client.embedded import Embedded
begun = time.process_time()
Embedded(*sys.argv[1:])
print(time.process_time() - begun)
"""


@contextmanager
def _server(python: str, folder: Path, *arguments: str) -> Iterator[tuple[str, Callable[[], float]]]:
    """A server of the command line: its URL, and its processor time until now."""
    # An earlier tree has another option for the port.
    port = "--listen" if "--listen" in _run(python, "-m", "privtab", arguments[0], "--help") else "--port"
    with subprocess.Popen(
        [python, "-m", "privtab", *arguments, port, "0"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            url = next(match[0] for line in process.stdout if (match := _URL.search(line)))
            yield url, lambda: _processor(process.pid)
        finally:
            process.terminate()


def _processor(pid: int) -> float:
    """The processor time of a process, of its children, and of those that have ended."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    spent = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:15]
    return sum(map(int, spent)) / _TICK + sum(_processor(int(child)) for child in children)


def _authzen(folder: Path) -> list[Row]:
    """Decisions over a keepalive connection, by the processor time of the server."""
    bundles = Prepared(size="S", folder=folder).ours()
    both = folder / "bundles"
    both.mkdir()
    for name, path in bundles.items():
        (both / f"{name}.tar.gz").write_bytes(path.read_bytes())
    asked = world("S").requests[:DECISIONS]

    def answered(size: int, python: str) -> float:
        with _server(python, folder, "serve", "-b", str(both), "--brief", "--quiet") as (url, spent):
            bodies = [_evaluations(asked[start : start + size]) for start in range(0, len(asked), size)]
            path = "/access/v1/evaluation" + ("s" if size > 1 else "")
            return _spent(url, path, bodies, spent)

    def by_opa() -> float:
        """OPA's own answers to the same questions, one at a time."""
        with serve(bundles) as opa:
            bodies = [json.dumps({"input": json.loads(_evaluations([one]))}).encode() for one in asked]
            return _spent(opa.url, "/v1/data/privtab/gravitino/allow", bodies, lambda: _processor(opa.process.pid))

    return [
        Row(
            what="AuthZEN over a socket, one decision, brief",
            unit="µs",
            digits=0,
            ask=partial(answered, 1),
            beside="OPA's `allow`",
            measured_beside=by_opa,
        ),
        Row(what=f"AuthZEN, of a batch of {BATCH}", unit="µs", digits=1, ask=partial(answered, BATCH)),
    ]


def _spent(url: str, path: str, bodies: Sequence[bytes], processor: Callable[[], float]) -> float:
    """Microseconds of a server's processor for each decision; the first round is a warm-up."""
    _posted(url, path, bodies)
    before = processor()
    for _ in range(ROUNDS):
        _posted(url, path, bodies)
    return (processor() - before) / DECISIONS / ROUNDS * 1e6


def _evaluations(asked: Sequence[tuple[str, str]]) -> bytes:
    one = [
        {"subject": {"type": "user", "id": user}, "action": {"name": "select"}, "resource": {"type": "table", "id": table}}
        for user, table in asked
    ]  # fmt: skip
    return json.dumps(one[0] if len(one) == 1 else {"evaluations": one}).encode()


def _posted(url: str, path: str, bodies: Sequence[bytes]) -> None:
    import http.client

    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc)
    for body in bodies:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200 or len(answer.read()) < 2:
            raise WrongAnswerError(f"{path}: {answer.status}")


def _states(folder: Path) -> list[Row]:
    made = world("L")
    questions.write(made, folder)
    read = partial(start.seconds, (sys.executable, "-c", _READ, *(str(folder / f"parquet{suffix}") for suffix in ("", "-100"))), {})  # fmt: skip
    return [
        Row(what=name, unit="s", ask=partial(_question, made, folder, name), beside="reading both states", measured_beside=read)
        for name, (*_, after) in questions.COMMANDS.items() if after.removeprefix("STATE-") in questions.CHANGED
    ]  # fmt: skip


_READ = f"""
import sys
from pathlib import Path
from privtab.command import load_policy, load_state
policy = load_policy({POLICY!r})
states = [load_state(policy, Path(path), allow_partial=False, for_queries=True) for path in sys.argv[1:]]
"""


def _question(made: World, folder: Path, name: str, python: str) -> float:
    policy = () if name == questions.WITHOUT_POLICY else ("-p", POLICY)
    command = questions.COMMANDS[name]
    if python != sys.executable:  # of an earlier tree, where `diff` took no states
        command = ("state", "diff", *(word for word in command if word.startswith("STATE")))
    return questions.seconds(made, (*command, *policy), folder, "parquet", python)


def _replays(folder: Path) -> list[Row]:
    prepared = Prepared(size="S", folder=folder)
    logs = replaying.written([prepared], folder / "logs", LOGGED)
    (folder / "lake.yaml").write_text(lake_text(), encoding="utf-8")
    state = prepared.ours()["state"]

    def replayed(python: str) -> float:
        before = _children()
        _run(python, "-m", "privtab", "replay", str(logs), "-p", str(folder / "lake.yaml"), "--old-policy", str(folder / "lake.yaml"), "--old-state", str(state))  # fmt: skip
        return (_children() - before) / LOGGED * 1e6

    def by_duckdb() -> float:
        (processor,) = replaying.measured(replaying.DUCKDB, logs)
        return processor / LOGGED * 1e6

    return [Row(what="`replay`, a decision", unit="µs", digits=1, ask=replayed, beside="DuckDB reads them", measured_beside=by_duckdb)]  # fmt: skip


def _explored(folder: Path) -> list[Row]:
    """Pages by the processor time of the server and its children; each turn asks about another user, since answers are kept."""
    made = world("R")
    questions.write(made, folder)
    servers = ExitStack()
    atexit.register(servers.close)
    running: dict[str, tuple[str, Callable[[], float]]] = {}
    turns: dict[tuple[str, str], Iterator[int]] = {}

    def about(page: str, number: int) -> dict[str, str | int]:
        user, table = made.requests[number]
        match page:
            case "decision":
                return {"user": user, "operation": "load", "entity": f"table:{table}"}
            case "what-can":
                return {"user": user}
            case "heat":
                return {"within": "metalake:m", "type": "table", "from": 16 * number}
            case _:
                return {"operation": "load", "entity": f"table:{table}"}

    def asked(page: str, python: str) -> float:
        if python not in running:
            line = ("explore", POLICY, "-s", "parquet", "--no-open")
            running[python] = servers.enter_context(_server(python, folder, *line))
            _read(f"{running[python][0]}/")
        url, spent = running[python]
        number = next(turns.setdefault((page, python), count()))
        before = spent()
        try:
            _read(f"{url}/{page}?{urllib.parse.urlencode(about(page, number))}")
        except HTTPError as error:
            if error.code != 503:  # which is said after a minute of a clock, and the work goes on
                raise
            _until_idle(spent)
        return spent() - before

    pages = {"decision": "decision", "what-can": "what can", "heat": "heat map", "who-can": "who can"}
    return [
        Row(what=f"explore, 200,000 grants: {what}", unit="s", ask=partial(asked, page)) for page, what in pages.items()
    ]


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=300) as answer:  # noqa: S310  (our own server)
        return bytes(answer.read())


def _until_idle(spent: Callable[[], float]) -> None:
    """Wait until a server has done nothing for some seconds."""
    before = -1.0
    while (now := spent()) > before:
        before = now
        time.sleep(5)


def _run(*line: str) -> str:
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def _children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _first_on_spark(folder: Path) -> list[Row]:
    spark_scale.Numbers(GRANTS).write(folder)

    def first(way: str, python: str) -> float:
        found: list[float] = json.loads(_run(python, "-c", _SPARK, str(folder), way).splitlines()[-1])
        return found[0]

    title = f"Spark, {GRANTS:,} requests over {GRANTS:,} grants, first"
    others = {
        "": (spark_scale.OURS, "joins by hand", spark_scale.HAND),
        ", the state by its path": (spark_scale.PATH, "nothing decided", spark_scale.LIMIT),
    }
    return [
        Row(
            what=title + what,
            unit="s",
            digits=1,
            longest_elsewhere=LONGEST,
            ask=partial(first, ours),
            beside=beside,
            measured_beside=partial(first, theirs, sys.executable),
        )
        for what, (ours, beside, theirs) in others.items()
    ]


_SPARK = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).resolve().parent)!r})
try:
    import privtab_spark
except ImportError:  # where it lay before
    import privtab.spark
    sys.modules["privtab_spark"] = sys.modules["privtab.spark"]
import spark_scale, tree
spark_scale.decide_twice(Path(sys.argv[1]), sys.argv[2], tree.spent)
"""

ROWS: Groups = {
    "activation": _activation,
    "embedded": _embedded,
    "authzen": _authzen,
    "states": _states,
    "replays": _replays,
    "explore": _explored,
    "spark": _first_on_spark,
}
