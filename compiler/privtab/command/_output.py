"""Output of the commands: consoles, findings, JSON, progress."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeVar

from privtab.base import files
from privtab.base.diagnostics import Diagnostic, Severity, render
from privtab.base.errors import ExitCode, FileError
from privtab.base.printable import printable_json, printable_text
from privtab.base.staged import write_file
from privtab.command._layout import GAP, Printer, laid_out, plain_columns
from privtab.command._parameters import option

if TYPE_CHECKING:
    from rich.text import Text

    from privtab.command._terminal import Table, Terminal

T = TypeVar("T")

PLAIN_WIDTH = 160
"""Width in columns without a terminal, so that tables in files and pipes are not cut."""
SHOWN_REPETITIONS = 10
"""Repetitions of rows of one table that are printed; the rest is counted."""
JSON_FORMAT = 1
"""The number of the JSON that commands print, which rises when a key goes or means something else."""

Format = Literal["text", "json"]
"""Output format: for people or programs."""
FormatOption = Annotated[Format, option("--format", "Output format: for people or for programs.")]
"""The format of an answer, as `print_if_data` takes the format: `format_: FormatOption = "text"`."""


class _Plain(Printer):
    """Stands for a `Terminal` that has no styles, until it must lay something out: loading Rich takes longer than most commands work."""

    is_terminal, no_color, color_system = False, False, None

    def __init__(self, *, stderr: bool) -> None:
        self.stderr = stderr

    @property
    def file(self) -> IO[str]:
        """The stream of now, which may be replaced while this stands."""
        stream = sys.stderr if self.stderr else sys.stdout
        found: IO[str] = getattr(stream, "rich_proxied_file", stream)
        return found

    @cached_property
    def width(self) -> int:
        """The width in columns, as Rich takes it."""
        width = 0
        for stream in range(3):
            try:
                width = os.get_terminal_size(stream).columns
            except OSError:
                continue
            break
        columns = os.environ.get("COLUMNS", "")
        return max(PLAIN_WIDTH, int(columns) if columns.isdigit() else width)

    @cached_property
    def _terminal(self) -> Terminal:
        from privtab.command._terminal import terminal

        return terminal(stderr=self.stderr, width=PLAIN_WIDTH)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._terminal, name)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print a text, or a table whose cells are plain; all else, and what does not fit, is laid out by Rich."""
        shown = objects[0] if objects else ""
        width = min(options.get("width", self.width), self.width)
        text = None
        if len(objects) < 2 and isinstance(shown, str) and shown.replace("\n", "").isprintable():
            fits = shown.isascii() and len(shown) <= width and "\n" not in shown
            if fits or options.get("soft_wrap", "width" not in options):
                text = shown + options.get("end", "\n")
        elif len(objects) == 1 and isinstance(shown, _Rows):
            text = shown.text(width)
        if text is None:
            self._terminal.print(*objects, **options)
        else:
            self.file.write(text)

    def print_styled(self, *parts: str | tuple[str, str], **options: Any) -> None:
        """Print a line of parts as one text, with control characters escaped."""
        self.print(printable_text("".join(part if isinstance(part, str) else part[0] for part in parts)), **options)

    @contextmanager
    def progress(self, total: int, what: str = "") -> Iterator[Callable[..., None]]:  # noqa: ARG002
        """No bar."""
        yield lambda *_, **__: None

    @contextmanager
    def spinner(self, message: str, *, after: float = 0.0) -> Iterator[Callable[[str], None]]:  # noqa: ARG002
        """No spinner."""
        yield lambda _: None


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
    if _is_plain(sys.stderr if stderr else sys.stdout):
        stands_for: Any = _Plain(stderr=stderr)
        return stands_for  # type: ignore[no-any-return]
    from privtab.command._terminal import terminal

    return terminal(stderr=stderr, width=PLAIN_WIDTH)


