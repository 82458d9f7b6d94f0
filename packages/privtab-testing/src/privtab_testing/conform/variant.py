"""Finds a small change of each wrong row that matches the system's answers, and writes the changes as a variant of the policy."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from privtab.base import Diagnostic, FileError, PolicyInvalid, SourceFile, UsageError, dataclass
from privtab.ir import ALWAYS, Program, Rule, condition_text
from privtab.language import (
    DocumentReader,
    MappingNode,
    ScalarNode,
    SequenceNode,
    YamlNode,
    compose_yaml,
    policy_schema,
)
from privtab.pipeline import find_policy, load_program
from privtab.reference import EvaluationContext, Reference
from privtab_testing.conform import Question, QuestionPlan, SystemAnswer
from privtab_testing.scenarios.masks import Key, Mask, Observed, dependencies, dependents
from privtab_testing.scenarios.mutants import Mutants


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """A row as the system has it."""

    rule: Rule
    text: str
    """The change in words."""
    row: Any
    """The row as it is written: text, or a mapping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A variant that matches the system's answers, except for rows that no small change explains."""

    changes: tuple[RowChange, ...]
    unexplained: tuple[Rule, ...]
    """The rows in which no small change agrees with every answer."""
    text: str
    """The policy with the variant; as it was if there are no changes."""


class VariantFile:
    """The file of a policy, to which a variant is added. Raises UsageError and FileError if it cannot be."""

    def __init__(self, policy: str | Path, name: str) -> None:
        self.path = find_policy(policy)
        self.name = name
        self.source = SourceFile.load(self.path)
        if not re.fullmatch(policy_schema()["$defs"]["open"]["pattern"], name):
            raise UsageError(
                f"`{name}` is no name of a variant: write a letter, then letters, digits, `_`, `-`, `.`, `:`"
            )
        if not os.access(self.path, os.W_OK):
            raise FileError(f"{self.path} cannot be written: copy the policy, and name the copy")
        found: list[Diagnostic] = []
        root = compose_yaml(self.source, found)
        if found or not isinstance(root, MappingNode):
            raise PolicyInvalid(tuple(found))
        self.root = root
        self._variants = next((value for key, value in root.entries if key.text == "variants"), None)
        is_empty = isinstance(self._variants, ScalarNode)
        known = self._variants.entries if isinstance(self._variants, MappingNode) else ()
        if name in (key.text for key, _ in known):
            raise UsageError(f"{self.path} has a variant `{name}` already: name another, or take it out first")
        if self._variants is not None and (is_empty or self.source.text[self._variants.start] == "{"):
            raise UsageError(f"{self.path} has `variants` in braces or empty: write them in lines, or take the key out")

    def row(self, rule: Rule) -> Any:
        """The row that a rule was read from, as plain values."""
        start = self.source.starts[rule.span.line - 1] + rule.span.column - 1
        node = next(value for key, value in _entries(self.root) if key.start <= start < key.end)
        return DocumentReader(self.source, []).plain(node)

    def text(self, changes: Iterable[RowChange]) -> str:
        """The policy with a variant of these rows."""
        tables: dict[str, dict[str, Any]] = {}
        for change in changes:
            tables.setdefault(change.rule.entity, {})[change.rule.operation] = change.row
        variant = {self.name: {"title": "What the system does", "tables": tables}}
        lines = yaml.safe_dump(variant, sort_keys=False, allow_unicode=True, width=120).splitlines()
        if not isinstance(self._variants, MappingNode):
            body = "\n".join(["variants:", *(f"  {line}" for line in lines)])
            return f"{self.source.text.rstrip()}\n{body}\n"
        first = self._variants.entries[0][0]
        column = self.source.position(first.start)[1] - 1
        at = self._end_of_variants()
        added = "".join(f"{' ' * column}{line}\n" for line in lines)
        before = self.source.text[:at]
        return f"{before}{'' if before.endswith(chr(10)) else chr(10)}{added}{self.source.text[at:]}"

    def _end_of_variants(self) -> int:
        """The offset after the last line of `variants`; comments below it belong to the next key."""
        assert self._variants is not None
        later = [key.start for key, _ in self.root.entries if key.start > self._variants.start]
        inner = [key.start for key, _ in _entries(self._variants)]
        at = min((start for start in later if start > max(inner)), default=len(self.source.text))
        lines = self.source.text[:at].splitlines(keepends=True)
        while lines and (not lines[-1].strip() or lines[-1].startswith("#")):
            at -= len(lines.pop())
        return at


def _entries(node: YamlNode) -> Iterator[tuple[ScalarNode, YamlNode]]:
    """Every key with its value, at any depth."""
    match node:
        case MappingNode():
            for key, value in node.entries:
                yield key, value
                yield from _entries(value)
        case SequenceNode():
            for item in node.items:
                yield from _entries(item)


