"""`privtab state import` and `push`: the state of another system, and the rows of a state as native privileges there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from privtab.base import STATE_HELP, Entity, UsageError, count, needing, parse_key_values, read_text
from privtab.command import (
    AtOption,
    FormatOption,
    PartialOption,
    PolicyOptions,
    argument,
    err,
    fail_if,
    load_state,
    option,
    out,
    print_error,
    print_if_data,
    row_counts,
    show_findings,
    stop,
)
from privtab_connect.state_files import write_tables

if TYPE_CHECKING:
    from privtab_connect.importing.run import ImportResult
    from privtab_connect.pushdown.run import PushReport

MAX_SHOWN = 20
"""Number of lines shown of translated or left-out items."""


def _documents(kind: Literal["import", "mapping"]) -> str:
    """The names of the documents of a kind, for the help of an argument: looking for them loads the compiler."""
    from privtab_connect.documents import names

    return names(kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Options for the document of another system and for its server."""

    set_: Annotated[list[str] | None, option("--set NAME=VALUE", "Value that the document needs; repeatable.")] = None
    token: Annotated[str | None, option("--token-file FILE", "Bearer token for the system's server.", kind="TOKEN")] = (
        field(default=None, repr=False)
    )
    header: Annotated[list[str] | None, option("--header NAME:VALUE", "HTTP header to send; repeatable.")] = None

    def values(self, *, allow_empty: bool = False) -> dict[str, str]:
        """The values of the document."""
        return parse_key_values(self.set_, "--set", example="metalake=prod", allow_empty=allow_empty)

    def sent(self) -> dict[str, Any]:
        """The token and the headers."""
        headers = parse_key_values(self.header, "--header", "NAME:VALUE", example="X-Tenant:acme", allow_empty=True)
        return {"token": self.token, "headers": headers}


def import_(
    document: Annotated[
        str, argument("DOCUMENT", lambda: f"Import document: a name ({_documents('import')}) or a YAML file.")
    ],
    source: Annotated[
        str,
        argument(
            "SOURCE",
            "URL of the system (https://…), of its database (postgresql://…), or a file or folder of saved answers.",
        ),
    ],
    policy: PolicyOptions,
    output: Annotated[
        Path, option("--output -o PATH", "Output: a .json file, or a folder with a CSV file for each table.")
    ],
    entities: Annotated[
        Path | None, option("--entities FILE", "Entities that wildcards expand to, one TYPE:PATH per line.")
    ] = None,
    accept: Annotated[
        list[str] | None,
        option(
            "--accept NAME",
            "Accept the losses that the report lists under this name, or all; none: not even of rights.",
        ),
    ] = None,
    *,
    connection: Connection,
    format_: FormatOption = "text",
) -> None:
    """Import the state of another system.

    Reports what was imported, what was translated, and what a state cannot express. Nothing is written if the system
    does not answer, or if something that denies or narrows would be lost, unless --accept names it.

    Example:
      privtab state import gravitino https://gravitino.acme.example --set metalake=prod -p gravitino/1.1.0 -o state/
      privtab state import postgresql postgresql+psycopg://audit@db/sales -p warehouse.yaml -o state.json
      privtab state import ranger policies.json --entities tables.txt -p lake.yaml -o state/ --accept data-mask
    """
    with needing("`privtab state import`", "import"):
        from privtab_connect.importing import answers, run
        from privtab_connect.importing.document import load
    accepted, strict = frozenset(accept or ()), "none" in (accept or ())
    if strict and len(accepted) > 1:
        raise UsageError("`--accept none` accepts nothing: leave it out, or the others")
    program = policy.program()
    import_document = load(document)
    variables = connection.values(allow_empty=True)
    lines = [] if entities is None else read_text(entities, 1 << 28).splitlines()
    known_entities = [Entity.parse(line.strip()) for line in lines if line.strip()]
    with answers.opened(source, **connection.sent()) as system:
        result = run.run(import_document, system, program, values=variables, entities=known_entities)
    refused = result.refused(strict=strict, allow_partial="all" in accepted, accept=accepted)
    if not refused:
        write_tables(output, result.state.to_tables())
    found = {"taken": dict(result.taken), "translated": result.translated, "not_taken": result.not_taken}
    if not print_if_data(format_, found):
        _show(result, None if refused else output)
    if refused:
        names = " ".join(f"--accept {quote(name)}" for name in dict.fromkeys(item.name for item in refused))
        explanation = "`--accept none` writes nothing" if strict else "without it the state could allow more"
        things = count(sum(item.count for item in refused), "thing")
        stop(f"{things} cannot be expressed: {explanation}; to do without: {names}")


def _show(result: ImportResult, output: Path | None) -> None:
    not_taken = [
        f"{item} (and {number - item.count:,} more)" if number > item.count else str(item)
        for item, number in sorted(result.by_name.values(), key=lambda found: not found[0].denies)
    ]
    _list("translated", list(result.translated))
    _list("not expressible", not_taken)
    if output is not None:
        out().print(f"{output}: {row_counts(result.taken) or 'nothing'}")


