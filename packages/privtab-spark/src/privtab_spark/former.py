"""Former names of keyword arguments, for one version."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def renamed_keyword(former: str, current: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator for a function that also accepts the former name of a keyword argument; both at once are a TypeError."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if former in kwargs:
                if current in kwargs:
                    raise TypeError(f"{function.__name__}() got both `{former}` and `{current}`")
                warnings.warn(
                    f"`{former}` of `{function.__name__}` is now `{current}`", DeprecationWarning, stacklevel=2
                )
                kwargs[current] = kwargs.pop(former)
            return function(*args, **kwargs)

        return call

    return decorate
