"""Columns of names on Spark: their paths, percent-encoded, and `char(n)` columns without their padding.

To a policy, a padded name is a different name: a denial on `a` would not apply to `a  `.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.base import encode_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

ESCAPES = tuple((sign, encode_name(sign)) for sign in "%/")
"""Characters that names in a path cannot contain, with their escapes, in the order of encoding."""
WILDCARD_ESCAPES = tuple((sign, encode_name(sign)) for sign in "*?")
"""The same for names that consist only of wildcards."""


def encoded(name: Column) -> Column:
    """A column of names, encoded as by `encode_name`."""
    text = name.cast("string")
    plain = wildcard = text
    for sign, escape in ESCAPES:
        plain = F.replace(plain, F.lit(sign), F.lit(escape))
    for sign, escape in WILDCARD_ESCAPES:
        wildcard = F.replace(wildcard, F.lit(sign), F.lit(escape))
    return F.when(text.rlike(r"\A[*?]+\z"), wildcard).otherwise(plain)


def decoded(name: str) -> str:
    """SQL expression that decodes a name taken from a path."""
    for sign, escape in reversed(ESCAPES):
        name = f"replace({name}, '{escape}', '{sign}')"
    return name


def last_name(path: str) -> str:
    """SQL expression for the last name of a path."""
    return f"substring_index({path}, '/', -1)"


def joined(encoded_names: Iterable[Column]) -> Column:
    """The path made of encoded names from the root down; null if any of them is null."""
    parts = list(encoded_names)
    between = [piece for part in parts for piece in (F.lit("/"), part)]
    return F.concat(F.lit(""), *between[1:])


_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
"""Metadata key under which Spark records the declared type of a column whose type it reports as string."""


def padded(field: StructField) -> bool:
    """Return whether a column is declared as `char(n)` or an array of it; the result of an expression does not record this."""
    return _declared(field).startswith(("char(", "array<char("))


def unpadded(column: Column, field: StructField) -> Column:
    """The column without padding if it is `char(n)`, otherwise unchanged."""
    if not padded(field):
        return column
    if _declared(field).startswith("array"):
        return F.transform(column, lambda name: F.rtrim(name))  # noqa: PLW0108  (F.rtrim itself would also receive the position)
    return F.rtrim(column)


def without_padding(frame: DataFrame) -> DataFrame:
    """The frame with the padding of its `char(n)` columns removed."""
    if not any(map(padded, frame.schema.fields)) or len(set(frame.columns)) < len(frame.columns):
        return frame
    names = [f"`{name.replace('`', '``')}`" for name in frame.columns]
    return frame.select(
        *(
            unpadded(F.col(name), field).alias(field.name) if padded(field) else F.col(name)
            for name, field in zip(names, frame.schema.fields, strict=True)
        )
    )


def _declared(field: StructField) -> str:
    return str((field.metadata or {}).get(_DECLARED) or field.dataType.simpleString())
