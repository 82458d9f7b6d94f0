"""Write documents of nested JSON objects from columns of numbers, without a Python object for each row.

Each distinct text is quoted once. The columns are sorted by the keys that they stand for; each row gives the text by which it differs
from the row before it. Needs numpy and pyarrow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privtab import arrow
from privtab.arrow import Codes, text_bytes

MAX_BLOCK_ROWS = 1 << 18
"""Rows that are written at once, which limits memory."""
_SPECIAL = np.array([byte < 0x20 or byte >= 0x7F or byte in b'"\\' for byte in range(256)])
_EMPTY = arrow.texts([""]).cast(pa.large_string())


@dataclass(frozen=True, slots=True)
class Level:
    """Keys or values of a part by number, the text around each, and the text between two that differ first at this level."""

    texts: pa.Array
    before: str
    after: str
    between: str

    def pieces(self, *, ascii_only: bool) -> pa.Array:
        """The text of each number; at the end an empty one."""
        before, after = (arrow.texts([text])[0].cast(pa.large_string()) for text in (self.before, self.after))
        joined = pc.binary_join_element_wise(before, quoted(self.texts, ascii_only=ascii_only), after, _EMPTY[0])
        return pa.concat_arrays([joined, _EMPTY])


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a document. `blocks` gives the rows as numbers by level, sorted and distinct; each block begins with another first key.

    `leaves`: for each row of the only block the number of its value, and the values from 1 on; 0 is `true`.
    """

    blocks: Callable[[], Iterable[Sequence[Codes]]]
    levels: tuple[Level, ...]
    end: str
    leaves: tuple[Codes, Sequence[Sequence[str]]] | None = None

    def columns(self) -> list[Codes]:
        """The rows as one column of numbers for each level."""
        blocks = list(self.blocks())
        no_rows = [np.zeros(0, np.int64)] * len(self.levels)
        return [np.concatenate(blocks_of_level) for blocks_of_level in zip(*blocks, strict=True)] if blocks else no_rows

    def json(self, *, ascii_only: bool) -> Iterator[bytes]:
        """The part as JSON, in pieces; in ASCII, or else in UTF-8."""
        pieces = [level.pieces(ascii_only=ascii_only) for level in self.levels]
        between = arrow.texts([level.between for level in self.levels]).cast(pa.large_string())
        leaves = None
        if self.leaves is not None:
            leaf_texts = [json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":")) for value in self.leaves[1]]
            leaves = arrow.texts(["true", *leaf_texts]).cast(pa.large_string())
        first = True
        for codes in self.blocks():
            differs = _first_difference(codes)
            for begin in range(0, len(differs), MAX_BLOCK_ROWS):
                chunk = slice(begin, begin + MAX_BLOCK_ROWS)
                chunk_differs = differs[chunk]
                columns = [between.take(arrow.integers(chunk_differs))]
                for level, (texts, level_codes) in enumerate(zip(pieces, codes, strict=True)):
                    columns.append(
                        texts.take(arrow.integers(np.where(chunk_differs <= level, level_codes[chunk], len(texts) - 1)))
                    )
                if self.leaves is not None and leaves is not None:
                    columns.append(leaves.take(arrow.integers(self.leaves[0][chunk])))
                text = text_bytes(pc.binary_join_element_wise(*columns, _EMPTY[0]))[1].tobytes()
                yield b"{" + text[len(self.levels[0].between.encode()) :] if first else text
                first = False
        yield b"{}" if first else self.end.encode() + b"}"


def quoted(texts: pa.Array, *, ascii_only: bool) -> pa.Array:
    r"""Texts as in JSON, without the quotation marks.

    >>> quoted(arrow.texts(['a"b', "c"]), ascii_only=False).to_pylist()
    ['a\\"b', 'c']
    """
    texts = texts.cast(pa.large_string())
    if _are_plain(texts):
        return texts
    special = pc.match_substring_regex(texts, r'[^ -~]|["\\]' if ascii_only else r'[\x00-\x1f"\\]')
    written = [json.dumps(text, ensure_ascii=ascii_only)[1:-1] for text in texts.filter(special).to_pylist()]
    return pc.replace_with_mask(texts, special, arrow.texts(written).cast(pa.large_string())) if written else texts


def _are_plain(texts: pa.Array) -> bool:
    """Whether no text has a byte that JSON may escape; one pass over all bytes, faster than a regular expression."""
    _, data = text_bytes(texts)
    parts = (data[start : start + MAX_BLOCK_ROWS] for start in range(0, len(data), MAX_BLOCK_ROWS))
    return not any(bool(_SPECIAL[part].any()) for part in parts)


def _first_difference(columns: Sequence[Codes]) -> Codes:
    """For each row, the first column in which it differs from the row before; 0 for the first row."""
    found = np.full(len(columns[0]), len(columns) - 1, np.int64)
    for level in reversed(range(len(columns) - 1)):
        found[1:][columns[level][1:] != columns[level][:-1]] = level
    found[:1] = 0
    return found
