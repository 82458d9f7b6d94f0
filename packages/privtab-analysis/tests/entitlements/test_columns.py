"""All entities at once: the answers of columns are those of the reference, and a heat map counts as by classes of entities."""

from __future__ import annotations

import doctest
from itertools import islice

import generated_programs
import pytest
import worlds
from seeds import seeds

from privtab.base import Entity, GivenAttributes, Request
from privtab.ir import RESOURCE, Program
from privtab.pipeline import load_program
from privtab_analysis import rights_map as heat
from privtab_analysis.entitlements import columns
from privtab_analysis.entitlements.columns import Columns, chosen, marked
from privtab_analysis.state_diff import Comparison
from privtab_analysis.state_diff.subjects import ANY_OTHER, Side

FEATURES = (
    (),
    ("implies", "any", "scopes"),
    ("hierarchy", "gates"),
    ("implies", "hierarchy", "nobody", "scopes", "active"),
)
USERS = (*worlds.USERS, "stranger")


def beside_itself(program: Program, seed: int) -> Comparison:
    side = Side(program, worlds.state(program, seed))
    return Comparison(program, (side, side), (), 0, causes=False)


def check(seed: int) -> int:
    """Hold one world against the reference and against classes of entities; how much is allowed."""
    program = generated_programs.program(seed, *FEATURES[seed % len(FEATURES)])
    comparison = beside_itself(program, seed)
    side, total = comparison.sides[0], 0
    evaluator = side.evaluator([f"user:{user}" for user in USERS])
    subjects = [*(f"user:{user}" for user in USERS), ANY_OTHER]
    for type_ in ("", *program.entities):
        paths = comparison.tree.paths[type_]
        in_columns = Columns(evaluator, type_, paths)
        for variants in comparison.questions_of_type(type_)[0] if paths else ():
            for question in variants:
                if not question.flags.issuperset(question.rule.required_flags):
                    continue
                asked = question.request({RESOURCE: Entity(type_, paths[0])}, GivenAttributes.NONE)
                for user, column in zip(USERS, in_columns.allowed(asked), strict=True):
                    found = set(chosen(column, paths))
                    for path in paths:
                        resource = question.requested(Entity(type_, path))
                        assert resource is not None
                        flags = worlds.stated_flags(question.rule, question.flags)
                        request = Request(user=user, action=question.rule.operation, resource=resource, flags=flags)
                        if not question.rule.needs_active_role:
                            assert side.reference.decide(request).allowed == (path in found), request
                    total += len(found)
        for outer in (None, *(Entity(type_, path) for path in islice(paths, 2))) if type_ else ():
            address = "" if outer is None else outer.id
            entities, by_columns = heat._in_columns(comparison, subjects, type_, address)
            expected, by_classes = heat._in_classes(comparison, subjects, type_, address)
            assert entities == expected
            for variants in comparison.questions_of_type(type_)[0]:
                if not variants[0].rule.required_flags:
                    found_of = {subject: n for subject, n in by_columns(variants[0]).items() if n}
                    assert found_of == {subject: n for subject, n in by_classes(variants[0]).items() if n}
    return total


@pytest.mark.parametrize("seed", seeds(range(40), quick=4))
def test_columns_say_what_the_reference_says(seed: int) -> None:
    check(seed)


def test_much_is_allowed_in_some_world() -> None:
    assert check(1) > 20


@pytest.mark.long
def test_many_worlds(search_seed: int) -> None:
    assert sum(check(seed) for seed in range(search_seed, search_seed + 300)) > 10_000


@pytest.mark.parametrize("features", [("flat",), ("nested",), ("below",), ("attributes",)])
def test_policies_of_which_paths_do_not_tell_everything(features: tuple[str, ...]) -> None:
    found = [Columns.fit(generated_programs.program(seed, *features)) for seed in range(8)]
    assert not all(found)
    assert Columns.fit(load_program("gravitino/1.1.0"))


@pytest.mark.parametrize("size", [1, 7, 8, 9, 64, 200])
def test_ranges_are_marked_to_the_bit(size: int) -> None:
    ranges = [(begin, end) for begin in range(size) for end in range(begin, size + 1)]
    for one in ranges[:: max(1, len(ranges) // 500)]:
        for both in ([one], [one, (0, 1)], [one, (size - 1, size)]):
            inside = {n for begin, end in both for n in range(begin, end)}
            assert list(chosen(marked(both, size), range(size))) == sorted(inside)


def test_examples() -> None:
    assert doctest.testmod(columns).failed == 0
