"""The tables of a file: a page in Markdown, HTML or CSV, or the sheets of a workbook."""

from __future__ import annotations

from pathlib import Path

from privtab.base import FileError, SourceFile, read_content
from privtab_pages.csv_tables import csv_page
from privtab_pages.html_tables import html_page, placed
from privtab_pages.markdown_tables import markdown_html
from privtab_pages.own_pages import own_policy
from privtab_pages.tables import Page, Table
from privtab_pages.workbooks import workbook_html

_UTF_16 = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


def page_source(path: Path) -> SourceFile:
    """The text of a page; a workbook as HTML. Raises FileError, and UsageError if the library for workbooks is missing."""
    if path.suffix.lower() == ".xlsx":
        return SourceFile.of(str(path), workbook_html(path))
    try:
        content = read_content(path)
    except OSError as error:
        raise FileError(f"cannot read `{path}`: {error.strerror}") from error
    try:
        if encoding := _UTF_16.get(content[:2]):
            return SourceFile.of(str(path), content.decode(encoding))
    except UnicodeDecodeError as error:
        raise FileError(f"cannot read {path} as UTF-16: {error.reason}") from error
    source = SourceFile.decode(content, str(path))
    if source.undecodable is not None:
        line, column = source.position(source.undecodable)
        raise FileError(f"{path}:{line}:{column}: not UTF-8: save the page in this encoding")
    return source


def page_of(source: SourceFile, *, own: bool = False) -> Page:
    """Read a page by the name of its file; `own`: as a page of `privtab docs`, although it carries no policy. Raises FileError."""
    match Path(source.path).suffix.lower():
        case ".csv" | ".tsv":
            return csv_page(source)
        case ".html" | ".htm" | ".xlsx":
            return html_page(source.path, placed(source), own=own or own_policy(source) is not None)
        case _:
            return html_page(source.path, markdown_html(source))


def tables(source: SourceFile, *, own: bool = False) -> list[Table]:
    """The tables of a page, as `page_of` reads it."""
    return [*page_of(source, own=own).tables]
