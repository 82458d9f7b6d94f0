"""A state of a million grants in operation: building its bundle, OPA's memory with it and during a swap, one changed grant.

python bench/operate_state.py --grants 20000     a quick run of this part only
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

from measure import Report, Spread, Table, markdown, resident
from prepared import POLICY

from privtab.bundle.archive import archive
from privtab.bundle.delta import contents, delta_for, verify_delta
from privtab.bundle.pack import shard_bundles, state_bundle
from privtab.ir.nodes import Program
from privtab.opa.server import OpaServer
from privtab.pipeline import load_program, policy_bundle
from privtab.request import Entity
from privtab.state.index import stamped_bytes, without_revision
from privtab.state.nodes import Assignment, Grant, State
from privtab.state.shards import PEOPLE

T = TypeVar("T")

GRANTS = 1_000_000
ROOTS, CATALOGS, SCHEMAS, TABLES = 10, 20, 50, 100
SETTLE_SECONDS = 3.0
WAIT_SECONDS = 300.0
LONG_POLLING = "application/vnd.openpolicyagent.bundles"


# --- the state -------------------------------------------------------------------------------------------------------


def made_state(grants: int) -> State:
    """A state with that many distinct grants on tables, schemas and catalogs of ten metalakes; the same on every machine."""
    chance = random.Random(1107)
    users, roles = max(grants // 10, 100), max(grants // 200, 10)
    found: dict[tuple[str, str, str, str, str], None] = {}
    while len(found) < grants:
        path = f"m{chance.randrange(ROOTS)}/c{chance.randrange(CATALOGS)}"
        draw = chance.random()
        type_, privilege = "catalog", "USE_CATALOG"
        if draw < 0.9:
            path, type_, privilege = f"{path}/s{chance.randrange(SCHEMAS)}", "schema", "USE_SCHEMA"
        if draw < 0.7:
            path, type_ = f"{path}/t{chance.randrange(TABLES)}", "table"
            privilege = "SELECT_TABLE" if draw < 0.4 else "MODIFY_TABLE"
        effect = "deny" if chance.random() < 0.03 else "allow"
        found[f"role:r{chance.randrange(roles)}", effect, privilege, type_, path] = None
    return State(
        grants=tuple(
            Grant(
                grantee=role, effect="deny" if effect == "deny" else "allow", privilege=privilege, entity=Entity(t, p)
            )
            for role, effect, privilege, t, p in found
        ),
        assignments=tuple(
            Assignment(principal=f"user:u{user}", role=f"r{chance.randrange(roles)}")
            for user in range(users)
            for _ in range(3)
        ),
        owners=tuple(
            (Entity("schema", f"m{m}/c{c}/s{s}"), f"user:u{chance.randrange(users)}")
            for m in range(ROOTS)
            for c in range(CATALOGS)
            for s in range(SCHEMAS)
        ),
        members=tuple((f"u{user}", Entity("metalake", f"m{user % ROOTS}")) for user in range(users)),
    )


def one_more(state: State) -> State:
    """The state with one more grant."""
    table = Entity("table", "m0/c0/s0/new")
    more = Grant(grantee="role:r1", effect="allow", privilege="SELECT_TABLE", entity=table)
    return replace(state, grants=(*state.grants, more))


# --- a bundle service ------------------------------------------------------------------------------------------------


@dataclass
class Service:
    """Serves one policy and one state with long polling; callers that have the previous state get the delta, if there is one."""

    policy: bytes
    state: tuple[str, bytes]
    delta: bytes | None = None
    before: str | None = None
    url: str = ""
    sent: list[int] = field(default_factory=list)
    news: threading.Condition = field(default_factory=threading.Condition)

    def publish(self, etag: str, state: bytes, delta: bytes | None = None) -> None:
        """Replace the state that is served."""
        with self.news:
            self.before, self.state, self.delta = self.state[0], (etag, state), delta
            self.news.notify_all()

    def answer(self, path: str, has: str | None, wait: float) -> tuple[str, bytes | None]:
        """ETag and body; body None: the caller has the current bundle."""
        if path.endswith("policy"):
            return '"policy"', None if has == '"policy"' else self.policy
        ends = time.monotonic() + wait
        with self.news:
            while self.state[0] == has and (left := ends - time.monotonic()) > 0:
                self.news.wait(left)
            etag, bundle = self.state
            if has == etag:
                return etag, None
            body = self.delta if self.delta is not None and has == self.before else bundle
            self.sent.append(len(body))
            return etag, body


@contextmanager
def serving(service: Service) -> Iterator[Service]:
    """Run the service on a free port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            wait = 5.0 if "wait=" in self.headers.get("Prefer", "") else 0.0
            etag, body = service.answer(self.path, self.headers.get("If-None-Match"), wait)
            self.send_response(304 if body is None else 200)
            self.send_header("ETag", etag)
            self.send_header("Content-Type", LONG_POLLING)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Ignore errors of an OPA that is stopped in the middle of an answer."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    service.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()


