"""Logged questions at a door as the policy's requests, which the generated Rego makes of them in the same way.

Source: `docs/reference/doors.md`. The log has what the other system asked, or, behind the mask that privtab ships, the requests themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from privtab.base import encode_name, is_wildcard
from privtab.ir import Program
from privtab_connect.doors.document import Alternative, Answer, Conditions, Door, Kind, Place, Shape
from privtab_connect.doors.emit import shape_of
from privtab_logs import opa
from privtab_logs.schema import FAILED, MASKED, NO_ANSWER, WRONG_ANSWER, Reading, Row

NO_ROW = "question of a door that means no row"
_MISSING = object()


class DoorLog:
    """Reads the decision log of an OPA that answers a door: with privtab's bundle, or with another policy for the same questions."""

    def __init__(self, door: Door, program: Program) -> None:
        self._door = door
        self._subject = program.semantics.subjects[0]
        self._answers = {answer.name: answer for answer in door.answers if answer.form in ("boolean", "positions")}

    def rows(self, event: Any, position: str, reading: Reading) -> Iterable[Row] | None:
        """The decisions of one entry, as `opa.rows`, which reads what is no question of the door."""
        path = event.get("path") if isinstance(event, dict) and "decision_id" in event else None
        parts = path.strip("/").split("/") if isinstance(path, str) else [""]
        own = len(parts) == 5 and [parts[0], *parts[2:4]] == ["privtab", "doors", self._door.name]
        answer = self._answers.get(parts[-1])
        if answer is None or (parts[0] == "privtab" and not own):
            return opa.rows(event, position, reading)
        call = opa.call_of(event, parts[1] if own else None, position)
        asked = event.get("input")
        if not own:
            if _get(asked, self._door.operation.at) is None and not _hides(call):
                reading.other[NO_ROW] += 1
                return ()
            call = call._replace(policy=None, state=None)  # those of other bundles
        return self._decided(answer, event, call, asked, reading)

    def _decided(
        self, answer: Answer, event: Mapping[str, Any], call: opa.Call, asked: Any, reading: Reading
    ) -> Iterator[Row]:
        """A row for each request; a question that means none was denied, or is one that cannot be decided again."""
        result = _shown(shape_of(answer), event.get("result"))
        problem = FAILED if event.get("error") is not None else NO_ANSWER if result is None else None
        by_position: Mapping[int, Any]
        if isinstance(told := opa.rewritten(call, asked).get("requests"), list):
            by_position = dict(enumerate(told))
            problem = MASKED if answer.form == "positions" else problem
        else:
            # Any other mask may have taken what decides.
            call = call._replace(hidden=call.hidden or _hides(call))
            about = _objects(answer.about, asked)
            by_position = self._listed(asked, about) if answer.form == "positions" else self._whole(asked, about)
        if answer.form == "boolean" and isinstance(result, bool):
            meant = [*by_position.values()] or ([None] if result else [])
            found = [*opa.shared_answer_rows(call, meant, allowed=result, problem=problem)]
        else:
            found = [*_one_by_one(call, by_position, result if answer.form == "positions" else None, problem)]
        yield from found
        if not found and call.hidden:
            yield call.row(opa.RequestColumns(), None, None, None, None)
        elif not found:
            reading.other[NO_ROW] += 1

    # --- what the generated Rego does, see `templates/rego/door/lib.rego.j2` ---

    def _alternatives(self, asked: Any) -> Sequence[Alternative]:
        name = _get(asked, self._door.operation.at)
        found = self._door.operations.get(name, ()) if isinstance(name, str) else ()
        return [alternative for alternative in found if not alternative.filters]

    def _whole(self, asked: Any, about: Sequence[Any]) -> dict[int, Any]:
        """The requests of a question that is answered as a whole; none if one of its objects is none."""
        found: list[Any] = []
        for given in about:
            fitting = [one for one in self._alternatives(asked) if self._fits(one.kind, given)][:1]
            of_object = [self._requests(asked, one, given) for one in fitting]
            if not of_object or not of_object[0] or None in of_object[0].values():
                return {}
            found += of_object[0].values()
        return dict(enumerate(found))

    def _listed(self, asked: Any, about: Sequence[Any]) -> dict[int, Any]:
        """The requests about the objects of a list, by position; objects without a request are left out."""
        found: dict[int, Any] = {}
        before: list[str] = []
        for alternative in self._alternatives(asked):
            for position, given in enumerate(about):
                kind = self._door.kinds[alternative.kind]
                if any(self._fits(name, given) for name in before) or (kind.each is not None and len(about) != 1):
                    continue
                if self._fits(alternative.kind, given):
                    requests = self._requests(asked, alternative, given)
                    at = position if kind.each is None else 0
                    found |= {at + n: request for n, request in requests.items() if request is not None}
            before.append(alternative.kind)
        return found

    def _requests(self, asked: Any, alternative: Alternative, given: Any) -> dict[int, Any]:
        """The requests about one object, by the position in `each`; None for one that is none."""
        kind = self._door.kinds[alternative.kind]
        objects = {slot: self._object(asked, *of_slot) for slot, of_slot in alternative.objects.items()}
        caller = self._caller(asked)
        if caller is None or None in objects.values():
            return {}
        context = dict(caller[1]) | ({"with": objects} if objects else {})
        request = {"subject": caller[0], "action": {"name": alternative.row}}
        request |= {"context": context} if context else {}
        entities = [_entity(kind, given, item) for item in (_values(given, kind.each) if kind.each else (None,))]
        return {at: None if entity is None else {**request, "resource": entity} for at, entity in enumerate(entities)}

    def _object(self, asked: Any, kinds: Sequence[str], place: Place) -> Any:
        """A further object of a request; None if it is none."""
        about = _objects(place, asked)
        fitting = [name for name in kinds if len(about) == 1 and self._fits(name, about[0])]
        return _entity(self._door.kinds[fitting[0]], about[0], None) if fitting else None

    def _caller(self, asked: Any) -> tuple[Any, Any] | None:
        """The subject of a request and the context that it brings; None for what asks about nobody."""
        door = self._door
        subject: dict[str, Any] = {"type": self._subject, "id": _get(asked, door.user.at)}
        if door.groups is not None:
            subject["properties"] = {"groups": _get(asked, door.groups.at)}
        context = {} if door.roles is None else {"active_roles": _get(asked, door.roles.at)}
        nobody = str(subject["id"]).startswith("user:") or is_wildcard(str(subject["id"]))
        return (subject, context) if _hold(door.caller, asked) and not nobody else None

    def _fits(self, kind: str, given: Any) -> bool:
        return _hold(self._door.kinds[kind].conditions, given)


