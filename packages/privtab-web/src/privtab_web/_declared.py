"""Documents that describe routes: a file of routes, and descriptions in OpenAPI."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from privtab.base import Diagnostic, SourceFile, Span, UsageError, did_you_mean
from privtab.language import (
    DocumentProblem,
    DocumentReader,
    MappingNode,
    ScalarNode,
    SequenceNode,
    YamlNode,
    compose_yaml,
)
from privtab_web._inspect import AppRoute, Cover
from privtab_web._needs import RequestTemplate, request_template

EXTENSION = "x-privtab"
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
"""The operations of a path in OpenAPI 3.2; earlier versions have fewer."""
_BESIDE = ("$ref", "summary", "description", "servers", "parameters", "additionalOperations")
_MAPPED = ("action", "resource", "arg", "with", "flags")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The entry of one route in a document: why the route is open, or the request that is decided before it runs."""

    route: str
    by: str
    span: Span
    open: str | None = None
    needs: RequestTemplate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The entries of a document by route; `gateway` is the type whose operations are methods, and its entities paths."""

    entries: dict[str, Entry]
    gateway: tuple[str, Span] | None = None
    routes: tuple[AppRoute, ...] = ()
    """Routes that the document describes itself."""


def read_declared(source: SourceFile, found: list[Diagnostic]) -> Declared:
    """Read a file of routes: `routes:` with `METHOD PATH: {open: REASON}` or `{action: …, resource: …}`, and `gateway: TYPE`."""
    root = compose_yaml(source, found, "a file of routes begins with `routes:`")
    return Declared(entries={}) if root is None else _Reader(source, found).file(root)


def read_openapi(source: SourceFile, found: list[Diagnostic]) -> Declared:
    """Read a description in OpenAPI 3 or Swagger 2, whose operations may say by `x-privtab` what a file of routes says."""
    # Tabs indent JSON as well as spaces do, but not YAML.
    text = source.text.replace("\t", " ") if source.text.lstrip()[:1] == "{" else source.text
    spaced = SourceFile(path=source.path, text=text, undecodable=source.undecodable, starts=source.starts)
    root = compose_yaml(spaced, found, "a description begins with `openapi:` or `swagger:`")
    return Declared(entries={}) if root is None else _Reader(spaced, found).openapi(root)


class _Reader(DocumentReader):
    """The reader of both kinds of document."""

    NAMES: ClassVar = {"R001": "bad-route-document"}
    CODES: ClassVar = dict.fromkeys(DocumentProblem, "R001")

    def example(self, key: str) -> str | None:
        """See `DocumentReader.example`."""
        return {"resource": "write a type and the names of its path, as in `table:{schema}/{table}`"}.get(key)

    def file(self, root: YamlNode) -> Declared:
        """A whole file of routes."""
        fields = self.fields(root, "a file of routes", ("routes", "gateway")) or {}
        entries: dict[str, Entry] = {}
        for key, value in self.entries(fields.get("routes"), "`routes`", "write `GET /health: {open: why}`"):
            *methods, path = key.text.split()
            if not methods or path[:1] != "/" or any(method != method.upper() for method in methods):
                self.report(
                    "R001", key, f"`{key.text}` is no route", "write methods and a path, as in `GET /tables/{name}`"
                )
                continue
            for method in methods:
                if (entry := self.entry(value, f"{method} {path}", "mapping", self.span(key))) is None:
                    continue
                if entry.route in entries:
                    self.report("R001", key, f"`{entry.route}` occurs twice")
                entries[entry.route] = entry
        return Declared(entries=entries, gateway=self.gateway(fields.get("gateway")))

    def gateway(self, node: YamlNode | None) -> tuple[str, Span] | None:
        """The type that a gateway asks about."""
        text = self.text(node, "`gateway`")
        return None if text is None else (text.value, text.span)

    def entry(
        self, node: YamlNode, route: str, by: str, span: Span, known: frozenset[str] | None = None
    ) -> Entry | None:
        """Read the entry of one route; `known` are the route's parameters, if they are known."""
        before = self.mistakes
        fields = self.fields(node, f"`{route}`", ("open", *_MAPPED))
        if fields is None or self.mistakes > before:
            return None
        if "open" in fields:
            reason = self.text(fields["open"], "`open`")
            if len(fields) > 1 or reason is None or not reason.value.strip():
                self.report("R001", fields["open"], f"`{route}` is open without a reason alone", "write `{open: why}`")
                return None
            return Entry(route=route, by=by, span=span, open=" ".join(reason.value.split()))
        if self.fields(node, f"`{route}`", _MAPPED, ("action", "resource")) is None:
            return None
        needs = self.needs(node, fields)
        if needs is not None and known is not None and (unknown := sorted(needs.names - known)):
            advice = did_you_mean(unknown[0], known)
            self.report("R001", node, f"`{route}` has no parameter `{unknown[0]}`", advice)
        return None if self.mistakes > before else Entry(route=route, by=by, span=span, needs=needs)

    def needs(self, node: YamlNode, fields: dict[str, YamlNode]) -> RequestTemplate | None:
        """The arguments of `requires`."""
        texts = {
            key: text.value for key in ("action", "resource", "arg") if (text := self.text(fields.get(key), f"`{key}`"))
        }
        flags: Any = ()
        if isinstance(fields.get("flags"), MappingNode):
            flags = {key.value: value.value for key, value in self.pairs(fields["flags"], "`flags`")}
        elif "flags" in fields:
            flags = [text.value for text in self.texts(fields["flags"], "`flags`")]
        with_ = {key.value: value.value for key, value in self.pairs(fields.get("with"), "`with`")}
        try:
            return request_template(texts["action"], texts["resource"], texts.get("arg"), with_, flags)
        except KeyError:
            return None  # has a finding
        except UsageError as error:
            self.report("R001", node, str(error))
            return None

    # --- OpenAPI ---

    def openapi(self, root: YamlNode) -> Declared:
        """A whole description."""
        top = dict(_pairs(root))
        version = self.text(top.get("openapi", top.get("swagger")), "the version")
        if version is None or version.value[:2] not in ("3.", "2."):
            said = "no version" if version is None else f"version `{version.value}`"
            self.report(
                "R001", root, f"a description in OpenAPI 3 or Swagger 2 has {said}", "begin with `openapi: 3.1.0`"
            )
            return Declared(entries={})
        if "paths" not in top:
            self.report("R001", root, "the description has no `paths`")
        routes: list[AppRoute] = []
        entries: dict[str, Entry] = {}
        for path, item in self.entries(top.get("paths"), "`paths`"):
            if path.text.startswith("x-"):
                continue
            node = self.resolved(root, item)
            shared = _parameters(self, root, node)
            for method, operation in self.operations(node, path.text):
                route = AppRoute(method=method.text.upper(), path=path.text, span=self.span(method))
                routes.append(route)
                known = shared | _parameters(self, root, operation)
                if (extension := _child(operation, EXTENSION)) is not None and (
                    entry := self.entry(extension, route.name, EXTENSION, self.span(extension), known)
                ):
                    entries[route.name] = entry
        extension = top.get(EXTENSION)
        gateway = (
            None if extension is None else (self.fields(extension, f"`{EXTENSION}`", ("gateway",)) or {}).get("gateway")
        )
        return Declared(entries=entries, gateway=self.gateway(gateway), routes=tuple(routes))

    def operations(self, item: YamlNode, path: str) -> Iterator[tuple[ScalarNode, YamlNode]]:
        """The operations of a path; an unknown key may be a misspelt method."""
        for key, value in self.entries(item, f"`{path}`"):
            if key.text in METHODS:
                yield key, value
            elif key.text == "additionalOperations":
                yield from self.entries(value, "`additionalOperations`")
            elif key.text not in _BESIDE and not key.text.startswith("x-"):
                self.unknown(key, value, f"`{path}`", (*METHODS, *_BESIDE))

    def resolved(self, root: YamlNode, node: YamlNode) -> YamlNode:
        """Follow a reference within the document to its target; a reference to another file is an error."""
        seen: set[str] = set()
        while (reference := _child(node, "$ref")) is not None:
            text = getattr(reference, "text", "")
            target: YamlNode | None = root if text.startswith("#/") and text not in seen else None
            seen.add(text)
            for part in text.removeprefix("#/").split("/"):
                target = _child(target, part.replace("~1", "/").replace("~0", "~"))
            if target is None:
                self.report("R001", reference, f"`{text}` is not in this file", "bundle the description into one file")
                return MappingNode((), node.start, node.end)
            node = target
        return node


def _parameters(reader: _Reader, root: YamlNode, node: YamlNode) -> frozenset[str]:
    """The names of the parameters in paths and queries that a path or an operation declares."""
    declared = _child(node, "parameters")
    items = declared.items if isinstance(declared, SequenceNode) else ()
    found = [dict(_pairs(reader.resolved(root, item))) for item in items]
    return frozenset(
        name.text
        for fields in found
        if isinstance(name := fields.get("name"), ScalarNode)
        and getattr(fields.get("in"), "text", "") in ("path", "query")
    )


def _pairs(node: YamlNode | None) -> Iterator[tuple[str, YamlNode]]:
    if isinstance(node, MappingNode):
        yield from ((key.text, value) for key, value in node.entries)


def _child(node: YamlNode | None, name: str) -> YamlNode | None:
    return next((value for key, value in _pairs(node) if key == name), None)


def gateway_cover(type_: str, method: str) -> Cover:
    """Return the request of a gateway: the method on the entity of the path, as in AuthZEN's profile for gateways."""
    return Cover(by="gateway", needs=request_template(method, (type_, "path")))