def config(service: Service, folder: Path) -> Path:
    """Write OPA's configuration."""
    polling = {"min_delay_seconds": 1, "max_delay_seconds": 1, "long_polling_timeout_seconds": 5}
    path = folder / "opa.json"
    bundles = {name: {"service": "s", "resource": name, "polling": polling} for name in ("policy", "state")}
    path.write_text(json.dumps({"services": {"s": {"url": service.url}}, "bundles": bundles}), encoding="utf-8")
    return path


# --- measuring -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """The cost of activating another bundle: seconds until it is active, and MiB before, at the peak, and after."""

    seconds: float
    before: float
    most: float
    after: float


def swap(opa: OpaServer, act: Callable[[], None], revision: str) -> Swap:
    """Measure a swap from the moment at which `act` has published the bundle."""
    time.sleep(SETTLE_SECONDS)
    before = resident(opa.process.pid)
    most = before
    act()
    began = time.perf_counter()
    while active(opa.url) != revision:
        most = max(most, resident(opa.process.pid))
        if time.perf_counter() - began > WAIT_SECONDS:
            raise TimeoutError(f"revision {revision} was not active after {WAIT_SECONDS:g} seconds")
        time.sleep(0.005)
    seconds = time.perf_counter() - began
    ends = time.perf_counter() + SETTLE_SECONDS
    while time.perf_counter() < ends:
        most = max(most, resident(opa.process.pid))
        time.sleep(0.02)
    return Swap(seconds=seconds, before=before, most=most, after=resident(opa.process.pid))


def active(url: str) -> str | None:
    """The active revision of the state."""
    with urllib.request.urlopen(f"{url}/v1/data/privtab_state/gravitino/revision", timeout=60) as answer:  # noqa: S310
        found: str | None = json.load(answer).get("result")
        return found


