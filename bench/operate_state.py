"""A state of a million grants in operation: building its bundles, and one changed grant, until a sidecar that verifies signatures decides by it.

python bench/operate_state.py --grants 20000                     a quick run of this part only
python bench/operate_state.py --grants 10000000 --only-shards    in shards alone, built root by root: needs 22 GiB
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

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from measure import Report, Spread, Table, markdown, resident
from prepared import POLICY

from privtab.base.request import Entity
from privtab.bundle.archive import contents, packed_archive
from privtab.bundle.pack import shard_bundles, state_bundle
from privtab.bundle.sign import SigningKey
from privtab.engines.opa.server import OpaServer
from privtab.ir.nodes import Program
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.index import stamped_bytes, without_revision
from privtab.state.nodes import Assignment, Grant, State
from privtab.state.shards import PartText

T = TypeVar("T")

GRANTS = 1_000_000
ROOTS, CATALOGS, SCHEMAS, TABLES = 10, 20, 50, 100
SETTLE_SECONDS = 3.0
WAIT_SECONDS = 600.0
PRIVATE_KEY = ec.generate_private_key(ec.SECP256R1())
SIGNING = SigningKey(id="bench", algorithm="ES256", key=PRIVATE_KEY)
PUBLIC_KEY = PRIVATE_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
LONG_POLLING = "application/vnd.openpolicyagent.bundles"


# --- the state -------------------------------------------------------------------------------------------------------


def made_state(grants: int) -> State:
    """A state with that many distinct grants on tables, schemas and catalogs of ten metalakes; the same on every machine."""
    chance = random.Random(1107)
    roots = [f"m{root}" for root in range(ROOTS)]
    return replace(people(grants), grants=tuple(_grants(chance, grants, roles_of(grants), roots)))


def made_root(grants: int, root: int) -> State:
    """The part below one metalake of another such state, with all people."""
    chance = random.Random(1107 + root)
    return replace(people(grants), grants=tuple(_grants(chance, grants // ROOTS, roles_of(grants), [f"m{root}"])))


def roles_of(grants: int) -> int:
    """The number of roles."""
    return max(grants // 200, 10)


def _grants(chance: random.Random, count: int, roles: int, roots: Sequence[str]) -> Iterator[Grant]:
    found: dict[tuple[str, str, str, str, str], None] = {}
    while len(found) < count:
        path = f"{chance.choice(roots)}/c{chance.randrange(CATALOGS)}"
        draw = chance.random()
        type_, privilege = "catalog", "USE_CATALOG"
        if draw < 0.9:
            path, type_, privilege = f"{path}/s{chance.randrange(SCHEMAS)}", "schema", "USE_SCHEMA"
        if draw < 0.7:
            path, type_ = f"{path}/t{chance.randrange(TABLES)}", "table"
            privilege = "SELECT_TABLE" if draw < 0.4 else "MODIFY_TABLE"
        effect = "deny" if chance.random() < 0.03 else "allow"
        found[f"role:r{chance.randrange(roles)}", effect, privilege, type_, path] = None
    for role, effect, privilege, type_, path in found:
        yield Grant(
            grantee=role,
            effect="deny" if effect == "deny" else "allow",
            privilege=privilege,
            entity=Entity(type_, path),
        )


def people(grants: int) -> State:
    """All of such a state but its grants."""
    chance = random.Random(2024)
    users, roles = max(grants // 10, 100), roles_of(grants)
    return State(
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
    """Serves bundles by name, with long polling."""

    bundles: dict[str, tuple[str, bytes]]
    url: str = ""
    news: threading.Condition = field(default_factory=threading.Condition)

    def publish(self, name: str, bundle: bytes) -> None:
        """Replace one bundle that is served."""
        with self.news:
            self.bundles[name] = (f'"{contents(bundle).manifest["revision"]}"', bundle)
            self.news.notify_all()

    def answer(self, name: str, has: str | None, wait: float) -> tuple[str, bytes | None]:
        """ETag and body; body None: the caller has the current bundle."""
        ends = time.monotonic() + wait
        with self.news:
            while self.bundles[name][0] == has and (left := ends - time.monotonic()) > 0:
                self.news.wait(left)
            etag, bundle = self.bundles[name]
            return etag, None if has == etag else bundle


@contextmanager
def serving(service: Service) -> Iterator[Service]:
    """Run the service on a free port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            wait = 5.0 if "wait=" in self.headers.get("Prefer", "") else 0.0
            etag, body = service.answer(self.path.strip("/"), self.headers.get("If-None-Match"), wait)
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
    """Write OPA's configuration: every bundle must be signed."""
    polling = {"min_delay_seconds": 1, "max_delay_seconds": 1, "long_polling_timeout_seconds": 5}
    path = folder / "opa.json"
    signing = {"keyid": SIGNING.id}
    bundles = {
        name: {"service": "s", "resource": name, "polling": polling, "signing": signing, "size_limit_bytes": 8 << 30}
        for name in service.bundles
    }
    services = {"s": {"url": service.url, "response_header_timeout_seconds": 60}}
    keys = {SIGNING.id: {"algorithm": SIGNING.algorithm, "key": PUBLIC_KEY}}
    path.write_text(json.dumps({"services": services, "keys": keys, "bundles": bundles}), encoding="utf-8")
    return path


