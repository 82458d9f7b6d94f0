"""`privtab import`: policies from the tables of pages, and from models of other systems."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from privtab.base import PolicyInvalid, UsageError, parse_key_values
from privtab.command import OutputOption, argument, deliver, err, fail_if, option, show_findings

if TYPE_CHECKING:
    from privtab.base import Diagnostic, SourceFile
    from privtab.ir import Program
    from privtab_pages.imported import TableReader
    from privtab_pages.project import Project
    from privtab_pages.tables import Page

PANEL = "Write"


def run(
    page: Annotated[
        Path,
        argument(
            "FILE",
            "A page with tables (Markdown, HTML, CSV, XLSX), a model of OpenFGA or a schema of Cedar.",
        ),
    ],
    policies: Annotated[Path | None, argument("[POLICIES]", "The policies of a schema of Cedar.")] = None,
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
    entity: Annotated[str, option("--entity TYPE", "Type of the rows of tables that name none.")] = "",
    shape: Annotated[
        Literal["requires", "roles", "grants", "marks", "holders", "permissions"] | None,
        option("--shape SHAPE", "Content of the tables, where two shapes fit."),
    ] = None,
    several: Annotated[
        Literal["any", "all"] | None,
        option("--several any|all", "Meaning of several rows for one operation."),
    ] = None,
    against: Annotated[
        str | None, option("--against POLICY", "Compare the page with this policy instead of writing one.")
    ] = None,
    allow_partial: Annotated[
        bool, option("--allow-partial", "Leave out rows that could not be read whole instead of stopping.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Read the privilege tables of a page, or a model of OpenFGA or Cedar, as a policy.

    A page made using `privtab docs` gives back its policy unchanged. Other tables become a draft: operations with what they
    require, matrices of marks of roles, and lists of roles or of what they may do; the command says as what it read each
    table. It guesses nothing: it reports every cell that is not plain, and then writes nothing or, with `--allow-partial`, a
    policy that denies what such cells are about. Columns, tables, footnotes and texts that are left out are also reported, unless `--accept` names them. With `-o`, the
    scenarios of the page's cells are written beside the policy. `--against` says cell by cell where a page and a policy differ. Check the policy against the page before you use it.

    Of OpenFGA, each relation becomes an operation, and those that users have directly become privileges; of Cedar, each action
    becomes an operation, and attributes that are users or groups become privileges. The policy allows nothing that the model
    does not: what a table cannot say is named, and left out with `--allow-partial`.

    Example:
      privtab import permissions.md -o policy.yaml
      privtab import wiki.html --system lake --inside schema=catalog --inside table=schema -o wiki.yaml
      privtab import permissions.md --against policy.yaml
      privtab import matrix.csv --column requires=Needed --name Programs=program --set ALL=READ,WRITE
      privtab import model.fga --system drive -o drive.yaml
      privtab import app.cedarschema app.cedar -o app.yaml
    """
    from privtab.base import SourceFile
    from privtab.pipeline import load_program
    from privtab_connect.models.reading import kind_of
    from privtab_pages.against import differences
    from privtab_pages.imported import TableReader
    from privtab_pages.own_pages import own_policy
    from privtab_pages.page_files import page_of, page_source
    from privtab_pages.shapes import HEADINGS

    source = page_source(page)
    if (kind := kind_of(source.text, policies=policies is not None)) is not None:
        of_pages = {
            "--policy-version": version != "draft", "--column": column, "--name": name, "--inside": inside, "--set": set_,
            "--accept": accept, "--entity": entity, "--shape": shape, "--several": several, "--against": against,
        }  # fmt: skip
        if given := [option for option, value in of_pages.items() if value]:
            raise UsageError(f"{page} is {kind}: {', '.join(given)} is for pages")
        _import_model(page, policies, system, output, kind, allow_partial=allow_partial)
        return
    read = page_of(source)
    if own := own_policy(source):
        _check_own(source, read, against or SourceFile.of(str(page), own))
        if against is None:
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
        entity=entity,
        shape=shape,
        several=several or "",
    )
    program, policy, unread = _program(reader, page, read, partial=allow_partial or bool(against))
    for form in reader.forms:
        err().print(form)
    if against is not None and program is not None:
        unread += differences(reader.draft, program, load_program(against), reader.spans)
    show_findings(unread, {str(page): source.text})
    if against is not None:
        fail_if(unread or program is None)
        return
    fail_if(program is None or (unread and not allow_partial))
    assert program is not None
    if output is None:
        deliver(policy)
    else:
        _write(policy, reader.draft.scenarios(program, output.name), output)