@dataclass(kw_only=True)
class Steps:
    """Seconds of each step, one figure for each repetition."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def timed(self, step: str, make: Callable[..., T], *arguments: Any) -> T:
        """Run a step and record its time."""
        gc.collect()
        began = time.perf_counter()
        made = make(*arguments)
        self.seconds.setdefault(step, []).append(time.perf_counter() - began)
        return made

    def row(self, step: str) -> tuple[str, str]:
        """The step as a row of a table."""
        return step, Spread(values=tuple(self.seconds[step])).text(2)


def report(sizes: Sequence[str], repetitions: int, grants: int = GRANTS) -> Report:
    """One size, whatever `sizes` are; no targets."""
    del sizes
    program, state = load_program(POLICY), made_state(grants)
    other = one_more(state)
    steps = Steps()
    bundle = changed = delta = b""
    shards: dict[str, bytes] = {}
    same = True
    for repetition in range(repetitions):
        document = steps.timed("sort the rows into the index", without_revision, program, state)
        _, text = steps.timed("write it as JSON, with its hash", stamped_bytes, document)
        steps.timed("gzip", archive, {"data.json": text})
        del document, text
        made = steps.timed("the state bundle, all in all", state_bundle, program, state)
        shards = steps.timed("the same in shards", shard_bundles, program, state)
        same = same and (repetition == 0 or made == bundle)
        bundle = made
        changed = changed or state_bundle(program, other)
        delta = steps.timed("the delta of one grant", delta_for, bundle, changed) or b""
    shuffled = replace(state, grants=state.grants[::-1], assignments=state.assignments[::-1])
    same = same and state_bundle(program, shuffled) == bundle
    verify_delta(bundle, delta, changed)
    other_shards = shard_bundles(program, other)
    moved = [key for key in other_shards if other_shards[key] != shards.get(key)]
    shard_delta = delta_for(shards[moved[0]], other_shards[moved[0]]) or b""
    swaps = _swaps(program, bundle, changed, delta, repetitions)
    rows = len(state.grants)
    held = len(contents(bundle).data["privtab_state"]["gravitino"]["principals"])
    sizes_table = Table(
        title="What travels",
        columns=("bundle", "bytes"),
        rows=(
            ("the whole state", f"{len(bundle):,}"),
            ("people, of the state in shards", f"{len(shards[PEOPLE]):,}"),
            (f"the largest of {len(shards) - 1} shards", f"{max(len(b) for k, b in shards.items() if k != PEOPLE):,}"),
            ("one grant more, as a delta of the whole state", f"{len(delta):,}"),
            ("one grant more, as a delta of its shard", f"{len(shard_delta):,}"),
            (f"one grant more, shards that change: {len(moved)}", f"{sum(len(other_shards[key]) for key in moved):,}"),
        ),
    )
    build = Table(
        title=f"Building: {rows:,} grants, {len(state.assignments):,} assignments, {held:,} users",
        columns=("step", "seconds"),
        rows=(
            *map(steps.row, steps.seconds),
            ("the same rows, again and in another order", "the same bytes" if same else "**other bytes**"),
        ),
    )
    memory = Table(
        title="OPA, MiB resident, and seconds until a published bundle is active",
        columns=("what", "seconds", "before", "at the most", "after"),
        rows=tuple(_swap_row(name, found) for name, found in swaps.items()),
    )
    return Report(part="state", tables=(build, sizes_table, memory))


def _swaps(program: Program, bundle: bytes, changed: bytes, delta: bytes, repetitions: int) -> dict[str, list[Swap]]:
    """Swaps of an OPA that starts with a tiny state: to the whole state, to another one and back, and by a delta."""
    little = state_bundle(program, State(service_admins=("root",)))
    stamps = {name: str(contents(b).manifest["revision"]) for name, b in (("one", bundle), ("two", changed))}
    found: dict[str, list[Swap]] = {}
    for _ in range(repetitions):
        with (
            tempfile.TemporaryDirectory(prefix="privtab-bench-") as folder,
            serving(Service(policy=policy_bundle(program), state=('"0"', little))) as service,
            OpaServer(config=config(service, Path(folder)), timeout=300) as opa,
        ):
            for name, stamp, published in (
                ("the first time", "one", ('"1"', bundle)),
                ("another whole bundle", "two", ('"2"', changed)),
                ("the first bundle again", "one", ('"3"', bundle)),
                ("a delta of one grant", "two", ('"4"', changed, delta)),
            ):
                found.setdefault(name, []).append(swap(opa, partial(service.publish, *published), stamps[stamp]))
            if service.sent[-1] != len(delta):
                raise ValueError("OPA did not take the delta")
    return found


def _swap_row(name: str, found: Sequence[Swap]) -> tuple[str, ...]:
    def text(part: str, digits: int = 0) -> str:
        return Spread(values=tuple(getattr(one, part) for one in found)).text(digits)

    return name, text("seconds", 2), text("before"), text("most"), text("after")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grants", type=int, default=GRANTS)
    parser.add_argument("--reps", type=int, default=1)
    options = parser.parse_args()
    print(markdown(report((), options.reps, options.grants)))
