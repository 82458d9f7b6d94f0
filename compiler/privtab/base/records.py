"""Dataclasses that are completed when they are first used: a command uses half of the classes that it imports."""

from __future__ import annotations

import dataclasses
from inspect import get_annotations
from operator import attrgetter
from reprlib import recursive_repr
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
_UNCOMPILED = {"slots": False, "repr": False, "eq": False, "unsafe_hash": False}
"""What the standard library does not make here: compiling a method takes longer than most classes are used."""
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
            full = dict(vars(dataclasses.dataclass(**{**options, **_UNCOMPILED})(written)))
            full |= _methods(dataclasses.fields(written), options)
            for name in full.keys() - own - {"__setattr__", "__delattr__"}:
                setattr(made, name, full[name])
            for name in stubs.keys() - full.keys():
                delattr(made, name)
            stubs.clear()

    for stub in stubs.values():
        stub.complete = complete
    return made


def _methods(fields: tuple[Any, ...], options: dict[str, bool]) -> dict[str, Any]:
    """The methods of a class that need no compilation, as the standard library has them."""
    shown = [field.name for field in fields if field.repr]
    template = f"{{}}({', '.join(f'{name}={{!r}}' for name in shown)})"
    to_compare = _values([field.name for field in fields if field.compare])
    to_hash = _values([field.name for field in fields if (field.compare if field.hash is None else field.hash)])

    @recursive_repr()
    def shown_as(record: Any) -> str:
        return template.format(type(record).__qualname__, *[getattr(record, name) for name in shown])

    def equals(record: Any, other: Any) -> Any:
        return to_compare(record) == to_compare(other) if other.__class__ is record.__class__ else NotImplemented

    def hashed(record: Any) -> int:
        return hash(to_hash(record))

    equal, by_fields = options.get("eq", True), options.get("unsafe_hash") or options.get("frozen")
    found: dict[str, Any] = {"__repr__": shown_as} if options.get("repr", True) else {}
    found |= {"__eq__": equals} if equal else {}
    return found | ({"__hash__": hashed if by_fields else None} if equal or options.get("unsafe_hash") else {})


def _values(names: list[str]) -> Any:
    """What gives the values of these fields, of several as a tuple."""
    return attrgetter(*names) if names else lambda _: ()


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
