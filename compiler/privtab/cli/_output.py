"""Output of the commands: consoles, findings, JSON, progress."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from threading import Timer
from typing import IO, TYPE_CHECKING, Any

import typer
from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from privtab.cli._table import Table
from privtab.diagnostics import Diagnostic, Severity
from privtab.exit_codes import ExitCode
from privtab.printable import no_formula, printable, printable_json
from privtab.state.findings import render_text
from privtab.state.nodes import StateFinding

if TYPE_CHECKING:
    from rich.progress import Progress

PLAIN_WIDTH = 160
"""Width in columns without a terminal, so that tables in files and pipes are not cut."""


class Format(StrEnum):
    """Output format: for people or programs."""

    TEXT = "text"
    JSON = "json"


class TableFormat(StrEnum):
    """Output format of lists: for people, programs or spreadsheets."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


class Terminal(Console):
    """A console that prints no control sequences except its own styles."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Escape control characters in a text before Rich drops them."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escape control characters in all printed text; Rich's own control codes are separate segments."""
        for segment in super().render(renderable, options):
            shown = printable(segment.text)
            yield segment if segment.control or shown == segment.text else Segment(shown, segment.style)


def out() -> Console:
    """Standard output, with colours only on a terminal without NO_COLOR."""
    return _console(stderr=False)


def err() -> Console:
    """Standard error, for findings and progress."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Terminal(stderr=stderr, highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console.size = ConsoleDimensions(max(PLAIN_WIDTH, console.width), console.height)
    return console


def print_fast(console: Console, text: str | Text = "", style: str = "", *, end: str = "\n", wrap: bool = True) -> None:
    """As `console.print`; on a console without styles, short plain text is written as it is, in a tenth of Rich's time."""
    plain = text if isinstance(text, str) else text.plain
    is_short = not wrap or len(plain) <= console.width
    if console.color_system is None and is_short and plain.isascii() and plain.isprintable():
        console.file.write(plain + end)
    else:
        console.print(text, style=style or None, end=end, soft_wrap=not wrap)


def print_error(message: str) -> None:
    """Print one line about a problem to standard error."""
    console = err()
    console.print("privtab: ", style="bold red", end="", soft_wrap=True)
    console.print(message, soft_wrap=True)


def recorder(file: IO[str] | None = None, *, width: int = 120) -> Console:
    """A console for text that goes to a file."""
    return Terminal(file=file, width=width, color_system=None, highlight=False, emoji=False, markup=False)


def print_json(value: object) -> None:
    """Print a value as JSON to standard output."""
    print_text(as_json(value))


def print_line(value: object) -> None:
    """Print a value as one line of JSON to standard output."""
    print_text(printable_json(value, sort_keys=True, separators=(",", ":")) + "\n")


def as_json(value: object) -> str:
    """Readable JSON of any value, safe to print."""
    return printable_json(value, indent=True) + "\n"


def print_text(text: str) -> None:
    """Print a text to standard output; `printable_output` escapes control sequences."""
    sys.stdout.write(text)


def print_error_line(message: str) -> None:
    """Print a problem with one of many inputs as one line to standard error."""
    sys.stderr.write(printable(message, one_line=True) + "\n")


def flush() -> None:
    """Flush standard output."""
    sys.stdout.flush()


def print_file(text: str) -> None:
    """Print the text of a file to standard output; unchanged unless that is a terminal."""
    stream = sys.stdout
    if not stream.isatty():
        stream = getattr(stream, "rich_proxied_file", stream)
    stream.write(text)


def print_if_data(
    format_: StrEnum, document: object, columns: Sequence[str] = (), rows: Iterable[Sequence[object]] = ()
) -> bool:
    """Print a document as JSON or its rows as CSV, if that is the format; returns whether it was."""
    match str(format_):
        case "json":
            print_json(document)
        case "csv":
            write_csv(columns, rows)
        case _:
            return False
    return True


def fail_if(problems: object) -> None:
    """Exit with the code for findings if there are any."""
    if problems:
        raise typer.Exit(ExitCode.FINDINGS)


def table(*columns: str, rows: Iterable[Sequence[str | Text]] = (), right: Sequence[str] = ()) -> Table:
    """A table in the style of all commands; the columns in `right` are numeric."""
    grid = Table(*columns, right=right)
    for row in rows:
        grid.add_row(*row)
    return grid


def write_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table as CSV to standard output, without cells that spreadsheets would take for formulas."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([no_formula(str(cell)) for cell in row] for row in rows)


def show_diagnostics(diagnostics: Iterable[Diagnostic], texts: Mapping[str, str] | None = None) -> None:
    """Print findings with source lines and carets to standard error, and their number; `texts` has the files already read."""
    from privtab.diagnostics import render

    found = tuple(diagnostics)
    if not found:
        return
    console = err()
    paths = {diagnostic.span.path for diagnostic in found} | {
        related.span.path for diagnostic in found for related in diagnostic.related
    }
    texts = {path: (texts or {}).get(path) or _text(path) for path in paths}
    text = render(found, texts, color=console.is_terminal and not console.no_color)
    # Its colours are escape sequences; all other text has been made printable by `render`.
    console.file.write(f"{text.rstrip(chr(10))}\n{_count(found)}\n")


def show_count(diagnostics: Iterable[Diagnostic], where: str) -> None:
    """Print the number of findings, if any, and which command shows them, to standard error."""
    found = tuple(diagnostics)
    if found:
        err().print(f"{_count(found)}; {where} shows them", style="dim")


def diagnostic_json(diagnostic: Diagnostic) -> dict[str, Any]:
    """A finding as one flat JSON object."""
    return {
        "code": diagnostic.code,
        "name": diagnostic.name,
        "severity": str(diagnostic.severity),
        "message": diagnostic.message,
        "help": diagnostic.help,
        **asdict(diagnostic.span),
        "related": [{"message": r.message, **asdict(r.span)} for r in diagnostic.related],
    }


def show_state_findings(findings: Iterable[object]) -> None:
    """Print the invalid rows of a state, or what an import left out, to standard error, one line each, with a hint below if there is one."""
    for finding in findings:
        sys.stderr.write(render_text([finding]) if isinstance(finding, StateFinding) else f"{finding}\n")


@contextmanager
def progress(total: int) -> Iterator[Progress]:
    """A progress bar on standard error that disappears at the end; none without a terminal or without work."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = err()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not (total and console.is_terminal)) as bar:
        bar.add_task("", total=total)
        yield bar


@contextmanager
def spinner(message: str) -> Iterator[None]:
    """A spinner on standard error; none without a terminal."""
    console = err()
    if not console.is_terminal:
        yield
        return
    with console.status(message):
        yield


@contextmanager
def delayed_spinner(message: str) -> Iterator[None]:
    """A spinner on standard error that appears after a second; none without a terminal."""
    console = err()
    if not console.is_terminal:
        yield
        return
    status = console.status(message)
    timer = Timer(1.0, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _count(diagnostics: Sequence[Diagnostic]) -> str:
    """`1 error, 2 warnings, 1 note`, without zero counts."""
    numbers = Counter(diagnostic.severity for diagnostic in diagnostics)
    return ", ".join(f"{n} {kind}{'' if n == 1 else 's'}" for kind in Severity if (n := numbers[kind]))
