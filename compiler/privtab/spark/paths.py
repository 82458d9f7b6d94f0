"""Paths from columns of names, each percent-encoded as a path has it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

if TYPE_CHECKING:
    from pyspark.sql import Column


def encoded(name: Column) -> Column:
    """A column of names, as `request.encode_name` writes them."""
    text = name.cast("string")
    plain = F.replace(F.replace(text, F.lit("%"), F.lit("%25")), F.lit("/"), F.lit("%2F"))
    wildcard = F.replace(F.replace(text, F.lit("*"), F.lit("%2A")), F.lit("?"), F.lit("%3F"))
    return F.when(text.rlike(r"\A[*?]+\z"), wildcard).otherwise(plain)


def joined(encoded_names: Iterable[Column]) -> Column:
    """The path of encoded names from the root down; null where one of them is null."""
    parts = list(encoded_names)
    between = [piece for part in parts for piece in (F.lit("/"), part)]
    return F.concat(F.lit(""), *between[1:])
