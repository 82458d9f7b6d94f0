"""One run under load: OPA with changing bundles, its kill and restart, callers, the judge and the watch."""

from __future__ import annotations

import gc
import json
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from load_callers import EMBEDDED_REFRESH, Callers, join, start
from load_judge import LATER, Judge, Timeline
from load_watch import SERIES, Growth, Watch, descriptors, growth
from load_world import KINDS, Kind, LateFile, World, number_of

from privtab import AsyncClient, Client, Embedded
from privtab.base.errors import OpaError
from privtab.engines.opa.server import OpaServer

LOOK_SECONDS = 0.02
"""Seconds between queries of OPA's active bundles."""
PORTS = 5
EMBEDDED_SLACK = 1.0
"""Seconds beyond `refresh` within which a check for newer bundles must end."""
EVERY_SECONDS = 0.25
"""Seconds between progress reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The callers, the changes and the duration of a run."""

    minutes: float = 1.0
    threads: int = 8
    eager: int = 2
    tasks: int = 8
    embedded: int = 2
    think: float = 0.02
    """Average seconds between calls of a caller, so that latencies are those of a busy machine, not of a queue."""
    swap: float = 1.0
    """Seconds between changes of the policy, and between changes of the state."""
    down: float = 2.0
    """Seconds for which OPA is down."""
    late: float = 0.7
    """Seconds by which the bundle service delays the state for the restarted OPA, which has the policy already."""
    restart: bool = True

    @property
    def seconds(self) -> float:
        """The length of the run."""
        return self.minutes * 60


@dataclass(slots=True, kw_only=True)
class Result:
    """The result of a run."""

    settings: Settings
    judge: Judge
    watch: Watch
    growths: tuple[Growth, ...] = ()
    warm: float = 0.0
    """Seconds of warm-up, which are not judged in the series."""
    left: dict[str, int] = field(default_factory=dict)
    """Numbers of sockets and threads that were left open after all clients were closed."""
    broken: list[str] = field(default_factory=list)
    """Errors other than those of calls."""

    @property
    def failures(self) -> list[str]:
        """Everything that fails the run, as text."""
        verdicts = self.judge.verdicts
        found = list(self.broken)
        found += [f"{name} of {series.series.name}" for name, series in self._leaks()]
        found += [
            f"{count} {what} stayed open after the clients were closed"
            for what, count in self.left.items()
            if count > 0
        ]
        if verdicts.bad > len(verdicts.failures):
            found.append(f"{verdicts.bad:,} calls failed or were answered wrongly; the first of them:")
        return found + verdicts.failures

    def _leaks(self) -> list[tuple[str, Growth]]:
        return [
            (f"a growth of {g.grown:.1f} {g.series.unit}".rstrip() + f" (allowed: {g.allowed:.1f})", g)
            for g in self.growths
            if g.leaks
        ]


Progress = Callable[[str], None]


