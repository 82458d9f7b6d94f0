"""What a command goes on in spite of: `--accept KIND`, with a reason where one is kept."""

from __future__ import annotations

import pytest

from privtab.base import UsageError
from privtab_analysis.commands._failing import EMPTY, INCOMPLETE, accepted, failing_words

REASONS = ("gains", "replay")


def test_kinds_are_given_one_by_one() -> None:
    assert accepted(None) == {}
    assert accepted([INCOMPLETE, EMPTY]) == {INCOMPLETE: "", EMPTY: ""}
    assert accepted(["gains=a = b"], reasons=REASONS) == {"gains": "a = b"}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["empty"], "there are gains=WHY, replay=WHY, incomplete-logs, empty-logs"),
        (["gain=olga"], "did you mean `gains`?"),
        (["gains"], "say why"),
        (["gains= "], "say why"),
        (["empty-logs=yes"], "takes no reason"),
        (["empty-logs", "empty-logs"], "given twice"),
        (["empty-logs,incomplete-logs"], "there are"),
        ([""], "there are"),
    ],
)
def test_other_texts_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        accepted(texts, reasons=REASONS)
    assert message in str(raised.value)


@pytest.mark.parametrize("texts", [[""], [","], ["", " "]])
def test_no_word_to_fail_on_is_refused_instead_of_never_failing(texts: list[str]) -> None:
    assert failing_words(None, ("wider",)) == []
    assert failing_words(["wider,", ""], ("wider",)) == ["wider"]
    with pytest.raises(UsageError, match="there are wider and any"):
        failing_words(texts, ("wider",))
