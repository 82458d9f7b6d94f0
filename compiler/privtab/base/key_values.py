"""Options that give named values, such as `--set NAME=VALUE`, and attributes: `--attribute KIND.NAME=VALUE`."""

from __future__ import annotations

from collections.abc import Iterable

from privtab.base.attributes import Attribute, Attributes, GivenAttributes
from privtab.base.errors import UsageError
from privtab.base.hints import hint


def parse_key_values(
    texts: Iterable[str] | None,
    option: str,
    form: str = "NAME=VALUE",
    *,
    example: str | None = None,
    allow_empty: bool = False,
) -> dict[str, str]:
    """The values of a repeatable option by name. Raises UsageError for other text and for a repeated name.

    `form`: how an option is written, with `=` or `:`; spaces after `:` do not count. `allow_empty`: whether a value may be empty.

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
        if name in found:
            raise UsageError(f"`{option}` is given twice for `{name}`")
        found[name] = value
    return found


def attribute_values(options: Iterable[str] | None, declared: Attributes) -> GivenAttributes:
    """Parse `--attribute` options by the declared types; sets are written with commas. Raises UsageError."""
    found: dict[str, dict[str, object]] = {}
    form, example = "KIND.NAME=VALUE", "user.department=hr"
    for written, value in parse_key_values(options, "--attribute", form, example=example, allow_empty=True).items():
        kind, dot, name = written.partition(".")
        if not dot:
            raise UsageError(f"`--attribute {written}={value}`: write {form}, as in {example}")
        of_kind = declared.of(kind if kind in ("user", "request") else "entity")
        if name not in of_kind:
            raise UsageError(f"unknown attribute `{written}`" + hint(name, of_kind))
        found.setdefault(kind, {})[name] = _value(value, of_kind[name])
    objects = {kind: values for kind, values in found.items() if kind not in ("user", "entity", "request")}
    return GivenAttributes(
        user=found.get("user", {}), entity=found.get("entity", {}), request=found.get("request", {}), with_=objects
    )


def _value(text: str, attribute: Attribute) -> object:
    match attribute.type:
        case "bool":
            return {"true": True, "false": False}.get(text, text)
        case "integer":
            return int(text) if text.removeprefix("-").isdecimal() and text.isascii() else text
        case "set":
            return text.split(",") if text else []
        case _:
            return text