def _import_model(
    file: Path, policies: Path | None, system: str | None, output: Path | None, kind: str, *, allow_partial: bool
) -> None:
    """Write the policy of a model, or stop at what a table cannot say."""
    from privtab.base import SourceFile
    from privtab.pipeline import load_program
    from privtab_connect.models.reading import policy_of

    err().print(f"read as {kind}")
    derived = policy_of(file, policies, system)
    show_findings(derived.unsaid)
    fail_if(derived.unsaid and not allow_partial)
    try:
        load_program(SourceFile.of("policy.yaml", derived.text))
    except PolicyInvalid as error:
        show_findings(map(derived.on_model, error.diagnostics))
        fail_if(error.diagnostics)
    deliver(derived.text, output)
    if policies is None:
        given = "".join(f" --set {key}={value}" for key, value in derived.values().items())
        err().print(f"read its tuples using: privtab state import openfga TUPLES --policy POLICY{given}")


def _program(
    reader: TableReader, path: Path, page: Page, *, partial: bool
) -> tuple[Program | None, str | None, list[Diagnostic]]:
    """The program of a page, its policy, and what is not read; `partial`: without the rows that a policy cannot have.

    Raises UsageError for a page without a table of privileges.
    """
    from privtab.base import SourceFile
    from privtab.pipeline import load_program
    from privtab_pages.imported import no_table

    policy = reader.read(page.tables, page.lines)
    if policy is None:
        raise no_table(str(path), page.tables, reader.unread)
    unread = list(reader.found)
    while policy is not None:
        written = SourceFile.of("policy.yaml", policy)
        try:
            return load_program(written), policy, unread
        except PolicyInvalid as error:
            wrong = [reader.on_page(found, written) for found in error.diagnostics]
            unread += wrong
            policy = reader.without(wrong) if partial else None
    return None, None, unread


def project(page: Path, accepted: Collection[str], system: str) -> Project:
    """The project of a page for `privtab init --from`; stops with findings for a page that is not read whole."""
    from privtab_pages.imported import TableReader
    from privtab_pages.own_pages import own_policy
    from privtab_pages.page_files import page_of, page_source
    from privtab_pages.project import project as made

    source = page_source(page)
    if own_policy(source):
        raise UsageError(f"{page} carries a policy: `privtab import {page} -o policy.yaml` gives it back")
    reader = TableReader(system=system, version="1", document=page.name, accepted=accepted)
    program, policy, unread = _program(reader, page, page_of(source), partial=False)
    show_findings(unread, {str(page): source.text})
    if any("--accept" in (finding.help or "") for finding in unread):
        err().print(f"to accept NAME here: --from '{page}?accept=NAME'")
    fail_if(unread or program is None)
    assert program is not None
    assert policy is not None
    return made(page, reader.draft, program, policy, sorted(accepted))


def _check_own(source: SourceFile, page: Page, policy: str | SourceFile) -> None:
    """Stop with exit code 1 if a page of `privtab docs` is not as a policy makes it."""
    from privtab.base import SourceFile
    from privtab.pipeline import load_program
    from privtab_pages.own_pages import edited
    from privtab_pages.page_files import tables
    from privtab_pages.policy import PolicyPage
    from privtab_pages.roles import default_roles

    made = load_program(policy)
    again = PolicyPage(program=made, revision="", roles=[default_roles(made)])
    text = again.html() if source.path.endswith((".html", ".htm")) else again.markdown()
    found = list(edited(page.tables, tables(SourceFile.of(source.path, text), own=True)))
    show_findings(found, {source.path: source.text})
    fail_if(found)


def _write(policy: str | None, scenarios: str, output: Path) -> None:
    """Write a policy, and its scenarios beside it; a file of scenarios that somebody else wrote is not overwritten."""
    from privtab_pages.draft import WRITTEN

    beside = output.with_name(f"{output.stem}.scenarios.yaml")
    if beside.exists() and not (beside.is_file() and beside.read_bytes().startswith(WRITTEN.encode())):
        raise UsageError(f"`{beside}` is no file of this command, and would be overwritten: name another `--output`")
    deliver(policy, output)
    deliver(scenarios, beside)