def _one_by_one(call: opa.Call, asked: Mapping[int, Any], shown: Any, problem: str | None) -> Iterator[Row]:
    """The decisions of requests by the positions that are shown."""
    good = isinstance(shown, list) and all(type(at) is int for at in shown)
    positions = frozenset(shown) if good else frozenset[int]()
    problem = problem or (None if good else WRONG_ANSWER)
    for at in sorted(asked.keys() | positions):
        yield call.row(opa.request_columns(asked.get(at)), at in positions if good else None, None, None, problem)


def _hides(call: opa.Call) -> bool:
    """Return whether a mask took a part of the question."""
    return any(pointer.startswith("/input") for pointer in call.masked or ())


def _get(given: Any, keys: Sequence[str], missing: Any = None) -> Any:
    for key in keys:
        given = given.get(key, missing) if isinstance(given, dict) else missing
    return given


def _values(given: Any, place: Place) -> list[Any]:
    """The values of a place, of which there are none where no list is."""
    if place.items is None:
        return [_get(given, place.at)]
    listed, skip = _get(given, place.at), place.skip
    items = listed if isinstance(listed, list) else []
    return [_item(item, place.items) for item in items if skip is None or _item(item, skip[0]) != skip[1]]


def _item(item: Any, keys: Sequence[str]) -> Any:
    return _get(item, keys) if keys else item


def _objects(place: Place, asked: Any) -> list[Any]:
    """Return the values that a question is about: a missing value is null, and a missing list has a null."""
    return [None] if place.items is not None and _get(asked, place.at, _MISSING) is _MISSING else _values(asked, place)


def _hold(conditions: Conditions, given: Any) -> bool:
    return all(
        (found := _values(given, place)) and all(value in values for value in found) for place, values in conditions
    )


def _entity(kind: Kind, given: Any, item: Any) -> dict[str, str] | None:
    """The entity that an object is; None unless all its names are names, and for a derived one, which takes more than one request."""
    names = [name for place in kind.path for name in ([item] if place is None else _values(given, place))]
    if not all(isinstance(name, str) and name for name in names) or not kind.least <= len(names) <= kind.most:
        return None
    if kind.derived is not None and kind.derived.sign in names[kind.derived.at][1:]:
        return None
    end = [""] if kind.unnamed and names else []
    return {"type": kind.type, "id": "/".join([*map(encode_name, names), *end])}


def _shown(shape: Shape, result: Any) -> Any:
    """Return the part of a result where the shape has the answer."""
    if isinstance(shape, Mapping):
        found = (_shown(part, result.get(key)) for key, part in shape.items() if isinstance(result, dict))
        return next((value for value in found if value is not None), None)
    return result if shape in ("{allowed}", "{positions}") else None