# --- measuring -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """The cost of activating another bundle: seconds until it is active, and MiB before, at the peak, and after."""

    seconds: float
    before: float
    most: float
    after: float


def swap(opa: OpaServer, act: Callable[[], None], name: str, revision: str) -> Swap:
    """Measure a swap from the moment before `act` publishes the bundle."""
    time.sleep(SETTLE_SECONDS)
    before = resident(opa.process.pid)
    most = before
    began = time.perf_counter()
    act()
    while active(opa.url, name) != revision:
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


def active(url: str, name: str) -> str | None:
    """The revision of one bundle's data, by which OPA decides."""
    part = "" if name in {"state", PartText.PEOPLE} else f"at/{name}/"
    with urllib.request.urlopen(f"{url}/v1/data/privtab_state/gravitino/{part}revision", timeout=60) as answer:  # noqa: S310
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


def report(sizes: Sequence[str], repetitions: int, grants: int = GRANTS, *, only_shards: bool = False) -> Report:
    """One size, whatever `sizes` are; no targets."""
    del sizes
    program, steps = load_program(POLICY), Steps()
    tables: list[Table] = []
    travels: list[tuple[str, str]] = []
    swaps: dict[str, list[Swap]] = {}
    if not only_shards:
        tables.append(_whole(program, grants, repetitions, steps, travels, swaps))
    _in_shards(program, grants, repetitions, travels, swaps)
    memory = Table(
        title="Signed: seconds until a published bundle is verified and decides, and OPA's MiB resident",
        columns=("what", "seconds", "before", "at the most", "after"),
        rows=tuple(_swap_row(name, found) for name, found in swaps.items()),
    )
    return Report(
        part="state",
        tables=(*tables, Table(title="What travels", columns=("bundle", "bytes"), rows=tuple(travels)), memory),
    )


def _whole(
    program: Program,
    grants: int,
    repetitions: int,
    steps: Steps,
    travels: list[tuple[str, str]],
    swaps: dict[str, list[Swap]],
) -> Table:
    """Build and swap the state as one bundle."""
    state, bundle, same = made_state(grants), b"", True
    for repetition in range(repetitions):
        document = steps.timed("sort the rows into the index", without_revision, program, state)
        _, text = steps.timed("write it as JSON, with its hash", stamped_bytes, document)
        steps.timed("gzip", packed_archive, {"data.json": text})
        del document, text
        made = steps.timed("the signed state bundle, all in all", signed_state, program, state)
        steps.timed("the same in shards", signed_shards, program, state)
        same = same and (repetition == 0 or made == bundle)
        bundle = made
    changed = signed_state(program, one_more(state))
    shuffled = replace(state, grants=state.grants[::-1], assignments=state.assignments[::-1])
    same = same and signed_state(program, shuffled) == bundle
    travels.append(("the whole state", f"{len(bundle):,}"))
    little = signed_state(program, State(service_admins=("root",)))
    policy = SIGNING.sign(policy_artifacts(program).bundle())
    for _ in range(repetitions):
        with sidecar({"policy": policy, "state": little}) as (service, opa):
            for name, published in (
                ("the whole state, the first time", bundle),
                ("the whole state with one grant more", changed),
                ("the first whole state again", bundle),
            ):
                _swap(swaps, name, service, opa, "state", published)
    held = len(contents(bundle).data["privtab_state"]["gravitino"]["principals"])
    return Table(
        title=f"Building: {len(state.grants):,} grants, {len(state.assignments):,} assignments, {held:,} users",
        columns=("step", "seconds"),
        rows=(
            *map(steps.row, steps.seconds),
            ("the same rows, again and in another order", "the same bytes" if same else "**other bytes**"),
        ),
    )


