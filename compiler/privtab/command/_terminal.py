"""Consoles and tables of Rich, which is loaded where something has a style or must be laid out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Timer
from typing import IO, Any

from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from privtab.base.printable import printable_text
from privtab.command._layout import GAP, Printer, laid_out, plain_columns


class Terminal(Printer, Console):
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

    @contextmanager
    def progress(self, total: int, what: str = "") -> Iterator[Callable[..., None]]:
        """A progress bar that disappears at the end; none without a terminal or without work.

        Yields what moves the bar: by a number, or to a number of a total.

        >>> from privtab.command import err
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

        >>> from privtab.command import err
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


def terminal(*, stderr: bool, width: int) -> Terminal:
    """The console of a stream, with colours only on a terminal without NO_COLOR, and else at least so wide."""
    console = Terminal(stderr=stderr, highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console.size = ConsoleDimensions(max(width, console.width), console.height)
    return console


def recorder(file: IO[str], *, width: int) -> Terminal:
    """A console for text that goes to a file."""
    return Terminal(file=file, width=width, color_system=None, highlight=False, emoji=False, markup=False)


class Table(RichTable):
    """A table without lines. Cells that do not fit their column are wrapped between words; longer words are cut."""

    def __init__(self, *columns: str, right: Sequence[str] = ()) -> None:
        super().__init__(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
        for column in columns:
            self.add_column(column, justify="right" if column in right else "left", overflow="fold")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rich's layout, computed here for headers of one line and cells without styles or characters of another width."""
        columns = (
            []
            if any(row.style for row in self.rows)
            else plain_columns((one.header, *one.cells) for one in self.columns)
        )
        lines = laid_out(columns, [column.justify == "right" for column in self.columns], options.max_width)
        if lines is None:
            yield from super().__rich_console__(console, options)
            return
        bold, gap = Style(bold=True), " " * GAP
        *parts, last = next(lines)
        for part in parts:
            yield from (Segment(part, bold), Segment(gap, bold))
        yield from (Segment(last, bold), Segment.line())
        if plain := "".join(gap.join(line) + "\n" for line in lines):
            yield Segment(plain)
