"""Help texts: the docstrings of commands as a terminal of any width shows them."""

from __future__ import annotations

import inspect
import re

import typer

EXAMPLE = "\b"
"""Begins a paragraph whose lines stay as they are."""


def flow(app: typer.Typer) -> None:
    """Let the paragraphs of all commands of an application flow; brackets stay brackets."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.help = flowing(inspect.getdoc(command.callback) or "")


def flowing(text: str) -> str:
    r"""A docstring with each paragraph on one line, but for examples.

    >>> flowing("Say\nwhat is in [x].\n\nExample:\n\n\b\n  privtab a\n  privtab b")
    'Say what is in \\[x].\n\nExample:\n\n[dim][/dim]  privtab a\n  privtab b'
    """
    return "\n\n".join(map(_paragraph, text.split("\n\n")))


def _paragraph(text: str) -> str:
    plain = re.sub(r"\[(?=[a-z#/@])", r"\\[", text)
    # Typer takes away what all lines are indented by: the empty tag stands at the edge.
    return f"[dim][/dim]{plain[len(EXAMPLE) :].strip(chr(10))}" if text.startswith(EXAMPLE) else " ".join(plain.split())
