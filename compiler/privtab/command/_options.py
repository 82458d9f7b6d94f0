"""Options shared by several commands, and their interpretation."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from privtab.base import plugins
from privtab.base.errors import UsageError
from privtab.base.formats import STATE_HELP
from privtab.base.key_values import parse_key_values
from privtab.command._output import print_error, show_diagnostics, show_state_findings, spinner, stop
from privtab.command._parameters import argument, option, policies
from privtab.command._stored import load_policy, load_rows
from privtab.state.findings import stops

if TYPE_CHECKING:
    from privtab.base.signatures import Trust
    from privtab.bundle.pack import BundledDoor
    from privtab.bundle.sign import SigningKey
    from privtab.ir.nodes import Program
    from privtab.state.names import Places
    from privtab.state.nodes import State, StateFinding

PolicyOption = Annotated[
    str,
    option(
        "--policy -p POLICY",
        "A policy by name (cdap/final), a path, a bundle, or registry:URL#CHANNEL[@RELEASE].",
        autocompletion=policies,
    ),
]
PolicyArgument = Annotated[
    str, argument("POLICY", "A policy by name (cdap/final) or a path; or `--policy`.", autocompletion=policies)
]
StateOption = Annotated[Path, option("--state -s STATE", STATE_HELP)]
VariantOption = Annotated[str | None, option("--variant NAME", "Compile this variant of the tables.")]
ReadingOption = Annotated[
    list[str] | None,
    option("--reading ROW=NAME", "Use another reading of an ambiguous row (namespace/list=parent, any/share=strict)."),
]
DoorOption = Annotated[
    list[str] | None, option("--door DOCUMENT", "Also answer another system in its own form; repeatable.")
]
PartialOption = Annotated[bool, option("--allow-partial", "Skip wrong rows of the state instead of stopping.")]
AtOption = Annotated[str | None, option("--at TIME", "Moment to answer for, as in 2026-03-03T12:00Z. Default: now.")]
IncompleteLogsOption = Annotated[
    bool, option("--allow-incomplete-logs", "Go on although parts of the logs cannot be used.")
]
EmptyLogsOption = Annotated[bool, option("--allow-empty", "Succeed although the logs have no decision to look at.")]
AuthoriseOption = Annotated[
    list[str] | None,
    option("--authorise TABLE[.add|.remove]=OPERATION", "Operation that authorises rows of a store; repeatable."),
]
OutputOption = Annotated[Path | None, option("--output -o FILE", "Write to this file instead of standard output.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Decision logs, and how they are read."""

    logs: Annotated[
        list[Path], argument("LOGS", "Decision logs as OPA uploads or prints them: files, folders; or store:URL.")
    ]
    system: Annotated[
        str | None, option("--system NAME", "The package in the log. Default: the system of the policy.")
    ] = None
    mapping: Annotated[
        str | None,
        option("--mapping DOCUMENT", "The log is another system's: ranger, trino, or a document of your own."),
    ] = None
    door: Annotated[
        str | None,
        option(
            "--door DOCUMENT",
            "The log is of an OPA that answers this door: trino, polaris, kafka, or a document of your own.",
        ),
    ] = None
    metrics: Annotated[
        list[Path] | None,
        option("--metrics FILE", "What an OPA answers at /v1/status: entries it dropped; repeatable."),
    ] = None


def readings(options: list[str] | None) -> dict[str, str]:
    """Parse `--reading ROW=NAME` options; raises UsageError."""
    return parse_key_values(options, "--reading", "ROW=NAME", example="namespace/list=parent")


