"""What a command goes on in spite of: `--accept KIND`, with a reason where one is kept."""

from __future__ import annotations

import pytest

from privtab.base import UsageError
from privtab_analysis.commands._failing import EMPTY, INCOMPLETE, accepted

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
