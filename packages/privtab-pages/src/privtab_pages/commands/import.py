"""`privtab import`: policies from the tables of pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from privtab.base import PolicyInvalid, UsageError, parse_key_values
from privtab.command import Commands, OutputOption, argument, deliver, fail_if, option, show_findings

PANEL = "Write"

app = Commands(help="Import policies from the tables of pages.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Import policies from the tables of pages."""


@app.command()
def table(
    page: Annotated[Path, argument("PAGE", "A page with tables: Markdown, HTML, CSV or XLSX.")],
    *,
    system: Annotated[str | None, option("--system NAME", "The system. (default: the name of the file)")] = None,
    version: Annotated[str, option("--policy-version TEXT", "The version of the policy.")] = "draft",
    column: Annotated[
        list[str] | None,
        option("--column PART=NAME", "The column of a part: entity, operation, requires, effects, note."),
    ] = None,
    name: Annotated[
        list[str] | None,
        option("--name TEXT=NAME", "Name of a type or operation in the policy: `Programs=program`."),
    ] = None,
    inside: Annotated[
        list[str] | None, option("--inside TYPE=PARENT", "Parent of a type; types without one are roots.")
    ] = None,
    set_: Annotated[
        list[str] | None, option("--set NAME=A,B", "A name on the page that stands for several privileges.")
    ] = None,
    accept: Annotated[
        list[str] | None, option("--accept NAME", "Accept the loss that a finding names; repeatable.")
    ] = None,
    allow_partial: Annotated[
        bool, option("--allow-partial", "Leave out rows that could not be read whole instead of stopping.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Read the privilege tables of a page as a policy.

    A page made using `privtab docs` gives back its policy unchanged. In other tables, the command reads cells that follow the
    language or a common way to write it (`READ on the table`). It guesses nothing: it reports every other cell, and then
    writes nothing or, with `--allow-partial`, denies the operations of such rows. Columns, tables and texts that are left
    out are also reported, unless `--accept` names them. Check the policy against the page before you use it.

    Example:
      privtab import table docs/cdap.md -o policy.yaml
      privtab import table wiki.html --system lake --inside schema=catalog --inside table=schema -o lake.yaml
      privtab import table matrix.csv --column requires=Needed --name Programs=program --set ALL=READ,WRITE
    """
    from privtab.base import SourceFile
    from privtab.ir import Program
    from privtab.pipeline import load_program
    from privtab_pages.imported import HEADINGS, TableReader, edited, no_table, own_policy
    from privtab_pages.page_files import page_source, tables
    from privtab_pages.policy import PolicyPage

    source = page_source(page)
    found_tables = tables(source)
    if own := own_policy(source):
        made: Program = load_program(SourceFile.of(str(page), own))
        again = PolicyPage(program=made, revision="")
        text = again.html() if page.suffix in (".html", ".htm") else again.markdown()
        found = list(edited(found_tables, tables(SourceFile.of(str(page), text))))
        show_findings(found, {str(page): source.text})
        fail_if(found)
        deliver(own, output)
        return
    parts = parse_key_values(column, "--column", "PART=NAME", example="requires=Needed")
    if unknown := parts.keys() - HEADINGS.keys():
        raise UsageError(f"`{min(unknown)}` is no part of a row: {', '.join(HEADINGS)}")
    reader = TableReader(
        system=system or page.stem.partition(".")[0],
        version=version,
        document=page.name,
        columns=parts,
        names=parse_key_values(name, "--name", "TEXT=NAME", example="Programs=program"),
        inside=parse_key_values(inside, "--inside", "TYPE=PARENT", example="table=schema"),
        sets=parse_key_values(set_, "--set", "NAME=A,B", example="ALL=READ,WRITE"),
        accepted=accept or (),
    )
    policy = reader.read(found_tables)
    if policy is None:
        raise no_table(str(page), found_tables)
    show_findings(reader.found, {str(page): source.text})
    if not reader.found or allow_partial:
        written = SourceFile.of("policy.yaml", policy)
        try:
            load_program(written)
        except PolicyInvalid as error:
            show_findings([reader.on_page(found, written) for found in error.diagnostics], {str(page): source.text})
            fail_if(error)
        deliver(policy, output)
    fail_if(reader.found and not allow_partial)
