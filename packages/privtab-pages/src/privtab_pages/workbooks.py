"""Read a workbook as HTML: all its sheets, with hidden, struck out and merged cells."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from privtab.base import FileError, needing, read_content


def workbook_html(path: Path) -> str:
    """A table for each sheet that has cells; each cell names its row and column."""
    with needing("a workbook (other than as CSV)", "excel"):
        from openpyxl import load_workbook  # type: ignore[import-untyped]
    try:
        values, formulas = (load_workbook(_archive(path), rich_text=True, data_only=only) for only in (True, False))
        return "\n".join(
            f'<table data-sheet="{escape(sheet.title)}" {"" if sheet.sheet_state == "visible" else "hidden"}>'
            f"{''.join(_rows(sheet, formulas[sheet.title]))}</table>"
            for sheet in values.worksheets
        )
    except (OSError, LookupError, ValueError, TypeError, AttributeError, SyntaxError, BadZipFile) as error:
        raise FileError(f"cannot read {path} as a workbook: {error}") from error


def _rows(sheet: Any, formulas: Any) -> Iterator[str]:
    spans = {merged.coord.partition(":")[0]: merged for merged in sheet.merged_cells.ranges}
    covered = {place for merged in spans.values() for place in merged.cells} - {m.top[0] for m in spans.values()}
    hidden = {
        number
        for column in sheet.column_dimensions.values()
        if column.hidden or column.width == 0
        for number in range(column.min or 0, (column.max or 0) + 1)
    }
    for row in sheet.iter_rows():
        line = row[0].row
        shape = sheet.row_dimensions[line]
        written = []
        for cell in row:
            if (line, cell.column) in covered:
                continue
            value = formulas[cell.coordinate].value if cell.value is None else cell.value
            text = "" if value is None else _text(value, cell.font)
            if cell.comment is not None:
                text += f"<span hidden>{escape(cell.comment.text)}</span>"
            span = spans.get(cell.coordinate)
            spanned = f' rowspan="{len(span.left)}" colspan="{len(span.top)}"' if span else ""
            unseen = " hidden" if cell.column in hidden or ";;;" in cell.number_format else ""
            written.append(f'<td data-place="{line},{cell.column}"{spanned}{unseen}>{text}</td>')
        if any(map(_filled, row)) or any(merged.min_row <= line <= merged.max_row for merged in spans.values()):
            yield f"<tr{' hidden' if shape.hidden or shape.height == 0 else ''}>{''.join(written)}</tr>\n"


def _filled(cell: Any) -> bool:
    return cell.value is not None or cell.comment is not None


def _text(value: Any, font: Any) -> str:
    """The text of a cell, or of a part of it that has a font of its own."""
    tag = "s" if font and font.strike else "sup" if font and font.vertAlign else "span"
    parts = [_text(str(part), getattr(part, "font", None)) for part in value] if isinstance(value, list) else []
    return f"<{tag}>{''.join(parts) or escape(str(value)).replace(chr(10), '<br>')}</{tag}>"


def _archive(path: Path) -> BytesIO:
    """Read a zip archive, as workbooks are. Raises FileError, also for one that unpacks to more than 128 MiB, and OSError."""
    packed = BytesIO(read_content(path))
    with ZipFile(packed) as found:
        if sum(entry.file_size for entry in found.infolist()) > 128 << 20:  # what the reader of an entry holds it to
            raise FileError(f"`{path}` unpacks to more than 128 MiB")
    return packed
