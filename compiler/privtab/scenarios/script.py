"""Scenario files: the head, which names the policy, and all their cases for a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from privtab import source
from privtab.diagnostics import Diagnostic
from privtab.ir.nodes import Program
from privtab.marked_files import SUFFIXES
from privtab.scenarios.author import Author
from privtab.scenarios.cases import read_cases
from privtab.scenarios.expand import read_needs
from privtab.scenarios.nodes import Case, Subject
from privtab.scenarios.params import read_params
from privtab.scenarios.suites import read_suites
from privtab.scenarios.tree import Fields, ScenarioReader
from privtab.scenarios.walks import read_walkthroughs
from privtab.source import SourceFile
from privtab.state.nodes import State
from privtab.syntax.yaml_tree import Node, compose

FORMAT = "1"
READERS = {"cases": read_cases, "needs": read_needs, "suites": read_suites, "walkthroughs": read_walkthroughs}
_HEAD_HINT = "a scenario file begins with `scenarios: 1` and `policy: FILE.yaml`"
KEYS = ("scenarios", "policy", "variant", "readings", "title", "note", "state", "params", "let", *READERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One scenario file as read, before it is checked against a program."""

    file: Path
    source: SourceFile
    subject: Subject
    fields: Mapping[str, Node]


def read_script(path: Path, default: Path | None, found: list[Diagnostic]) -> Script | None:
    """Read a file and its head; None after findings. `default`: the policy if the file names none."""
    source_file = source.load(path)
    root = compose(source_file, found, _HEAD_HINT)
    if root is None:
        return None
    reader = ScenarioReader(source_file, found)
    fields = reader.fields(root, "a scenario file", KEYS, required=("scenarios",))
    if fields is None:
        return None
    reader.word(fields["scenarios"], "`scenarios`", (FORMAT,))
    policy = reader.text(fields.get("policy"), "`policy`")
    policy_path = default if policy is None else _policy(path, policy.value)
    if policy_path is None or not policy_path.is_file():
        node = fields.get("policy", fields["scenarios"])
        message = "the file names no policy" if policy_path is None else f"there is no policy {policy_path.as_posix()}"
        reader.report("T101", node, message, "write `policy: FILE.yaml`, from the folder of this file")
        return None
    variant = reader.text(fields.get("variant"), "`variant`")
    readings = tuple((row.value, name.value) for row, name in reader.pairs(fields.get("readings"), "`readings`"))
    subject = Subject(
        policy=policy_path, variant=None if variant is None else variant.value, readings=tuple(sorted(readings))
    )
    return Script(file=path, source=source_file, subject=subject, fields=fields)


def _policy(path: Path, name: str) -> Path:
    sibling = path.parent / name
    if sibling.is_file() or Path(name).suffix in SUFFIXES:
        return sibling
    return path.parent / f"{name}.yaml"


def cases_of(script: Script, program: Program, found: list[Diagnostic]) -> tuple[list[State], list[Case]]:
    """All cases of a file, and their states."""
    reader = ScenarioReader(script.source, found)
    fields: Fields = dict(script.fields)
    let_entries = reader.entries(fields.get("let"), "`let`")
    lets = {key.text: value for key, value in let_entries}
    params = read_params(reader, fields.get("params"))
    author = Author(reader, program, script.file.parent, params, lets, fields.get("state"))
    for key, read in READERS.items():
        if key in fields:
            read(author, fields[key])
    if not author.cases and not found:
        reader.report("T203", fields["scenarios"], "the file has no cases")
    return author.states, author.cases
