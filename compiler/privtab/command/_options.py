"""Options shared by several commands, and their interpretation."""

from __future__ import annotations

import os
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Annotated, NamedTuple

from privtab.base import plugins
from privtab.base.errors import UsageError
from privtab.base.files import STATE_HELP
from privtab.base.key_values import parse_key_values
from privtab.base.records import dataclass
from privtab.command._files import load_policy, load_rows
from privtab.command._output import err, print_error, show_findings, stop
from privtab.command._parameters import argument, option

if TYPE_CHECKING:
    from privtab.base.signatures import Trust
    from privtab.bundle.pack import BundledDoor
    from privtab.bundle.sign import SigningKey
    from privtab.ir.nodes import Program
    from privtab.state.names import Places
    from privtab.state.nodes import State

PolicyOption = Annotated[
    str,
    option(
        "--policy -p POLICY",
        "A policy by name or path (cdap/final, lake.yaml@VARIANT), a bundle, or registry:URL#CHANNEL[@RELEASE].",
    ),
]
PolicyArgument = Annotated[
    str,
    argument("POLICY", "A policy by name or path (cdap/final, lake.yaml@VARIANT); or `--policy`.", also="--policy -p"),
]
DoorOption = Annotated[
    list[str] | None, option("--door DOCUMENT", "Also answer another system in its own form; repeatable.")
]
PartialOption = Annotated[bool, option("--allow-partial", "Skip wrong rows of the state instead of stopping.")]
"""Whether wrong rows are skipped: `allow_partial: PartialOption = False`."""


def _moment(text: str) -> int:
    from privtab.base.moments import WrongTime, parse_moment

    try:
        return parse_moment(text)
    except WrongTime as error:
        raise UsageError(f"`--at {text}` {error}: {error.help}") from None


AtOption = Annotated[
    int | None, option("--at TIME", "Moment to answer for, as in 2026-03-03T12:00Z. Default: now.", parser=_moment)
]
"""The moment of an answer, None for the present: `at: AtOption = None`."""
OutputOption = Annotated[Path | None, option("--output -o FILE", "Write to this file instead of standard output.")]
"""The file of a report, which `deliver` writes: `output: OutputOption = None`."""


