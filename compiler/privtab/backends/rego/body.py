"""The functions of one rule: its formulas as lines of Rego."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from typing import TypeAlias, assert_never

from privtab.backends.rego.atoms import held
from privtab.backends.rego.layout import rego_string
from privtab.base.names import LEFT_OUT, small_letters
from privtab.base.nodes import dataclass as node
from privtab.base.paths import SEVERAL
from privtab.base.records import dataclass
from privtab.base.sql_text import FilterKind, FilterWord
from privtab.ir import nodes as ir


@node(frozen=True, slots=True, kw_only=True)
class Clause:
    """One clause of a function; without lines, it always holds."""

    name: str
    args: tuple[str, ...]
    lines: tuple[str, ...]


@node(frozen=True, slots=True, kw_only=True)
class RowView:
    """One row: its annotations, its functions, and its entry clauses."""

    id: str
    title: str
    entity: str
    operation: str
    requires: str | None
    each: str | None
    note: str | None
    source: str | None
    origin: str
    clauses: tuple[Clause, ...]


_WIDTH = 116
"""The longest line of a rule's body, without its indentation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnsAny:
    """The caller owns the target or any entity above it: several `Owner` atoms in one look-up."""

    target: ir.Target


Part: TypeAlias = ir.Formula | OwnsAny
"""The source of a line of a clause."""


# Built-in functions whose names look like generated ones, `word_word`: a rule with such a name would hide them.
RESERVED = frozenset({
    "cast_array", "cast_boolean", "cast_null", "cast_object", "cast_set", "cast_string", "format_int", "indexof_n",
    "is_array", "is_boolean", "is_null", "is_number", "is_object", "is_set", "is_string", "re_match", "set_diff",
    "to_number", "trim_left", "trim_prefix", "trim_right", "trim_space", "trim_suffix", "type_name",
})  # fmt: skip


class FunctionNames:
    """Issues each name once."""

    def __init__(self) -> None:
        self._used = set(RESERVED)

    def take(self, preferred: str) -> str:
        """The preferred name, or if it is taken, the name with the first number that makes it free.

        >>> names = FunctionNames()
        >>> names.take("table_load"), names.take("table_load"), names.take("is_string")
        ('table_load', 'table_load_2', 'is_string_2')
        >>> names.take("route_GET"), names.take("route_get")
        ('route_get', 'route_get_2')
        """
        first = name = small_letters(preferred).replace(".", "_")
        number = 1
        while name in self._used:
            number += 1
            name = f"{first}_{number}"
        self._used.add(name)
        return name


@dataclass(slots=True)
class Functions:
    """The functions of a program's rules by name, and what each of them may take for granted."""

    program: ir.Program
    sharded: bool = False
    """True if the state is sharded by root entity: look-ups using a single key then also pass the root's key."""
    names: FunctionNames = field(default_factory=FunctionNames)
    functions: dict[tuple[str, str], str] = field(default_factory=dict)
    short: set[tuple[str, str]] = field(default_factory=set)
    """The rules that may be evaluated with a path without its last key, and check for it."""

    def is_resource(self, target: ir.Target, rule: ir.Rule) -> bool:
        """Return whether a target is the resource of a rule, or may be."""
        if rule.entity in self.program.nested_on and target.slot == ir.RESOURCE:
            last = len(self.program.chain(rule.entity)) - 1
            return target.level != "parent" and self.program.anchor(target)[0] == last
        return target == ir.Target(slot=ir.RESOURCE, type=rule.entity)


