"""`privtab state import`: the state of another system."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from privtab._install import how_to_install
from privtab._resources import documents
from privtab._staged import write
from privtab.cli._options import FormatOption, PartialOption, PolicyOption, VariantOption
from privtab.cli._output import Format, err, out, print_error, print_if_data
from privtab.errors import UsageError
from privtab.exit_codes import ExitCode
from privtab.key_values import key_values
from privtab.plural import count
from privtab.source import read_text

if TYPE_CHECKING:
    from privtab.importing.run import ImportResult
    from privtab.request import Entity

MAX_SHOWN = 20
"""How many lines of what was translated or not taken are shown."""


def import_(
    document: Annotated[
        str,
        typer.Argument(
            metavar="DOCUMENT",
            help=f"Import document: a name ({', '.join(documents('import'))}) or a YAML file.",
        ),
    ],
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="URL of the system (https://…), of its database (postgresql://…), or a file or folder of saved answers.",
        ),
    ],
    policy: PolicyOption,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="PATH", help="Output: a .json file, or a folder with a CSV file for each table."
        ),
    ],
    variant: VariantOption = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Value that the import document needs; repeatable."),
    ] = None,
    entities: Annotated[
        Path | None,
        typer.Option("--entities", metavar="FILE", help="Entities that wildcards expand to, one TYPE:PATH per line."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail if anything of the system cannot be expressed in the state.")
    ] = False,
    allow_partial: PartialOption = False,
    accept: Annotated[
        list[str] | None,
        typer.Option("--accept", metavar="NAME", help="Do without what the report lists under this name; repeatable."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="Bearer token for the system's server.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME:VALUE", help="HTTP header to send; repeatable.")
    ] = None,
    format_: FormatOption = Format.TEXT,
) -> None:
    """Import the state of another system.

    Reports what was imported, what was translated, and what a state cannot express. Nothing is written if the system
    does not answer, or if something that denies or narrows would be lost (unless --accept names it, or --allow-partial).

    Example:

    \b
      privtab state import gravitino https://gravitino.acme.example --set metalake=prod -p gravitino/1.1.0 -o state/
      privtab state import postgresql postgresql+psycopg://audit@db/sales -p warehouse.yaml -o state.json
      privtab state import ranger policies.json --entities tables.txt -p lake.yaml -o state/ --accept data-mask
    """
    from privtab.cli._stored import load_policy
    from privtab.state.load import to_tables

    try:
        from privtab.importing import answers, run
        from privtab.importing.document import load
    except ImportError as error:
        raise UsageError(f"`privtab state import` needs {error.name}: {how_to_install('import')}") from error
    program = load_policy(policy, variant=variant)
    import_document = load(document)
    variables = key_values(set_, "--set", example="metalake=prod", allow_empty=True)
    headers = key_values(header, "--header", "NAME:VALUE", example="X-Tenant:acme", allow_empty=True)
    known_entities = [] if entities is None else _entities(entities)
    token = None if token_file is None else read_text(token_file).strip()
    with answers.opened(source, token=token, headers=headers) as system:
        result = run.run(import_document, system, program, values=variables, entities=known_entities)
    refused = result.refused(strict=strict, allow_partial=allow_partial, accept=accept or ())
    if not refused:
        _write(output, to_tables(result.state))
    if not print_if_data(format_, _as_json(result)):
        _show(result, None if refused else output)
    if refused:
        names = " ".join(f"--accept {quote(name)}" for name in dict.fromkeys(item.name for item in refused))
        explanation = "`--strict` writes nothing" if strict else "without it the state could allow more"
        things = count(sum(item.count for item in refused), "thing")
        print_error(f"{things} cannot be expressed: {explanation}; to do without: {names}")
        raise typer.Exit(ExitCode.FINDINGS)


def add_to(app: typer.Typer) -> None:
    """Add the command to `privtab state`."""
    app.command("import")(import_)


def _entities(path: Path) -> list[Entity]:
    from privtab.request import Entity

    return [Entity.parse(line.strip()) for line in read_text(path).splitlines() if line.strip()]


def _write(output: Path, tables: dict[str, list[dict[str, str]]]) -> None:
    """One file, or a folder with a file for each table, empty ones too: an import says all there is."""
    if output.suffix == ".json":
        write(output, (json.dumps(tables, indent=1, ensure_ascii=False) + "\n").encode())
        return
    if output.suffix:
        raise UsageError(f"`--output {output}`: a state is written as a .json file or as a folder of CSV files")
    from privtab.state.raw import COLUMNS

    for table, rows in tables.items():
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS[table].all, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write(output / f"{table}.csv", text.getvalue().encode())


def _as_json(result: ImportResult) -> dict[str, object]:
    return {
        "taken": dict(result.taken),
        "translated": list(result.translated),
        "not_taken": [
            {"name": item.name, "count": item.count, "what": item.what, "why": item.why, "denies": item.denies}
            for item in result.not_taken
        ],
    }


def _show(result: ImportResult, output: Path | None) -> None:
    not_taken = [
        f"{item} (and {number - item.count:,} more)" if number > item.count else str(item)
        for item, number in sorted(result.by_name.values(), key=lambda found: not found[0].denies)
    ]
    for title, lines in (("translated", list(result.translated)), ("not expressible", not_taken)):
        if lines:
            err().print(f"{title}:")
            for line in lines[:MAX_SHOWN]:
                err().print(f"  {line}", soft_wrap=True)
            if len(lines) > MAX_SHOWN:
                err().print(f"  and {len(lines) - MAX_SHOWN:,} more; --format json lists all")
    if output is not None:
        row_counts = ", ".join(count(rows, table.replace("_", " ")[:-1]) for table, rows in result.taken.items())
        out().print(f"{output}: {row_counts or 'nothing'}", soft_wrap=True)
