"""Texts in the languages of models, by grammars beside this module."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from lark import Lark, Token, Transformer, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from privtab.base import FileError


class Language(Transformer[Token, Any]):
    """A language by the grammar `NAME.lark`; `made` is what is made of the parts of a rule, which otherwise is its name and its parts."""

    def __init__(self, name: str, made: Mapping[str, Callable[[list[Any]], Any]]) -> None:
        super().__init__()
        self._grammar, self._made = name, made

    def __default__(self, rule: Any, parts: list[Any], meta: Any) -> Any:
        if rule.startswith("_"):  # the parts of its rule are those of the one around it
            return Tree(rule, parts, meta)
        return self._made[rule](parts) if rule in self._made else (str(rule), *parts)

    @cache  # noqa: B019 - languages are kept as long as their modules
    def _parser(self, start: str) -> Lark:
        grammar = Path(__file__).with_name(f"{self._grammar}.lark").read_text("utf-8")
        return Lark(grammar, parser="lalr", start=start, transformer=self, maybe_placeholders=True)

    def parse(self, text: str, path: str, start: str) -> Any:
        """What is made of a text, which is a `start`. Raises FileError with the place of what the language does not have."""
        parser = self._parser(start)
        expected: list[str] = []
        try:
            return parser.parse(text)
        except UnexpectedToken as error:
            line, column, found = error.line, error.column, f"`{error.token}`"
            if error.token.type == "$END":
                line, column, found = text.count("\n") + 1, len(text) - text.rfind("\n"), "the end"
            expected = sorted(_shown(parser, name) for name in error.accepts or error.expected)
        except UnexpectedCharacters as error:
            line, column, found = error.line, error.column, f"`{error.char}`"
        wrong = (
            f"expected {' or '.join(expected)}, not {found}" if 0 < len(expected) < 7 else f"{found} cannot stand here"
        )
        raise FileError(f"{path}:{line}:{column}: {wrong}")


def _shown(parser: Lark, name: str) -> str:
    """A terminal as messages name it: by what it is, or by its words."""
    names = {"IDENT": "a name", "NAME": "a name", "STRING": "a text", "MARK": "`#` or `:*`", "$END": "the end"}
    if name in names:
        return names[name]
    return f"`{'` or `'.join(re.findall(r'[A-Za-z]{2,}|^.$|^..$', parser.get_terminal(name).pattern.value))}`"


def place(path: str, word: str) -> str:
    """The place of a word in a text: `model.fga:7:12`, or the path alone if it is of none."""
    return f"{path}:{word.line}:{word.column}" if isinstance(word, Token) else path
