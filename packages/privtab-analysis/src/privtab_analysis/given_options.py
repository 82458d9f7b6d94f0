"""What a request carries, as options: `--with NAME`, `--with NAME=TYPE:PATH` and `--with KIND.NAME=VALUE`."""

from __future__ import annotations

from collections.abc import Iterable

from privtab.base import Attribute, GivenAttributes, UsageError, Vocabulary, hint, parse_key_values


def parts_given(options: Iterable[str] | None) -> tuple[list[str], list[str], list[str]]:
    """The flags, objects and attributes among `--with` options: no flag or object has a dot in its name, and a flag has no other value.

    >>> parts_given(["force", "deep=false", "to=shelf:a/b", "user.department=hr"])
    (['force', 'deep=false'], ['to=shelf:a/b'], ['user.department=hr'])
    """
    flags, objects, attributes = list[str](), list[str](), list[str]()
    for text in options or ():
        name, sign, value = text.partition("=")
        kind = attributes if "." in name else objects if sign and value not in ("true", "false") else flags
        kind.append(text)
    return flags, objects, attributes


def attribute_values(options: Iterable[str] | None, vocabulary: Vocabulary) -> GivenAttributes:
    """Parse attributes among `--with` options by the types that a policy declares; sets are written with commas. Raises UsageError."""
    found: dict[str, dict[str, object]] = {}
    form, example = "KIND.NAME=VALUE", "user.department=hr"
    for written, value in parse_key_values(options, "--with", form, example=example, allow_empty=True).items():
        kind, dot, name = written.partition(".")
        if not dot:
            raise UsageError(f"`--with {written}={value}`: write {form}, as in {example}")
        of_kind = vocabulary.attributes.of(kind if kind in ("user", "request") else "entity")
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
