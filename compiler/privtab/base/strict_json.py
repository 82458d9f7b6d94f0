"""Strict reading of JSON from outside: whatever two readers could read as different values is an error."""

from __future__ import annotations

import json
from typing import Any

from privtab.base.names import is_unicode

_SHORT = 1_000
"""Characters up to which looking at the pairs of every object is faster than making a decoder that counts."""


def strict_loads(text: str | bytes) -> Any:
    """The value of a JSON text in UTF-8. Raises ValueError, which says what is wrong.

    Also refused: a key that occurs twice in one object, of which one reader takes the first and another the last; lone
    surrogates, which OPA reads as U+FFFD; `NaN` and `Infinity`; nesting too deep for readers.

    >>> strict_loads('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: `a` occurs twice in one object
    """
    json_text = text.decode() if isinstance(text, bytes) else text
    try:
        value = _compact(json_text) if len(json_text) > _SHORT else None
        if value is None:
            value = _decode(json_text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if "\\ud" in json_text or "\\uD" in json_text:
        check_pairs(value)
    return value


class StrictDecoder:
    """Reads values from within a longer text, as strictly as `strict_loads`; not for several threads.

    >>> StrictDecoder().at('[{"a": 1}]', 1, compact=False)
    ({'a': 1}, 9)
    """

    class Incomplete(ValueError):
        """A text is no value of JSON, perhaps since its end is missing."""

        def __init__(self, error: json.JSONDecodeError, start: int) -> None:
            super().__init__(error.msg)
            self.position = error.pos - start
            """Where it stops to be one, from the start of the value."""
            self.open_text = error.msg.startswith("Unterminated string")

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._counting = json.JSONDecoder(object_hook=self._counted, parse_constant=_no_number).raw_decode

    def at(self, text: str, start: int, *, compact: bool) -> tuple[Any, int]:
        """The value that begins at a position, and where it ends. Raises ValueError; lone surrogates are left to `check`.

        `compact`: there is no space between a name and its colon, so that the number of `":` tells, as in `strict_loads`, whether all
        members are in the value.
        """
        try:
            if compact:
                self._sizes.clear()
                value, end = self._counting(text, start)
                if sum(self._sizes) == text.count('":', start, end):
                    return value, end
            return _decode_at(text, start)
        except json.JSONDecodeError as error:
            raise self.Incomplete(error, start) from None
        except RecursionError:
            raise ValueError("it is nested too deeply") from None

    def _counted(self, found: dict[str, Any]) -> dict[str, Any]:
        self._sizes.append(len(found))
        return found

    @staticmethod
    def check(value: object) -> None:
        """Raise ValueError if a text in a value has a lone surrogate, which only an escape can produce."""
        check_pairs(value)


def loads_object(text: str | bytes, what: str, error: type[Exception]) -> dict[str, Any]:
    """The object in a JSON text. Raises `error`, which names the text by `what`, for any other value."""
    try:
        value = strict_loads(text)
    except ValueError as invalid:
        raise error(f"{what} is not JSON: {invalid}") from None
    if not isinstance(value, dict):
        raise error(f"{what} is not an object")
    return value


def _compact(text: str) -> Any:
    """The value of JSON without spaces behind texts, as privtab writes it; None if a key may occur twice in one object.

    Looking at the pairs of every object takes as long as reading the rest. But here each member has its own `":`, unless
    a text has one as well, so that their number tells whether all members are in the value.
    """
    spaces = (
        space for space in " \t\r\n" if space in text
    )  # a search for one character is much faster than one for two
    if '\\"' in text or any(f'"{space}' in text for space in spaces):
        return None
    members = 0

    def counted(found: dict[str, Any]) -> dict[str, Any]:
        nonlocal members
        members += len(found)
        return found

    value = json.JSONDecoder(object_hook=counted, parse_constant=_no_number).decode(text)
    return value if members == text.count('":') else None


def check_pairs(value: object) -> None:
    """Raise ValueError if a text has a lone surrogate, which only an escape can produce."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += [*item, *item.values()]
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, str) and not is_unicode(item):
            raise ValueError("a lone surrogate is not valid Unicode")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"`{repeated:.80}` occurs twice in one object")
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a number")


_decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_number)
_decode, _decode_at = _decoder.decode, _decoder.raw_decode