def doors(program: Program, documents: list[str] | None) -> list[BundledDoor]:
    """Read the documents of `--door`, and show what they leave out; raises UsageError, PolicyInvalid."""
    found = [plugins.load_plugin(plugins.DOORS, "document").opened(document, program) for document in documents or ()]
    show_diagnostics(note for door in found for note in door.notes)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What is chosen of the tables of a policy."""

    variant: VariantOption = None
    reading: ReadingOption = None

    def chosen(self) -> dict[str, Any]:
        """The variant and the readings, as functions take them. Raises UsageError."""
        return {"variant": self.variant, "readings": readings(self.reading)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions(Chosen):
    """A policy, in tables or in a bundle, with a variant and readings."""

    policy: PolicyOption

    def program(self) -> Program:
        """The program of the policy."""
        return load_policy(self.policy, **self.chosen())


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyArguments(PolicyOptions):
    """A policy as the first argument, with a variant and readings."""

    policy: PolicyArgument


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChoice:
    """A policy, or a variant of it."""

    policy: PolicyOption
    variant: VariantOption = None

    def program(self) -> Program:
        """The program of the policy."""
        return load_policy(self.policy, variant=self.variant)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(PolicyOptions):
    """What a question is about: a policy, a state and a moment."""

    state: StateOption
    at: AtOption = None
    allow_partial: PartialOption = False

    def rows(self, program: Program) -> tuple[State, Places, bool]:
        """The state of the moment and the positions of its rows, as `load_for_queries` reads them."""
        moment = moment_of(self.at)
        with spinner("reading the state"):
            state, places, partial = load_for_queries(program, self.state, allow_partial=self.allow_partial)
            return state.at(moment), places.some(state.held(moment)), partial


def moment_of(at: str | None) -> int:
    """The moment of `--at`, or the present one; raises UsageError for anything but a time."""
    from privtab.base.moments import WrongTime, current_moment, parse_moment

    try:
        return current_moment() if at is None else parse_moment(at)
    except WrongTime as error:
        raise UsageError(f"`--at {at}` {error}: {error.help}") from None


def load_state(program: Program, path: Path, *, allow_partial: bool = False) -> State:
    """Read and check a state; its errors go to standard error, and result in exit code 1 unless `allow_partial`."""
    return load_state_and_places(program, path, allow_partial=allow_partial)[0]


def load_state_and_places(program: Program, path: Path, *, allow_partial: bool = False) -> tuple[State, Places]:
    """As `load_state`, with the position of each row."""
    state, places, errors = _load_and_check(program, path)
    if errors and not allow_partial:
        stop_for_wrong_rows(f"{len(errors)} wrong row(s) in {path}")
    return state, places


def load_for_queries(program: Program, path: Path, *, allow_partial: bool = False) -> tuple[State, Places, bool]:
    """Read and check a state of every moment for queries, with the position of each row.

    Also returns whether invalid rows were left out without `allow_partial`. An invalid row that can only allow is reported
    and left out, since that cannot allow more. One that may carry a denial results in exit code 1 unless `allow_partial`,
    as does a file or a table that was not read whole.
    """
    state, places, errors = _load_and_check(program, path)
    if allow_partial or not errors:
        return state, places, False
    if stopping := [error for error in errors if stops(program, error)]:
        may_deny = program.semantics.deny != "none" or program.filters
        problem = (
            f"{len(stopping)} wrong row(s) in {path} may carry a denial" if may_deny else f"{path} was not read whole"
        )
        stop_for_wrong_rows(problem)
    print_error(f"{len(errors)} wrong row(s) in {path}: answered without them")
    return state, places, True


def stop_for_wrong_rows(problem: str) -> NoReturn:
    """Exit with 1 for rows that `--allow-partial` leaves out."""
    stop(f"{problem}; `--allow-partial` continues without them")


def _load_and_check(program: Program, path: Path) -> tuple[State, Places, list[StateFinding]]:
    from privtab.state.load import validate_with_places

    state, places, findings = validate_with_places(program, load_rows(program, path))
    errors = [finding for finding in findings if finding.severity == "error"]
    show_state_findings(errors)
    return state, places, errors


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
        "Sign with this private key, a PEM file (privtab bundle keys new).",
        envvar=SIGNING_KEY,
        callback=lambda value: _check_not_empty(value, "--signing-key", SIGNING_KEY),
    ),
]
KeyIdOption = Annotated[
    str | None, option("--key-id ID", "Key id in OPA's configuration. (default: a hash of the key)")
]
ScopeOption = Annotated[
    str, option("--scope TEXT", "Scope of the signature; OPA must be configured with the same one.")
]
SequenceOption = Annotated[
    int | None,
    option(
        "--sequence N", "Sequence number of the bundle, such as a build number; verifiers refuse lower ones.", min=0
    ),
]
VerificationKeyOption = Annotated[
    list[str] | None,
    option("--verification-key FILE", "Public key to verify with, a PEM file; repeatable.", envvar=VERIFICATION_KEY),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningOptions:
    """How bundles are signed."""

    key: SigningKeyOption = None
    key_id: KeyIdOption = None
    scope: ScopeOption = ""
    sequence: SequenceOption = None

    def signing_key(self, algorithm: str | None = None) -> SigningKey | None:
        """The key to sign with, or None. Raises UsageError for options that need a key."""
        if not self.key:
            if self.key_id or self.scope or self.sequence is not None or algorithm:
                raise UsageError(
                    "`--key-id`, `--scope`, `--sequence` and `--algorithm` say how to sign: give `--signing-key`"
                )
            return None
        from privtab.bundle.sign import SigningKey

        return SigningKey.of(self.key, id=self.key_id, scope=self.scope, sequence=self.sequence, algorithm=algorithm)


def trust(keys: list[str] | None, scope: str = "") -> Trust | None:
    """The trusted keys and scope; None if no key is given."""
    # The variable may hold several keys, as for the client; Typer would split it at spaces, which PEM text contains.
    key_texts = [part for key in keys or [] for part in key.split(",") if part]
    if not key_texts:
        _check_not_empty(None if keys is None else "", "--verification-key", VERIFICATION_KEY)
        if scope:
            raise UsageError("`--scope` is verified with a key: give `--verification-key`")
        return None
    from privtab.base.signatures import Trust

    return Trust.of(key_texts, scope)