def _in_shards(
    program: Program, grants: int, repetitions: int, travels: list[tuple[str, str]], swaps: dict[str, list[Swap]]
) -> None:
    """Build the state root by root, and swap one shard of it."""
    everywhere = tuple(
        Grant(grantee=f"role:r{role}", effect="allow", privilege="USE_CATALOG", entity=Entity("catalog", f"m{root}/c0"))
        for role in range(roles_of(grants))
        for root in range(ROOTS)
    )
    bundles = {PartText.PEOPLE: signed_shards(program, replace(people(grants), grants=everywhere))[PartText.PEOPLE]}
    travels.append(("people, of the state in shards", f"{len(bundles[PartText.PEOPLE]):,}"))
    del everywhere
    for root in range(ROOTS):
        bundles[f"metalake:m{root}"] = signed_shards(program, made_root(grants, root))[f"metalake:m{root}"]
    first = "metalake:m0"
    other = signed_shards(program, one_more(made_root(grants, 0)))[first]
    travels.append((f"one grant more: one of {ROOTS} shards", f"{len(other):,}"))
    gc.collect()
    policy = SIGNING.sign(policy_artifacts(program, sharded=True).bundle())
    for _ in range(repetitions):
        with sidecar({"policy": policy, **bundles}) as (service, opa):
            for name in bundles:
                while active(opa.url, name) is None:
                    time.sleep(0.1)
            for name, published in (
                ("its shard with one grant more", other),
                ("the first shard again", bundles[first]),
            ):
                _swap(swaps, f"{name}, {ROOTS} shards of {grants:,} grants", service, opa, first, published)


def signed_state(program: Program, state: State) -> bytes:
    """The state as one signed bundle."""
    return state_bundle(program, state, signing=SIGNING)


def signed_shards(program: Program, state: State) -> dict[str, bytes]:
    """The state in signed shards."""
    return shard_bundles(program, state, signing=SIGNING)


@contextmanager
def sidecar(bundles: dict[str, bytes]) -> Iterator[tuple[Service, OpaServer]]:
    """An OPA that verifies these bundles, and the service that it polls."""
    service = Service(
        bundles={name: (f'"{contents(bundle).manifest["revision"]}"', bundle) for name, bundle in bundles.items()}
    )
    with (
        tempfile.TemporaryDirectory(prefix="privtab-bench-") as folder,
        serving(service),
        OpaServer(config=config(service, Path(folder)), timeout=WAIT_SECONDS) as opa,
    ):
        yield service, opa


def _swap(swaps: dict[str, list[Swap]], what: str, service: Service, opa: OpaServer, name: str, bundle: bytes) -> None:
    revision = str(contents(bundle).manifest["revision"])
    swaps.setdefault(what, []).append(swap(opa, partial(service.publish, name, bundle), name, revision))


def _swap_row(name: str, found: Sequence[Swap]) -> tuple[str, ...]:
    def text(part: str, digits: int = 0) -> str:
        return Spread(values=tuple(getattr(one, part) for one in found)).text(digits)

    return name, text("seconds", 2), text("before"), text("most"), text("after")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grants", type=int, default=GRANTS)
    parser.add_argument("--reps", type=int, default=1)
    parser.add_argument("--only-shards", action="store_true")
    options = parser.parse_args()
    print(markdown(report((), options.reps, options.grants, only_shards=options.only_shards)))
