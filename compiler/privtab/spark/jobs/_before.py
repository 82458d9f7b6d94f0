"""Check a job's options before Spark is started, which takes seconds."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from privtab.errors import FileError, UsageError
from privtab.formats import SPARK
from privtab.hints import nearest
from privtab.spark.policies import open_policy

_NO_FORMAT = (".tsv", ".txt", ".xls", ".xlsx", ".html", ".pdf", ".zip")
"""Suffixes of formats that are not recognised by suffix."""
_PACKED = (".gz", ".bz2", ".zst")


def check(options: argparse.Namespace) -> None:
    """Raise for a table, state, policy or operation that does not exist, and for an output that already exists."""
    values = vars(options)
    if values.get("output") is not None:
        _output(options.output, values.get("output_format"), overwrite=values.get("overwrite", True))
    if values.get("input") is not None:
        check_input(options.input, options.input_format)
    state = values.get("state")
    if state is not None and "://" not in state and not Path(state).exists():
        raise FileError(f"no such state: {state}")
    policy = open_policy(options.policy)
    if values.get("action") and values.get("type"):
        policy.vocabulary.check_operation(options.type, options.action)


def check_input(where: str, kind: str | None) -> None:
    """Raise for a missing file or an unknown format; a name without folder and suffix may be that of a table."""
    path = Path(where)
    if "://" in where:
        return
    if not path.exists() and (path.suffix.lower() in _ENDINGS or "/" in where):
        raise FileError(f"no such table: {where}{near(where)}")
    ending = path.suffix.lower()
    if kind is None and path.is_file() and ending in _NO_FORMAT:
        tabs = ", as in `--input-format csv --input-option sep=\\t`" if ending == ".tsv" else ""
        raise UsageError(f"{where}: `{ending}` is not the suffix of a known format: add `--input-format`{tabs}")


def near(where: str) -> str:
    """`; did you mean …?` for a file in the same folder with a similar name, or an empty string."""
    path = Path(where)
    names = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
    found = next((name for name in names if name.partition(".")[0] == path.name), None) or nearest(path.name, names)
    return f"; did you mean `{path.parent / found}`?" if found else ""


def format_of(where: str) -> str | None:
    """The name of the format that the suffix of a path means; None if it means none."""
    return SPARK.get(ending(where))


def ending(where: str) -> str:
    """The suffix that determines the format, without the suffix of a compression."""
    path = Path(where)
    return (path.with_suffix("") if path.suffix.lower() in _PACKED else path).suffix.lower()


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


def _output(where: str, kind: str | None, *, overwrite: bool) -> None:
    path = Path(where.removeprefix("file://"))
    if "://" not in str(path) and path.exists() and not overwrite:
        raise UsageError(f"{path} exists: name another folder, or add `--overwrite`")
    if kind is None and path.suffix.lower() in _NO_FORMAT:
        raise UsageError(
            f"{where}: `{path.suffix}` is not the suffix of a format that can be written: end it in {', '.join(SPARK)}, or add "
            "`--output-format`"
        )


_ENDINGS = (*SPARK, *_NO_FORMAT, *_PACKED)
