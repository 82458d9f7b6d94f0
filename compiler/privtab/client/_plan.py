"""Plan few calls for many requests: group them, cut them into chunks, and keep their positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from privtab.client import _protocol as protocol
from privtab.client._protocol import ActiveSystem, Call
from privtab.errors import InvalidRequest
from privtab.request import Entity, Request
from privtab.vocabulary import OperationShape, check_caller

_WORTH_A_CALL = 20
"""Group size from which the faster form saves more than a further call costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One call and the positions of the requests that it answers."""

    call: Call[list[bool]]
    positions: Sequence[int]


def check_all(
    asked: Sequence[Request], known: ActiveSystem, *, start: int = 0, what: str = "request"
) -> list[OperationShape]:
    """The shape of each request's operation; raises InvalidRequest with the position of the wrong one, counted from `start`."""
    shapes: list[OperationShape] = []
    check = known.vocabulary.check
    for at, request in enumerate(asked):
        try:
            shapes.append(check(protocol.well_formed(request)))
        except InvalidRequest as error:
            raise InvalidRequest(f"{what} {start + at}: {error}") from None
    return shapes


def batches(
    asked: Sequence[Request],
    shapes: Sequence[OperationShape],
    known: ActiveSystem,
    chunk_size: int,
    *,
    few: bool = False,
) -> Iterator[Batch]:
    """The calls that answer all requests, with at most `chunk_size` each.

    Requests of one operation and type without objects, groups or flags are sent in the faster form `items`, the rest
    mixed. `few`: groups too small for a call of their own are mixed too.
    """
    plain: dict[tuple[str, str], list[int]] = {}
    mixed: list[int] = []
    request_groups = known.vocabulary.request_groups
    for at, (request, shape) in enumerate(zip(asked, shapes, strict=True)):
        flags = shape.required_flags or not request.flags.isdisjoint(shape.flags)
        if request.with_ or (request.groups and request_groups) or flags:
            mixed.append(at)
        else:
            plain.setdefault((request.resource.type, request.action), []).append(at)

    def as_items(chunk: Sequence[Request]) -> Call[list[bool]]:
        return protocol.item_decisions(known.system, chunk, known.vocabulary)

    def as_requests(chunk: Sequence[Request]) -> Call[list[bool]]:
        return protocol.decisions(known.system, chunk)

    for positions in plain.values():
        if few and len(positions) < _WORTH_A_CALL and (mixed or len(plain) > 1):
            mixed += positions
        else:
            yield from _chunks(asked, positions, chunk_size, as_items)
    yield from _chunks(asked, mixed, chunk_size, as_requests)


def listing(
    asked: Request, items: Sequence[Entity], known: ActiveSystem, chunk_size: int
) -> Iterator[tuple[int, Call[list[int]]]]:
    """The calls for a listing, each with the position of its first item."""
    for start in range(0, len(items), chunk_size):
        yield start, protocol.visible(known.system, asked, items[start : start + chunk_size], known.vocabulary)


def check_listing(asked: Request, items: Sequence[Entity], known: ActiveSystem) -> None:
    """Raise InvalidRequest unless a request for each item would be valid."""
    shape = known.vocabulary.check_operation(asked.resource.type, asked.action)
    check_caller(asked.user, asked.groups)
    known.vocabulary.check_context(asked, shape)
    for at, item in enumerate(items):
        try:
            if item.type != asked.resource.type:
                raise InvalidRequest(f"`{item}` is not a `{asked.resource.type}`")
            known.vocabulary.check_path(item)
        except InvalidRequest as error:
            raise InvalidRequest(f"item {at}: {error}") from None


def _chunks(
    asked: Sequence[Request],
    positions: Sequence[int],
    chunk_size: int,
    call: Callable[[Sequence[Request]], Call[list[bool]]],
) -> Iterator[Batch]:
    for start in range(0, len(positions), chunk_size):
        chunk = positions[start : start + chunk_size]
        yield Batch(call=call([asked[at] for at in chunk]), positions=chunk)
