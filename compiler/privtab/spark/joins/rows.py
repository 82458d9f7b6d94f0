"""Read the rows of a DataFrame as requests: whether each is valid, its case, and the pieces of paths that its parts depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.characters import UNUSABLE
from privtab.engines.columns import ATTRIBUTE, DEPTH, FLAG, MALFORMED, NAME, NULL, REASONS, UNKNOWN, WITH
from privtab.engines.conditions import RESOURCE
from privtab.paths import PathShape
from privtab.spark.attribute_columns import AttributeColumn
from privtab.spark.frames import flag_column
from privtab.spark.joins.given import wrong_values
from privtab.spark.joins.keys import width
from privtab.spark.joins.places import ABOVE, AT, Layout, Rule, slot_part
from privtab.spark.joins.text import beginning, both, chosen, constant, either, literal, one_of, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from privtab.vocabulary import Vocabulary

HIDDEN = "__privtab_"
REASON, CASE, USER, GROUPS, ACTIVE = (HIDDEN + name for name in ("reason", "case", "who", "groups", "active"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnNames:
    """The canonical columns of requests: which are columns of the frame, and which are constants."""

    columns: frozenset[str]
    constants: Mapping[str, str | bool]
    located: frozenset[str] = frozenset()
    """The slots whose objects may have flat ids, so that their whole paths are looked up."""
    given: tuple[AttributeColumn, ...] = ()
    """The attributes that rows give."""

    def has(self, name: str) -> bool:
        """Whether requests have a value of that name."""
        return name in self.columns or name in self.constants

    @property
    def lists(self) -> Mapping[str, str]:
        """The columns of names that requests bring, with those of their names in order and once each."""
        return {name: column for name, column in (("groups", GROUPS), ("active_roles", ACTIVE)) if self.has(name)}

    def canonical(self, name: str) -> bool:
        """Whether a column is part of a request."""
        return name in ("user", "action", "type", "path") or name.startswith(("with_", "flag_", "attribute_"))

    def keys(self, layout: Layout) -> list[str]:
        """The columns that an answer depends on."""
        slots = dict.fromkeys(slot for rule in layout.rules for slot in rule.slots)
        flags = dict.fromkeys(flag for rule in layout.rules for flag in rule.flags)
        objects = (f"with_{slot}_{half}" for slot in slots for half in ("type", "path"))
        attributes = (given.column for given in self.given if given.column is not None)
        names = [
            "user",
            "action",
            "type",
            "path",
            *objects,
            *(flag_column(flag) for flag in flags),
            "groups",
            "active_roles",
            *attributes,
        ]
        return [name for name in names if name in self.columns and name not in self.constants]

    def text(self, name: str) -> str:
        """SQL expression for a column or a constant; null if there is neither."""
        value = self.constants.get(name)
        if value is not None:
            return constant(value)
        return quoted(name) if name in self.columns else "cast(null AS string)"

    def path_of(self, slot: str) -> str:
        """SQL expression for the path of the object in a slot."""
        return self.text("path" if slot == RESOURCE else f"with_{slot}_path")

    def type_of(self, slot: str) -> str:
        """SQL expression for the type of the object in a slot."""
        return self.text("type" if slot == RESOURCE else f"with_{slot}_type")

    def whole_path_of(self, slot: str) -> str:
        """SQL expression for the whole path of the object in a slot; null if it lies nowhere."""
        return quoted(whole(slot)) if slot in self.located else self.path_of(slot)

    def attribute(self, given: AttributeColumn) -> str:
        """SQL expression for the value of an attribute that rows give; null if a row gives none."""
        if given.column is not None:
            return quoted(given.column)
        if isinstance(given.constant, list | tuple):
            return f"cast(array({', '.join(map(constant, given.constant))}) AS array<string>)"
        return constant(given.constant)

    def flag(self, name: str) -> bool | None:
        """Whether a flag is set: True, False, or None if a column decides."""
        value = self.constants.get(name)
        return value if isinstance(value, bool) else None if name in self.columns else False


def piece(part: str) -> str:
    """The name of the column with the piece of a path that a part depends on; the column is null if a row does not have the part."""
    return f"{HIDDEN}{part}_path"


def whole(slot: str) -> str:
    """The name of the column with the whole path of the object in a slot, if ids may be flat."""
    return f"{HIDDEN}whole_{slot}"


def kind(part: str) -> str:
    """The name of the column with the type of a part's entity, which exists if several types are possible."""
    return f"{HIDDEN}{part}_type"


