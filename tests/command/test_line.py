"""Command lines that are read by hand mean what Typer takes them for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pytest
import typer
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privtab.base.errors import UsageError
from privtab.command import _app, argument, option
from privtab.command._line import read
from privtab.command._parameters import declared
from privtab.command._typer import Commands


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def _doubled(text: str) -> int:
    if text == "7":
        raise UsageError("seven")
    return 2 * int(text)


def every_kind(
    first: Annotated[str, argument("FIRST", "A text.", also="--first -f")],
    rest: Annotated[list[str] | None, argument("REST", "Texts.")] = None,
    *,
    path: Annotated[Path | None, option("--path PATH", "A path.")] = None,
    state: Annotated[Path | None, option("--state -s STATE", "A state.")] = None,
    out: Annotated[Path, option("--out -o DIR", "A folder.")] = Path("build"),
    count: Annotated[int, option("--count -n N", "A number.", min=0, max=9)] = 3,
    more: Annotated[list[int] | None, option("--more N", "Numbers.")] = None,
    made: Annotated[int | None, option("--made N", "A number.", parser=_doubled)] = None,
    how: Annotated[Literal["text", "json"] | None, option("--how", "A word.")] = None,
    colour: Annotated[Colour, option("--colour", "A colour.")] = Colour.RED,
    key: Annotated[str | None, option("--key KEY", "A key.", envvar="LINE_KEY", callback=lambda value: value)] = None,
    colours: Annotated[bool, option("--colours/--no-colours", "Use colours.")] = True,
    quiet: Annotated[bool, option("--quiet -q", "Say nothing.")] = False,
) -> None:
    """Take every kind of parameter."""


def runs() -> dict[str, Callable[..., None]]:
    """The functions of all commands that stand alone, by name."""
    loads = {word: partial(import_module, module) for word, module in _app.MODULES.items()} | _app.plugged()
    found: dict[str, Any] = {word: load() for word, load in loads.items()}
    return {
        word: getattr(module, "run", module)
        for word, module in found.items()
        if not hasattr(module, "app") and not hasattr(module, "SETTINGS")
    }


RUNS = {"every kind": every_kind, **runs()}
WORDS = (
    "a",
    "1",
    "7",
    "-1",
    "12",
    "json",
    "text",
    "red",
    "x=y",
    "",
    "-",
    "--",
    "state.yaml",
    "--nope",
    "2026-03-03T12:00Z",
)


def taken(command: Callable[..., None], words: Sequence[str], *, by_hand: bool) -> Any:
    """What a command is called with for a line: by hand, or by Typer; None if it is not called."""
    seen: list[Any] = []

    @wraps(command)
    def probe(**values: Any) -> None:
        seen.append({name: value for name, value in values.items() if not isinstance(value, typer.Context)})

    if by_hand:
        call = read(probe, words)
        if call is not None:
            call()
    else:
        app = Commands(add_completion=False)
        app.command("probe")(probe)
        try:
            typer.main.get_command(app)(args=list(words), standalone_mode=False)
        except (Exception, SystemExit):  # noqa: BLE001  whatever Typer says of a line
            return None
    return seen[0] if seen else None


@st.composite
def lines(draw: st.DrawFn) -> tuple[str, list[str]]:
    name = draw(st.sampled_from(sorted(RUNS)))
    pieces = [st.sampled_from(WORDS).map(lambda word: [word])]
    for parameter in declared(RUNS[name])[0]:
        written = getattr(parameter.annotation, "__metadata__", [None])[0]
        kind = getattr(parameter.annotation, "__origin__", None)
        chosen = [text for one in (kind, *get_args(kind)) for text in get_args(one) if isinstance(text, str)]
        values = st.sampled_from([*WORDS, *chosen])
        names = [*getattr(written, "names", ()), *getattr(written, "also", ())]
        for option_name in (name for pair in names for name in pair.split("/")):
            pieces += [
                st.just([option_name]),
                st.tuples(st.just(option_name), values).map(list),
                st.tuples(st.just(option_name), values).map("=".join).map(lambda word: [word]),
            ]
    needed = [p for p in declared(RUNS[name])[0] if p.default is inspect.Parameter.empty]
    begin = [
        draw(st.sampled_from(WORDS[:6])) for p in needed if not getattr(p.annotation, "__metadata__", [None])[0].names
    ]
    chosen_lines = draw(st.lists(st.one_of(pieces), max_size=4))
    return name, [*begin, *(word for piece in chosen_lines for word in piece)]


@settings(deadline=None)
@given(lines())
@example(
    (
        "every kind",
        [
            "a",
            "b",
            "--path=x",
            "-n",
            "1",
            "--more",
            "1",
            "--more=2",
            "--made",
            "4",
            "-q",
            "--no-colours",
            "--how",
            "json",
        ],
    )
)
@example(("every kind", ["--first", "a", "--colour", "blue", "--", "-q"]))
@example(("compile", ["lake.yaml", "-o", "out", "--also", "a", "--also", "b"]))
def test_what_is_read_by_hand_is_what_typer_reads(line: tuple[str, list[str]]) -> None:
    name, words = line
    by_hand = taken(RUNS[name], words, by_hand=True)
    assert by_hand is None or by_hand == taken(RUNS[name], words, by_hand=False)


@pytest.mark.parametrize("name", sorted(set(RUNS) - {"serve", "opa"}))
def test_a_plain_line_is_read_by_hand(name: str) -> None:
    words: list[str] = []
    for parameter in declared(RUNS[name])[0]:
        written = parameter.annotation.__metadata__[0]
        if parameter.default is inspect.Parameter.empty:
            words += [*written.names[:1], "cdap"]
    assert taken(RUNS[name], words, by_hand=True) is not None


@pytest.mark.parametrize(
    "words",
    [
        ["a", "--count", "10"],
        ["a", "--made", "7"],
        ["a", "--key", "k"],
        ["a", "-n1"],
        ["a", "--help"],
        [],
        ["a", "-qn", "1"],
    ],
)
def test_what_is_not_plain_is_left_to_typer(words: list[str]) -> None:
    assert taken(every_kind, words, by_hand=True) is None


def test_a_variable_is_left_to_typer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert taken(every_kind, ["a"], by_hand=True)["key"] is None
    monkeypatch.setenv("LINE_KEY", "k")
    assert taken(every_kind, ["a"], by_hand=True) is None
    assert taken(every_kind, ["a"], by_hand=False)["key"] == "k"
