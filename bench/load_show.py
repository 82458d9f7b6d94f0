"""Present a run: tables and histograms as text, an SVG picture, and the result as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from load_judge import CALLERS, PHASES, Phase
from load_watch import QUANTILES, SERIES, Histogram
from measure import Report, Table
from rich.console import Console
from rich.table import Table as RichTable

if TYPE_CHECKING:
    from load_run import Result

PHASE_NAMES: dict[Phase, str] = {"between": "between swaps", "swap": "around swaps", "restart": "around the restart"}
EDGES_MS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
BAR = 44


def load_report(result: Result) -> Report:
    """The tables for the page of benchmarks."""
    return Report(part="load", tables=(_held(result), _latencies(result), _growths(result)))


def text(result: Result, console: Console) -> None:
    """Print tables, histograms and failures."""
    console.print()
    for table in load_report(result).tables:
        shown = RichTable(title=table.title, title_justify="left", title_style="bold")
        for at, column in enumerate(table.columns):
            shown.add_column(column, justify="right" if at else "left")
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)
    for caller in CALLERS:
        whole = result.judge.latencies.merged([caller], PHASES)
        if whole.total:
            console.print(f"\n{caller}: {whole.total:,} answers by latency", style="bold")
            for line in _bars(whole):
                console.print(line, markup=False)
    console.print()
    for failure in result.failures:
        console.print(failure, style="red", markup=False, soft_wrap=True)
    if not result.failures:
        unjudged = "" if all(g.judged for g in result.growths) else " (the run was too short to judge memory)"
        console.print(f"no wrong answer, nothing leaks{unjudged}", style="green")


def result_json(result: Result) -> dict[str, Any]:
    """The result as JSON."""
    judge, verdicts, settings = result.judge, result.judge.verdicts, result.settings
    timeline = judge.timeline
    began = result.watch.began
    moments = {name: getattr(timeline, name) for name in ("killed", "started", "back")}
    return {
        "ok": not result.failures,
        "failures": result.failures,
        "settings": {name: getattr(settings, name) for name in settings.__slots__},
        "calls": verdicts.calls,
        "answers": verdicts.answers,
        "decisive": round(verdicts.decisive / max(1, sum(verdicts.right.values())), 4),
        "right": {f"{caller}.{method}": count for (caller, method), count in sorted(verdicts.right.items())},
        "wrong": dict(verdicts.wrong),
        "failed": dict(verdicts.failed),
        "unavailable": dict(verdicts.unavailable),
        "first_answer_after_restart": {caller: round(s, 3) for caller, s in verdicts.first_after.items()},
        "swaps": {kind: track.last for kind, track in timeline.tracks.items()},
        "restart": {name: round(at - began, 3) for name, at in moments.items() if at is not None},
        "latency_ms": {
            caller: {
                phase: {"answers": histogram.total, **histogram.summary()}
                for phase in ("all", *PHASES)
                if (histogram := judge.latencies.merged([caller], PHASES if phase == "all" else [phase])).total
            }
            for caller in CALLERS
        },
        "unavailable_ms": judge.latencies.errors.summary(),
        "growth": [growth.json() for growth in result.growths],
        "judged_after": round(result.warm, 1),
        "left_open": result.left,
        "series": {
            "seconds": [round(sample[0], 1) for sample in result.watch.samples],
            **{
                series.name: [
                    None if math.isnan(v := sample[at + 1]) else round(v, 1) for sample in result.watch.samples
                ]
                for at, series in enumerate(SERIES)
            },
        },
    }


# --- tables ---


def _held(result: Result) -> Table:
    verdicts, settings = result.judge.verdicts, result.settings
    sizes = {
        "Client": settings.threads,
        "eager Client": settings.eager,
        "AsyncClient": settings.tasks,
        "Embedded": settings.embedded,
    }
    swaps = " and ".join(
        f"{track.last} new {'policies' if kind == 'policy' else 'states'}"
        for kind, track in result.judge.timeline.tracks.items()
    )
    rows = []
    for caller in CALLERS:
        if not sizes[caller]:
            continue
        right = sum(count for (of, _), count in verdicts.right.items() if of == caller)
        after = verdicts.first_after.get(caller)
        rows.append(
            (
                caller,
                str(sizes[caller]),
                f"{right:,}",
                str(verdicts.wrong[caller]),
                str(verdicts.failed[caller]),
                f"{verdicts.unavailable[caller]:,}",
                "" if after is None else f"{after:.2f} s",
            )
        )
    decisive = verdicts.decisive / max(1, sum(verdicts.right.values()))
    restart = "OPA was killed and restarted" if result.judge.timeline.back is not None else "OPA lived"
    return Table(
        title=f"{settings.minutes:g} minutes, {swaps}, {restart}; {decisive:.0%} of the calls had one right answer alone",
        columns=("callers", "at once", "right", "wrong", "failed", "unavailable", "first answer after the restart"),
        rows=tuple(rows),
    )


def _latencies(result: Result) -> Table:
    rows = []
    for caller in CALLERS:
        for phase in PHASES:
            histogram = result.judge.latencies.merged([caller], [phase])
            if histogram.total:
                name = "" if caller == "Embedded" else f", {PHASE_NAMES[phase]}"
                rows.append(
                    (f"{caller}{name}", f"{histogram.total:,}", *(_ms(v) for v in histogram.summary().values()))
                )
    waited = result.judge.latencies.errors
    if waited.total:
        rows.append(
            ("no answer: `DecisionUnavailable`", f"{waited.total:,}", *(_ms(v) for v in waited.summary().values()))
        )
    return Table(
        title="Latency in milliseconds",
        columns=("calls", "how many", *(n for n, _ in QUANTILES), "max"),
        rows=tuple(rows),
    )


def _growths(result: Result) -> Table:
    def verdict(judged: bool, leaks: bool) -> str:  # noqa: FBT001  (private, called in one place)
        return "too short to judge" if not judged else "**grows**" if leaks else "steady"

    return Table(
        title=f"What is held, from {result.warm:.0f} s on",
        columns=("", "first", "median", "last", "a minute", "growth", "allowed", ""),
        rows=tuple(
            (
                f"{g.series.name}{', ' + g.series.unit if g.series.unit else ''}",
                f"{g.first:.0f}",
                f"{g.median:.0f}",
                f"{g.last:.0f}",
                f"{g.per_minute:+.2f}",
                f"{g.grown:+.1f}",
                f"{g.allowed:.1f}",
                verdict(g.judged, g.leaks),
            )
            for g in result.growths
        ),
    )


def _bars(histogram: Histogram) -> Iterator[str]:
    """One line for each bucket from the first to the last non-empty one, with bars on a logarithmic scale."""
    counts = histogram.coarse([edge / 1e3 for edge in EDGES_MS])
    longest = math.log10(max(counts) + 1)
    used = [at for at, count in enumerate(counts) if count]
    for at in range(used[0], used[-1] + 1):
        label = f"< {EDGES_MS[at]:g} ms" if at < len(EDGES_MS) else f"> {EDGES_MS[-1]:g} ms"
        count = counts[at]
        bar = "█" * max(1 if count else 0, round(BAR * math.log10(count + 1) / longest))
        yield f"{label:>10}  {bar:<{BAR}} {count:>9,}  {count / histogram.total:7.3%}"


def _ms(value: float) -> str:
    return f"{value:,.2f}" if value < 10 else f"{value:,.0f}"


# --- the picture ---

WIDTH, LEFT, RIGHT, TOP = 960, 70, 40, 96
PANEL, GAP = 190, 62
COLOURS = {"Client": "#1f6fb4", "eager Client": "#7048a8", "AsyncClient": "#c4570b", "Embedded": "#2b8a3e"}
SERIES_COLOURS = ("#1f6fb4", "#c4570b", "#1f6fb4", "#2b8a3e", "#7048a8", "#c4570b")
INK, FAINT = "#333", "#ddd"


def picture(result: Result) -> str:
    """An SVG of latencies by share of the calls and by time, and of memory, descriptors and threads."""
    seconds = result.settings.seconds
    panels = [
        _shares(result),
        _by_time(result, seconds, [at for at, s in enumerate(SERIES) if s.memory], "memory, MiB"),
        _by_time(result, seconds, [at for at, s in enumerate(SERIES) if not s.memory], "how many"),
    ]
    panels.insert(1, _latency_by_time(result, seconds))
    height = TOP + len(panels) * (PANEL + GAP)
    verdicts = result.judge.verdicts
    told = (
        f"{verdicts.calls:,} calls, {verdicts.bad:,} wrong or failed, {sum(verdicts.unavailable.values()):,} unavailable "
        f"around the restart"
    )
    body = "".join(
        f'<g transform="translate(0,{TOP + number * (PANEL + GAP)})">{panel}</g>' for number, panel in enumerate(panels)
    )
    present = [caller for caller in CALLERS if result.judge.latencies.merged([caller], PHASES).total]
    legend = "".join(
        f'<rect x="{LEFT + 130 * at}" y="52" width="12" height="12" fill="{COLOURS[caller]}"/>{_text(LEFT + 130 * at + 18, 62, caller)}'
        for at, caller in enumerate(present)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="DejaVu Sans, sans-serif" font-size="12" fill="{INK}">'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
        f"{_text(LEFT, 24, f'{result.settings.minutes:g} minutes of load', size=16)}{_text(LEFT, 43, told)}{legend}{body}</svg>\n"
    )


class _Axes:
    """Maps values to coordinates within a panel."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], *, log: bool = False) -> None:
        self._x, self._y, self._log = x, y, log

    def x(self, value: float) -> float:
        low, high = self._x
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / (high - low)

    def y(self, value: float) -> float:
        low, high = self._y
        if self._log:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, low))
        return PANEL * (1 - (min(max(value, low), high) - low) / (high - low))

    def frame(self, title: str, x_ticks: Sequence[tuple[float, str]], y_ticks: Sequence[float]) -> str:
        right = WIDTH - RIGHT
        parts = [_text(LEFT, -10, title, size=13)]
        for value in y_ticks:
            y = self.y(value)
            parts.append(f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="{FAINT}"/>')
            parts.append(_text(LEFT - 6, y + 4, f"{value:g}", anchor="end"))
        for value, label in x_ticks:
            x = self.x(value)
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{PANEL}" y2="{PANEL + 4}" stroke="{INK}"/>')
            parts.append(_text(x, PANEL + 17, label, anchor="middle"))
        return "".join(parts) + f'<rect x="{LEFT}" width="{right - LEFT}" height="{PANEL}" fill="none" stroke="{INK}"/>'

    def line(self, points: Sequence[tuple[float, float]], colour: str, dash: str = "") -> str:
        place = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        return (
            f'<polyline points="{place}" fill="none" stroke="{colour}" stroke-width="1.6" stroke-dasharray="{dash}"/>'
        )


def _shares(result: Result) -> str:
    """Latency by share of the calls, with the rarest on the right."""
    latencies = result.judge.latencies
    phases: tuple[tuple[Phase, str], ...] = (("between", ""), ("swap", "6 3"), ("restart", "2 3"))
    axes = _Axes((0, 4), _decades(latencies.merged(CALLERS, PHASES)), log=True)
    shares = [1 - 10 ** (-step / 25) for step in range(101)]
    parts = [
        axes.frame(
            "latency, ms, by share of the calls: solid between swaps, dashed around swaps, dotted around the restart",
            [(0, "0%"), (0.30103, "50%"), (1, "90%"), (2, "99%"), (3, "99.9%"), (4, "99.99%")],
            _ticks_log(latencies.merged(CALLERS, PHASES)),
        )
    ]
    for caller in CALLERS:
        for phase, dash in phases:
            histogram = latencies.merged([caller], [phase])
            known = [share for share in shares if histogram.total * (1 - share) >= 1]
            points = [(-math.log10(1 - share), histogram.quantile(share) * 1e3) for share in known]
            if points:
                parts.append(axes.line(points, COLOURS[caller], dash))
    return "".join(parts)


def _latency_by_time(result: Result, seconds: float) -> str:
    """The median and the maximum latency of each second."""
    latencies = result.judge.latencies
    axes = _Axes((0, seconds), _decades(latencies.merged(CALLERS, PHASES)), log=True)
    parts = [
        _restart_band(result, axes),
        axes.frame(
            "latency, ms, by second of the run: line the median, dot the worst; shaded: OPA is away",
            _times(seconds),
            _ticks_log(latencies.merged(CALLERS, PHASES)),
        ),
    ]
    for caller in CALLERS:
        stretch: list[tuple[float, float]] = []
        for second in latencies.seconds.get(caller, []):
            if second.calls:
                x, y = axes.x(second.at + 0.5), axes.y(second.most)
                parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.8" fill="{COLOURS[caller]}" fill-opacity="0.7"/>')
                stretch.append((second.at + 0.5, second.p50))
            else:
                parts.append(axes.line(stretch, COLOURS[caller]))
                stretch = []
        parts.append(axes.line(stretch, COLOURS[caller]))
    return "".join(parts)


def _by_time(result: Result, seconds: float, which: Sequence[int], title: str) -> str:
    """A panel of several series by time."""
    columns = {at: result.watch.column(at, until=seconds) for at in which}
    most = _round_up(max((value for column in columns.values() for _, value in column), default=1))
    axes = _Axes((0, seconds), (0, most))
    parts = [_restart_band(result, axes), axes.frame(title, _times(seconds), [most * part / 4 for part in range(5)])]
    for place, (at, column) in enumerate(columns.items()):
        dash = "" if SERIES_COLOURS[at] not in SERIES_COLOURS[which[0] : at] else "6 3"
        # Leave a gap for the time when OPA was down.
        stretch: list[tuple[float, float]] = []
        for point in column:
            if stretch and point[0] - stretch[-1][0] > 3 * result.watch.every:
                parts.append(axes.line(stretch, SERIES_COLOURS[at], dash))
                stretch = []
            stretch.append(point)
        parts.append(axes.line(stretch, SERIES_COLOURS[at], dash))
        x = WIDTH - RIGHT - 175 * (len(columns) - place)
        parts.append(axes_key(x, SERIES_COLOURS[at], dash, SERIES[at].name))
    if result.warm < seconds:
        warm = axes.x(result.warm)
        parts.append(
            f'<line x1="{warm:.1f}" x2="{warm:.1f}" y1="0" y2="{PANEL}" stroke="{INK}" stroke-dasharray="3 3"/>'
        )
        before = result.warm > seconds * 0.8
        anchor = "end" if before else "start"
        parts.append(_text(warm - 4 if before else warm + 4, PANEL - 6, "judged from here on", anchor=anchor))
    return "".join(parts)


def axes_key(x: float, colour: str, dash: str, label: str) -> str:
    """A legend entry above a panel."""
    stroke = (
        f'<line x1="{x}" x2="{x + 16}" y1="-14" y2="-14" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'
    )
    return stroke + _text(x + 20, -10, label, size=11)


def _restart_band(result: Result, axes: _Axes) -> str:
    timeline, began = result.judge.timeline, result.watch.began
    if timeline.killed is None or timeline.back is None:
        return ""
    left, right = axes.x(timeline.killed - began), axes.x(timeline.back - began)
    return f'<rect x="{left:.1f}" width="{right - left:.1f}" height="{PANEL}" fill="#f3e3e3"/>'


def _decades(histogram: Histogram) -> tuple[float, float]:
    low = 10 ** math.floor(math.log10(max(histogram.quantile(0.001) * 1e3, 1e-3)))
    return low, max(10 ** math.ceil(math.log10(max(histogram.most * 1e3, 1e-3))), low * 10)


def _ticks_log(histogram: Histogram) -> list[float]:
    low, high = _decades(histogram)
    return [low * 10**step for step in range(round(math.log10(high / low)) + 1)]


def _times(seconds: float) -> list[tuple[float, str]]:
    step = next((s for s in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600) if seconds / s <= 12), 1800)
    return [(at, f"{at} s") for at in range(0, int(seconds) + 1, step)]


def _round_up(value: float) -> float:
    return next(float(edge) for edge in (4, 8, 20, 40, 80, 120, 160, 200, 400, 800, 2000, 10**9) if value <= edge)


def _text(x: float, y: float, content: str, *, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(content)}</text>'
