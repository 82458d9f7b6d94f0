"""Types of settings: how values of arguments, of the file and of environment variables are parsed and checked."""

from __future__ import annotations

import math
import os
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

from privtab.client._asking import Mode


class Kind(NamedTuple):
    """A type of settings."""

    read: Callable[[Any], Any]
    """Converts a value for the clients; raises ValueError, which says what is expected."""
    parse: Callable[[str], Any] = str
    """Converts the text of a variable to the value that a file would have; raises ValueError."""


def text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("give a text")
    return value


def path(value: Any) -> str:
    return text(os.fspath(value) if isinstance(value, os.PathLike) else value)


def at_least(least: int) -> Kind:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"give a whole number, {least} or more")
        return value

    return Kind(read, whole_number)


def seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value > 0):
        raise ValueError("give seconds above zero")
    return float(value)


def window(value: Any) -> float:
    """Seconds; negative for no window."""
    if value is False or value == "off":
        return -1.0
    try:
        return 0.0 if value == 0 else seconds(value)
    except ValueError:
        raise ValueError("give seconds, 0 or more, or `off`") from None


def timeout(value: Any) -> tuple[float, float]:
    pair = tuple(value) if isinstance(value, list | tuple) else (value, value)
    if len(pair) != 2:
        raise ValueError("give seconds above zero, for connect and read")
    try:
        return seconds(pair[0]), seconds(pair[1])
    except ValueError:
        raise ValueError("give seconds above zero, for connect and read") from None


def mode(value: Any) -> Mode:
    try:
        return Mode(value)
    except ValueError:
        raise ValueError(f"give one of {', '.join(Mode)}") from None


def verify(value: Any) -> bool | str | ssl.SSLContext:
    if isinstance(value, bool | ssl.SSLContext):
        return value
    try:
        return path(value)
    except ValueError:
        raise ValueError("give true, false, or a file or folder with certificates of authorities") from None


def cert(value: Any) -> str | tuple[str, str]:
    if isinstance(value, list | tuple):
        if len(value) != 2:
            raise ValueError("give a file, or a certificate and its key")
        return path(value[0]), path(value[1])
    return path(value)


def paths(value: Any) -> tuple[str, ...]:
    found = tuple(path(item) for item in (value if isinstance(value, list | tuple) else [value]))
    if not found:
        raise ValueError("give a file, or several")
    return found


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("it must be a number") from None


def number_or_off(text: str) -> float | str:
    return text if text == "off" else number(text)


def whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("it must be a whole number") from None


def numbers(text: str) -> float | list[float]:
    parts = [number(part) for part in text.split(",")]
    return parts[0] if len(parts) == 1 else parts


def pair(text: str) -> str | list[str]:
    parts = text.split(",")
    return parts[0] if len(parts) == 1 else parts


def switch(text: str) -> bool | str:
    return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)


TEXT, PATH, MODE = Kind(text), Kind(path), Kind(mode)
SECONDS, TIMEOUT, WINDOW = Kind(seconds, number), Kind(timeout, numbers), Kind(window, number_or_off)
VERIFY, CERT, PATHS = Kind(verify, switch), Kind(cert, pair), Kind(paths, pair)
