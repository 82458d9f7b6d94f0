"""The base of the synchronous clients, over any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from privtab.client._arguments import Details, EntityLike
from privtab.client._asking import ClientFlows, Item, Mode, described_as
from privtab.client._engine import ClientEngine, Flow, run
from privtab.client._observe import CURRENT, CallContext, HookLike, Observer

if TYPE_CHECKING:
    from privtab.filters.filter import Filter

P = ParamSpec("P")
T = TypeVar("T")


def _answered(flow: Callable[Concatenate[ClientFlows, P], Flow[T]]) -> Callable[Concatenate[Asker, P], T]:
    """The method that runs a flow, with its arguments and its docstring."""

    @described_as(flow)
    def method(self: Asker, /, *args: P.args, **kwargs: P.kwargs) -> T:
        token = CURRENT.set(CallContext())
        try:
            return run(flow(self._client_flows, *args, **kwargs))
        finally:
            CURRENT.reset(token)

    return method


class Asker:
    """Base class of the synchronous clients. A call that cannot be decided raises a DecisionError; it is never an allow.

    InvalidRequest: the request has a name that the policy does not declare. PolicyError: the answer is not a decision.
    DecisionUnavailable: the PDP did not answer, or no policy or state is active.

    Every method takes user, action and resource (`"type:path"`, a pair or an Entity), or one Request instead.

    Ask each client in the same way:

        client.check("alice", "load", "table:m/c/s/t")
    """

    def __init__(self, engine: ClientEngine, *, mode: Mode = Mode.ENFORCE, hooks: Sequence[HookLike] = ()) -> None:
        self._client_flows = ClientFlows(engine, mode, Observer(hooks))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def mode(self) -> Mode:
        """The mode that the client was created with."""
        return self._client_flows.mode

    @property
    def system(self) -> str:
        """The name of the system."""
        return self._system()

    _system = _answered(ClientFlows.system)
    close = _answered(ClientFlows.close)
    health = _answered(ClientFlows.health)
    status = _answered(ClientFlows.status)
    revision = _answered(ClientFlows.revision)
    vocabulary = _answered(ClientFlows.vocabulary)

    check = _answered(ClientFlows.check)
    decide = explain = _answered(ClientFlows.decide)
    require = _answered(ClientFlows.require)
    effects = _answered(ClientFlows.effects)

    check_many = _answered(ClientFlows.check_many)
    decide_many = _answered(ClientFlows.decide_many)
    visible = _answered(ClientFlows.visible)
    row_filter = _answered(ClientFlows.row_filter)
    column_masks = _answered(ClientFlows.column_masks)
    if TYPE_CHECKING:

        @overload  # a text is the name of a type, never items
        def filter(  # type: ignore[overload-overlap]
            self, user: str, action: str, items: str, **details: Unpack[Details]
        ) -> Filter: ...
        @overload
        def filter(
            self,
            user: str,
            action: str,
            items: Iterable[Item],
            *,
            key: Callable[[Item], EntityLike] | None = None,
            **details: Unpack[Details],
        ) -> list[Item]: ...
        def filter(self, *args: Any, **details: Any) -> Any: ...
    else:
        filter = _answered(ClientFlows.filter)