def located_slots(vocabulary: Vocabulary, names: ColumnNames) -> Iterator[str]:
    """The slots of requests whose objects may have flat ids."""
    types_by_slot: dict[str, set[str]] = {RESOURCE: set(vocabulary.operations)}
    for operations in vocabulary.operations.values():
        for operation in operations.values():
            for slot, types in operation.withs.items():
                types_by_slot.setdefault(slot, set()).update(types)
    for slot, possible in types_by_slot.items():
        constant = names.constants.get("type" if slot == RESOURCE else f"with_{slot}_type")
        if constant is not None:
            possible &= {str(constant)}
        if any(map(vocabulary.lies_in_state, possible)) and (slot == RESOURCE or names.has(f"with_{slot}_path")):
            yield slot


def plain(requests: DataFrame, names: ColumnNames) -> DataFrame:
    """Requests with strings that compare byte by byte, whatever the collation of their columns."""
    collated = {
        field.name: F.col(quoted(field.name)).cast("string")
        for field in requests.schema.fields
        if names.canonical(field.name) and getattr(field.dataType, "collation", "UTF8_BINARY") != "UTF8_BINARY"
    }
    return requests.withColumns(collated) if collated else requests


def prepared(requests: DataFrame, layout: Layout, names: ColumnNames) -> DataFrame:
    """`requests` with the reason, the user, the case, and for each part the piece of a path that it depends on.

    Pieces are computed for invalid requests, too: their result is ignored, and checking validity again would be expensive.
    """
    added = {REASON: reason(layout, names), USER: names.text("user")}
    if len(layout.cases) > 1:
        added[CASE] = _by_rule(layout, names, lambda rule: _case(rule, layout, names), "-1")
    for name, column in names.lists.items():
        added[column] = f"array_sort(array_distinct({names.text(name)}))"
    for part, specs in layout.specs.items():
        added |= _piece(layout, names, part, specs)
    return requests.select("*", *(F.expr(text).alias(name) for name, text in added.items()))


def reason(layout: Layout, names: ColumnNames) -> str:
    """SQL expression for the reason why a row is not a valid request, or null; checks in the order of `decide_columns`."""
    unnamed = either(f"{names.text(name)} IS NULL" for name in ("action", "type"))
    known = _by_rule(layout, names, lambda rule: _invalid_reason(rule, layout, names), _reason_literal(UNKNOWN))
    return chosen([(unnamed, _reason_literal(NULL))], known)


def _reason_literal(code: int) -> str:
    text = REASONS[code]
    assert text is not None
    return literal(text)