def _is_plain(stream: Any) -> bool:
    """True where Rich takes a stream for no terminal."""
    forced = any(os.environ.get(name) for name in ("FORCE_COLOR", "TTY_COMPATIBLE"))
    return not forced and "IPython" not in sys.modules and not stream.isatty()


def print_error(message: str) -> None:
    """Print one line about a problem to standard error.

    >>> print_error("state.yaml was not read whole")
    """
    err().print_styled(("privtab: ", "bold red"), message)


def recorder(file: IO[str], *, width: int = 120) -> Terminal:
    """A console for text that goes to a file."""
    from privtab.command._terminal import recorder as made

    return made(file, width=width)


def deliver(report: object, output: Path | None = None, *, numbered: bool = True) -> None:
    """Print a report to standard output, or write the report to a file. `printable_output` escapes control sequences.

    A report is a text, a function that shows it on a console, or a value that becomes JSON, with a number if it is ours.

    >>> deliver({"rules": 3})
    {
      "format": 1,
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
        value = _plain(report) if is_dataclass(report) or isinstance(report, Mapping) else report
        value = {"format": JSON_FORMAT, **value} if numbered and isinstance(value, dict) else value
        text = value if isinstance(value, str) else as_json(value)
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
    >>> with contextlib.suppress(SystemExit):
    ...     stop("2 rows are wrong")
    """
    print_error(message)
    raise SystemExit(code)


def fail_if(problems: object) -> None:
    """Exit with the code for findings if there are any.

    >>> fail_if([])
    """
    if problems:
        raise SystemExit(ExitCode.FINDINGS)


def table(*columns: str, rows: Iterable[Sequence[str | Text]] = (), right: Sequence[str] = ()) -> Table:
    """A table in the style of all commands; the columns in `right` are numeric.

    >>> table("role", "rules", rows=[("reader", "3")], right=["rules"]).row_count
    1
    """
    grid: Any = _Rows(columns, right)
    for row in rows:
        grid.add_row(*row)
    return grid  # type: ignore[no-any-return]


def show_findings(findings: Iterable[object], texts: Mapping[str, str] | None = None) -> None:
    """Print findings to standard error: of policies with source lines and carets, and their number; others one line each.

    Others are wrong rows of a state, and what an import left out. `texts` has the files already read.

    >>> show_findings([])
    """
    findings = tuple(findings)
    diagnostics = [finding for finding in findings if isinstance(finding, Diagnostic)]
    if len(diagnostics) < len(findings):
        _show_others(finding for finding in findings if not isinstance(finding, Diagnostic))
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


def _show_others(findings: Iterable[object]) -> None:
    from privtab.state.findings import StateFinding

    repetitions: Counter[tuple[str, str]] = Counter()
    for finding in findings:
        if not isinstance(finding, StateFinding):
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


class _Rows:
    """Stands for a `Table`, until Rich must lay it out."""

    def __init__(self, columns: Sequence[str], right: Sequence[str]) -> None:
        self._headers, self._right, self._rows = columns, right, list[tuple[tuple[Any, ...], Any]]()

    @cached_property
    def _table(self) -> Table:
        from privtab.command._terminal import Table

        made = Table(*self._headers, right=self._right)
        for cells, style in self._rows:
            made.add_row(*cells, style=style)
        return made

    def __rich__(self) -> Table:
        return self._table

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            setattr(self._table, name, value)

    def add_row(self, *cells: Any, style: Any = None) -> None:
        """Add a row, whose cells are texts or what Rich can lay out."""
        if "_table" in vars(self):
            self._table.add_row(*cells, style=style)
        else:
            self._rows.append((cells, style))

    def text(self, width: int) -> str | None:
        """The table as text; None for one that Rich must lay out."""
        if "_table" in vars(self) or any(style or len(cells) != len(self._headers) for cells, style in self._rows):
            return None
        columns = plain_columns(zip(self._headers, *(cells for cells, _ in self._rows), strict=True))
        lines = laid_out(columns, [header in self._right for header in self._headers], width)
        return None if lines is None else "".join((" " * GAP).join(line) + "\n" for line in lines)
