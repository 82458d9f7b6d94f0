"""Door → the Rego that answers another system, and what it reads of the document."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from privtab.backends import rego_string, rego_template
from privtab.base import FilterWord
from privtab.ir import Program, SqlFilter
from privtab_connect.doors.document import KEYWORDS, Alternative, Answer, Conditions, Door, Form, Kind, Place, Shape

_WORD = re.compile(r"[a-zA-Z_]\w*", re.ASCII)
_SHAPES: Mapping[Form, Shape] = {
    "boolean": "{allowed}",
    "positions": "{positions}",
    "filters": "{sql}",
    "mask": "{sql}",
    "masks": {"position": "{position}", "sql": "{sql}"},
    "refusal": "{refused}",
}
"""The shape of an answer, or of each item of a list of filters or masks, where the document has none."""
_READ_OF_FORMS: Mapping[Form, Mapping[str, bool]] = {
    "positions": {"listed": True},
    "filters": {"sql": True},
    "mask": {"sql": True},
    "masks": {"sql": True},
}
"""Data on the form of an answer for the Rego and for the mask of decision logs."""
_TITLES: Mapping[Form, str] = {
    "boolean": "whether all that a request is about is allowed",
    "positions": "the positions of those in a list that the caller may see",
    "filters": "the row filters; without one, all rows are shown",
    "mask": "the mask of a column, or null for none",
    "masks": "the masks of those columns in a list that have one",
    "refusal": "why a request cannot be one of the policy's",
}


def modules(door: Door, program: Program, name: str) -> dict[str, str]:
    """The Rego modules of a door, by path inside the bundle of the policy with this name."""
    base = f"privtab/{name}/doors/{door.name}"
    common = {"name": name, "door": door.name, "title": door.title}
    views: dict[str, dict[str, Any]] = {
        "answers": {"answers": [_answer_view(answer) for answer in door.answers]},
        "lib/lib": {
            "subject": program.semantics.subjects[0],
            "user": list(door.user.at),
            "groups": door.groups and list(door.groups.at),
            "roles": door.roles and list(door.roles.at),
            "caller": _conditions(door.caller, "input"),
            "kinds": [_kind_view(name_of_kind, kind, program) for name_of_kind, kind in door.kinds.items()],
            "shown": [[one.entity, one.kind, one.name] for one in program.filters if _shows_all(one)],
            "filtered": bool(program.filters),
            "derived": _derived_views(door, program),
        },
    }
    return {
        f"{base}/{path}.rego": rego_template(f"door/{path.rpartition('/')[2]}.rego.j2")
        .render(**common, **view)
        .rstrip("\n")
        + "\n"
        for path, view in views.items()
    }


def _shows_all(one: SqlFilter) -> bool:
    """Return whether a filter keeps every row, or a mask shows the column as it is."""
    if one.kind == "column_mask":
        return one.parts == (FilterWord("column"),)
    return all(isinstance(part, str) for part in one.parts) and "".join(map(str, one.parts)).strip().upper() == "TRUE"


def _derived_views(door: Door, program: Program) -> list[dict[str, Any]]:
    """The values that are read of each type whose names may be derived."""
    found = {kind.derived.type: kind.derived for kind in door.kinds.values() if kind.derived is not None}
    filtered = {one.entity for one in program.filters}
    return [
        {
            "type": one.type,
            "sign": one.sign,
            "reads": one.reads,
            "below": [
                name
                for name, type_ in program.entities.items()
                if type_.parent == one.type and ((name, one.reads) in program.rules or name in filtered)
            ],
        }
        for one in found.values()
    ]


def door_json(door: Door) -> dict[str, Any]:
    """Return the data for the Rego: the rows of operations, and the answers; no other answer may be requested."""
    return {
        "title": door.title,
        "operation": list(door.operation.at),
        "answers": {
            answer.name: {**answer.about.to_json(), **_READ_OF_FORMS.get(answer.form, {})} for answer in door.answers
        },
        "operations": _rows(door, filters=False),
        "filters": _rows(door, filters=True),
    }


def _rows(door: Door, *, filters: bool) -> dict[str, Any]:
    """The alternatives of each operation that ask for rows, or the alternatives that ask for filters and masks."""
    return {
        name: [_alternative_json(door, found[:n], a) for n, a in enumerate(found) if a.filters == filters]
        for name, found in door.operations.items()
    }


def _alternative_json(door: Door, before: Sequence[Alternative], alternative: Alternative) -> dict[str, Any]:
    return {
        "kind": alternative.kind,
        "type": door.kinds[alternative.kind].type,
        "row": alternative.row,
        "before": [other.kind for other in before],
        "with": {
            slot: {"kinds": [{"kind": k, "type": door.kinds[k].type} for k in kinds], "about": place.to_json()}
            for slot, (kinds, place) in alternative.objects.items()
        },
    }


def _kind_view(name: str, kind: Kind, program: Program) -> dict[str, Any]:
    """Return a kind as written in Rego. The keys of entities are made of `names`, bound to `variables`, or with `lines` for each."""
    names, variables, lines, guards = [], [], [], []
    nests = kind.type in program.nested_on
    if not nests and all(place is None or place.items is None for place in kind.path):
        names = [_single(place) for place in kind.path]
        if (one := kind.derived) is not None:
            guards = [f"readable({rego_string(one.type)}, [{', '.join(names[: one.at])}], {names[one.at]})"]
            rest = f"split(substring({names[one.at]}, 1, -1), {rego_string(one.sign)})[0]"
            names[one.at] = f'concat("", [substring({names[one.at]}, 0, 1), {rest}])'
        variables = [f"name_{number}" for number in range(1, len(names) + 1)]
        chain = [(link, program.depth(link)) for link in program.chain(kind.type)][: -1 if kind.unnamed else None]
        value = "[\n" + "".join(f"\t\t{_key(type_, variables[:depth])},\n" for type_, depth in chain) + "\t]"
    else:
        lines = [
            f"names := spelt({_joined(kind.path)})",
            f"count(names) >= {kind.least}",
            f"count(names) <= {kind.most}",
        ]
        names_used = 'array.concat(names, [""])' if kind.unnamed else "names"
        value = f'policy.lib.path({{"type": {rego_string(kind.type)}, "id": concat("/", {names_used})}})'
    text = " ".join(lines)
    return {
        "name": name,
        "conditions": _conditions(kind.conditions),
        "each": kind.each and (_list(kind.each) if kind.each.items or kind.each.skip else _reference(kind.each.at)),
        "names": names,
        "variables": variables,
        "lines": lines,
        "guards": guards,
        "value": value,
        "arguments": ", ".join(name if name in text else "_" for name in ("given", "item")),
    }


def _key(type_: str, names: Sequence[str]) -> str:
    """The key of an entity from its names. `concat` takes half the time of a template string."""
    parts = [rego_string(f"{type_}:"), *(part for name in names for part in (rego_string("/"), name))]
    return f'concat("", [{", ".join([parts[0], *parts[2:]])}])' if names else parts[0]


def _reference(keys: Sequence[str], base: str = "given") -> str:
    plain = (_WORD.fullmatch(key) is not None and key not in KEYWORDS for key in keys)
    return base + "".join(
        f".{key}" if is_plain else f"[{rego_string(key)}]" for key, is_plain in zip(keys, plain, strict=True)
    )


def _single(place: Place | None) -> str:
    return "item" if place is None else _reference(place.at)


def _list(place: Place, base: str = "given") -> str:
    """The values of a list."""
    given = f"{_reference(place.at, base)}, {rego_string(list(place.items or ()))}"
    if place.skip is None:
        return f"values({given})"
    keys, value = place.skip
    return f"values_but({given}, {rego_string(list(keys))}, {rego_string(value)})"


def _joined(path: Sequence[Place | None]) -> str:
    parts = [f"[{_single(place)}]" if place is None or place.items is None else _list(place) for place in path]
    joined = parts[0]
    for part in parts[1:]:
        joined = f"array.concat({joined}, {part})"
    return joined


def _conditions(conditions: Conditions, base: str = "given") -> list[str]:
    lines = []
    for place, values in conditions:
        allowed = (
            f"== {rego_string(values[0])}" if len(values) == 1 else f"in {{{', '.join(map(rego_string, values))}}}"
        )
        if place.items is None:
            lines.append(f"{_reference(place.at, base)} {allowed}")
        else:
            lines.append(f"count({_reference(place.at, base)}) > 0")
            lines.append(f"every found in {_list(place, base)} {{\n\t\tfound {allowed}\n\t}}")
    return lines


def shape_of(answer: Answer) -> Shape:
    """An answer with placeholders; for a list of filters or masks, the answer for each."""
    return _SHAPES[answer.form] if answer.shape is None else answer.shape


def _answer_view(answer: Answer) -> dict[str, Any]:
    """Return an answer as written in Rego: values with their conditions, of which the first that holds counts, and a default.

    Without a value, a system might filter and mask nothing: the default of a filter or a mask shows nothing, or is no list.
    """
    about = f"door.answers.{answer.name}"
    shape = shape_of(answer)
    rules: list[tuple[str, str]]
    match answer.form:
        case "boolean":
            rules = [(_value(shape, {"{allowed}": "true", "{refused}": "null"}), f"lib.allowed({about})")]
            if _mentions(shape, "{refused}"):
                refused = _value(shape, {"{allowed}": "false", "{refused}": "refusal"})
                rules.append((refused, f"refusal := lib.refusal({about})"))
            otherwise = _value(shape, {"{allowed}": "false", "{refused}": "null"})
        case "positions":
            value = _value(shape, {"{positions}": "positions"})
            rules, otherwise = [(value, f"positions := lib.positions({about})")], _value(shape, {"{positions}": "[]"})
        case "filters":
            nothing = rego_string("FALSE")
            item = _value(shape, {"{sql}": "sql"})
            rules = [(f"[{item} | some sql in found]", f"found := lib.filters({about}, {nothing})")]
            otherwise = f"[{_value(shape, {'{sql}': nothing})}]"
        case "mask":
            nothing = rego_string("NULL")
            found = f"lib.filters({about}, {nothing})"
            rules = [(_value(shape, {"{sql}": "sql"}), f"[sql] = {found}"), ("null", f"[] = {found}")]
            otherwise = _value(shape, {"{sql}": nothing})
        case "masks":
            item = _value(shape, {"{position}": "position", "{sql}": "sql"})
            found = f"lib.masks({about}, {rego_string('NULL')})"
            rules, otherwise = [(f"[{item} | some [position, sql] in found]", f"found := {found}")], "null"
        case "refusal":
            value = _value(shape, {"{refused}": "refusal"})
            rules, otherwise = [(value, f"refusal := lib.refusal({about})")], _value(shape, {"{refused}": "null"})
        case _:
            assert_never(answer.form)
    return {
        "name": answer.name,
        "title": f"`{answer.name}`: {_TITLES[answer.form]}",
        "rules": rules,
        "otherwise": otherwise,
    }


def _mentions(shape: Shape, placeholder: str) -> bool:
    return (
        any(_mentions(part, placeholder) for part in shape.values())
        if isinstance(shape, Mapping)
        else shape == placeholder
    )


def _value(shape: Shape, values: Mapping[str, str]) -> str:
    if isinstance(shape, Mapping):
        return f"{{{', '.join(f'{rego_string(key)}: {_value(part, values)}' for key, part in shape.items())}}}"
    return values.get(shape or "", rego_string(shape))
