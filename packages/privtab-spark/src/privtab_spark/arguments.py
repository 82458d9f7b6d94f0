"""Turn a caller's arguments, columns and constants, into the canonical columns of requests that every plan takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Required, TypeAlias, TypedDict, cast

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (the conventional name)
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StringType, StructType, VariantType

from privtab.base import (
    LEFT_OUT,
    NOT_SET,
    Attribute,
    GivenAttributes,
    InvalidRequest,
    UsageError,
    Vocabulary,
    did_you_mean,
    hint,
)
from privtab.engines import Unevaluated
from privtab_spark.attribute_columns import (
    COLUMN_TYPES,
    AttributeColumn,
    AttributesLike,
    check_kind,
    check_objects,
)
from privtab_spark.columns import encoded, joined, padded, unpadded
from privtab_spark.frames import check_frame, described, flag_column, free
from privtab_spark.policies import OpenPolicy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ColumnLike: TypeAlias = Column | str
"""A column, or the name of one."""
ResourceLike: TypeAlias = "ColumnLike | tuple[ColumnLike, ColumnLike | Sequence[ColumnLike]]"
"""A column of entities `type:path`; or a pair: the type of all rows or a Column of types, and a column of paths or a list of columns
with the names from the root down."""
FlagsLike: TypeAlias = "Iterable[str] | Mapping[str, bool | ColumnLike]"
"""Names of flags that are set for all rows; or a mapping from name to a value or a column of values."""

MALFORMED_ENTITY = "malformed entity"
_NO_PRINCIPAL = "^(?:(?iu:(?:user|group|role)s?):|[*?%]+(?s:(?!.)))"
NULL = "null"
_ENTITY = "give a column of entities `type:path` or the name of one, or a pair (type, column of paths or list of columns of names)"
_LONGEST = 2**31 - 1


class RequestArguments(TypedDict, total=False):
    """The keyword arguments of `decide` that describe the question of a row; `read_arguments` defines the defaults."""

    subject: Required[ColumnLike]
    action: Required[ColumnLike]
    resource: Required[ResourceLike]
    with_: Mapping[str, ResourceLike] | None
    flags: FlagsLike
    groups: ColumnLike | None
    active_roles: ColumnLike | None
    attributes: AttributesLike | None


@dataclass(frozen=True, kw_only=True, eq=False)
class RequestColumns:
    """The requests of a DataFrame's rows: columns and constants by canonical name.

    The names are `user`, `action`, `type`, `path`, `with_<slot>_type` and `with_<slot>_path`, `flag_column(name)`, `groups`, `active_roles`,
    `attribute_<number>`.
    """

    frame: DataFrame
    """The caller's columns, then the `hidden` columns."""
    columns: Mapping[str, Column]
    """Columns of `frame`. All are strings, except flags (boolean, never null), groups (array of strings) and attributes."""
    constants: Mapping[str, str | bool]
    slots: tuple[str, ...]
    """The `with` objects that the caller gave and the policy knows."""
    flags: tuple[str, ...]
    """The flags that may be set for a row, and given required flags."""
    given: tuple[AttributeColumn, ...] = ()
    """The attributes that rows give."""
    invalid_reason: Column | None = field(default=None)
    """The reason why a row is not a valid request; null if it may be one. Such rows are denied, independently of a plan's decision."""
    hidden: tuple[str, ...] = ()
    """Columns added to the caller's frame: expressions of the caller that are read more than once."""
    effects: str | None = None
    """The one of these with the effects of each row, if they are wanted."""
    code: str = "__privtab"
    """An unused column name."""

    @property
    def names(self) -> list[str]:
        """The caller's columns."""
        return self.frame.columns[: len(self.frame.columns) - len(self.hidden)]

    def with_canonical_columns(self, prefix: str = "c") -> DataFrame:
        """The frame with its columns named `c0`, `c1` and so on, and the canonical columns beside them."""
        wide = self.frame.select("*", *self.columns.values())
        return wide.toDF(*(f"{prefix}{number}" for number in range(len(self.frame.columns))), *self.columns)