class Body:
    """The functions of one rule."""

    def __init__(self, functions: Functions, rule: ir.Rule) -> None:
        self.functions = functions
        self.program = functions.program
        self.rule = rule
        self.helpers: list[Clause] = []
        self.slots = tuple(f"{w.name}_path" for w in rule.withs)
        self.args = ("user", "path", *self.slots)
        self.own_calls = {
            f"{functions.functions[rule.entity, rule.operation]}{end}(user, path)" for end in ("", "_call")
        }
        # The path of a call without a named item lacks the last key, so the key of its own type is looked up by number.
        self.may_be_short = (rule.entity, rule.operation) in functions.short
        self.object_lines = tuple(
            _object_line(slot, w.name, "{" + ", ".join(f'"{type_}"' for type_ in w.types) + "}")
            for slot, w in zip(self.slots, rule.withs, strict=True)
        )

    def function(self, name: str, formula: ir.Formula) -> list[Clause]:
        """A function with one clause for each alternative of its condition."""
        return [self.clause(name, lines) for lines in self.bodies(name, formula)]

    def bodies(self, name: str, formula: ir.Formula) -> tuple[tuple[str, ...], ...]:
        """The lines of each alternative of a condition."""
        alternatives = formula.parts if isinstance(formula, ir.Or) else (formula,)
        return tuple(self.lines_of(name, part) for part in self._compact(alternatives)) or (("false",),)

    def clause(self, name: str, lines: tuple[str, ...], before: tuple[str, ...] = ()) -> Clause:
        """A clause of a request's function: it reads the `with` objects, then follow the lines."""
        return self._clause(name, ("user", "path"), (*before, *self._lines_for_objects(lines), *lines))

    def lines_of(self, name: str, formula: Part) -> tuple[str, ...]:
        """The lines of a conjunction."""
        match formula:
            case ir.And():
                return tuple(line for part in formula.parts for line in self.lines_of(name, part))
            case ir.Compare() if (whole := formula.several) is not None:
                helper = self.functions.names.take(f"{name}_{whole.level}_level")
                self.helpers.append(self._clause(helper, self.args, self._comparison_on_levels(formula, whole)))
            case ir.Atomic():
                return (held(self.program, formula, self),)
            case ir.Can(operation=operation, target=target):
                # A rule that is called with a shorter path checks for that itself.
                called = self.functions.functions[target.type, operation]
                return (f"{called}(user, {self.keys(target, exact=False)})",)
            case ir.Or():
                helper = self.functions.names.take(f"{name}_either")
                self._helper(helper, [(part, ()) for part in self._compact(formula.parts)])
            case ir.When():
                helper = self.functions.names.take(f"{name}_when_{formula.flag}")
                self._helper(helper, [(ir.ALWAYS, (f'not lib.flag("{formula.flag}")',)), (formula.body, ())])
            case ir.ByType():
                helper = self.functions.names.take(f"{name}_for_{formula.slot}")
                of_type = f'input.context["with"].{formula.slot}.type == '
                lines = {type_: f'{of_type}"{type_}"' for type_, _ in formula.cases}
                lines |= {LEFT_OUT: f"count({formula.slot}_path) == 0"} if LEFT_OUT in lines else {}
                self._helper(helper, [(case, (lines[type_],)) for type_, case in formula.cases])
            case OwnsAny():
                # A path without its last key is fine here: each key is looked up on its own.
                return (f"lib.owns_any(user, {self.keys(formula.target, exact=False)})",)
            case _:
                assert_never(formula)
        return (f"{helper}({', '.join(self.args)})",)

    def levels(self, target: ir.Target) -> str:
        """As Operands.levels."""
        first = self.program.chain(target.type).index(target.type)
        return f"lib.levels({self.path(target)}, {first}, {self._behind(target)})"

    def _comparison_on_levels(self, compare: ir.Compare, whole: ir.Target) -> tuple[str, ...]:
        """The lines of a comparison of `any` or `every` level: `keys` is the path down to one."""
        levels = self.levels(whole)
        line = held(self.program, compare, self)
        if whole.level == "any":
            return (f"some keys in {levels}", "lib.complete(keys)", line)
        return (f"every keys in {levels} {{\n\t\tlib.complete(keys)\n\t\t{line}\n\t}}",)

    def value(self, term: ir.Term) -> str:
        """The expression for the value of an attribute; undefined if it is absent."""
        if term.target is not None:
            one_level = "keys[0], keys[count(keys) - 1]" if self.functions.sharded else "keys[count(keys) - 1]"
            place = one_level if term.target.level in SEVERAL else self.place(term.target)
            return f'lib.entity_value({place}, "{term.attribute}")'
        return (
            f'lib.user_value(user, "{term.attribute}")'
            if term.kind == "user"
            else f'lib.request_value("{term.attribute}")'
        )

    def _helper(self, name: str, bodies: list[tuple[Part, tuple[str, ...]]]) -> None:
        clauses = [self._clause(name, self.args, (*first, *self.lines_of(name, part))) for part, first in bodies]
        self.helpers += clauses or [Clause(name=name, args=("_",) * len(self.args), lines=("false",))]

    def _lines_for_objects(self, lines: tuple[str, ...]) -> tuple[str, ...]:
        # A clause that calls the row's own function leaves it to that to read the objects.
        if self.own_calls & set(lines):
            return tuple(
                line for slot, line in zip(self.slots, self.object_lines, strict=True) if _mentions(slot, lines)
            )
        # Read every object, even if an alternative uses none: a malformed one makes the whole request invalid.
        return tuple(
            line if _mentions(slot, lines) else line.partition(" := ")[2]
            for slot, line in zip(self.slots, self.object_lines, strict=True)
        )

    def _clause(self, name: str, args: tuple[str, ...], lines: tuple[str, ...]) -> Clause:
        return Clause(name=name, args=tuple(a if _mentions(a, lines) else "_" for a in args), lines=lines)

    def _compact(self, parts: tuple[ir.Formula, ...]) -> tuple[Part, ...]:
        """Replace the clauses of `owner (a, b, c)`, from the root down, by one look-up over these keys."""
        if self.rule.entity in self.program.nested_on:
            return parts
        owners = [p for p in parts if isinstance(p, ir.Owner) and p.target.slot == ir.RESOURCE]
        found = {self.program.anchor(o.target) for o in owners}
        last = len(owners) - 1
        if last < 1 or found != {(i, None) for i in range(last + 1)}:
            return parts
        deepest = next(o for o in owners if self.program.anchor(o.target)[0] == last)
        owns_any = OwnsAny(target=deepest.target)
        # Last, because more callers hold a privilege than own something, and the first alternative that holds ends the search.
        return (*(p for p in parts if p not in owners), owns_any)

    def name(self, atom: ir.Atom, field: str) -> str:
        """As Operands.name."""
        return rego_string(atom.names[field])

    def path(self, target: ir.Target) -> str:
        """The variable that holds the keys of a target's slot."""
        return "path" if target.slot == ir.RESOURCE else f"{target.slot}_path"

    def key(self, target: ir.Target) -> str:
        """The expression for a target's own key."""
        if target.type in self.program.nested_on:
            return self._key_of_level(target)
        index, single = self.program.anchor(target)
        if not single or self._on_path(target):
            return f"{self.path(target)}[{len(self.program.chain(target.type)) - 1}]"
        return f'lib.single({self.path(target)}[{index}], "{target.type}")'

    def place(self, target: ir.Target) -> str:
        """The arguments for looking up a target on its own: its key, preceded by its root's key if the state is sharded."""
        return f"{self.path(target)}[0], {self.key(target)}" if self.functions.sharded else self.key(target)

    def keys(self, target: ir.Target, *, exact: bool = True) -> str:
        """The expression for the keys from the root to a target; undefined, if `exact`, for a shorter path."""
        path = self.path(target)
        if target.type in self.program.nested_on:
            return self._keys_of_level(target, exact=exact)
        length = len(self.program.chain(target.type))
        if self._on_path(target):
            is_last = target.type == self._type(target.slot)
            if is_last and not (exact and target.slot == ir.RESOURCE and self.may_be_short):
                return path
            return f"lib.whole({path}, {length})" if is_last else f"array.slice({path}, 0, {length})"
        index, _ = self.program.anchor(target)
        singles = self.program.chain(target.type)[index + 1 :]
        single_keys = ", ".join(f'lib.single({path}[{index}], "{t}")' for t in singles)
        return f"array.concat(array.slice({path}, 0, {index + 1}), [{single_keys}])"

    def _behind(self, target: ir.Target) -> int:
        """The number of keys behind the key of a target's entity, or of the entity to which a `single` target is attached."""
        own = self._type(target.slot) or target.type
        on_path = len(self.program.chain(target.type)) - 1
        position = on_path if self._on_path(target) else self.program.anchor(target)[0]
        return len(self.program.chain(own)) - 1 - position

    def _attached(self, target: ir.Target) -> tuple[str, ...]:
        """The `single` types from the one attached to the path down to the target's; none if it is on the path."""
        if self._on_path(target):
            return ()
        return self.program.chain(target.type)[self.program.anchor(target)[0] + 1 :]

    def _keys_of_level(self, target: ir.Target, *, exact: bool = True) -> str:
        """As `keys`, on a path whose length varies."""
        path, behind = self.path(target), self._behind(target)
        first = self.program.chain(target.type).index(self.program.nested_on[target.type])
        match target.level:
            case "first":
                keys = f"array.slice({path}, 0, {first + 1})"
            case "parent":
                keys = f"array.slice({path}, 0, count({path}) - {behind + 1})"
            case _:
                keys = f"array.slice({path}, 0, count({path}) - {behind})" if behind else path
        may_lack_name = target.slot == ir.RESOURCE and self.may_be_short and target.level != "parent"
        if exact and may_lack_name and self.functions.is_resource(target, self.rule):
            keys = f"lib.existing({keys})"
        attached = self._attached(target)
        if attached:
            singles = ", ".join(f'lib.single({self._key_of_path(target)}, "{type_}")' for type_ in attached)
            return f"array.concat({keys}, [{singles}])"
        return keys

    def _key_of_level(self, target: ir.Target) -> str:
        """As `key`, on a path whose length varies."""
        attached = self._attached(target)
        own = self._key_of_path(target)
        return f'lib.single({own}, "{attached[-1]}")' if attached else own

    def _key_of_path(self, target: ir.Target) -> str:
        """The key of a target's entity, or of the one that a `single` target is attached to."""
        path, behind = self.path(target), self._behind(target)
        first = self.program.chain(target.type).index(self.program.nested_on[target.type])
        position = {"first": str(first), "parent": f"count({path}) - {behind + 2}"}.get(
            target.level, f"count({path}) - {behind + 1}"
        )
        if target.level != "parent" and self.may_be_short and self.functions.is_resource(target, self.rule):
            path_to = f"array.slice({path}, 0, {first + 1})" if target.level == "first" else path
            return f"lib.existing({path_to})[{position}]"
        return f"{path}[{position}]"

    def _type(self, slot: str) -> str | None:
        if slot == ir.RESOURCE:
            return self.rule.entity
        types = next(w.types for w in self.rule.withs if w.name == slot)
        return types[0] if len(types) == 1 else None

    def _on_path(self, target: ir.Target) -> bool:
        type_ = self._type(target.slot)
        return type_ is None or target.type in self.program.chain(type_)


