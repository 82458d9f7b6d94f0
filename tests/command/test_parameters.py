"""How commands declare their parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from privtab.base.errors import UsageError
from privtab.base.resources import needing
from privtab.command._parameters import argument, option, with_options, words_of


@dataclass(frozen=True, kw_only=True)
class Place:
    where: Annotated[str, argument("WHERE", "The place.")]
    limit: Annotated[int | None, option("--limit -n N", "Number of lines.", min=0)] = None


@dataclass(frozen=True, kw_only=True)
class Look:
    quiet: Annotated[bool, option("--quiet", "Say nothing.")] = False


@with_options
def visit(name: Annotated[str, argument("NAME", "Who goes.")], *, place: Place, look: Look) -> None:
    """Visit a place."""
    print(name, place.where, place.limit, look.quiet)  # noqa: T201  (the outcome of the command)


def ran(*words: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(visit)
    outcome = CliRunner().invoke(app, words)
    return outcome.exit_code, outcome.output


def test_groups_of_options_become_parameters_of_the_command() -> None:
    assert visit.__name__ == "visit"
    assert ran("home", "ann", "--limit", "3") == (0, "ann home 3 False\n")
    assert ran("home", "ann", "-n", "0", "--quiet") == (0, "ann home 0 True\n")
    code, output = ran("--help")
    assert code == 0
    assert "WHERE" in output
    assert "Number of lines." in output
    assert ran("home", "ann", "--limit", "-1")[0] == 2
    assert ran("home", "ann", "--no-quiet")[0] == 2, "an option has the names that it is declared with"


def test_words_are_repeated_or_separated_by_commas() -> None:
    assert words_of(["a, b", "c", " , "]) == ["a", "b", "c"]
    assert words_of(None) == []


def test_a_missing_library_is_named_with_how_to_install_it() -> None:
    with (
        pytest.raises(UsageError, match=r"^a store needs no_such_library: pip install .*\[store\]"),
        needing("a store", "store"),
    ):
        import no_such_library  # type: ignore[import-not-found]  # noqa: F401
