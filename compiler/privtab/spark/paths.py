"""Build paths from columns of names, percent-encoding each name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.names import ESCAPES, WILDCARD_ESCAPES

if TYPE_CHECKING:
    from pyspark.sql import Column


def encoded(name: Column) -> Column:
    """A column of names, encoded as by `names.encode_name`."""
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
