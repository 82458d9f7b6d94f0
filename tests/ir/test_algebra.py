"""Conditions are walked in one place; readers that stay apart do so on purpose."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from checkout import ROOT, sources

from privtab.ir import nodes
from privtab.ir.algebra import Rebuilder
from privtab.ir.formula import Truth, flat
from privtab.ir.nodes import ALWAYS, NEVER, And, Atom, ByType, Formula, Has, Or, Owner, ServiceAdmin, Target, When
from privtab.pipeline import load_program

SHELF, TABLE = Target(slot="", type="shelf"), Target(slot="", type="table")
READ, WRITE, OWNER = Has(privilege="READ", target=SHELF), Has(privilege="WRITE", target=SHELF), Owner(target=TABLE)
APART = {
    "ir/algebra.py": "the walk itself",
    "ir/formula.py": "lists the nodes of a condition, without recursion",
    "ir/exact.py": "compares nodes one by one, and looks for atoms that affect each other, without recursion",
    "ir/serialise.py": "writes the tree as JSON",
    "ir/names.py": "says it in words",
    "ir/solver.py": "circuits of the SAT solver, with an order of clauses of their own",
    "reference/evaluate.py": "the first reading",
    "backends/rego/__init__.py": "the second reading: its clauses",
    "backends/rego/body.py": "and their lines",
    "privtab_testing/scenarios/mutants.py": "changes one node in its place",
}
"""Modules that go through And, Or, When, Can and ByType by themselves. The third reading is `engines/conditions.py`."""


def nodes_of(tree: ast.Module) -> set[str]:
    """The nodes of the IR that a module imports, each by its name or all as `ir`."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    known = {name for name in vars(nodes) if name[:1].isupper()}
    rooms = ("privtab.ir.nodes", "privtab.ir")
    named = {alias.name for node in imports if node.module in rooms for alias in node.names}
    modules = {f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    return known if modules & {"privtab.ir", "privtab.ir.nodes"} else named & known


def class_of(pattern: ast.MatchClass) -> str:
    return pattern.cls.attr if isinstance(pattern.cls, ast.Attribute) else ast.unparse(pattern.cls)


def walks(path: Path) -> bool:
    """Whether a module tells conjunctions from other nodes by a `match`."""
    text = path.read_text(encoding="utf-8")
    if not any(words in text for words in ("ir.nodes", "privtab.ir import", "from privtab import ir")):
        return False
    tree = ast.parse(text)
    matched = {class_of(node) for node in ast.walk(tree) if isinstance(node, ast.MatchClass)}
    return bool({"And", "Or"} & nodes_of(tree) & matched)


def test_conditions_are_walked_in_one_place() -> None:
    found = {name for name, path in sources().items() if walks(path)}
    assert found == set(APART)


def tells_atoms_apart(path: Path) -> bool:
    """Whether a module treats privileges otherwise than ownership, by nodes of the IR or by their names in JSON."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = nodes_of(tree)
    matched: set[object] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.MatchClass):
            matched |= {class_of(node)} & imported
        elif isinstance(node, ast.MatchValue | ast.Compare):
            matched |= {value.value for value in ast.walk(node) if isinstance(value, ast.Constant)}
    return len({"Has", "Owner", "Member", "Holds"} & matched) > 1 or "has" in matched


def test_the_page_names_who_tells_kinds_of_atoms_apart() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.split("\n## Who tells kinds of atoms apart\n")[1].split("\n## ")[0]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("|")][2:]
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    # `syntax` and `cedar` know no atoms: `has` is a word that a cell begins with by mistake, or an operator of Cedar.
    read = {name: path for name, path in sources().items() if "syntax" not in path.parts and path.stem != "cedar"}
    found = [name.removesuffix(".py") for name, path in read.items() if tells_atoms_apart(path)]
    assert sorted(named) == sorted(found)
    interpreters = rows[: rows.index(next(row for row in rows if "ir/facts" in row))]
    assert sum(row.count("`") // 2 for row in interpreters) == 7, "the text says how many"


@pytest.mark.parametrize("name", ["cdap/final", "gravitino/1.1.0", "streams/teracloud"])
def test_a_condition_rebuilt_is_itself(name: str) -> None:
    for rule in load_program(name).rules.values():
        for formula in (rule.gate, rule.requires, rule.each):
            assert formula is None or Rebuilder().fold(formula) == formula


def test_flat_keeps_each_part_once() -> None:
    nested = And(parts=(READ, And(parts=(WRITE, READ)), When(flag="f", body=Or(parts=(Or(parts=(READ,)), OWNER)))))
    assert flat(nested) == And(parts=(READ, WRITE, When(flag="f", body=Or(parts=(READ, OWNER)))))


def test_parts_that_cannot_change_the_value_are_not_looked_at() -> None:
    evaluated: list[Atom] = []

    def holds(atom: Atom) -> bool:
        evaluated.append(atom)
        return atom == READ

    truth = Truth(load_program("cdap/final"), (), {}, holds)
    assert truth.fold(Or(parts=(READ, WRITE)))
    assert not truth.fold(And(parts=(WRITE, READ)))
    assert evaluated == [READ, WRITE]


CHOICE = ByType(slot="to", cases=(("shelf", READ), ("table", OWNER)), text="can take (to)")


@pytest.mark.parametrize(
    ("formula", "flags", "types", "expected"),
    [
        (When(flag="f", body=NEVER), (), {}, True),
        (When(flag="f", body=NEVER), ("f",), {}, False),
        (CHOICE, (), {"to": "shelf"}, True),
        (CHOICE, (), {"to": "table"}, False),
        (CHOICE, (), {"to": "desk"}, False),
        (CHOICE, (), {}, False),
        (ALWAYS, (), {}, True),
        (NEVER, (), {}, False),
        (ServiceAdmin(), (), {}, False),
    ],
)
def test_flags_and_types_of_a_request(
    formula: Formula, flags: tuple[str, ...], types: dict[str, str], expected: bool
) -> None:
    assert Truth(load_program("cdap/final"), flags, types, lambda atom: atom == READ).fold(formula) is expected
