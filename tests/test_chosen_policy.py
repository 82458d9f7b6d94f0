"""A policy with what is chosen of its tables: `POLICY@VARIANT,ROW=READING`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privtab.base.errors import UsageError
from privtab.pipeline import ChosenPolicy, find_policy, load_program, policy_revision, resolve_policy

NAMES = st.from_regex(r"[a-z_][a-z0-9_.:-]{0,6}[a-z0-9]", fullmatch=True)
ROWS = st.tuples(NAMES, NAMES).map("/".join)


@given(
    policy=st.from_regex(r"[a-z@./]{1,12}[a-z]", fullmatch=True),
    variant=st.none() | NAMES,
    readings=st.dictionaries(ROWS, NAMES, max_size=3),
)
def test_a_choice_is_read_as_it_is_written(policy: str, variant: str | None, readings: dict[str, str]) -> None:
    written = ChosenPolicy(policy, variant, readings)
    if written and not str(written).endswith((".yaml", ".yml", ".json")):
        assert ChosenPolicy.of(str(written)) == written


@pytest.mark.parametrize(
    "text",
    [
        "cdap/final",
        "a@b.yaml",
        "me@work/lake.yaml",
        "registry:/srv/registry#prod@12",
        "cdap@",
        "@x",
        "cdap@a/b",
        "cdap@a b",
    ],
)
def test_other_texts_choose_nothing(text: str) -> None:
    assert ChosenPolicy.of(text) == ChosenPolicy(text)


def test_what_is_there_under_the_whole_name_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "me@work").mkdir()
    assert ChosenPolicy.of("me@work") == ChosenPolicy("me@work")
    assert ChosenPolicy.of("me@home") == ChosenPolicy("me", "home")


@pytest.mark.parametrize("text", ["cdap/final@a,b", "cdap/final@x/y=a,x/y=b"])
def test_what_is_chosen_twice_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="chooses twice"):
        ChosenPolicy.of(text)


def test_two_variants_are_refused_and_one_may_be_given_twice() -> None:
    with pytest.raises(UsageError, match="`cdap/initial@use_cases` chooses a variant, and `other` is another"):
        load_program("cdap/initial@use_cases", variant="other")
    twice = load_program("cdap/initial@use_cases", variant="use_cases")
    assert policy_revision(twice) == policy_revision(load_program("cdap/initial@use_cases"))


def test_the_program_is_of_the_variant_and_the_readings() -> None:
    assert policy_revision(load_program("cdap/initial@use_cases")) == policy_revision(
        load_program("cdap/initial", variant="use_cases")
    )
    assert policy_revision(load_program("cdap/final@namespace/list=parent")) != policy_revision(
        load_program("cdap/final")
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cdap/initial@use_case", "the policy has no variant `use_case`"),
        ("cdap/final@x", "the policy has no variant `x`; it has `server`"),
        ("cdap/final@namespace/lst=parent", "namespace/lst"),
        ("cdap/final@namespace/list=parents", "parent"),
        ("cdap/final@namespace/list=", "a variant and readings are written POLICY@VARIANT,ROW=READING"),
    ],
)
def test_what_the_policy_does_not_have_is_refused_with_what_it_has(text: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        load_program(text)
    assert message in str(raised.value)


@pytest.mark.parametrize("load", [load_program, resolve_policy])
def test_a_variant_without_a_name_is_not_the_policy_without_a_variant(load: Callable[..., object]) -> None:
    for policy in ("cdap/initial", "cdap/initial@use_cases"):
        with pytest.raises(UsageError, match="has no variant ``"):
            load(policy, variant="")


def test_a_file_alone_takes_no_choice() -> None:
    with pytest.raises(UsageError, match="write cdap/final"):
        find_policy("cdap/final@namespace/list=parent")
