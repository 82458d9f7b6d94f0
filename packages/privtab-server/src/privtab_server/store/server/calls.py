"""A request to the server of a store, read: its caller and the desired change. Independent of the answer."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from privtab.base import Entity, UsageError, parse_moment, strict_loads
from privtab_server.errors import StoreError
from privtab_server.store.guarded import DesiredChange, WriteOptions
from privtab_server.store.server.openapi import TABLES
from privtab_server.store.store import Outcome
from privtab_server.store.view import View

JsonResponse: TypeAlias = tuple[int, Any]
"""The status and the JSON of an answer."""
NUMBER = re.compile(r'(?:W/)?"?(\d{1,18})"?')
"""The number of a change in a header."""


class NotFound(UsageError):
    """The target of a request does not exist, or the caller may not see it."""


class Malformed(UsageError):
    """The request does not have the form that the OpenAPI document describes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request: its caller and its content."""

    user: str
    body: Mapping[str, Any] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    path: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    raw_path: str = ""
    """The path as it was sent, in which `%2F` is part of a name."""

    @property
    def dry_run(self) -> bool:
        """Return whether the change is only proposed."""
        return flag(self.query, "dry_run")

    @property
    def write_options(self) -> WriteOptions:
        """The id of the request and the number of the last change that the caller knows."""
        text = self.headers.get("if-match")
        found = None if text is None else NUMBER.fullmatch(text.strip())
        if text is not None and found is None:
            raise Malformed('If-Match is the number of a change, as in "12"')
        return WriteOptions(request_id=self.headers.get("idempotency-key"), expect=int(found[1]) if found else None)


def flag(query: Mapping[str, str], name: str) -> bool:
    """A truth value of the query. Raises Malformed for anything but `true` and `false`."""
    text = query.get(name, "false")
    if text not in ("true", "false"):
        raise Malformed(f"`{name}` is true or false")
    return text == "true"


def read_object(body: bytes) -> Mapping[str, Any]:
    """The object in a body. Raises Malformed."""
    try:
        found = strict_loads(body)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise Malformed(f"the body is not JSON: {error}") from None
    if not isinstance(found, Mapping):
        raise Malformed("the body must be an object")
    return found


def read_desired(call: Call, names: set[str], **rows: Any) -> DesiredChange:
    """Read the desired change from the body, beside `names`. Raises Malformed."""
    known = {*names, "operation", "resource", "with", "flags"}
    if unknown := sorted(set(call.body) - known):
        raise Malformed(f"the body has `{unknown[0]:.80}`; it may have {', '.join(sorted(known))}")
    operation, flags, objects = call.body.get("operation"), call.body.get("flags", {}), call.body.get("with", {})
    if operation is not None and not isinstance(operation, str):
        raise Malformed("`operation` must be a string")
    if not isinstance(flags, Mapping) or not all(isinstance(value, bool) for value in flags.values()):
        raise Malformed("`flags` must be an object of truth values")
    if not isinstance(objects, Mapping):
        raise Malformed("`with` must be an object of entities")
    resource = call.body.get("resource")
    return DesiredChange(
        user=call.user,
        operation=operation,
        resource=None if resource is None else read_entity(resource, "resource"),
        with_={name: read_entity(value, f"with.{name:.80}") for name, value in objects.items()},
        flags=frozenset(name if value else f"{name}=false" for name, value in flags.items()),
        **rows,
    )


def read_entity(value: object, where: str) -> Entity:
    """An entity as text. Raises Malformed."""
    try:
        if isinstance(value, str):
            return Entity.parse(value)
    except ValueError:
        pass
    raise Malformed(f"`{where}` must be an entity: type:path, as in table:m/c/s/t")


def read_tables(value: object, where: str) -> dict[str, list[dict[str, str]]]:
    """Rows by table. Raises Malformed."""
    if not isinstance(value, Mapping):
        raise Malformed(f"`{where}` must be an object of tables")
    for name in value:
        if name not in TABLES:
            raise Malformed(f"`{where}` has `{name:.80}`; the tables are {', '.join(TABLES)}")
    found = {table: read_rows(rows, f"{where}.{table}") for table, rows in value.items()}
    return {table: rows for table, rows in found.items() if rows}


def read_rows(value: object, where: str) -> list[dict[str, str]]:
    """The rows of one table. Raises Malformed."""
    if not isinstance(value, list):
        raise Malformed(f"`{where}` must be a list of rows")
    if not all(isinstance(row, Mapping) and all(isinstance(cell, str) for cell in row.values()) for row in value):
        raise Malformed(f"a row of `{where}` must be an object of strings")
    return [dict(row) for row in value]


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "privtab_store_"


class Metrics(Collector):
    """Counts the changes that this server makes and refuses, and reads the store's last change when scraped."""

    def __init__(self, view: View) -> None:
        # Otherwise every counter has a second time series with its creation time.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._view = view
        self.registry = CollectorRegistry()
        self.changes = self._counter("changes", "Changes made through this server.")
        self.repeated = self._counter("repeated", "Requests that an earlier one with the same key had done.")
        self.refused = self._counter("refused", "Requests refused, by kind of error.", ("kind",))
        self.seconds = Histogram(
            f"{_PREFIX}change_seconds",
            "Time from a request for a change to its commit.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
            registry=self.registry,
        )
        self.registry.register(self)

    def record(self, outcome: Outcome, seconds: float) -> None:
        """Count what a request for a change did, and how long that took."""
        (self.repeated if outcome.repeated else self.changes).inc()
        self.seconds.observe(seconds)

    def text(self) -> bytes:
        """All metrics in the text format."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Yield metrics of the database, and of the changes that this server's decisions know."""
        number, lag, answers = 0, 0.0, 1
        known = self._view.known
        try:
            number = self._view.journal.head().number
            unseen = self._view.journal.log(known, 1)
            lag = max(0.0, time.time() - parse_moment(unseen[0].at) / 1e9) if unseen else 0.0
        except StoreError:
            answers = 0
        yield _gauge("database_ok", "1 while the database answers.", answers)
        if answers:
            yield _gauge("change_number", "The number of the last change of the store, by any process.", number)
            yield _gauge(
                "unseen_changes", "Changes that this server has not read since it was last asked.", number - known
            )
            yield _gauge("lag_seconds", "For how long the first of these has been there.", round(lag, 3))

    def _counter(self, name: str, help_text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"{_PREFIX}{name}", help_text, labels, registry=self.registry)


def _gauge(name: str, help_text: str, value: float) -> Any:
    return GaugeMetricFamily(f"{_PREFIX}{name}", help_text, value=value)