def _invalid_reason(rule: Rule, layout: Layout, names: ColumnNames) -> str:
    """SQL expression for the reason why a row is no valid request for an operation, or null."""
    user, path = names.text("user"), names.text("path")
    if not all(names.has(flag_column(flag)) for flag in rule.required_flags):
        return _reason_literal(FLAG)
    tests: list[tuple[str, int]] = []
    for slot, types in rule.slots.items():
        name = names.text(f"with_{slot}_type")
        has_type = names.has(f"with_{slot}_type")
        tests += [(f"{name} IS NULL", NULL if has_type else WITH), (f"NOT {one_of(name, types)}", WITH)]
    values = [user, path, *(names.text(f"with_{slot}_path") for slot in rule.slots)]
    empty = [f"{value} IS NULL" for value in values] + [f"{user} = ''"]
    for name in names.lists:
        given_names = names.text(name)
        empty.append(f"{given_names} IS NULL OR exists({given_names}, g -> g IS NULL OR g = '')")
    tests.append((either(empty), NULL))
    lists = (f"exists({names.text(name)}, g -> {_unusable('g')})" for name in names.lists)
    tests.append((either([_unusable(user), *lists]), NAME))
    shapes = layout.reader.shapes
    shape = shapes[rule.type]
    wrong_depth = DEPTH if shape.flat is None else MALFORMED
    if rule.unnamed and rule.type in layout.vocabulary.flat:
        named, wrong = f"NOT endswith({path}, '/')", _wrong_id(path, shape)
        tests += [
            (both([named, wrong]), MALFORMED),
            (f"NOT ({named}) AND {_wrong_container(path, rule, layout)}", MALFORMED),
        ]
    elif shape.written.nested is not None:
        tests.append((_malformed(_with_names(path) if rule.unnamed else path), MALFORMED))
        tests.append((_wrong_depth(path, shape), DEPTH))
    else:
        tests.append((_malformed(path), MALFORMED))
        depth = shape.written.depth
        depths = [str(depth), *([str(depth - 1)] if rule.unnamed else [])]
        tests.append((f"{width(path)} NOT IN ({', '.join(depths)})", wrong_depth))
    for slot, types in rule.slots.items():
        slot_path = names.text(f"with_{slot}_path")
        tests.append((_malformed(slot_path), MALFORMED))
        type_ = names.text(f"with_{slot}_type")
        flat = [t for t in types if shapes[t].flat is not None]
        wrong_ids = (f"({type_} = {literal(t)} AND {_wrong_depth(slot_path, shapes[t])})" for t in flat)
        tests += [(wrong, MALFORMED) for wrong in wrong_ids]
        fixed = [t for t in types if shapes[t].written.nested is None]
        expected_depth = chosen(((f"{type_} = {literal(t)}", str(shapes[t].written.depth)) for t in fixed), "-1")
        by_levels = [(f"{type_} = {literal(t)}", _wrong_depth(slot_path, shapes[t])) for t in types if t not in fixed]
        tests.append((chosen(by_levels, f"{width(slot_path)} <> {expected_depth}"), DEPTH))
    tests += [(test, ATTRIBUTE) for test in wrong_values(rule, layout, names)]
    return chosen([(test, _reason_literal(code)) for test, code in tests], "cast(null AS string)")


def _wrong_id(path: str, shape: PathShape) -> str:
    """Condition that an id is not one of a type."""
    return either([_malformed(path), _wrong_depth(path, shape)])


def _wrong_container(path: str, rule: Rule, layout: Layout) -> str:
    """Condition that a flat id that is left out does not name what is around it."""
    found = []
    for container in layout.vocabulary.containers(rule.type):
        begin = len(container) + 2
        wrong = _wrong_id(f"substr({path}, {begin}, length({path}) - {begin})", layout.reader.shapes[container])
        found.append(f"(startswith({path}, {literal(container + ':')}) AND NOT {wrong})")
    return f"NOT {either(found)}"


def _with_names(path: str) -> str:
    """SQL expression for a path without the `/` at its end, where the last name is left out."""
    return f"CASE WHEN endswith({path}, '/') AND {path} <> '/' THEN left({path}, length({path}) - 1) ELSE {path} END"


def _wrong_depth(path: str, shape: PathShape) -> str:
    """Condition that a written path has a wrong number of names."""
    written = shape.written
    if written.nested is None:
        return f"{width(path)} <> {written.depth}"
    return f"{width(path)} NOT BETWEEN {written.depth} AND {written.most}"


def _malformed(path: str) -> str:
    wrong_slashes = f"startswith({path}, '/') OR endswith({path}, '/') OR contains({path}, '//')"
    suspicious = either(f"contains({path}, '{sign}')" for sign in "%*?")
    end = "(?s:(?!.))"
    name = f"(?:(?![*?]+(?:/|{end}))(?:[^%/]|%2F|%25)*+|(?:%2A|%3F)+)"
    return f"({wrong_slashes} OR {_unusable(path)} OR ({suspicious} AND NOT {path} RLIKE '^{name}(?:/{name})*{end}'))"


