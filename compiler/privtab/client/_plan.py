"""Plan few calls for many requests: group them, cut them into chunks, and keep their positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from privtab.base.errors import InvalidRequest
from privtab.base.records import dataclass
from privtab.base.request import Entity, Request
from privtab.base.vocabulary import OperationShape, check_caller
from privtab.client import _arguments as arguments
from privtab.client import _protocol as protocol
from privtab.client._protocol import ActiveSystem, Call

_WORTH_A_CALL = 20
"""Group size from which the faster form saves more than a further call costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One call and the positions of the requests that it answers."""

    call: Call[list[bool]]
    positions: Sequence[int]


def check_all(
    requests: Sequence[Request], active: ActiveSystem, *, start: int = 0, noun: str = "request"
) -> list[OperationShape]:
    """The shape of each request's operation; raises InvalidRequest with the position of the wrong one, counted from `start`."""
    shapes: list[OperationShape] = []
    check = active.vocabulary.check
    for index, request in enumerate(requests):
        try:
            shapes.append(check(arguments.well_formed(request)))
        except InvalidRequest as error:
            raise InvalidRequest(f"{noun} {start + index}: {error}") from None
    return shapes


def batches(
    requests: Sequence[Request],
    shapes: Sequence[OperationShape],
    active: ActiveSystem,
    chunk_size: Callable[[], int],
    *,
    few: bool = False,
) -> Iterator[Batch]:
    """The calls that answer all requests, with at most `chunk_size()` each, asked for before each.

    Requests of one operation and type without objects, groups, flags, attributes or flat ids are sent in the faster form `items`, the rest
    mixed. `few`: groups too small for a call of their own are mixed too.
    """
    plain: dict[tuple[str, str], list[int]] = {}
    mixed: list[int] = []
    request_groups = active.vocabulary.request_groups
    for index, (request, shape) in enumerate(zip(requests, shapes, strict=True)):
        flags = shape.required_flags or shape.needs_active_role or not request.flags.isdisjoint(shape.flags)
        narrowed = request.active_roles is not None or bool(request.attributes)
        in_state = active.vocabulary.lies_in_state(request.resource.type)
        if request.with_ or (request.groups and request_groups) or flags or narrowed or in_state:
            mixed.append(index)
        else:
            plain.setdefault((request.resource.type, request.action), []).append(index)

    as_items = partial(protocol.item_decisions, active.system, vocabulary=active.vocabulary)
    for positions in plain.values():
        if few and len(positions) < _WORTH_A_CALL and (mixed or len(plain) > 1):
            mixed += positions
        else:
            yield from _chunks(requests, positions, chunk_size, as_items)
    yield from _chunks(requests, mixed, chunk_size, partial(protocol.decisions, active.system))


def listing(
    request: Request, items: Sequence[Entity], active: ActiveSystem, chunk_size: Callable[[], int]
) -> Iterator[tuple[int, int, Call[list[int]]]]:
    """The calls for a listing, each with the positions of its first item and of the next call's."""
    for start, end in cut(len(items), chunk_size):
        chunk = items[start:end]
        if active.vocabulary.lies_in_state(request.resource.type):
            yield start, end, one_by_one(active.system, [replace(request, resource=item) for item in chunk])
        else:
            yield start, end, protocol.visible(active.system, request, chunk, active.vocabulary)


def one_by_one(system: str, requests: Sequence[Request]) -> Call[list[int]]:
    """The positions of the allowed requests, for items whose keys only the state tells."""
    call = protocol.decisions(system, requests)
    return Call(
        path=call.path, body=call.body, read=lambda body: [n for n, answer in enumerate(call.read(body)) if answer]
    )


def check_listing(request: Request, items: Sequence[Entity], active: ActiveSystem) -> None:
    """Raise InvalidRequest unless a request for each item would be valid."""
    shape = active.vocabulary.check_operation(request.resource.type, request.action)
    check_caller(request.user, request.groups)
    active.vocabulary.check_active_roles(request)
    active.vocabulary.check_context(request, shape)
    for index, item in enumerate(items):
        try:
            if item.type != request.resource.type:
                raise InvalidRequest(f"`{item}` is not a `{request.resource.type}`")
            active.vocabulary.check_path(item)
        except InvalidRequest as error:
            raise InvalidRequest(f"item {index}: {error}") from None


def _chunks(
    requests: Sequence[Request],
    positions: Sequence[int],
    chunk_size: Callable[[], int],
    call: Callable[[Sequence[Request]], Call[list[bool]]],
) -> Iterator[Batch]:
    for start, end in cut(len(positions), chunk_size):
        chunk = positions[start:end]
        yield Batch(call=call([requests[index] for index in chunk]), positions=chunk)


def cut(count: int, chunk_size: Callable[[], int]) -> Iterator[tuple[int, int]]:
    """Cut the positions up to `count` into chunks, each as (its first, the next one's first); asks for the size before each."""
    start = 0
    while start < count:
        end = min(start + chunk_size(), count)
        yield start, end
        start = end
