"""Dataclasses that are completed when they are first used: a command uses half of the classes that it imports."""

from __future__ import annotations

import dataclasses
from inspect import get_annotations
from threading import RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*written: type, **options: bool) -> Any:
        """As `dataclasses.dataclass`. A class with slots gets its methods when one is called, or its fields are asked for.

        >>> @dataclass(frozen=True, slots=True)
        ... class Point:
        ...     x: int
        ...     y: int = 0
        >>> Point(1)
        Point(x=1, y=0)
        """
        waits = options.get("slots") and not options.get("order")
        return (lambda decorated: _waiting(decorated, options)) if waits else dataclasses.dataclass(*written, **options)


__all__ = ["dataclass"]

_METHODS = ("__init__", "__repr__", "__eq__", "__hash__")
_DESCRIPTION = ("__dataclass_fields__", "__dataclass_params__", "__match_args__", "__signature__")
_NO_FIELDS = ("ClassVar", "typing.ClassVar", "KW_ONLY")
_COMPLETING = RLock()
"""Completing a class completes those that it extends."""


def _waiting(written: type, options: dict[str, bool]) -> type:
    """The class with slots that stands for `written`."""
    content = dict(vars(written))
    if content.get("__hash__") is None:  # as beside an `__eq__`
        content.pop("__hash__", None)
    own = set(content)
    names = [name for name, kind in get_annotations(written).items() if not str(kind).startswith(_NO_FIELDS)]
    for name in (*names, "__dict__", "__weakref__"):
        content.pop(name, None)
    above = {slot for base in written.__mro__[1:-1] for slot in vars(base).get("__slots__", ())}
    content["__slots__"] = tuple(name for name in names if name not in above)
    methods = _METHODS if options.get("eq", True) else _METHODS[:2]
    stubs = {name: _Stub(name) for name in (*methods, *_DESCRIPTION) if name not in own}
    if options.get("frozen"):
        content = {"__getstate__": _state, "__setstate__": _set_state} | content
        content |= {"__setattr__": _no_assignment, "__delattr__": _no_deletion}
    made = type(written)(written.__name__, written.__bases__, content | stubs)
    made.__qualname__ = written.__qualname__

    def complete() -> None:
        with _COMPLETING:
            if not stubs:
                return
            full = vars(dataclasses.dataclass(**{**options, "slots": False})(written))
            for name in full.keys() - own - {"__setattr__", "__delattr__"}:
                setattr(made, name, full[name])
            for name in stubs.keys() - full.keys():
                delattr(made, name)
            stubs.clear()

    for stub in stubs.values():
        stub.complete = complete
    return made


class _Stub:
    """An attribute that completes its class when it is read."""

    complete: Any

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> Any:
        self.complete()
        return getattr(owner if instance is None else instance, self.name)


def _no_assignment(_self: object, name: str, _value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _no_deletion(_self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(record: Any) -> list[object]:
    return [getattr(record, field.name) for field in dataclasses.fields(record)]


def _set_state(record: Any, state: list[object]) -> None:
    for field, value in zip(dataclasses.fields(record), state, strict=True):
        object.__setattr__(record, field.name, value)
