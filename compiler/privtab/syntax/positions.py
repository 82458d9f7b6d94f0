"""Map offsets in a scalar's text to offsets in the file, through quotes, escapes and folding."""

from __future__ import annotations

_ESCAPES = {"x": 4, "u": 6, "U": 10}


def offsets(raw: str, text: str, style: str, start: int, end: int) -> list[int]:
    """File offsets for each character of `text` and for its end; `raw[start:end]` is the scalar as written.

    If the two cannot be matched any further, the remaining characters map to the start of the scalar.
    """
    at, limit = _content(raw, style, start, end)
    places: list[int] = []
    i = 0
    while i < len(text):
        if style == '"' and raw[at : at + 1] == "\\":
            kind = raw[at + 1 : at + 2]
            if kind in ("\n", "\r"):
                at = _skip(raw, at + 1, limit)
                continue
            places.append(at)
            at += _ESCAPES.get(kind, 2)
            i += 1
        elif text[i] in " \n\t":
            run = i
            while run < len(text) and text[run] in " \n\t":
                run += 1
            after = _skip(raw, at, limit)
            if after == at:
                break
            places.extend(min(at + k, after - 1) for k in range(run - i))
            at, i = after, run
        else:
            if raw[at : at + 1].isspace():
                at = _skip(raw, at, limit)
            if at >= limit or raw[at] != text[i]:
                break
            places.append(at)
            at += 2 if style == "'" and raw[at] == "'" else 1
            i += 1
    places.extend([start] * (len(text) - len(places)))
    last = places[-1] + 1 if places else at
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


def _skip(raw: str, at: int, limit: int) -> int:
    while at < limit and raw[at].isspace():
        at += 1
    return at
