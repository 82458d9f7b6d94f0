"""Door → the Rego that answers another system, and what it reads of the document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from privtab.backends.rego import quoted, template
from privtab.characters import PLAIN
from privtab.doors.document import Alternative, Answer, Door, Form, Kind, Shape

_VALUES: Mapping[Form, str] = {"boolean": "{allowed}", "positions": "{positions}", "refusal": "{refused}"}
"""What stands for an answer in its shape; `{refused}` may stand in that of a boolean too."""
_TITLES: Mapping[Form, str] = {
    "boolean": "whether all that a request is about is allowed",
    "positions": "the positions of those in a list that the caller may see",
    "refusal": "why a request cannot be one of the policy's",
}


def modules(door: Door, name: str) -> dict[str, str]:
    """The Rego modules of a door, by path inside the bundle of the policy with this name."""
    base = f"privtab/{name}/doors/{door.name}"
    common = {"name": name, "door": door.name, "title": door.title, "plain": PLAIN.replace("/", "")}
    answers = [_answer_view(answer) for answer in door.answers]
    return {
        f"{base}/answers.rego": template("door/answers.rego.j2").render(**common, answers=answers).rstrip("\n") + "\n",
        f"{base}/lib/lib.rego": template("door/lib.rego.j2").render(**common).rstrip("\n") + "\n",
    }


def door_json(door: Door) -> dict[str, Any]:
    """What the Rego reads, and the names of the answers, which alone may be asked for."""
    return {
        "title": door.title,
        "subject": door.subject,
        "user": list(door.user.at),
        **({"groups": list(door.groups.at)} if door.groups else {}),
        **({"roles": list(door.roles.at)} if door.roles else {}),
        "operation": list(door.operation.at),
        "answers": {answer.name: answer.about.to_json() for answer in door.answers},
        "kinds": {name: _kind_json(kind) for name, kind in door.kinds.items()},
        "operations": {name: [_alternative_json(a) for a in found] for name, found in door.operations.items()},
    }


def _kind_json(kind: Kind) -> dict[str, Any]:
    return {
        "type": kind.type,
        "path": [{"item": True} if place is None else place.to_json() for place in kind.path],
        "end": [""] if kind.unnamed else [],
        **({"each": kind.each.to_json()} if kind.each else {}),
        "is": [{"at": place.to_json(), "values": list(values)} for place, values in kind.conditions],
        "least": kind.least,
        "most": kind.most,
    }


def _alternative_json(alternative: Alternative) -> dict[str, Any]:
    objects = {slot: {"kind": kind, "about": place.to_json()} for slot, (kind, place) in alternative.objects.items()}
    return {"kind": alternative.kind, "row": alternative.row, "with": objects}


def _answer_view(answer: Answer) -> dict[str, Any]:
    """How an answer is written in Rego: values with the condition of each, the first that holds counts; and what it is otherwise."""
    about = f"door.answers.{answer.name}"
    rules: list[tuple[Mapping[str, str], str]]
    match answer.form:
        case "boolean":
            denied, refused = "{allowed}", "{refused}"
            rules = [
                ({denied: "true", refused: "null"}, f"lib.allowed({about})"),
                ({denied: "false", refused: "refusal"}, f"refusal := lib.refusal({about})"),
            ]
            otherwise = {denied: "false", refused: "null"}
            if not _mentions(answer.shape, refused):
                del rules[1]
        case "positions":
            rules, otherwise = [({"{positions}": "positions"}, f"positions := lib.positions({about})")], {"{positions}": "[]"}
        case "refusal":
            rules, otherwise = [({"{refused}": "refusal"}, f"refusal := lib.refusal({about})")], {"{refused}": "null"}
        case _:
            assert_never(answer.form)
    shape = _VALUES[answer.form] if answer.shape is None else answer.shape
    return {
        "name": answer.name,
        "title": f"`{answer.name}`: {_TITLES[answer.form]}",
        "rules": [(_value(shape, values), condition) for values, condition in rules],
        "otherwise": _value(shape, otherwise),
    }


def _mentions(shape: Shape, placeholder: str) -> bool:
    return any(_mentions(part, placeholder) for part in shape.values()) if isinstance(shape, Mapping) else shape == placeholder


def _value(shape: Shape, values: Mapping[str, str]) -> str:
    if isinstance(shape, Mapping):
        return f"{{{', '.join(f'{quoted(key)}: {_value(part, values)}' for key, part in shape.items())}}}"
    return values.get(shape or "", quoted(shape))