def read_arguments(
    df: DataFrame,
    policy: OpenPolicy | Vocabulary,
    *,
    subject: ColumnLike,
    action: ColumnLike,
    resource: ResourceLike,
    with_: Mapping[str, ResourceLike] | None = None,
    flags: FlagsLike = (),
    groups: ColumnLike | None = None,
    active_roles: ColumnLike | None = None,
    attributes: AttributesLike | None = None,
    taken: Iterable[str] = (),
    again: bool = False,
) -> RequestColumns:
    """Read the arguments of `decide`; `taken`: names of columns that will be added later; `again`: columns are read more than once.

    Raises UsageError for a missing column or one of a wrong type, and InvalidRequest if a constant action, type, object or flag is
    unknown to the policy: that is a mistake in the program, not in a row.
    """
    check_frame(df)
    known = policy if isinstance(policy, Vocabulary) else policy.vocabulary
    reader = ArgumentReader(df, known, taken, again=again)
    reader.user(subject)
    reader.action(action)
    reader.entity("resource", "type", "path", resource)
    reader.leave_off_end()
    objects = _mapping(with_, "with_", "objects by name")
    slots = tuple(slot for slot in objects if slot in reader.known_slots)
    for slot in slots:
        reader.entity(f"with `{slot}`", f"with_{slot}_type", f"with_{slot}_path", objects[slot])
    set_flags = reader.flags(flags)
    if groups is not None:
        reader.groups(groups)
    if active_roles is not None:
        reader.active_roles(active_roles)
    given = _read_attributes(reader, attributes)
    reader.check(tuple(objects), slots, set_flags)
    check_objects(known, given, slots, reader.constant_types(slots))
    reader.check_kinds()
    invalid_reason = F.coalesce(*reader.invalid_reasons) if reader.invalid_reasons else None
    hidden = reader.hidden
    return RequestColumns(
        frame=df.select("*", *(column.alias(name) for name, column in hidden.items())) if hidden else df,
        columns=reader.columns,
        constants=reader.constants,
        slots=slots,
        flags=set_flags,
        given=given,
        invalid_reason=invalid_reason,
        hidden=tuple(hidden),
        code=free("__privtab", [*reader.taken, *hidden]),
    )


def _no_principal(name: Column) -> Column:
    """A condition for texts that are no principal's name, as `check_principal` decides. The regular expression is slow: hardly any name has one of these signs."""
    suspicious = name.contains(":") | name.startswith("*") | name.startswith("?") | name.startswith("%")
    return suspicious & name.rlike(_NO_PRINCIPAL)


def _nested(kind: DataType) -> bool:
    return isinstance(kind, ArrayType | MapType | StructType | VariantType)