class _AnsweredRows:
    """The answered questions of a plan, compared with a program's answers."""

    def __init__(self, plan: QuestionPlan, program: Program, answers: Mapping[str, SystemAnswer]) -> None:
        self.program = program
        reference = Reference(program, plan.world.state)
        decided = (SystemAnswer.ALLOWED, SystemAnswer.REFUSED, SystemAnswer.HIDDEN)
        by_row: dict[Key, list[Question]] = {}
        for question in plan.questions:
            if answers.get(question.id) in decided:
                by_row.setdefault(_key(question.rule), []).append(question)
        self.rows = {
            key: Observed(
                program, program.rules[key], (EvaluationContext(reference, asked.request) for asked in questions)
            )
            for key, questions in by_row.items()
        }
        self._allowed: dict[Key, Mask] = {
            key: sum(1 << n for n, question in enumerate(questions) if answers[question.id] is SystemAnswer.ALLOWED)
            for key, questions in by_row.items()
        }

    def wrong(self, key: Key, changed: Rule | None = None) -> int:
        """The number of answers about a row that a program does not give; `changed`: the row, or a row that it refers to."""
        row = self.rows.get(key)
        if row is None:
            return 0
        outcome = row.allowed if changed is None else row.after(changed)
        return (outcome ^ self._allowed[key]).bit_count()

    def wrong_answers(self, rule: Rule) -> int:
        """The number of answers that a changed row does not give, including answers about rows that refer to it."""
        return sum(self.wrong(key, rule) for key in (_key(rule), *dependents(self.program, _key(rule))))

    def in_order(self) -> list[Key]:
        """The rows with questions, each after the rows that it refers to."""
        return sorted(self.rows, key=lambda key: len(dependencies(self.program, key)))


def propose(
    file: VariantFile,
    plan: QuestionPlan,
    answers: Mapping[str, SystemAnswer],
    readings: Mapping[Key, Mapping[str, Rule]],
) -> Proposal:
    """The variant of a policy under which the table gives every answer that the system gave, as far as one is found."""
    observed = _AnsweredRows(plan, plan.program, answers)
    changes: dict[Key, RowChange] = {}
    for key in observed.in_order():
        if not observed.wrong(key):
            continue
        change = _found(file, observed, key, readings, changes)
        if change is not None:
            changes[change.rule.entity, change.rule.operation] = change
            program = replace(observed.program, rules={**observed.program.rules, _key(change.rule): change.rule})
            observed = _AnsweredRows(plan, program, answers)
    # What is written counts: the whole variant, compiled.
    text = file.text(changes.values()) if changes else file.source.text
    if changes:
        observed = _AnsweredRows(plan, _compiled(file, text), answers)
    unexplained = tuple(observed.program.rules[key] for key in observed.in_order() if observed.wrong(key))
    return Proposal(changes=tuple(changes.values()), unexplained=unexplained, text=text)


def _found(
    file: VariantFile,
    observed: _AnsweredRows,
    key: Key,
    readings: Mapping[Key, Mapping[str, Rule]],
    changes: Mapping[Key, RowChange],
) -> RowChange | None:
    """The change of a row, or of one that it refers to, that gives every answer about both; the best for rows that refer to it."""
    below = sorted(dependencies(observed.program, key) - {key} - set(changes))
    for culprit in (key, *below):
        fitting: list[tuple[int, int, str, Rule]] = []
        for number, (text, rule) in enumerate(_candidates(observed, culprit, readings)):
            if not (observed.wrong(culprit, rule) or observed.wrong(key, rule)):
                fitting.append((observed.wrong_answers(rule), number, text, rule))
        for wrong, _, text, rule in sorted(fitting, key=lambda found: found[:2]):
            change = _written(file, observed.program.rules[culprit], rule, text)
            if change is not None and observed.wrong_answers(change.rule) == wrong:
                return change
    return None


def _candidates(
    observed: _AnsweredRows, key: Key, readings: Mapping[Key, Mapping[str, Rule]]
) -> Iterator[tuple[str, Rule]]:
    """The small changes of a row: its other readings, then the mutants that `privtab test` knows."""
    for name, rule in readings.get(key, {}).items():
        yield f"the reading `{name}`", rule
    for mutant in Mutants(observed.program).shown(observed.program.rules[key]):
        yield mutant.text, mutant.rule


def _written(file: VariantFile, original: Rule, changed: Rule, text: str) -> RowChange | None:
    """A changed row in the words of the language, compiled; None if the language has no words for it."""
    row = file.row(original)
    fields = dict(row) if isinstance(row, dict) else {"requires": row}
    for name in ("ambiguous", "for"):
        fields.pop(name, None)
    if changed.gate != original.gate:
        if changed.gate != ALWAYS:
            return None
        fields["gate"] = "none"
    if changed.each is None:
        fields.pop("each", None)
        fields.pop("report", None)
    elif changed.each != original.each:
        fields["each"] = condition_text(changed.each, changed)
    if changed.requires != original.requires or not ({"requires", "each"} & set(fields)):
        fields["requires"] = condition_text(changed.requires, changed)
    written: Any = fields["requires"] if list(fields) == ["requires"] else fields
    change = RowChange(rule=changed, text=text, row=written)
    try:
        compiled = _compiled(file, file.text([change]))
    except PolicyInvalid:
        return None
    return replace(change, rule=compiled.rules[_key(changed)])


def _compiled(file: VariantFile, text: str) -> Program:
    return load_program(SourceFile.of(file.source.path, text), variant=file.name)


def _key(rule: Rule) -> Key:
    return rule.entity, rule.operation
