"""Entries of a log inside what other tools put around them: container runtimes, collectors, search engines, prefixes of lines.

Sources: Docker's log driver `json-file`; the log format of Kubernetes' container runtime interface; records of Fluent Bit and Filebeat; hits of
Elasticsearch, documents of Solr; prefixes of `docker compose logs`, `kubectl logs --prefix --timestamps` and of loggers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from privtab.base import StrictDecoder
from privtab_logs.schema import Reading, Row, SharedRow, alone

Entries = Callable[[Any, str, Reading], Iterable[Row] | None]
"""The rows of one entry of a log, which stands at a position; None for a value that is no entry."""

FIELDS = (
    "log", "log_processed", "message", "msg", "MESSAGE", "line", "json", "event", "original", "record", "textPayload", "jsonPayload",
    "_source", "_raw", "hits", "response", "docs",
)  # fmt: skip
"""The fields in which tools keep an entry, its text, or a list of entries."""
_SENDER = ("stream", "kubernetes", "container_id", "container_name", "container", "tag")
"""The fields that tell texts of several senders apart."""
DEPTH = 8
"""The most tools around an entry."""
_MOST = 1 << 62
LARGEST = 8 << 20
"""Characters of a text that comes in parts."""
_RUNTIME = re.compile(r"\d{4}-\d\d-\d\dT\S+ (stdout|stderr) ([FP])\S* ?(.*)", re.DOTALL)
_PREFIX = re.compile(r'[^{}"]{0,256}(?=\{)')
_PART = object()


class Unwrapper:
    """Reads the entries of one file. What is no entry, and holds none, is noted as damaged."""

    def __init__(self, entries: Entries, reading: Reading) -> None:
        self._entries = entries
        self._reading = reading
        self._parts: dict[str, tuple[str, str]] = {}
        """Text without its end, and the position of its first part, by sender."""

    def rows(self, values: Iterable[tuple[int, Any]], path: str) -> Iterator[Iterable[SharedRow]]:
        """The rows of the objects and of the lines of text in a file, and the rows among them."""
        for line, value in values:
            if isinstance(value, list):
                yield value
                continue
            found: list[Row] | None = None
            position, why = f"{path}:{line}", "it is nested too deeply"
            with suppress(RecursionError):
                found = self._rows(value, position, DEPTH)
                why = _no_entry(value)
            if found is None:
                self._reading.damage(position, why)
            yield map(alone, found or ())
        for position, _ in self._parts.values():
            self._reading.damage(position, "cut off")

    def _rows(self, value: Any, position: str, depth: int) -> list[Row] | None:
        value = self._value(value, "", position) if isinstance(value, str) else value
        found = () if value is _PART else self._entries(value, position, self._reading)
        if found is not None:
            return [*found]
        if not (isinstance(value, dict) and depth):
            return None
        parts = self._inside(value, position)
        held: list[list[Row]] = []
        for part in parts:
            rows = self._rows_of(part, position, depth - 1)
            held += [] if rows is None or rows in held else [rows]
        # Of two different entries in one record, neither is known to be the one.
        return held[0] if len(held) == 1 else [] if not held and _PART in parts else None

    def _rows_of(self, part: Any, position: str, depth: int) -> list[Row] | None:
        """The rows of an entry or of a list; None if nothing there is an entry."""
        if not isinstance(part, list):
            return None if part is _PART else self._rows(part, position, depth)
        found = [(item, self._rows(item, position, depth)) for item in part]
        if all(rows is None for _, rows in found):
            return None
        for item in (item for item, rows in found if rows is None):
            self._reading.damage(position, _no_entry(item))
        return [row for _, rows in found for row in rows or ()]

    def _inside(self, record: Mapping[str, Any], position: str) -> list[Any]:
        """The different values in a record that may be entries, or hold some."""
        found: list[Any] = []
        self._note_search(record, position)
        for name in FIELDS:
            part = record.get(name)
            if isinstance(part, str):
                sender = repr([name, *map(record.get, _SENDER)])
                part = self._value(part, sender, position)
            if (part is _PART or isinstance(part, dict | list)) and part not in found:
                found.append(part)
        return found

    def _note_search(self, record: Mapping[str, Any], position: str) -> None:
        """Note what the answer of a search says that it does not have: the rest of its pages, or what it did not get to."""
        shards, header = record.get("_shards"), record.get("responseHeader")
        parts = (
            shards.get("failed") if isinstance(shards, dict) else 0,
            isinstance(header, dict) and header.get("partialResults"),
        )
        if record.get("timed_out") or record.get("terminated_early") or any(parts):
            self._reading.damage(position, "a search that ended before it had found everything")
        for items, number in (("hits", "total"), ("docs", "numFound")):
            total, found = record.get(number), record.get(items)
            more = isinstance(total, dict) and total.get("relation") == "gte"
            total = total.get("value") if isinstance(total, dict) else total
            if isinstance(found, list) and type(total) is int and 0 < total < _MOST:
                self._reading.searches[str(total + more)] += len(found)

    def _value(self, text: str, sender: str, position: str) -> Any:
        """The object in a text, behind any prefix; None if there is none, and _PART while its end is missing."""
        body = text.rstrip("\r\n")
        ended = len(body) < len(text)
        if runtime := _RUNTIME.fullmatch(body):
            sender, ended, body = f"{sender} {runtime[1]}", runtime[2] == "F", runtime[3]
        first, before = self._parts.pop(sender, (position, ""))
        if not before and (prefix := _PREFIX.match(body)):
            body = body[prefix.end() :]
        whole = before + body
        value, open_ = _object(whole) if ended or whole.endswith("}") else (None, whole.startswith("{"))
        if value is not None:
            return value
        if open_ and not ended and len(whole) <= LARGEST:
            self._parts[sender] = first, whole
            return _PART
        if before:
            self._reading.damage(first, "cut off")
            return self._value(text, sender.removesuffix(f" {runtime[1]}") if runtime else sender, position)
        return None


def _object(text: str) -> tuple[Any, bool]:
    """The object that a text is, or None and whether it could be the beginning of an object."""
    try:
        value, end = StrictDecoder().at(text, 0, compact=False)
        StrictDecoder.check(value)
    except StrictDecoder.Incomplete as error:
        return None, text.startswith("{") and (error.open_text or error.position >= len(text.rstrip()))
    except ValueError:
        return None, False
    return (value, False) if isinstance(value, dict) and not text[end:].strip() else (None, False)


def _no_entry(value: Any) -> str:
    """Describe the fault of a value by its form, without its content."""
    names = ", ".join(f"`{name[:40]}`" for name in [*value][:6]) if isinstance(value, dict) else ""
    return f"no entry of the log: {f'an object with {names}' if names else 'text, or a value without names'}"