def push(
    document: Annotated[
        str, argument("DOCUMENT", lambda: f"Mapping document: a name ({_documents('mapping')}) or a YAML file.")
    ],
    target: Annotated[str, argument("TARGET", "URL of the database or server, or a file of its policies.")],
    policy: PolicyOptions,
    state: Annotated[Path, option("--state -s STATE", STATE_HELP)],
    apply: Annotated[bool, option("--apply", "Apply the changes shown.")] = False,
    check: Annotated[bool, option("--check", "Exit with 1 if the target differs from the state.")] = False,
    expand: Annotated[
        bool, option("--expand", "Grant the results of inheritance, denials and scopes, object by object.")
    ] = False,
    compare: Annotated[
        bool, option("--compare", "Compare the decisions of policy and target; apply only if they agree.")
    ] = False,
    foreign: Annotated[
        Literal["revoke", "accept"] | None,
        option(
            "--foreign revoke|accept", "Also revoke rights that privtab did not grant, or accept them with --check."
        ),
    ] = None,
    name: Annotated[
        str | None, option("--as NAME", "Name for the record of granted rights. Default: the system.")
    ] = None,
    record: Annotated[
        Path | None, option("--record FILE", "Record of granted rights, for targets that cannot keep it.")
    ] = None,
    *,
    connection: Connection,
    at: AtOption = None,
    allow_partial: PartialOption = False,
    format_: FormatOption = "text",
) -> None:
    """Push a state to another system as native privileges.

    Shows what would change, and changes nothing without --apply. Rows that the system cannot express are findings, and stop the push.

    Example:
      privtab state push postgresql postgresql+psycopg://admin@db/sales -p postgresql/15 -s state.yaml
      privtab state push warehouse.yaml postgresql+psycopg://admin@db/sales -p lake.yaml -s store:grants.db --expand --apply
      privtab state push postgresql postgresql+psycopg://admin@db/sales -p postgresql/15 -s state.yaml --check --format json
    """
    if check and apply:
        raise UsageError("`--check` changes nothing: leave out `--apply`, or check afterwards")
    if foreign == "accept" and not check:
        raise UsageError("`--foreign accept` is for `--check`: without it, such rights stay as they are")

    with needing("`privtab state push`", "import"):
        from privtab_connect.pushdown import Options
        from privtab_connect.pushdown.document import load
        from privtab_connect.pushdown.run import push as pushed
    program = policy.program()
    values = connection.values()
    mapping = load(document, program, values)
    rows, places, _ = load_state(program, state, allow_partial=allow_partial)
    if at is not None:
        rows, places = rows.at(at), places.some(rows.held(at))
    result = pushed(
        program,
        rows,
        mapping,
        target,
        pusher=name or program.system,
        options=Options(values=values, record=record, **connection.sent()),
        places=places,
        expand=expand,
        revoke_foreign=foreign == "revoke",
        compare=compare,
        apply=apply,
    )
    if not print_if_data(format_, _push_json(result)):
        _show_push(result)
    failed = bool(result.desired.findings or result.disagreements)
    if result.desired.findings:
        print_error(f"{count(len(result.desired.findings), 'row')} cannot be expressed: nothing is pushed")
    elif result.disagreements:
        print_error(
            f"the target would decide {count(len(result.disagreements), 'request')} otherwise: nothing is pushed"
        )
    elif check and (result.plan.changes or (result.drifted and foreign != "accept")):
        print_error(f"{result.where} differs from {state}")
        failed = True
    fail_if(failed)


def _push_json(result: PushReport) -> dict[str, Any]:
    from privtab_connect.pushdown.rights import in_order

    def listed(rights: Iterable[Any]) -> list[str]:
        return [str(right) for right in in_order(set(rights))]

    return {
        "target": result.where,
        "applied": result.applied,
        "drift": result.drifted,
        "create": sorted(map(str, result.plan.create)),
        "grant": listed(result.plan.grant),
        "revoke": listed(result.plan.revoke),
        "foreign": listed(result.plan.foreign),
        "requests": list(result.requests),
        "findings": [finding.to_json() for finding in result.desired.findings],
        "left_out": dict(result.desired.left_out),
        "outside": result.desired.outside,
        "absent": dict(result.desired.absent),
        "unread": list(result.unread),
        "unlimited": list(result.unlimited),
        "disagreements": None if result.disagreements is None else [str(d) for d in result.disagreements],
    }


def _show_push(result: PushReport) -> None:
    from privtab_connect.pushdown.rights import in_order

    desired, plan = result.desired, result.plan
    if desired.findings:
        show_findings(desired.findings)
        return
    _list("left out", [f"{reason}: {count(number, 'row')}" for reason, number in desired.left_out.items()])
    _list("not there", [f"{what}: {count(number, 'right')}" for what, number in desired.absent.items()])
    if desired.outside:
        err().print(f"about entities elsewhere: {count(desired.outside, 'row')}")
    _list("not granted by privtab, and kept", [str(right) for right in in_order(set(plan.foreign))])
    _list("neither compared nor changed", list(result.unread))
    _list("decided otherwise", [str(disagreement) for disagreement in result.disagreements or ()])
    for request in result.requests:
        out().print(request)
    numbers = [
        f"{len(things):,} to {verb}"
        for verb, things in (("create", plan.create), ("grant", plan.grant), ("revoke", plan.revoke))
        if things
    ]
    err().print(f"{result.where}: {', '.join(numbers) or 'nothing'}{', done' if numbers and result.applied else ''}")


def _list(title: str, lines: list[str]) -> None:
    if lines:
        err().print(f"{title}:")
        for line in err().first(lines, MAX_SHOWN, how="`--format json` lists them", indent=2):
            err().print(f"  {line}")
