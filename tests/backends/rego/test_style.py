"""Rego follows the rules of Regal, the linter of Rego, that can be checked without it: by text and by the syntax tree of OPA.

`opa check --strict` and `opa fmt` cover Regal's `opa-fmt`, `deprecated-builtin`, `rule-shadows-builtin`,
`import-shadows-import` and unused variables. Not followed on purpose: `with-outside-test-context`, as a batch replaces the whole
input for each request; `external-reference`, as functions read the state. In generated modules also `messy-rule`, as all clauses
of a row stand together, and `file-length`, as they are as long as the table.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from shipped_policies import FEW, by_release

from privtab import pipeline
from privtab.base import resources
from privtab.pipeline import policy_artifacts, wasm_modules

HAND_WRITTEN = sorted(resources.opa().rglob("*.rego"))
LIBRARY = Path(__file__).parent / "library.yaml"
LAYOUTS = ("whole", "sharded", "wasm")
Finding = tuple[int, str]
Rule = Callable[[str, Any, Path], Iterator[Finding]]


def texts(node: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every node of a syntax tree that has a type."""
    if isinstance(node, dict):
        if isinstance(node.get("type"), str):
            yield node["type"], node
        for name, inner in node.items():
            if name != "location":
                yield from texts(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from texts(inner)


def source(node: Any) -> str:
    return base64.b64decode(node["location"]["text"]).decode()


def row(node: Any) -> int:
    line = node["location"]["row"]
    assert isinstance(line, int)
    return line


def rule_name(rule: Any) -> str:
    return ".".join(str(part["value"]) for part in rule["head"]["ref"] if part["type"] in {"var", "string"})


def line_length(text: str, tree: Any, path: Path) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        longest = max(map(len, line.split()), default=0)
        if len(line) > 120 and longest <= 100:
            yield number, f"{len(line)} characters"


def file_length(text: str, tree: Any, path: Path) -> Iterator[Finding]:
    if len(text.splitlines()) > 500:
        yield 500, "more than 500 lines"


def rule_length(text: str, tree: Any, path: Path) -> Iterator[Finding]:
    for rule in tree.get("rules", []):
        lines = [line for line in source(rule).splitlines() if not line.strip().startswith("#")]
        if len(lines) > (60 if rule_name(rule).startswith("test_") else 30) and " if {" in source(rule):
            yield row(rule), f"{len(lines)} lines"


def todo_comment(text: str, tree: Any, path: Path) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*#\s*(todo|fixme)\b", line, re.IGNORECASE):
            yield number, line


def no_whitespace_comment(text: str, tree: Any, path: Path) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*#[^\s#]", line):
            yield number, line


def detached_metadata(text: str, tree: Any, path: Path) -> Iterator[Finding]:
    lines = [*text.splitlines(), ""]
    for number, line in enumerate(lines, 1):
        if line == "# METADATA":
            end = next(at for at in range(number, len(lines)) if not lines[at].startswith("#"))
            if not lines[end].strip():
                yield number, "followed by an empty line"


def directory_package_mismatch(text: str, tree: Any, path: Path) -> Iterator[Finding]:
    package = [part["value"].removesuffix("_test") for part in tree["package"]["path"][1:]]
    if list(path.parent.parts[-len(package) :]) != package:
        yield row(tree["package"]), ".".join(package)


def prefer_snake_case(text: str, tree: Any, path: Path) -> Iterator[Finding]:
    for rule in tree.get("rules", []):
        for kind, node in texts(rule["head"]):
            if kind == "var" and not re.fullmatch(r"\$\d+|[a-z_][a-z0-9_]*", node["value"]):
                yield row(rule), node["value"]


def use_assignment_operator(text: str, tree: Any, path: Path) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"(default )?[a-z_]\w*(\(.*?\))? = ", line):
            yield number, line


def trailing_default_rule(text: str, tree: Any, path: Path) -> Iterator[Finding]:
    seen = set()
    for rule in tree.get("rules", []):
        if rule.get("default") and rule_name(rule) in seen:
            yield row(rule), rule_name(rule)
        seen.add(rule_name(rule))


def messy_rule(text: str, tree: Any, path: Path) -> Iterator[Finding]:
    names = [rule_name(rule) for rule in tree.get("rules", [])]
    for at, name in enumerate(names):
        if at and name != names[at - 1] and name in names[:at]:
            yield row(tree["rules"][at]), name


def duplicate_rule(text: str, tree: Any, path: Path) -> Iterator[Finding]:
    seen = set()
    for rule in tree.get("rules", []):
        if source(rule) in seen and not rule.get("default"):
            yield row(rule), rule_name(rule)
        seen.add(source(rule))


def rule_name_repeats_package(text: str, tree: Any, path: Path) -> Iterator[Finding]:
    last = tree["package"]["path"][-1]["value"]
    for rule in tree.get("rules", []):
        if rule_name(rule).startswith(f"{last}_"):
            yield row(rule), rule_name(rule)


