"""What every test may ask for."""

from __future__ import annotations

import gc
import os
import random
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from socketserver import TCPServer
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from seeds import DAY, the_day

from privtab.engines.opa import binary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_report_header() -> str:
    """The day by which a run with seeds of a day is repeated; read here, before workers begin, so that all have one."""
    return f"seeds of the day: {DAY}={the_day()}"


# For all that start a Java machine, for few rows: most of their time is that of compiling, and of verifying classes of known jars.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)

# Importing and collecting create objects that stay: looking for cycles among them takes a sixth of the time.
gc.disable()

# What gates a change says the same of the same code; `make test-long` searches what nobody has seen.
# How long it takes to make an example is no fault of what is tested: the machine may be busy.
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", derandomize=False, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")

SEEDS_OF_A_SEARCH = 10_000
"""The most seeds that one test may take after `search_seed`."""

LONGEST_NAME = 200
"""Characters of a text that stands in the name of a test as it is."""

# A shell that starts the tests in the background has them ignore Ctrl-C, and so all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def no_server_looks_at_a_closed_socket() -> Iterator[None]:
    """Find servers whose socket was closed while they run: they look at it without a pause, and slow all tests that follow."""
    yield
    targets = (vars(each).get("_target") for each in threading.enumerate() if each.name.endswith("(serve_forever)"))
    servers = [getattr(target, "__self__", None) for target in targets]
    assert [server for server in servers if isinstance(server, TCPServer) and server.fileno() < 0] == []


@pytest.fixture(scope="session")
def opa_binary() -> Path:
    """The pinned OPA."""
    return binary.find()


@pytest.fixture(scope="session")
def search_seed(request: pytest.FixtureRequest) -> int:
    """Where the seeds of long tests start: other worlds in each run, unless `--search-seed` names one."""
    return int(request.config.getoption("--search-seed")) * SEEDS_OF_A_SEARCH


@pytest.fixture(scope="session")
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written again."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def golden(update_golden: bool) -> Callable[[Path, str], None]:
    """Compares a text with a golden file, or writes it."""

    def compare(path: Path, text: str) -> None:
        if update_golden:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no golden file {path.name}: run pytest --update-golden, then read it"
        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """One Spark session on two cores: Classic, or Connect with `--spark connect`; a process can hold only one kind."""
    import spark_sessions

    session = spark_sessions.session(connect=request.config.getoption("--spark") == "connect", brief=True)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connected(request: pytest.FixtureRequest) -> bool:
    """Return whether the session is of Spark Connect."""
    return bool(request.config.getoption("--spark") == "connect")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files again; then read the diff")
    parser.addoption("--spark", choices=("classic", "connect"), default="classic", help="which kind of Spark session")
    parser.addoption(
        "--search-seed", type=int, default=None, metavar="N", help="search the worlds of an earlier run again"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Before the workers of xdist start: they have the options of this process.
    if config.option.search_seed is None:
        config.option.search_seed = random.randrange(1_000_000)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("--hypothesis-profile") == "search":
        terminalreporter.write_line(f"--search-seed {config.option.search_seed} searches these worlds again")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name long texts by their parameter: every worker sends all names to the process that hands out the tests."""
    return argname if isinstance(val, str | bytes) and len(val) > LONGEST_NAME else None


def pytest_collection_finish() -> None:
    gc.enable()
    # Few tests leave cycles: with the usual thresholds, looking for them takes a twelfth of the time, with these a thirtieth.
    gc.set_threshold(20_000, 20, 50)
    # What was collected stays until the end: the collector of cycles need not go through it again and again.
    gc.freeze()


MAKEFILE = Path(__file__).parents[2] / "Makefile"


def slow_words() -> re.Pattern[str]:
    """The words of which each file with slow tests has one; `make test-full` collects no other files."""
    found = re.search(r"^SLOW_WORDS := (.+)$", MAKEFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found, "the Makefile names no words of slow tests"
    return re.compile(found[1])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    files, words = {item.path for item in items if item.get_closest_marker("slow")}, slow_words()
    if passed_over := sorted(str(file) for file in files if not words.search(file.read_text(encoding="utf-8"))):
        raise pytest.UsageError(f"`make test-full` finds none of the `SLOW_WORDS` in {', '.join(passed_over)}")
    for item in items:
        if "seed" in getattr(getattr(item, "callspec", None), "params", ()):
            item.add_marker(pytest.mark.generated)
        fixtures = getattr(item, "_fixtureinfo", None)
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            # Few processes: each Java machine has to warm up. One for the quick tests, one for each core for the slow ones.
            half = crc32(item.path.name.encode()) % 2 if item.get_closest_marker("slow") else ""
            item.add_marker(pytest.mark.xdist_group(f"spark{half}"))
        elif fixtures and any(each[-1].scope == "module" for each in fixtures.name2fixturedefs.values()):
            # What is made for all tests of a file is made once.
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
