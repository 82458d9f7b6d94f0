"""A text of a subclass of str is taken for what it contains, whatever it says it is equal to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from typing import Any, Self

import pytest
import studio_policy

from privtab.base.errors import DecisionError
from privtab.base.request import Entity, Request
from privtab.client.embedded import Embedded


class Lying(str):  # noqa: SLOT000  (it keeps a text)
    """Contains one text, and is equal to and hashed as another one; cuts itself as that one, too."""

    truth: str

    def __new__(cls, content: str, claimed: str) -> Self:
        made = super().__new__(cls, content)
        made.truth = claimed
        return made

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(self.truth)

    def __str__(self) -> str:
        return self.truth

    def partition(self, sep: str, /) -> Any:
        return self.truth.partition(sep)

    def split(self, *arguments: Any, **more: Any) -> Any:
        return self.truth.split(*arguments, **more)


class Operation(StrEnum):
    READ = "read"


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Embedded(*studio_policy.write(tmp_path_factory.mktemp("studio"))) as client:
        yield client


def asked(client: Embedded, user: str, action: str, type_: str, id_: str, **more: Any) -> list[Callable[[], Any]]:
    entity = Entity(type_, id_)
    request = Request(user=user, action=action, resource=entity, **more)
    return [
        lambda: client.check(user, action, entity, **more),
        lambda: client.check(user, action, (type_, id_), **more),
        lambda: client.check(request),
        lambda: client.decide(request).allowed,
        lambda: client.check_many([request] * 2)[1],
        lambda: client.check_many([replace(request)] * 1_000)[1],
        lambda: client.visible(user, action, type_, [id_], **more),
        lambda: client.filter(user, action, [entity], **more),
    ]


def test_nobody_is_another_because_a_text_says_so(studio: Embedded) -> None:
    right = ("ann", "read", "dataset", "web/salaries")
    assert all(ask() for ask in asked(studio, *right))
    wrong = ("eve", "copy", "project", "lab/salaries")
    for place, (content, claimed) in enumerate(zip(wrong, right, strict=True)):
        arguments: list[str] = [*right]
        arguments[place] = Lying(content, claimed)
        for ask in asked(studio, *arguments):
            with suppress(DecisionError):
                assert not ask(), (content, claimed)
    for groups in (["guests"], [Lying("nobodies", "guests")]):
        answers = [ask() for ask in asked(studio, "eve", "read", "dataset", "lab/open", groups=tuple(groups))]
        assert all(answers) is (groups == ["guests"] and type(groups[0]) is str)
        assert any(answers) is (type(groups[0]) is str)


def test_members_of_enumerations_are_texts(studio: Embedded) -> None:
    assert all(ask() for ask in asked(studio, "ann", Operation.READ, "dataset", "web/clicks"))
