"""Output of the commands: consoles, findings, JSON, progress."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from threading import Timer
from typing import IO, Annotated, Any, Literal, NoReturn, TypeVar

import typer
from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from privtab.base import files
from privtab.base.diagnostics import Diagnostic, Severity, render
from privtab.base.errors import ExitCode, FileError
from privtab.base.lazy import pattern
from privtab.base.printable import no_formula, printable_json, printable_text
from privtab.base.staged import write_file
from privtab.command._parameters import option

T = TypeVar("T")

PLAIN_WIDTH = 160
"""Width in columns without a terminal, so that tables in files and pipes are not cut."""
SHOWN_REPETITIONS = 10
"""Repetitions of rows of one table that are printed; the rest is counted."""


Format = Literal["text", "json"]
"""Output format: for people or programs."""
FormatOption = Annotated[Format, option("--format", "Output format: for people or for programs.")]
"""The format of an answer, as `print_if_data` takes the format: `format_: FormatOption = "text"`."""


class Terminal(Console):
    """A console that prints no control sequences except its own styles.

    >>> Terminal().print("3 rules")
    3 rules
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """Print a text as it is, however long, unless a width is given; other things are laid out by Rich.

        Without styles, plain text is written here: that takes a tenth of Rich's time.
        """
        text = objects[0] if objects else ""
        if len(objects) < 2 and isinstance(text, str | Text) and "width" not in options:
            options.setdefault("soft_wrap", True)
            plain = text if isinstance(text, str) else text.plain
            fits = options["soft_wrap"] or (plain.isascii() and len(plain) <= self.width)
            if self.color_system is None and fits and plain.isprintable():
                self.file.write(plain + options.get("end", "\n"))
                return
        super().print(*objects, **options)

    def print_styled(self, *parts: str | tuple[str, str], **options: Any) -> None:
        """Print a line of parts, some of them with a style. Control characters are escaped before Rich drops them.

        >>> Terminal().print_styled(("note: ", "bold"), "2 rows end soon")
        note: 2 rows end soon
        """
        escaped = (printable_text(p) if isinstance(p, str) else (printable_text(p[0]), p[1]) for p in parts)
        self.print(Text.assemble(*escaped), **options)

    def print_csv(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print a table as CSV, without cells that spreadsheets would take for formulas."""
        import csv

        writer = csv.writer(self.file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([no_formula(str(cell)) for cell in row] for row in rows)

    def more(
        self, number: int, noun: str = "", how: str = "`--limit 0` lists them", *, indent: int = 0, apart: bool = False
    ) -> None:
        """Print how many things of a list were left out, if any, and what shows them; `apart`: below an empty line."""
        if number > 0:
            if apart:
                self.print()
            self.print(f"{' ' * indent}… and {number:,} more{noun and ' '}{noun}; {how}", style="dim")

    def first(self, things: Sequence[T], most: int, noun: str = "", **left_out: Any) -> Iterator[T]:
        """Yield the first of some things, 0 for all, and then print as `more` does how many were left out."""
        shown = things[: most or None]
        yield from shown
        self.more(len(things) - len(shown), noun, **left_out)

    @contextmanager
    def progress(self, total: int, what: str = "") -> Iterator[Callable[..., None]]:
        """A progress bar that disappears at the end; none without a terminal or without work.

        Yields what moves the bar: by a number, or to a number of a total.

        >>> with err().progress(2, "comparing users") as advance:
        ...     advance()
        """
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self, transient=True, disable=not (total and self.is_terminal)) as bar:
            task = bar.add_task(what, total=total)

            def tell(done: int = 1, of: int | None = None) -> None:
                if of is None:
                    bar.advance(task, done)
                else:
                    bar.update(task, completed=done, total=of)

            yield tell

    @contextmanager
    def spinner(self, message: str, *, after: float = 0.0) -> Iterator[Callable[[str], None]]:
        """A spinner, which appears after some seconds; yields what changes its message. None without a terminal.

        >>> with err().spinner("reading the state", after=1.0):
        ...     rows = [1, 2]
        """
        if not self.is_terminal:
            yield lambda _: None
            return
        status = self.status(message)
        timer = Timer(after, status.start)
        timer.daemon = True
        timer.start()
        try:
            yield status.update
        finally:
            timer.cancel()
            timer.join()
            status.stop()

    def render_str(self, text: str, **options: Any) -> Text:
        """Escape control characters in a text before Rich drops them."""
        return super().render_str(printable_text(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escape control characters in all printed text; Rich's own control codes are separate segments."""
        for segment in super().render(renderable, options):
            shown = printable_text(segment.text)
            yield segment if segment.control or shown == segment.text else Segment(shown, segment.style)


def out() -> Terminal:
    """Standard output, with colours only on a terminal without NO_COLOR.

    >>> out().print("3 rules")
    3 rules
    """
    return _console(stderr=False)


def err() -> Terminal:
    """Standard error, for findings and progress.

    >>> err().print("nothing changed", style="dim")
    """
    return _console(stderr=True)


def _console(*, stderr: bool) -> Terminal:
    console = Terminal(stderr=stderr, highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console.size = ConsoleDimensions(max(PLAIN_WIDTH, console.width), console.height)
    return console


def print_error(message: str) -> None:
    """Print one line about a problem to standard error.

    >>> print_error("state.yaml was not read whole")
    """
    err().print_styled(("privtab: ", "bold red"), message)


def recorder(file: IO[str], *, width: int = 120) -> Terminal:
    """A console for text that goes to a file."""
    return Terminal(file=file, width=width, color_system=None, highlight=False, emoji=False, markup=False)


def deliver(report: object, output: Path | None = None) -> None:
    """Print a report to standard output, or write the report to a file. `printable_output` escapes control sequences.

    A report is a text, a function that shows the report on a console, or another value, which becomes JSON.

    >>> deliver({"rules": 3})
    {
      "rules": 3
    }
    """
    if callable(report) and output is None:
        report(out())
        return
    if callable(report):
        file = StringIO()
        report(recorder(file))
        text = file.getvalue()
    else:
        text = report if isinstance(report, str) else as_json(report)
    if output is None:
        sys.stdout.write(text)
    else:
        write_file(output, text.encode("utf-8", "backslashreplace"))


def print_line(value: object) -> None:
    """Print a value as one line of JSON to standard output."""
    sys.stdout.write(printable_json(value, sort_keys=True, separators=(",", ":")) + "\n")


def as_json(value: object) -> str:
    """Readable JSON of any value, safe to print."""
    return printable_json(value, indent=True, default=_plain) + "\n"


def _plain(value: Any) -> Any:
    """A value of another type as JSON: as it says itself, the fields of a dataclass, an entity as text."""
    if hasattr(value, "to_json"):
        return value.to_json()
    from privtab.base.request import Entity

    if isinstance(value, Entity):
        return str(value)
    if is_dataclass(value):
        return {field.name.removesuffix("_"): getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is not JSON")


def print_error_line(message: str) -> None:
    """Print a problem with one of many inputs as one line to standard error."""
    sys.stderr.write(printable_text(message, one_line=True) + "\n")


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
    format_: str, document: object, columns: Sequence[str] = (), rows: Iterable[Sequence[object]] = ()
) -> bool:
    """Print a document as JSON or its rows as CSV, if that is the format; returns whether it was.

    >>> print_if_data("text", {"rules": 3})
    False
    """
    match format_:
        case "json":
            deliver(document)
        case "csv":
            out().print_csv(columns, rows)
        case _:
            return False
    return True


def print_rows(format_: str, rows: Sequence[T], line: Callable[[T], str]) -> None:
    """Print rows as JSON, or each as a line of text."""
    if not print_if_data(format_, rows):
        for row in rows:
            out().print(line(row))


def stop(message: str, code: ExitCode = ExitCode.FINDINGS) -> NoReturn:
    """Print one line about a problem, and exit with a code.

    >>> import contextlib
    >>> with contextlib.suppress(typer.Exit):
    ...     stop("2 rows are wrong")
    """
    print_error(message)
    raise typer.Exit(code)


def fail_if(problems: object) -> None:
    """Exit with the code for findings if there are any.

    >>> fail_if([])
    """
    if problems:
        raise typer.Exit(ExitCode.FINDINGS)


def table(*columns: str, rows: Iterable[Sequence[str | Text]] = (), right: Sequence[str] = ()) -> Table:
    """A table in the style of all commands; the columns in `right` are numeric.

    >>> table("role", "rules", rows=[("reader", "3")], right=["rules"]).row_count
    1
    """
    grid = Table(*columns, right=right)
    for row in rows:
        grid.add_row(*row)
    return grid


def show_findings(findings: Iterable[object], texts: Mapping[str, str] | None = None) -> None:
    """Print findings to standard error: of policies with source lines and carets, and their number; others one line each.

    Others are wrong rows of a state, and what an import left out. `texts` has the files already read.

    >>> show_findings([])
    """
    from privtab.state.findings import StateFinding

    diagnostics: list[Diagnostic] = []
    repetitions: Counter[tuple[str, str]] = Counter()
    for finding in findings:
        if isinstance(finding, Diagnostic):
            diagnostics.append(finding)
        elif not isinstance(finding, StateFinding):
            sys.stderr.write(f"{finding}\n")
        else:
            of_table = finding.place.path, finding.place.table
            is_repetition = finding.code == finding.REPEATED and finding.place.row > 0
            repetitions[of_table] += is_repetition
            if not is_repetition or repetitions[of_table] <= SHOWN_REPETITIONS:
                sys.stderr.write(finding.render())
    for (path, name), number in repetitions.items():
        if (omitted := number - SHOWN_REPETITIONS) > 0:
            sys.stderr.write(StateFinding.of_more(path, name, omitted, StateFinding.REPEATED, "warning").render())
    if not diagnostics:
        return
    console = err()
    paths = {diagnostic.span.path for diagnostic in diagnostics} | {
        related.span.path for diagnostic in diagnostics for related in diagnostic.related
    }
    texts = {path: (texts or {}).get(path) or _text(path) for path in paths}
    text = render(diagnostics, texts, color=console.is_terminal and not console.no_color)
    # Its colours are escape sequences; all other text has been made printable by `render`.
    console.file.write(f"{text.rstrip(chr(10))}\n{_count(diagnostics)}\n")


def show_count(diagnostics: Iterable[Diagnostic], where: str) -> None:
    """Print the number of findings, if any, and which command shows them, to standard error."""
    found = tuple(diagnostics)
    if found:
        err().print(f"{_count(found)}; {where} shows them", style="dim")


def _text(path: str) -> str:
    try:
        return files.read_content(path).decode("utf-8", "replace")
    except (OSError, FileError):
        return ""


def _count(diagnostics: Sequence[Diagnostic]) -> str:
    """`1 error, 2 warnings, 1 note`, without zero counts."""
    numbers = Counter(diagnostic.severity for diagnostic in diagnostics)
    return ", ".join(f"{n} {kind}{'' if n == 1 else 's'}" for kind in Severity if (n := numbers[kind]))


# --- tables: laid out here, since lists may have thousands of rows ---


GAP = 2
"""Spaces between columns."""
_WORD = pattern(r"\s*\S+\s*")


class Table(RichTable):
    """A table without lines. Cells that do not fit their column are wrapped between words; longer words are cut."""

    def __init__(self, *columns: str, right: Sequence[str] = ()) -> None:
        super().__init__(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
        for column in columns:
            self.add_column(column, justify="right" if column in right else "left", overflow="fold")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rich's layout, computed here for headers of one line and cells without styles or characters of another width."""
        columns = self._plain_columns()
        widths = _widths([max(map(_width, column)) for column in columns], options.max_width)
        if not widths or any(len(wrapped(column[0], width)) > 1 for column, width in zip(columns, widths, strict=True)):
            yield from super().__rich_console__(console, options)
            return
        bold, gap = Style(bold=True), " " * GAP
        plain: list[str] = []
        for number, row in enumerate(zip(*columns, strict=True)):
            cells = [wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
            for line in zip_longest(*cells, fillvalue=""):
                parts = [
                    part.rstrip().rjust(width) if column.justify == "right" else part.ljust(width)
                    for column, part, width in zip(self.columns, line, widths, strict=True)
                ]
                if number:
                    plain.append(gap.join(parts) + "\n")
                else:
                    for part in parts[:-1]:
                        yield from (Segment(part, bold), Segment(gap, bold))
                    yield from (Segment(parts[-1], bold), Segment.line())
        if plain:
            yield Segment("".join(plain))

    def _plain_columns(self) -> list[list[str]]:
        """The header and the cells of each column; empty unless all of them are ASCII text without a style."""
        if any(row.style for row in self.rows):
            return []
        found: list[list[str]] = []
        for column in self.columns:
            cells = [column.header, *column.cells]
            texts = [cell for cell in cells if isinstance(cell, str)]
            shown = "".join(texts).replace("\n", "")
            if len(texts) < len(cells) or not (shown and shown.isascii() and shown.isprintable()):
                return []
            found.append(texts)
        return found


def _width(text: str) -> int:
    return max(map(len, text.split("\n")))


def _widths(desired: Sequence[int], available: int) -> list[int]:
    """The widths of the columns: as wanted, or with the widest ones narrowed; empty if that leaves too little, or no column."""
    gaps = [GAP] * (len(desired) - 1) + [0] * bool(desired)
    widths = [min(width + gap, available) for width, gap in zip(desired, gaps, strict=True)]
    while (excess := sum(widths) - available) > 0:
        widest = max(widths)
        most = min(excess, widest - max((width for width in widths if width < widest), default=0))
        sharing = widths.count(widest)
        for index, width in enumerate(widths):
            if width == widest:
                less = min(most, round(excess / sharing))
                widths[index] -= less
                excess, sharing = excess - less, sharing - 1
    found = [width - gap for width, gap in zip(widths, gaps, strict=True)]
    return found if min(found, default=0) > 0 else []


def wrapped(text: str, width: int) -> list[str]:
    """The lines of a cell in a column of this width."""
    lines: list[str] = []
    for line in text.split("\n"):
        lines += [line] if len(line) <= width else _divided(line, width)
    return lines


def _divided(line: str, width: int) -> Iterator[str]:
    breaks: list[int] = []
    column = 0
    for found in _WORD.finditer(line):
        start, length = found.start(), len(found[0].rstrip())
        if column + length <= width:
            column += len(found[0])
        elif length > width:
            pieces = range(start, found.end(), width)
            breaks += pieces
            column = found.end() - pieces[-1]
        elif column and start:
            breaks.append(start)
            column = len(found[0])
    breaks = [place for place in breaks if place]
    for start, end in zip([0, *breaks], [*breaks, len(line)], strict=True):
        yield line[start:end].rstrip()[:width] if end - start > width else line[start:end]