def _mentions(name: str, lines: tuple[str, ...]) -> bool:
    candidates = [line for line in lines if name in line]
    return bool(candidates) and any(map(_mention(name).search, candidates))


@lru_cache(maxsize=1 << 10)
def _mention(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.\"]){re.escape(name)}(?![\w\"])")


def _object_line(variable: str, name: str, types: str) -> str:
    line = f'{variable} := lib.with_object("{name}", {types})'
    return line if len(line) < _WIDTH else f'{variable} := lib.with_object(\n\t\t"{name}",\n\t\t{types},\n\t)'


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterView:
    """A filter: its name, the operation that decides it, and the parts of its text as expressions."""

    name: str
    operation: str
    parts: tuple[str, ...]


def filter_views(program: ir.Program, functions: Functions) -> Mapping[tuple[str, FilterKind], tuple[FilterView, ...]]:
    """The views of a program's filters, by type and kind."""
    return {
        key: tuple(
            FilterView(name=one.name, operation=one.operation, parts=tuple(_parts(program, functions, one)))
            for one in listed
        )
        for key, listed in program.filter_lists.items()
    }


def _parts(program: ir.Program, functions: Functions, one: ir.SqlFilter) -> Iterator[str]:
    body = Body(functions, program.rules[one.entity, one.operation])
    for part in one.parts:
        if isinstance(part, str):
            yield json.dumps(part, ensure_ascii=False)  # texts have no line separators
        elif isinstance(part, FilterWord):
            yield f"{'identifier' if part.text == 'column' else 'literal'}({part.text})"
        else:
            yield f"literal({body.value(part)})"