def open_doors(program: Program, documents: list[str] | None) -> list[BundledDoor]:
    """Read the documents of `--door`, and show what the documents leave out; raises UsageError, PolicyInvalid.

    >>> open_doors(load_policy("cdap/final"), None)
    []
    """
    found = [plugins.load_plugin("privtab.doors", "document").opened(document, program) for document in documents or ()]
    show_findings(note for door in found for note in door.notes)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """Options for a policy, in tables or in a bundle: `policy: PolicyOptions`."""

    policy: PolicyOption

    def program(self) -> Program:
        """The program of the policy."""
        return load_policy(self.policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyArguments(PolicyOptions):
    """Parameters for a policy as the first argument: `policy: PolicyArguments`."""

    policy: PolicyArgument


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionOptions(PolicyOptions):
    """Options for what a question is about, a policy, a state and a moment: `asked: QuestionOptions`."""

    state: Annotated[Path, option("--state -s STATE", STATE_HELP)]
    at: AtOption = None

    def moment(self) -> int:
        """The moment of `--at`, or the present moment."""
        return time_ns() if self.at is None else self.at

    def rows(self, program: Program) -> LoadedState:
        """The state of the moment and the positions of its rows, as `load_state` reads them for queries."""
        moment = self.moment()
        with err().spinner("reading the state"):
            state, places, partial = load_state(program, self.state, for_queries=True)
            return LoadedState(state.at(moment), places.some(state.held(moment)), partial)


class LoadedState(NamedTuple):
    """A state with the position of each row, and whether wrong rows were left out although nobody asked for that."""

    state: State
    places: Places
    partial: bool


def load_state(
    program: Program, path: Path, *, allow_partial: bool = False, for_queries: bool = False, samples: bool = False
) -> LoadedState:
    """Read and check a state; its errors go to standard error, and result in exit code 1 unless `allow_partial`.

    `for_queries`: only report a wrong row that can only allow, and leave out that row, since that cannot allow more. A row
    that may carry a denial still results in exit code 1, as does a file or a table that was not read whole. Read one for all moments:

        state = load_state(program, Path("state.yaml")).state
    """
    from privtab.state.load import validate_with_places

    state, places, findings = validate_with_places(program, load_rows(program, path, samples=samples or for_queries))
    errors = [finding for finding in findings if finding.severity == "error"]
    show_findings(errors)
    if allow_partial or not errors:
        return LoadedState(state, places, partial=False)
    problem = f"{len(errors)} wrong row(s) in {path}"
    if not for_queries:
        stop(f"{problem}; `--allow-partial` continues without them")
    if stopping := [error for error in errors if error.stops(program)]:
        may_deny = program.semantics.deny != "none" or program.filters
        reason = (
            f"{len(stopping)} wrong row(s) in {path} may carry a denial" if may_deny else f"{path} was not read whole"
        )
        stop(f"{reason}: mend them, or ask about a bundle without them (`privtab state pack --allow-partial`)")
    print_error(f"{problem}: answered without them")
    return LoadedState(state, places, partial=True)


# --- signatures ---


SIGNING_KEY, VERIFICATION_KEY = "PRIVTAB_SIGNING_KEY", "PRIVTAB_VERIFICATION_KEY"


def _check_not_empty(key: str | None, option: str, variable: str) -> str | None:
    """The key. Raises UsageError for one that is given and empty, as a variable is that a job failed to set."""
    if not key and (key is not None or variable in os.environ):
        raise UsageError(f"`{option}` or ${variable} is empty, as if no key were wanted: give a key, or unset it")
    return key


SigningKeyOption = Annotated[
    str | None,
    option(
        "--signing-key FILE",
        "Sign with this private key, a PEM file (privtab bundle keys --new).",
        envvar=SIGNING_KEY,
        callback=lambda value: _check_not_empty(value, "--signing-key", SIGNING_KEY),
    ),
]
"""A private key, or its file: `signing_key: SigningKeyOption = None`."""
SIGNATURE = ("scope", "sequence", "key-id", "algorithm")


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningOptions:
    """Options for how bundles are signed: `sign: SigningOptions`."""

    key: SigningKeyOption = None
    signature: Annotated[
        list[str] | None,
        option(
            "--signature NAME=VALUE",
            "scope=TEXT that OPA requires, sequence=N that verifiers refuse lower ones than, key-id=ID, algorithm=RS256.",
        ),
    ] = None

    def signing_key(self) -> SigningKey | None:
        """The key to sign with, or None. Raises UsageError for options that need a key."""
        given = parse_key_values(self.signature, "--signature", example="sequence=812", names=SIGNATURE)
        if (number := given.get("sequence")) is not None and not (number.isdecimal() and number.isascii()):
            raise UsageError(f"`--signature sequence={number}`: write a number, such as that of a build")
        if not self.key:
            if given:
                raise UsageError("`--signature` says how to sign: give `--signing-key`")
            return None
        from privtab.bundle.sign import SigningKey

        claims = {"id": given.get("key-id"), "algorithm": given.get("algorithm")}
        return SigningKey.of(
            self.key, scope=given.get("scope", ""), sequence=None if number is None else int(number), **claims
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationOptions:
    """Options for the keys and the scope that signatures are verified with.

    >>> VerificationOptions().trust() is None
    True
    """

    keys: Annotated[
        list[str] | None,
        option(
            "--verification-key FILE", "Public key to verify with, a PEM file; repeatable.", envvar=VERIFICATION_KEY
        ),
    ] = None
    scope: Annotated[str, option("--scope TEXT", "Scope that signatures must have.")] = ""

    def trust(self) -> Trust | None:
        """The trusted keys and scope; None if no key is given. Raises UsageError."""
        # The variable may hold several keys, as for the client; Typer would split it at spaces, which PEM text contains.
        key_texts = [part for key in self.keys or [] for part in key.split(",") if part]
        if not key_texts:
            _check_not_empty(None if self.keys is None else "", "--verification-key", VERIFICATION_KEY)
            if self.scope:
                raise UsageError("`--scope` is verified with a key: give `--verification-key`")
            return None
        from privtab.base.signatures import Trust

        return Trust.of(key_texts, self.scope)
