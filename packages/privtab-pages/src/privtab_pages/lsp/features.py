"""Features of the language server, each a function of the server and the parameters of the protocol."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from lsprotocol import types as t

from privtab.base import PrivtabError
from privtab.language import format_source
from privtab_pages.lsp.completion import complete, complete_case
from privtab_pages.lsp.documents import PolicyDocument
from privtab_pages.lsp.hover import hover
from privtab_pages.lsp.occurrences import Occurrence
from privtab_pages.lsp.rename import rename
from privtab_pages.lsp.server import PolicyServer, RequestRefused, file_of, is_reported

_SYMBOLS = {
    "type": t.SymbolKind.Class,
    "privilege": t.SymbolKind.Key,
    "set": t.SymbolKind.Enum,
    "operation": t.SymbolKind.Method,
}
_COMPLETIONS = {
    "type": t.CompletionItemKind.Class,
    "privilege": t.CompletionItemKind.Constant,
    "set": t.CompletionItemKind.Enum,
    "operation": t.CompletionItemKind.Method,
    "key": t.CompletionItemKind.Property,
    "word": t.CompletionItemKind.Value,
    "keyword": t.CompletionItemKind.Keyword,
    "entity": t.CompletionItemKind.Reference,
    **dict.fromkeys(("user", "group", "role", "principal"), t.CompletionItemKind.Variable),
}


async def edited(ls: PolicyServer, params: t.DidOpenTextDocumentParams | t.DidChangeTextDocumentParams) -> None:
    """Check a text that was opened or changed, once nothing is typed for a moment."""
    ls.check_soon(params.text_document.uri)


async def saved(ls: PolicyServer, params: t.DidSaveTextDocumentParams) -> None:
    """Check every open file: findings depend on settings, and findings of scenarios on their policy."""
    del params
    for document in ls.workspace.text_documents.values():
        ls.check_soon(document.uri)


async def closed(ls: PolicyServer, params: t.DidCloseTextDocumentParams) -> None:
    """Forget the findings of a file."""
    uri = params.text_document.uri
    if (task := ls.checks.pop(uri, None)) is not None:
        task.cancel()
    ls.text_document_publish_diagnostics(t.PublishDiagnosticsParams(uri=uri, diagnostics=[]))


def hovered(ls: PolicyServer, params: t.HoverParams) -> t.Hover | None:
    """Describe the name at a position."""
    named = ls.name_at(params.text_document, params.position)
    policy = None if named is None else ls.documents.readable(named[0])
    if named is None or policy is None or policy.names is None:
        return None
    document, name = named
    text = hover(name, policy.names, ls.documents.program(document))
    content = None if text is None else t.MarkupContent(kind=t.MarkupKind.Markdown, value=text)
    return None if content is None else t.Hover(contents=content, range=ls.range(name.span, document.source))


def completed(ls: PolicyServer, params: t.CompletionParams) -> list[t.CompletionItem]:
    """List completions at a position of a policy, of scenarios for one, or of a state that scenarios name."""
    path, document = file_of(params.text_document.uri), ls.document(params.text_document.uri)
    if document is None and path is not None:
        document = ls.documents.state(path)
    policy = None if document is None else ls.documents.typed(document)
    if document is None or policy is None or policy.names is None:
        return []
    operations: dict[str, tuple[str, ...]] = {}
    for name in policy.occurrences:
        if name.kind == "operation" and name.declares:
            operations[name.name] = tuple(dict.fromkeys((*operations.get(name.name, ()), *sorted(name.types or ()))))
    offset = ls.place(params.position, document.source)
    if isinstance(document, PolicyDocument):
        items = complete(document.source.text, offset, policy.names, operations)
    else:
        states = [state.source.text for state in ls.documents.states(document, policy)]
        items = complete_case(document.source.text, offset, policy.names, operations, states)
    return [
        t.CompletionItem(label=item.text, kind=_COMPLETIONS[item.kind], detail=item.about or None) for item in items
    ]


def defined(ls: PolicyServer, params: t.DefinitionParams) -> list[t.Location]:
    """Find where the name at a position is declared: an operation in the table of the type, rather than for all types."""
    declared = [name for name in _same(ls, params) if name.declares]
    return ls.locations([name for name in declared if name.types is not None] or declared)


def referred(ls: PolicyServer, params: t.ReferenceParams) -> list[t.Location]:
    """Find where the name at a position is used."""
    found = _same(ls, params)
    return ls.locations(name for name in found if not name.declares or params.context.include_declaration)


async def renamed(ls: PolicyServer, params: t.RenameParams) -> t.WorkspaceEdit:
    """Give the name at a position another spelling everywhere, or refuse."""
    named = ls.name_at(params.text_document, params.position)
    policy = None if named is None else ls.documents.policy(named[0])
    if named is None or policy is None:
        raise RequestRefused("there is no name to rename here")
    try:
        edits = await asyncio.to_thread(rename, named[1], params.new_name, policy, ls.documents)
    except PrivtabError as error:
        raise RequestRefused(str(error)) from None
    open_texts = ls.open_texts()
    if any(open_texts.get(file.path, file.source.text) != file.source.text for file, _ in edits):
        raise RequestRefused("a file was edited meanwhile: rename again")
    changes = {
        ls.uri(file.path): [t.TextEdit(ls.range(span, file.source), new) for span, new in sorted(texts.items())]
        for file, texts in edits
    }
    return t.WorkspaceEdit(changes=changes)


def prepared(ls: PolicyServer, params: t.PrepareRenameParams) -> t.Range | None:
    """Find the name at a position, for renaming."""
    named = ls.name_at(params.text_document, params.position)
    return None if named is None else ls.range(named[1].span, named[0].source)


def formatted(ls: PolicyServer, params: t.DocumentFormattingParams) -> list[t.TextEdit]:
    """Lay the file out as `privtab fmt` does; nothing if it has errors."""
    document = ls.document(params.text_document.uri)
    if document is None:
        return []
    try:
        text, _ = format_source(document.source)
    except PrivtabError as error:
        raise RequestRefused(str(error)) from None
    if text is None or text == document.source.text:
        return []
    whole = document.source.span(0, len(document.source.text))
    return [t.TextEdit(range=ls.range(whole, document.source), new_text=text)]


def symbols(ls: PolicyServer, params: t.DocumentSymbolParams) -> list[t.DocumentSymbol]:
    """List the declarations of a file."""
    document = ls.document(params.text_document.uri)
    if document is None:
        return []
    declared = sorted((name for name in document.occurrences if name.declares), key=lambda name: name.span)
    return [
        t.DocumentSymbol(name=name.name, detail=detail, kind=_SYMBOLS[name.kind], range=at, selection_range=at)
        for name in declared
        for at in (ls.range(name.span, document.source),)
        for detail in (", ".join(sorted(name.types or ())) or name.kind,)
    ]


def fixes(ls: PolicyServer, params: t.CodeActionParams) -> list[t.CodeAction]:
    """Offer the corrections that findings have."""
    del ls
    uri = params.text_document.uri
    found = [(d, d.data["fix"]) for d in params.context.diagnostics if isinstance(d.data, dict) and "fix" in d.data]
    return [
        t.CodeAction(
            title=f"write `{fix}`" if fix else "remove",
            kind=t.CodeActionKind.QuickFix,
            diagnostics=[finding],
            edit=t.WorkspaceEdit(changes={uri: [t.TextEdit(range=finding.range, new_text=fix)]}),
            is_preferred=True,
        )
        for finding, fix in found
    ]


def _same(ls: PolicyServer, params: Any) -> list[Occurrence]:
    """The places of the name at a position, in the policy and in the scenarios for it."""
    named = ls.name_at(params.text_document, params.position)
    policy = None if named is None else ls.documents.readable(named[0])
    if named is None or policy is None:
        return []
    try:
        scenarios, _ = ls.documents.beside(policy)
    except PrivtabError:
        scenarios = []
    documents = {document.path: document for document in (policy, *scenarios, named[0])}
    return [place for document in documents.values() for place in document.occurrences if place.is_of(named[1])]


FEATURES: tuple[tuple[str, Any, Callable[..., Any]], ...] = (
    (t.TEXT_DOCUMENT_DID_OPEN, None, edited),
    (t.TEXT_DOCUMENT_DID_CHANGE, None, edited),
    (t.TEXT_DOCUMENT_DID_SAVE, None, saved),
    (t.TEXT_DOCUMENT_DID_CLOSE, None, closed),
    (t.TEXT_DOCUMENT_HOVER, None, hovered),
    (t.TEXT_DOCUMENT_COMPLETION, t.CompletionOptions(trigger_characters=["(", "/", " ", "{", "["]), completed),
    (t.TEXT_DOCUMENT_DEFINITION, None, defined),
    (t.TEXT_DOCUMENT_REFERENCES, None, referred),
    (t.TEXT_DOCUMENT_RENAME, t.RenameOptions(prepare_provider=True), renamed),
    (t.TEXT_DOCUMENT_PREPARE_RENAME, None, prepared),
    (t.TEXT_DOCUMENT_FORMATTING, None, formatted),
    (t.TEXT_DOCUMENT_DOCUMENT_SYMBOL, None, symbols),
    (t.TEXT_DOCUMENT_CODE_ACTION, t.CodeActionOptions(code_action_kinds=[t.CodeActionKind.QuickFix]), fixes),
)
"""Each method of the protocol with its options."""


def build() -> PolicyServer:
    """The server with all its features."""
    server = PolicyServer()
    logging.getLogger("pygls.protocol.json_rpc").addFilter(is_reported)
    for method, options, function in FEATURES:
        server.feature(method, options)(function)
    return server
