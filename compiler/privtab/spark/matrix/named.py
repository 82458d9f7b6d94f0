"""The entities of a matrix: those that the caller names, or all that the state names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from pathlib import Path

from privtab import strict_json
from privtab.engines.index import Index
from privtab.entitlements.universe import Universe, universe
from privtab.errors import FileError, UsageError
from privtab.locations import Locations
from privtab.request import Entity
from privtab.spark.matrix.opening import StateSource
from privtab.spark.policies import OpenPolicy


def of_source(policy: OpenPolicy, source: StateSource) -> list[str]:
    """The entities that a state names, with what contains them and the entities without a name of their own; sorted."""
    program = policy.as_program
    if source.rows is not None:
        found = universe(program, source.rows)
    else:
        assert source.index is not None
        index = source.index
        where = Locations(policy.vocabulary.shapes, index.places, index.containers)
        found = Universe(program, map(Entity.parse, _of_index(index)), where)
    return sorted(map(str, found))


def _of_index(index: Index) -> set[str]:
    named = {f"{type_}:{path}" for type_, table in index.tables.items() for path in table}
    named |= {f"{type_}:{path}" for type_, table in index.members.items() for path in table}
    named |= {*index.places, *index.entity_attributes}
    return named | {key for scopes in index.scoped.values() for key in scopes}


def texts(entities: Iterable[object], places: Iterable[str] = repeat("")) -> list[str]:
    """Entities as `type:path`; raises UsageError for anything else, with its place in front."""
    if isinstance(entities, str):
        raise UsageError(f"entities is the text `{entities}`: give a list, or a DataFrame")
    found = []
    for entity, place in zip(entities, places, strict=False):
        text = str(entity) if isinstance(entity, Entity) else entity
        if not isinstance(text, str) or text.find(":") < 1:
            raise UsageError(f"{place}`{text}` is not an entity: write type:path, as in table:m/c/s/t")
        found.append(text)
    return list(dict.fromkeys(found))


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The non-empty lines of a text file with their numbers; raises FileError, with the line number for invalid UTF-8."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from error
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").splitlines(), start=1):
        try:
            text = line.decode().strip()
        except UnicodeDecodeError as error:
            raise FileError(f"{path}:{number}: not UTF-8: save the file as UTF-8") from error
        if text:
            yield number, text


def from_file(path: Path) -> list[str]:
    """Entities from a file: CSV or Parquet with a column `entity` or with `type` and `path`, JSON, or text with one on each line."""
    if not path.exists():
        raise FileError(f"no such file of entities: {path}")
    suffix = path.suffix.lower()
    try:
        if suffix == ".csv":
            from pyarrow import csv, string

            # Read names as strings, so that names of digits do not become numbers.
            texts_of = dict.fromkeys(("entity", "type", "path"), string())
            table = csv.read_csv(
                path, convert_options=csv.ConvertOptions(strings_can_be_null=True, column_types=texts_of)
            )
        elif suffix == ".parquet" or path.is_dir():
            from pyarrow import parquet

            table = parquet.read_table(path)
        elif suffix == ".json":
            return texts(strict_json.loads(path.read_bytes()))
        else:
            found = dict(lines(path))
            return texts(found.values(), (f"{path}:{number}: " for number in found))
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: {error}") from error
    names = set(table.column_names)
    if "entity" in names:
        return texts(text for text in table.column("entity").cast("string").to_pylist() if text is not None)
    if {"type", "path"} <= names:
        pairs = zip(table.column("type").to_pylist(), table.column("path").cast("string").to_pylist(), strict=True)
        return texts(f"{kind}:{path_}" for kind, path_ in pairs if kind is not None and path_ is not None)
    raise UsageError(
        f"{path}: no column `entity`, and not both `type` and `path`; there are: {', '.join(sorted(names))}"
    )
