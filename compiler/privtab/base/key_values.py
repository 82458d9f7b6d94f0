"""Options that give named values, such as `--set NAME=VALUE`."""

from __future__ import annotations

from collections.abc import Iterable

from privtab.base.errors import UsageError


def parse_key_values(
    texts: Iterable[str] | None,
    option: str,
    form: str = "NAME=VALUE",
    *,
    example: str | None = None,
    allow_empty: bool = False,
    names: Iterable[str] = (),
) -> dict[str, str]:
    """The values of a repeatable option by name. Raises UsageError for other text and for a repeated name.

    `form`: how an option is written, with `=` or `:`; spaces after `:` do not count. `allow_empty`: whether a value may be empty. `names`: all that there are.

    >>> parse_key_values(["region=eu", "query=a=b"], "--set")
    {'region': 'eu', 'query': 'a=b'}
    """
    sign = "=" if "=" in form else ":"
    found: dict[str, str] = {}
    for text in texts or ():
        name, separator, value = text.partition(sign)
        name, value = name.strip(), value.strip() if sign == ":" else value
        if not (name and separator and (value or allow_empty)):
            as_in = f", as in {example}" if example is not None else ""
            raise UsageError(f"`{option} {text}`: write {form}{as_in}")
        if names and name not in names:
            raise UsageError(f"`{option} {text}`: there are {', '.join(names)}")
        if name in found:
            raise UsageError(f"`{option}` is given twice for `{name}`")
        found[name] = value
    return found
