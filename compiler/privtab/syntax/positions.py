"""Map offsets in a scalar's text to offsets in the file, through quotes, escapes and folding."""

from __future__ import annotations

_ESCAPES = {"x": 4, "u": 6, "U": 10}


def offsets(raw: str, text: str, style: str, start: int, end: int) -> list[int]:
    """File offsets for each character of `text` and for its end; `raw[start:end]` is the scalar as written.

    If the two cannot be matched any further, the remaining characters map to the start of the scalar.
    """
    position, limit = _content(raw, style, start, end)
    places: list[int] = []
    i = 0
    while i < len(text):
        if style == '"' and raw[position : position + 1] == "\\":
            kind = raw[position + 1 : position + 2]
            if kind in ("\n", "\r"):
                position = _skip(raw, position + 1, limit)
                continue
            places.append(position)
            position += _ESCAPES.get(kind, 2)
            i += 1
        elif text[i] in " \n\t":
            run = i
            while run < len(text) and text[run] in " \n\t":
                run += 1
            after = _skip(raw, position, limit)
            if after == position:
                break
            places.extend(min(position + k, after - 1) for k in range(run - i))
            position, i = after, run
        else:
            if raw[position : position + 1].isspace():
                position = _skip(raw, position, limit)
            if position >= limit or raw[position] != text[i]:
                break
            places.append(position)
            position += 2 if style == "'" and raw[position] == "'" else 1
            i += 1
    places.extend([start] * (len(text) - len(places)))
    last = places[-1] + 1 if places else position
    places.append(last if i == len(text) else end)
    return places


def _content(raw: str, style: str, start: int, end: int) -> tuple[int, int]:
    """The start and end of the content: after the opening quote, or after the header line of a block scalar."""
    if style in ("'", '"') and style:
        return start + 1, end - 1
    if style in ("|", ">") and style:
        line = raw.find("\n", start, end)
        return (line + 1 if line >= 0 else end), end
    return start, end


def _skip(raw: str, position: int, limit: int) -> int:
    while position < limit and raw[position].isspace():
        position += 1
    return position