def _unusable(text: str) -> str:
    """Condition that a name or a path has a character that no name may contain."""
    return f"{text} RLIKE {constant(f'[{UNUSABLE}]')}"


def _by_rule(layout: Layout, names: ColumnNames, value_of: Callable[[Rule], str], default: str) -> str:
    """SQL expression that chooses a value by type, then by operation."""
    types: dict[str, list[Rule]] = {}
    for rule in layout.rules:
        types.setdefault(rule.type, []).append(rule)
    arms = []
    for type_, rules in types.items():
        values = [(f"{names.text('action')} = {literal(rule.action)}", value_of(rule)) for rule in rules]
        inner = chosen(_grouped(values), default)
        arms.append((f"{names.text('type')} = {literal(type_)}", inner))
    return chosen(arms, default)


def _grouped(values: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Combine the conditions that have equal values."""
    found: dict[str, list[str]] = {}
    for condition, value in values:
        found.setdefault(value, []).append(condition)
    return [(either(conditions), value) for value, conditions in found.items()]


def _case(rule: Rule, layout: Layout, names: ColumnNames) -> str:
    arms = []
    path = names.text("path")
    shapes = layout.reader.shapes
    for (named, flags, types, has_more), number in rule.cases.items():
        tests = []
        if rule.unnamed and layout.ends_with_slash(rule.type):
            tests.append(f"{'NOT ' if named else ''}endswith({names.whole_path_of(RESOURCE)}, '/')")
        elif rule.unnamed:
            tests.append(f"{width(path)} = {layout.reader.depth(rule.type) - (not named)}")
        for flag in rule.flags:
            if names.flag(flag_column(flag)) is None:
                flag_value = f"coalesce({names.text(flag_column(flag))}, true)"
                tests.append(flag_value if flag in flags else f"NOT {flag_value}")
        for (slot, known), type_ in zip(rule.slots.items(), types, strict=True):
            if len(known) > 1:
                tests.append(f"{names.text(f'with_{slot}_type')} = {literal(type_)}")
        for slot, type_, more in zip((RESOURCE, *rule.slots), (rule.type, *types), has_more, strict=False):
            if shapes[type_].nested is not None:
                tests.append(f"{width(names.whole_path_of(slot))} {'>' if more else '='} {shapes[type_].depth}")
        arms.append((both(tests), str(number)))
    numbers = {number for _, number in arms}
    return numbers.pop() if len(numbers) == 1 else chosen(_grouped(arms), "-1")


def _piece(layout: Layout, names: ColumnNames, part: str, specs: Mapping[str, object]) -> dict[str, str]:
    """The columns of a part: its piece of a path and, if several are possible, the type of its entity."""
    if part in (ABOVE, AT):
        type_, path = names.text("type"), names.whole_path_of(RESOURCE)
        arms: dict[str, list[str]] = {}
        for spec_type in specs:
            depth = layout.reader.depth(spec_type)
            arms.setdefault(_of_resource(layout, part, spec_type, path, depth), []).append(spec_type)
    else:
        slot = next(s for rule in layout.rules for s in rule.slots if slot_part(s) == part)
        type_, path = names.text(f"with_{slot}_type"), names.whole_path_of(slot)
        arms = {path: list(specs)}
    by_type = chosen(((one_of(type_, types), value) for value, types in arms.items()), "null")
    found = {piece(part): by_type}
    if len(specs) > 1:
        found[kind(part)] = type_
    return found


def _of_resource(layout: Layout, part: str, type_: str, path: str, depth: int) -> str:
    if part == ABOVE:
        return beginning(path, f"{width(path)} - 1" if type_ in layout.reader.nested else depth - 1) if depth else "''"
    # Without its last name, a path on which a type nests has entities of that type all the same.
    unnamed = not layout.ends_with_slash(type_) and any(rule.unnamed for rule in layout.rules if rule.type == type_)
    return f"CASE WHEN {width(path)} = {depth} THEN {path} END" if unnamed else path