class Load:
    """One run."""

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self.settings = settings
        self.world = World()
        self.timeline = Timeline()
        self.judge = Judge(self.world, self.timeline, embedded_age=EMBEDDED_REFRESH + EMBEDDED_SLACK)
        self._progress = progress
        self._broken: list[str] = []
        self._stop = threading.Event()
        """Ends callers and swaps."""
        self._end = threading.Event()
        """Ends judging, watching OPA and sampling."""

    def run(self) -> Result:
        """Run the load; raises OpaError if OPA cannot be started."""
        before = _open()
        with ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="privtab-load-")))
            for kind in KINDS:
                self._swap(kind)
            self._server = self._opa()
            stack.callback(self._server.stop)
            watch = Watch(self._opa_process)
            helpers = self._start(self._look, lambda: self.judge.work(self._end), lambda: watch.work(self._end))
            try:
                # Start no caller before the active bundles are known.
                while not (self._broken or all(track.known for track in self.timeline.tracks.values())):
                    time.sleep(LOOK_SECONDS)
                self.judge.latencies.begin()
                watch.began = time.monotonic()
                callers = self._callers()
                swapper = self._start(self._swaps)
                self._hold(watch)
                self._stop.set()
                join([*callers, *swapper])
                time.sleep(LATER)
            finally:
                self._stop.set()
                self._end.set()
                join(helpers)
        left = _left(before)
        warm = self._warm(watch)
        growths = tuple(
            growth(series, watch.column(at, warm, self.settings.seconds)) for at, series in enumerate(SERIES)
        )
        return Result(
            settings=self.settings,
            judge=self.judge,
            watch=watch,
            growths=growths,
            warm=warm,
            left=left,
            broken=self._broken,
        )

    def _hold(self, watch: Watch) -> None:
        """Wait for the duration of the run, with the restart after a third of it."""
        ends = watch.began + self.settings.seconds
        restart_at = watch.began + self.settings.seconds / 3 if self.settings.restart else float("inf")
        while (now := time.monotonic()) < ends and not self._broken:
            if now >= restart_at:
                restart_at = float("inf")
                self._restart()
            self._say(now - watch.began, watch)
            time.sleep(EVERY_SECONDS)

    def _warm(self, watch: Watch) -> float:
        """The warm-up: a third of the run; with a restart, until a tenth of the run after it, but at most three quarters."""
        seconds = self.settings.seconds
        if self.timeline.back is None:
            return seconds / 3
        return min(self.timeline.back + self.timeline.grace - watch.began + seconds / 10, seconds * 3 / 4)

    def _say(self, now: float, watch: Watch) -> None:
        verdicts, tracks = self.judge.verdicts, self.timeline.tracks
        latest = watch.samples[-1] if watch.samples else None
        holds = f", {latest[1]:.0f} MiB, {latest[4]:.0f} sockets" if latest else ""
        swaps = " + ".join(f"{track.last} {kind}" for kind, track in tracks.items())
        self._progress(
            f"{now:5.0f} s of {self.settings.seconds:.0f}: {verdicts.calls:,} calls, {sum(verdicts.unavailable.values()):,} "
            f"unavailable, {verdicts.bad:,} bad, swaps: {swaps}{holds}"
        )

    # --- OPA and its bundles ---

    def _opa(self) -> OpaServer:
        """Start OPA on a port that it can use again after a restart."""
        files: dict[str, LateFile] = {kind: LateFile(self._file(kind)) for kind in KINDS}
        self._late = files["state"]
        quick = [
            f"--set=bundles.{kind}.polling.{edge}_delay_seconds={seconds}"
            for kind in KINDS
            for edge, seconds in (("min", 0), ("max", 1))
        ]
        for attempt in range(PORTS):
            with socket.create_server(("127.0.0.1", 0)) as probe:
                port = probe.getsockname()[1]
            server = OpaServer(files, port=port, extra_args=quick)
            try:
                server.start()
            except OpaError as error:
                if attempt == PORTS - 1 or "taken" not in str(error):
                    raise
            else:
                return server
        raise AssertionError

    def _opa_process(self) -> int | None:
        process = self._server.process
        return process.pid if process.poll() is None else None

    def _restart(self) -> None:
        """Kill OPA and start it again after a while, with its state delayed."""
        timeline, server = self.timeline, self._server
        timeline.killed = time.monotonic()
        server.process.kill()
        server.process.wait()
        timeline.dead = time.monotonic()
        time.sleep(self.settings.down)
        server.stop()
        self._late.seconds = self.settings.late
        timeline.started = time.monotonic()
        try:
            server.start()
        except OpaError as error:
            self._broken.append(f"OPA did not come back: {error}")
            return
        finally:
            self._late.seconds = 0.0
        back = time.monotonic()
        # A circuit breaker that keeps reopening stays open at most as long as OPA was away, plus a second.
        timeline.grace = back - timeline.killed + 2.0
        timeline.back = back

    def _file(self, kind: Kind) -> Path:
        return self._folder / f"{kind}.tar.gz"

    def _swap(self, kind: Kind) -> None:
        number = self.timeline.tracks[kind].last + 1
        staged = self._folder / f"{kind}.new"
        staged.write_bytes(self.world.bundle(kind, number))
        self.timeline.tracks[kind].put(number, time.monotonic())
        staged.replace(self._file(kind))

    def _swaps(self) -> None:
        """Replace policy and state alternately."""
        turn = 0
        while not self._stop.wait(self.settings.swap / len(KINDS)):
            self._swap(KINDS[turn % len(KINDS)])
            turn += 1

    def _look(self) -> None:
        """Poll OPA's active bundles over a bare connection."""
        while not self._end.wait(LOOK_SECONDS):
            connection = HTTPConnection("127.0.0.1", int(self._server.url.rpartition(":")[2]), timeout=5)
            try:
                while not self._end.wait(LOOK_SECONDS):
                    asked = time.monotonic()
                    connection.request("GET", "/v1/data/system/bundles")
                    active = json.loads(connection.getresponse().read()).get("result", {})
                    heard = time.monotonic()
                    for kind in KINDS:
                        if kind in active:
                            number = number_of(active[kind]["manifest"]["revision"])
                            self.timeline.tracks[kind].see(number, asked, heard)
            except (OSError, HTTPException, ValueError) as error:
                if not self.timeline.outage(time.monotonic(), time.monotonic()):
                    self._broken.append(f"OPA could not be watched: {error}")
            finally:
                connection.close()

    def _callers(self) -> list[threading.Thread]:
        settings, url = self.settings, self._server.url
        callers = Callers(self.world, think=settings.think, stop=self._stop, tell=self.judge.tell, broken=self._broken)
        bodies: list[Callable[[], None]] = []
        if settings.threads:
            bodies.append(lambda: callers.threads(Client(url), "Client", settings.threads))
        if settings.eager:
            bodies.append(lambda: callers.threads(Client(url, breaker_failures=0), "eager Client", settings.eager))
        if settings.tasks:
            bodies.append(lambda: callers.tasks(AsyncClient(url), settings.tasks))
        if settings.embedded:
            embedded = Embedded(self._folder, refresh=EMBEDDED_REFRESH)
            bodies.append(lambda: callers.threads(embedded, "Embedded", settings.embedded))
        return self._start(*bodies)

    def _start(self, *bodies: Callable[[], None]) -> list[threading.Thread]:
        return start(self._broken, *bodies)


def _open() -> dict[str, int]:
    """Numbers of open sockets and threads of this process."""
    sockets = sum(link.startswith("socket:") for link in descriptors("self"))
    return {"sockets": sockets, "threads": threading.active_count()}


def _left(before: dict[str, int]) -> dict[str, int]:
    """Numbers of sockets and threads beyond `before`, after a moment for them to close."""
    deadline = time.monotonic() + 3
    while True:
        gc.collect()  # the socket of a call that was cancelled while connecting is closed by the garbage collector
        left = {what: count - before[what] for what, count in _open().items()}
        if all(count <= 0 for count in left.values()) or time.monotonic() > deadline:
            return left
        time.sleep(0.1)