def _mapping(value: object, what: str, contents: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(f"{what} is {described(value)}: give a mapping of {contents}")
    return value


class ArgumentReader:
    """Collects the canonical columns and constants of requests."""

    def __init__(self, df: DataFrame, vocabulary: Vocabulary, taken: Iterable[str], *, again: bool = False) -> None:
        self.df = df
        self._read = self.materialised_column if again else self.column
        """Reads the operation, and the type and the path of an object."""
        self.vocabulary = vocabulary
        shapes = [shape for operations in self.vocabulary.operations.values() for shape in operations.values()]
        self.known_slots = {slot for shape in shapes for slot in shape.withs}
        self.known_flags = {flag for shape in shapes for flag in shape.flags}
        self.required_flags = {flag for shape in shapes for flag in shape.required_flags}
        self.names = list(df.columns)
        self.exact = df.sparkSession.conf.get("spark.sql.caseSensitive", "false") == "true"
        self.taken = [*self.names, *taken]
        self.hidden: dict[str, Column] = {}
        self.columns: dict[str, Column] = {}
        self.constants: dict[str, str | bool] = {}
        self.invalid_reasons: list[Column] = []
        self.padding = any(map(padded, df.schema.fields))
        self.arguments: dict[str, Column] = {}
        """Each column as the caller gave it, by its description for messages."""
        self.attributes: dict[str, Attribute] = {}
        """The declarations of the columns that are attributes, by the same descriptions."""

    def column(self, argument: ColumnLike, what: str, advice: str = "") -> Column:
        """A column, looked up if a name is given; a name with dots is first tried as a whole."""
        self.arguments[what] = column = self._resolved(argument, what, advice)
        if not self.padding:
            return column
        try:
            return unpadded(column, self.df.select(column).schema[0])
        except AnalysisException:
            return column  # `check_kinds` reports it

    def _resolved(self, argument: ColumnLike, what: str, advice: str) -> Column:
        if isinstance(argument, Column):
            return argument
        if not isinstance(argument, str):
            raise UsageError(f"{what} is {described(argument)}: give a column or the name of one{advice}")
        if argument in self.names:
            return F.col(f"`{argument.replace('`', '``')}`")
        # Use the frame's own spelling: Spark resolves a word such as `user` to a function if it finds no such column.
        folded = [name for name in self.names if name.lower() == argument.lower()]
        if folded and not self.exact:
            return F.col(f"`{folded[0].replace('`', '``')}`")
        if "." in argument:
            return F.col(argument)
        suggestion = did_you_mean(argument, self.names)
        advice_text = suggestion or f"there are: {', '.join(self.names)}"
        raise UsageError(f"{what}: no column `{argument}`; {advice_text}{'' if suggestion else advice}")

    def materialised_column(self, argument: ColumnLike, what: str, advice: str = "") -> Column:
        """A column that is read more than once: materialised, so that a random expression has one value for each row."""
        column = self.column(argument, what, advice)
        if not isinstance(argument, Column):
            return column
        name = free(f"__privtab_{len(self.hidden)}", self.taken)
        self.hidden[name] = column
        return F.col(f"`{name.replace('`', '``')}`")

    def user(self, argument: ColumnLike) -> None:
        """Add the column of users."""
        user = self.materialised_column(
            argument, "subject", '; one user for all rows is `privtab_spark.user("alice")`'
        ).cast("string")
        self.columns["user"] = name = F.when(user.startswith("user:"), F.substring(user, 6, _LONGEST)).otherwise(user)
        self.invalid_reasons.append(F.when(_no_principal(name), "malformed user"))

    def action(self, argument: ColumnLike) -> None:
        """Unlike in other arguments, a string is the operation of all rows; a column must be given as a Column."""
        if isinstance(argument, str):
            self.constants["action"] = argument
        elif isinstance(argument, Column):
            self.columns["action"] = self._read(argument, "action").cast("string")
        else:
            raise UsageError(
                f"action is {described(argument)}: give the name of an operation, or a Column of such names"
            )

    def entity(self, what: str, type_name: str, path_name: str, argument: ResourceLike) -> None:
        """Add the type and the path of an object, each a column or a constant."""
        if isinstance(argument, tuple):
            if len(argument) != 2:
                raise UsageError(f"{what} is {described(argument)}: {_ENTITY}")
            kind, path = argument
            if isinstance(kind, str):
                if kind not in self.vocabulary.chains:
                    raise InvalidRequest(
                        f"{what}: unknown entity type `{kind}` in system `{self.vocabulary.system}`"
                        + hint(kind, self.vocabulary.chains)
                    )
                self.constants[type_name] = kind
            else:
                self.columns[type_name] = self._read(kind, f"the type of {what}").cast("string")
            self.columns[path_name] = self.path(path, f"the path of {what}")
            return
        if not isinstance(argument, str | Column):
            raise UsageError(f"{what} is {described(argument)}: {_ENTITY}")
        entity = self.materialised_column(argument, what).cast("string")
        colon = F.instr(entity, ":")
        self.columns[type_name] = F.substring_index(entity, ":", 1)
        self.columns[path_name] = F.when(colon > 0, F.substr(entity, colon + 1))
        self.invalid_reasons.append(F.when(colon <= 1, F.when(entity == "", NULL).otherwise(MALFORMED_ENTITY)))

    def leave_off_end(self) -> None:
        """Leave off the `/` at the end of a path without its last name, where the type tells the number of names."""
        path, shapes, flat = self.columns["path"], self.vocabulary.shapes, self.vocabulary.flat
        depths = {
            name: shape.written.depth
            for name, shape in shapes.items()
            if shape.written.nested is None and name not in flat and shape.written.depth > 1
        }
        type_ = self.constants.get("type")
        by_depth: dict[int, list[str]] = {}
        for name, depth in depths.items():
            if type_ in (None, name):
                by_depth.setdefault(depth, []).append(name)
        slashes = F.length(path) - F.length(F.replace(path, F.lit("/"), F.lit("")))
        ends = F.lit(col=False)
        for depth, names in by_depth.items():
            has_depth = slashes == depth - 1
            ends |= has_depth if type_ is not None else has_depth & self.columns["type"].isin(names)
        if by_depth:
            shorter = F.substring(path, F.lit(1), F.length(path) - 1)
            self.columns["path"] = F.when(path.endswith("/") & ends, shorter).otherwise(path)

    def path(self, argument: ColumnLike | Sequence[ColumnLike], what: str) -> Column:
        """A column of paths, given directly or built from columns of names."""
        if not isinstance(argument, list | tuple):
            return self._read(cast("ColumnLike", argument), what).cast("string")
        if not argument:
            raise UsageError(f"{what} is an empty list: give columns of names, from the root down")
        advice = '; one name for all rows is `F.lit("name")`'
        names = [self._read(name, f"name {number} of {what}", advice) for number, name in enumerate(argument, start=1)]
        return joined(map(encoded, names))

    def flags(self, argument: FlagsLike) -> tuple[str, ...]:
        """Flags that may be set for a row, and required ones; a null counts as set, since a flag can only add requirements.

        An unknown flag is rejected: ignoring a misspelt one would require less than the caller intends.
        """
        if isinstance(argument, str | Column) or not isinstance(argument, Iterable):
            raise UsageError(f"flags is {described(argument)}: give a list of names, or a mapping")
        values: Mapping[str, Any] = argument if isinstance(argument, Mapping) else {}
        if not isinstance(argument, Mapping):
            values = {str(flag).removesuffix(NOT_SET): not str(flag).endswith(NOT_SET) for flag in argument}
        found = []
        for name, value in values.items():
            if name not in self.known_flags:
                known_names = ", ".join(f"`{flag}`" for flag in sorted(self.known_flags)) or "none"
                raise InvalidRequest(
                    f"unknown flag `{name}`; flags of system `{self.vocabulary.system}`: {known_names}"
                )
            if value is False and name not in self.required_flags:
                continue
            found.append(name)
            if isinstance(value, bool):
                self.constants[flag_column(name)] = value
            else:
                column = self.column(value, f"flag `{name}`", ", True or False").try_cast("boolean")
                self.columns[flag_column(name)] = F.coalesce(column, F.lit(col=True))
        return tuple(found)

    def groups(self, argument: ColumnLike) -> None:
        """Add the column of groups; rows with a null or empty group are no valid requests, as an unknown group might be denied."""
        if not self.vocabulary.request_groups:
            self.column(argument, "groups")
            return
        self._names(argument, "groups", "group:")

    def active_roles(self, argument: ColumnLike) -> None:
        """Add the column of active roles; rows with a null or an empty name are no valid requests. An empty list is no role."""
        if not self.vocabulary.active_roles:
            raise InvalidRequest(
                f"system `{self.vocabulary.system}` does not let requests name active roles: "
                "its policy needs `semantics: {active_roles: request}`"
            )
        self._names(argument, "active_roles", "role:")

    def _names(self, argument: ColumnLike, what: str, prefix: str) -> None:
        names = self.materialised_column(argument, what)
        self.columns[what] = names = F.transform(
            names.cast(ArrayType(StringType())),
            lambda name: F.when(name.startswith(prefix), F.substring(name, len(prefix) + 1, _LONGEST)).otherwise(name),
        )
        invalid = names.isNull() | F.exists(names, lambda name: name.isNull() | (name == ""))
        self.invalid_reasons += [
            F.when(invalid, NULL),
            F.when(F.exists(names, _no_principal), f"malformed {prefix[:-1]}"),
        ]

    def check_kinds(self) -> None:
        """Raise UsageError for a column that does not exist or whose type does not suit its argument."""
        for what, kind in self._kinds().items():
            type_name = f"`{kind.simpleString()}`"
            if what in self.attributes:
                check_kind(what, self.attributes[what], kind)
                continue
            if what in ("groups", "active_roles"):
                if isinstance(kind, NullType) or (isinstance(kind, ArrayType) and not _nested(kind.elementType)):
                    continue
                raise UsageError(
                    f'{what} is a column of type {type_name}: an array of strings is wanted, as of `F.split(column, ",")` or '
                    "`F.array(column)`"
                )
            if _nested(kind):
                expected = "true or false are" if what.startswith("flag ") else "a text is"
                raise UsageError(f"{what} is a column of type {type_name}: {expected} wanted")

    def _kinds(self) -> Mapping[str, DataType]:
        try:
            kinds = [field.dataType for field in self.df.select(*self.arguments.values()).schema]
        except AnalysisException:
            kinds = []
        if len(kinds) == len(self.arguments):
            return dict(zip(self.arguments, kinds, strict=True))
        # One at a time, to find the column at fault.
        found = {}
        for what, column in self.arguments.items():
            try:
                fields = self.df.select(column).schema.fields
            except AnalysisException as error:
                message = next((line for line in str(error).splitlines() if line.strip()), "it cannot be read")
                raise UsageError(f"{what}: {message}") from error
            if len(fields) != 1:
                raise UsageError(f"{what} is {len(fields)} columns: give one")
            found[what] = fields[0].dataType
        return found

    def constant_types(self, slots: Iterable[str]) -> dict[str, str]:
        """The types of the resource and of objects that are the same for all rows, by slot."""
        names = {"": "type", **{slot: f"with_{slot}_type" for slot in slots}}
        return {slot: str(self.constants[name]) for slot, name in names.items() if name in self.constants}

    def check(self, object_names: tuple[str, ...], slots: tuple[str, ...], flags: tuple[str, ...]) -> None:
        """Raise InvalidRequest for constants that no operation of the policy takes."""
        for slot in object_names:
            if slot not in self.known_slots:
                raise InvalidRequest(
                    f"no operation of `{self.vocabulary.system}` has a `with` object `{slot}`"
                    + hint(slot, self.known_slots)
                )
        action, kind = self.constants.get("action"), self.constants.get("type")
        if isinstance(action, str) and isinstance(kind, str):
            shape = self.vocabulary.check_operation(kind, action)
            for slot, types in shape.withs.items():
                if slot not in slots and LEFT_OUT not in types:
                    raise InvalidRequest(f"`{action}` on `{kind}` needs with_: `{slot}`, of type {' or '.join(types)}")
            for flag in sorted(shape.missing_flags(flags)):
                raise InvalidRequest(f"`{action}` on `{kind}` needs the flag `{flag}`: True, False or a column")
        elif isinstance(action, str):
            operations = {name for of_type in self.vocabulary.operations.values() for name in of_type}
            if action not in operations:
                raise InvalidRequest(
                    f"unknown operation `{action}` in system `{self.vocabulary.system}`" + hint(action, operations)
                )


def _read_attributes(reader: ArgumentReader, argument: AttributesLike | None) -> tuple[AttributeColumn, ...]:
    """Add the columns of attributes to a reader. Raises InvalidRequest for attributes that requests do not give, UsageError for other values."""
    found = []
    for number, (kind, slot, name, value) in enumerate(GivenAttributes.read(argument or {}).each()):
        attribute = reader.vocabulary.attributes.requested(kind, name)
        given = AttributeColumn(kind=kind, slot=slot, name=name)
        if isinstance(value, bool | int | list | tuple):
            reader.vocabulary.attributes.requested(kind, name, value)
            found.append(AttributeColumn(kind=kind, slot=slot, name=name, constant=value))
            continue
        what = f"attribute {given}"
        column = reader.materialised_column(value, what, ', or a value for all rows, a text by `F.lit("text")`')
        reader.attributes[what] = attribute
        canonical = f"attribute_{number}"
        reader.columns[canonical] = column = column.cast(COLUMN_TYPES[attribute.type].cast)
        # A text that is no UTF-8 would otherwise be taken for an absent one.
        if attribute.type == "set":
            reader.invalid_reasons.append(
                F.when(F.exists(column, lambda text: ~F.is_valid_utf8(text)), Unevaluated.ATTRIBUTE.text)
            )
        elif COLUMN_TYPES[attribute.type].cast == "string":
            reader.invalid_reasons.append(F.when(~F.is_valid_utf8(column), Unevaluated.ATTRIBUTE.text))
        found.append(AttributeColumn(kind=kind, slot=slot, name=name, column=canonical))
    return tuple(found)
