"""The protocol: requests and notifications of an editor, answered from its documents."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lsprotocol import types as t
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path

from privtab import __version__
from privtab.base import Diagnostic, Severity, SourceFile, Span
from privtab.checks import codes
from privtab_pages.lsp.documents import NOT_CHECKED, Document, Documents
from privtab_pages.lsp.occurrences import Occurrence

PAUSE = 0.2
"""Seconds without an edit after which a text is checked."""
_SEVERITIES = {
    Severity.ERROR: t.DiagnosticSeverity.Error,
    Severity.WARNING: t.DiagnosticSeverity.Warning,
    Severity.NOTE: t.DiagnosticSeverity.Information,
}


class RequestRefused(JsonRpcException):
    """A request that is not done, for a reason to show."""

    CODE = -32803
    MESSAGE = "request failed"


class PolicyServer(LanguageServer):
    """A language server for policies and their scenarios.

    Edits arrive as whole texts: the library divides lines at more characters than the protocol does.
    """

    def __init__(self) -> None:
        super().__init__("privtab", __version__, text_document_sync_kind=t.TextDocumentSyncKind.Full)
        self.documents = Documents(buffer=lambda path: self.open_texts().get(path))
        self.checks: dict[str, asyncio.Task[None]] = {}
        self.checker = ThreadPoolExecutor(1)
        """Runs one check at a time, so that checks of texts that changed meanwhile can still be cancelled."""

    def open_texts(self) -> dict[Path, str]:
        """The texts of the open files."""
        # The library's own keys are not the URIs of the editor.
        documents = self.workspace.text_documents.values()
        return {path: document.source for document in documents if (path := file_of(document.uri)) is not None}

    def uri(self, path: Path) -> str:
        """The URI of a file, as the editor spells it if the file is open."""
        uris = (document.uri for document in self.workspace.text_documents.values())
        return next((uri for uri in uris if file_of(uri) == path), uri_of(path))

    def document(self, uri: str) -> Document | None:
        """The document of a URI; None if it is no file, or is not about a policy."""
        path = file_of(uri)
        return None if path is None else self.documents.get(path)

    # --- positions: lines and columns from 1 in characters here, from 0 in the units of the editor there ---

    def range(self, span: Span, source: SourceFile) -> t.Range:
        """A span as the editor counts."""
        return t.Range(
            start=self._position(source, span.line, span.column),
            end=self._position(source, span.end_line, span.end_column),
        )

    def _position(self, source: SourceFile, line: int, column: int) -> t.Position:
        start = source.starts[min(line, len(source.starts)) - 1]
        units = self.workspace.position_codec.client_num_units(source.text[start : start + column - 1])
        return t.Position(line=line - 1, character=units)

    def place(self, position: t.Position, source: SourceFile) -> int:
        """The offset of a position; one beyond the end of its line, or of the text, is that end."""
        if position.line >= len(source.starts):
            return len(source.text)
        start = source.starts[position.line]
        end = source.starts[position.line + 1] if position.line + 1 < len(source.starts) else len(source.text)
        line = source.text[start:end].rstrip("\r\n")
        units, count = 0, self.workspace.position_codec.client_num_units
        for index, character in enumerate(line):
            if units >= position.character:
                return start + index
            units += count(character)
        return start + len(line)

    def name_at(self, file: t.TextDocumentIdentifier, position: t.Position) -> tuple[Document, Occurrence] | None:
        """The document and the name at a position of it; None if there is no name."""
        document = self.document(file.uri)
        if document is None:
            return None
        name = document.at(*document.source.position(self.place(position, document.source)))
        return None if name is None else (document, name)

    def locations(self, names: Iterable[Occurrence]) -> list[t.Location]:
        """Names as places in files."""
        found = ((name.span, self.documents.get(Path(name.span.path))) for name in names)
        return [self.location(span, document) for span, document in found if document is not None]

    def location(self, span: Span, document: Document) -> t.Location:
        """A span in a document."""
        return t.Location(uri=self.uri(document.path), range=self.range(span, document.source))

    # --- findings ---

    def check_soon(self, uri: str) -> None:
        """Check a document once nothing is typed for a moment."""
        if (earlier := self.checks.pop(uri, None)) is not None:
            earlier.cancel()
        self.checks[uri] = asyncio.ensure_future(self._check(uri))

    async def _check(self, uri: str) -> None:
        await asyncio.sleep(PAUSE)
        document = self.document(uri)
        try:
            check = None if document is None else self.checker.submit(document.findings)
            found = () if check is None else await asyncio.wrap_future(check)
        except Exception as error:  # noqa: BLE001  an editor that shows no findings would look like a clean file
            found = () if document is None else (NOT_CHECKED.at(document.source.span(0, 0), f"{error!r}"),)
        version = next((d.version for d in self.workspace.text_documents.values() if d.uri == uri), None)
        now = self.document(uri)
        unchanged = (now and now.source.text) == (document and document.source.text)
        if version is not None and unchanged:
            shown = [] if document is None else [self.shown(finding, document) for finding in found]
            self.text_document_publish_diagnostics(
                t.PublishDiagnosticsParams(uri=uri, version=version, diagnostics=shown)
            )

    def shown(self, finding: Diagnostic, document: Document) -> t.Diagnostic:
        """A finding as the editor shows it; one in another file stands at the beginning of this one and names that."""
        here = finding.span.path == document.source.path
        elsewhere = "" if here else f"{finding.span.path}:{finding.span.line}: "
        entry = codes().get(finding.code)
        page = uri_of(entry.path) if entry is not None and entry.path.is_file() else None
        others = (other for other in finding.related if other.span.path == document.source.path)
        related = [
            t.DiagnosticRelatedInformation(location=self.location(other.span, document), message=other.value)
            for other in others
        ]
        return t.Diagnostic(
            range=self.range(finding.span if here else document.source.span(0, 0), document.source),
            message=elsewhere + finding.message + (f"\nhelp: {finding.help}" if finding.help else ""),
            severity=_SEVERITIES[finding.severity],
            code=finding.code,
            code_description=None if page is None else t.CodeDescription(href=page),
            source="privtab",
            related_information=related or None,
            data=None if finding.fix is None or not here else {"fix": finding.fix},
        )


def is_reported(record: logging.LogRecord) -> bool:
    """Return whether the library's log should have a record: not the traceback of a request that was refused on purpose."""
    return record.exc_info is None or not isinstance(record.exc_info[1], RequestRefused)


def file_of(uri: str) -> Path | None:
    """The file of a URI."""
    path = to_fs_path(uri) if uri.startswith("file:") else None
    return None if path is None else Path(path).resolve()


def uri_of(path: Path) -> str:
    """The URI of a file."""
    return from_fs_path(str(path.resolve())) or path.resolve().as_uri()