def avoid_importing_input(text: str, tree: Any, path: Path) -> Iterator[Finding]:
    for imported in tree.get("imports", []):
        if imported["path"]["value"][0]["value"] == "input":
            yield row(imported), "imports input"


def redundant_alias(text: str, tree: Any, path: Path) -> Iterator[Finding]:
    for imported in tree.get("imports", []):
        if imported.get("alias") == imported["path"]["value"][-1]["value"]:
            yield row(imported), imported["alias"]


def use_rego_v1(text: str, tree: Any, path: Path) -> Iterator[Finding]:
    """OPA 1 needs neither: `disallow-rego-v1` and `implicit-future-keywords`."""
    for imported in tree.get("imports", []):
        if imported["path"]["value"][0]["value"] in {"rego", "future"}:
            yield row(imported), "OPA 1 knows these keywords"


def yoda_condition(text: str, tree: Any, path: Path) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.lstrip().startswith("#") and re.search(
            r'(^\s*|\bif |\bnot )("[^"]*"|\d+|true|false|null) (==|!=) ', line
        ):
            yield number, line


def non_raw_regex_pattern(text: str, tree: Any, path: Path) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r'regex\.\w+\("', line):
            yield number, line


def print_or_trace_call(text: str, tree: Any, path: Path) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"^[^#]*\b(print|trace)\(", line):
            yield number, line


def walk_no_path(text: str, tree: Any, path: Path) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        # Where the path is left out, OPA does not make it.
        if re.search(r"\bwalk\(", line) and ", [_, " not in line:
            yield number, line


RULES: tuple[Rule, ...] = (
    line_length,
    file_length,
    rule_length,
    todo_comment,
    no_whitespace_comment,
    detached_metadata,
    directory_package_mismatch,
    prefer_snake_case,
    use_assignment_operator,
    trailing_default_rule,
    messy_rule,
    duplicate_rule,
    rule_name_repeats_package,
    avoid_importing_input,
    redundant_alias,
    use_rego_v1,
    yoda_condition,
    non_raw_regex_pattern,
    print_or_trace_call,
    walk_no_path,
)


NOT_GENERATED = (messy_rule, file_length)


def findings(path: Path, opa: Path, rules: Iterable[Rule] = RULES) -> list[str]:
    command = [str(opa), "parse", "--format", "json", "--json-include", "locations", str(path)]
    tree = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    text = path.read_text(encoding="utf-8")
    return [
        f"{path.name}:{number}: {rule.__name__.replace('_', '-')}: {what}"
        for rule in rules
        for number, what in rule(text, tree, path)
    ]


@pytest.mark.parametrize("path", HAND_WRITTEN, ids=lambda path: path.name)
def test_hand_written_rego_follows_the_rules(path: Path, opa_binary: Path) -> None:
    assert findings(path, opa_binary) == []


@pytest.mark.parametrize(
    "path",
    [pytest.param(LIBRARY, id="library"), *by_release(full=FEW)],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_generated_rego_follows_the_rules(path: Path, layout: str, tmp_path: Path, opa_binary: Path) -> None:
    program = pipeline.load_program(path)
    modules = (
        wasm_modules(program) if layout == "wasm" else policy_artifacts(program, sharded=layout == "sharded").modules
    )
    found = []
    for name, text in modules.items():
        module = tmp_path / name
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(text, encoding="utf-8")
        found += findings(module, opa_binary, [rule for rule in RULES if rule not in NOT_GENERATED])
    assert found == []


BAD = """\
package other.place

import rego.v1
import input.user
import data.some.thing as thing

#no space
# TODO: later
# METADATA
# title: detached

camelCase := 1

place_of := 2

old = 3

late if input.x

default late := false

other if input.y

late if "a" == input.z

pattern if regex.match("^a$", input.q)

pattern if print(input)

every_one if walk(input, [path, 1])

{long} := 1
same if input.w
same if input.w
"""


def test_each_rule_finds_what_it_is_for(tmp_path: Path, opa_binary: Path) -> None:
    text = BAD.format(long="long" + " " * 120)
    path = tmp_path / "bad.rego"
    path.write_text(text, encoding="utf-8")
    found = {line.split(": ")[1] for line in findings(path, opa_binary)}
    assert found >= {
        "line-length", "no-whitespace-comment", "todo-comment", "detached-metadata", "directory-package-mismatch",
        "prefer-snake-case", "use-assignment-operator", "trailing-default-rule", "messy-rule", "duplicate-rule",
        "rule-name-repeats-package", "avoid-importing-input", "redundant-alias", "use-rego-v1", "yoda-condition",
        "non-raw-regex-pattern", "print-or-trace-call", "walk-no-path",
    }  # fmt: skip
