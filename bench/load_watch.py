"""Latency histograms, and the memory, descriptors and threads of the processes over time, with a test for leaks."""

from __future__ import annotations

import math
import os
import statistics
import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

LEAST, MOST, STEP = 1e-6, 100.0, 1.02
BUCKETS = math.ceil(math.log(MOST / LEAST, STEP)) + 1
QUANTILES: tuple[tuple[str, float], ...] = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999))
MIB = 2**20


class Histogram:
    """Counts of durations in buckets that are 2 % wide, so that its size is constant."""

    __slots__ = ("counts", "most", "total")

    def __init__(self) -> None:
        self.counts = array("Q", bytes(8 * BUCKETS))
        self.total = 0
        self.most = 0.0

    def add(self, seconds: float) -> None:
        """Count a duration."""
        at = int(math.log(max(seconds, LEAST) / LEAST, STEP))
        self.counts[min(at, BUCKETS - 1)] += 1
        self.total += 1
        self.most = max(self.most, seconds)

    def quantile(self, share: float) -> float:
        """The quantile for a share in seconds, overestimated by at most 2 %.

        >>> histogram = Histogram()
        >>> for milliseconds in range(1, 101): histogram.add(milliseconds / 1000)
        >>> round(histogram.quantile(0.5), 2), round(histogram.quantile(1), 3)
        (0.05, 0.1)
        """
        wanted, sofar = math.ceil(share * self.total), 0
        for at, count in enumerate(self.counts):
            sofar += count
            if count and sofar >= wanted:
                return min(LEAST * STEP ** (at + 1), self.most)
        return self.most

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        for at, count in enumerate(other.counts):
            self.counts[at] += count
        self.total += other.total
        self.most = max(self.most, other.most)

    def coarse(self, edges: Sequence[float]) -> list[int]:
        """Counts in the intervals that end at each edge; the last count is of all above the last edge."""
        found = [0] * (len(edges) + 1)
        for at, count in enumerate(self.counts):
            if count:
                middle = LEAST * STEP ** (at + 0.5)
                found[next((i for i, edge in enumerate(edges) if middle < edge), len(edges))] += count
        return found

    def summary(self) -> dict[str, float]:
        """Milliseconds by quantile."""
        return {name: round(self.quantile(share) * 1e3, 3) for name, share in QUANTILES} | {
            "max": round(self.most * 1e3, 3)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """The calls of a caller that ended in one second; latencies in milliseconds."""

    at: int
    calls: int
    errors: int
    p50: float
    p99: float
    most: float


class Latencies:
    """Latencies of successful calls by caller and phase, and by second. Only one thread may write."""

    def __init__(self) -> None:
        self.by_phase: dict[tuple[str, str], Histogram] = {}
        self.seconds: dict[str, list[Second]] = {}
        self.errors = Histogram()
        """Durations of calls without an answer."""
        self._now: dict[str, tuple[int, Histogram, int]] = {}
        self._began = time.monotonic()

    def add(self, caller: str, phase: str, ended: float, seconds: float, *, good: bool) -> None:
        """Count a call."""
        at = int(ended - self._began)
        since, histogram, errors = self._now.get(caller, (at, Histogram(), 0))
        if since < at:
            self._close(caller, since, histogram, errors)
            since, histogram, errors = at, Histogram(), 0
        if good:
            histogram.add(seconds)
            self.by_phase.setdefault((caller, phase), Histogram()).add(seconds)
        else:
            self.errors.add(seconds)
        self._now[caller] = since, histogram, errors + (not good)

    def _close(self, caller: str, at: int, histogram: Histogram, errors: int) -> None:
        p50, p99 = (histogram.quantile(share) * 1e3 for share in (0.5, 0.99))
        second = Second(at=at, calls=histogram.total, errors=errors, p50=p50, p99=p99, most=histogram.most * 1e3)
        self.seconds.setdefault(caller, []).append(second)

    def begin(self) -> None:
        """Start counting seconds now."""
        self._began = time.monotonic()

    def merged(self, callers: Sequence[str], phases: Sequence[str]) -> Histogram:
        """The combined histogram of several callers and phases."""
        whole = Histogram()
        for (caller, phase), histogram in self.by_phase.items():
            if caller in callers and phase in phases:
                whole.merge(histogram)
        return whole


# --- what a process holds ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A quantity that must not grow, and the growth that counts as noise."""

    name: str
    unit: str
    least: float
    """Growth that counts as noise."""
    share: float
    """The same, as a share of the median."""
    memory: bool = False


SERIES: tuple[Series, ...] = (
    Series(name="memory of the callers", unit="MiB", least=6, share=0.05, memory=True),
    Series(name="memory of OPA", unit="MiB", least=12, share=0.15, memory=True),
    Series(name="descriptors of the callers", unit="", least=3, share=0.1),
    Series(name="sockets of the callers", unit="", least=3, share=0.1),
    Series(name="threads of the callers", unit="", least=2, share=0.1),
    Series(name="descriptors of OPA", unit="", least=4, share=0.15),
)
JUDGED_SECONDS = 20.0
"""Least seconds after the warm-up for which memory is judged."""
MOST_PAIRS = 300


def held(opa: int | None) -> tuple[float, ...]:
    """One number for each of SERIES; NaN for those of OPA if it is not running."""
    links = descriptors("self")
    of_opa = (float("nan"), float("nan"))
    if opa is not None:
        with suppress(OSError, ValueError):  # it may have just ended
            of_opa = (resident(str(opa)), float(len(descriptors(str(opa)))))
    sockets = sum(link.startswith("socket:") for link in links)
    return resident("self"), of_opa[0], float(len(links)), float(sockets), float(threading.active_count()), of_opa[1]


def resident(pid: str) -> float:
    """Resident memory of a process in MiB; raises ValueError for one that has ended."""
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    if pages == "0":
        raise ValueError(f"process {pid} has ended")
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / MIB


def descriptors(pid: str) -> list[str]:
    """The targets of a process's open descriptors."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(str(link.readlink()))
        except OSError:
            continue  # closed meanwhile, such as the descriptor of this listing
    return found


@dataclass(slots=True)
class Watch:
    """Samples of SERIES, twice a second."""

    opa: Callable[[], int | None]
    every: float = 0.5
    began: float = field(default_factory=time.monotonic)
    samples: list[tuple[float, ...]] = field(default_factory=list)
    """Seconds since `began`, then one number for each of SERIES."""

    def work(self, stop: threading.Event) -> None:
        """Sample until stopped."""
        while not stop.wait(self.every):
            self.samples.append((time.monotonic() - self.began, *held(self.opa())))

    def column(self, number: int, since: float = 0.0, until: float = math.inf) -> list[tuple[float, float]]:
        """The points (seconds, value) of a series."""
        return [(s[0], s[number + 1]) for s in self.samples if since <= s[0] <= until and not math.isnan(s[number + 1])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The growth of a series after the warm-up."""

    series: Series
    first: float
    last: float
    median: float
    per_minute: float
    grown: float
    """Growth by the slope, over the time that is judged."""
    allowed: float
    judged: bool

    @property
    def leaks(self) -> bool:
        """Whether it grew by more than noise."""
        return self.judged and self.grown > self.allowed

    def json(self) -> Mapping[str, object]:
        """The growth as JSON."""
        numbers = {
            name: round(getattr(self, name), 2)
            for name in ("first", "last", "median", "per_minute", "grown", "allowed")
        }
        return {
            "series": self.series.name,
            "unit": self.series.unit,
            **numbers,
            "judged": self.judged,
            "leaks": self.leaks,
        }


def growth(series: Series, points: Sequence[tuple[float, float]]) -> Growth:
    """Judge a series by the median of the slopes between its points, which is robust against outliers.

    >>> steady = [(t / 2, 100 + t % 3) for t in range(120)]
    >>> growth(SERIES[0], steady).leaks, growth(SERIES[0], [(t, v + t) for t, v in steady]).leaks
    (False, True)
    """
    if len(points) < 4:
        nothing = dict.fromkeys(("first", "last", "median", "per_minute", "grown", "allowed"), 0.0)
        return Growth(series=series, judged=False, **nothing)
    length = points[-1][0] - points[0][0]
    values = [value for _, value in points]
    slope = _slope(points)
    median = statistics.median(values)
    return Growth(
        series=series,
        first=values[0],
        last=values[-1],
        median=median,
        per_minute=slope * 60,
        grown=slope * length,
        allowed=max(series.least, series.share * median),
        judged=not series.memory or length >= JUDGED_SECONDS,
    )


def _slope(points: Sequence[tuple[float, float]]) -> float:
    # Average neighbouring points to limit the number of pairs.
    size = max(1, math.ceil(len(points) / MOST_PAIRS))
    means = [
        (statistics.fmean(t for t, _ in part), statistics.fmean(v for _, v in part))
        for part in (points[start : start + size] for start in range(0, len(points), size))
    ]
    return statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(means, 2))
