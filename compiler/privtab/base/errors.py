"""The exceptions of privtab, one tree; and the exit codes of commands and jobs. Packages add their own below `PrivtabError`.

PrivtabError                  something outside of privtab failed (exit code 3, unless a kind says otherwise)
├── UsageError                the caller asked for something that does not exist (exit code 2)
│   ├── SettingsInvalid       a settings file is wrong; carries the findings
│   ├── HasWindows            rows of a state hold for a time, and the reader needs one moment; carries the state
│   └── UnsupportedError      a back end cannot express what the policy says; carries the place
│       └── Undecided         a question about conditions costs more than its budget
├── FileError                 a file that was named cannot be read or written
├── PolicyInvalid             a policy has findings that stop it; carries them (exit code 1)
├── StateInvalid              state rows are wrong; carries the findings (exit code 1)
├── FormatError               a file cannot be reformatted; a defect of privtab
├── BrokenBundle              a bundle is incomplete, or not a bundle
├── OpaError                  OPA could not be found, built or started
└── DecisionError             no answer that may be treated as an allow
    ├── AccessDenied          the request is denied; carries the decision (exit code 1; beside `Decision`)
    ├── InvalidRequest        the request uses names that the policy does not know; nothing was sent (exit code 2)
    ├── PolicyError           the decision point gave an invalid answer: undefined, wrong shape, 4xx
    │   └── SignatureRefused  a bundle is not signed as required
    └── DecisionUnavailable   no answer in time: refused, timed out, 5xx, no bundle active
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from privtab.base.diagnostics import Diagnostic, Span


class ExitCode(IntEnum):
    """The exit code of a command.

    >>> UsageError.exit_code
    <ExitCode.USAGE: 2>
    """

    OK = 0
    FINDINGS = 1
    """Findings, or a failed check."""
    USAGE = 2
    """The command line or a settings file is wrong."""
    EXTERNAL = 3
    """No OPA, no network, or a file that cannot be read or written."""


class PrivtabError(Exception):
    """The root of every exception that privtab raises on purpose.

    >>> try:
    ...     raise UsageError("no policy `lake`")
    ... except PrivtabError as error:
    ...     print(error, int(error.exit_code))
    no policy `lake` 2
    """

    exit_code: ClassVar[ExitCode] = ExitCode.EXTERNAL
    """How a command ends that raises the exception."""


class UsageError(PrivtabError):
    """The caller asked for something that does not exist or cannot be.

    >>> int(UsageError("`--at` is given twice").exit_code)
    2
    """

    exit_code = ExitCode.USAGE


class SettingsInvalid(UsageError):
    """A settings file is wrong; `diagnostics` holds every finding, sorted by place.

    >>> int(SettingsInvalid(()).exit_code)
    2
    """

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(sorted(set(diagnostics)))
        super().__init__("\n".join(_first(self.diagnostics)))


class FileError(PrivtabError):
    """A file that was named is not there, or cannot be read or written.

    >>> str(FileError("cannot read `lake.yaml`: No such file or directory"))
    'cannot read `lake.yaml`: No such file or directory'
    """


class PolicyInvalid(PrivtabError):
    """A policy has findings that stop it.

    `diagnostics` holds every finding, sorted by place; the message shows the first of them.

    >>> error = PolicyInvalid(())
    >>> error.diagnostics, int(error.exit_code)
    ((), 1)
    """

    exit_code = ExitCode.FINDINGS

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(sorted(set(diagnostics)))
        super().__init__("\n".join([f"{_findings(self.diagnostics)} in the policy", *_first(self.diagnostics)]))


class StateInvalid(PrivtabError):
    """Rows of a state are wrong; `findings` holds one value for each of them, and the message shows the first of them.

    `why`: the consequence, if it is not obvious.

    >>> print(StateInvalid(("grants.csv:2: unknown privilege `SELET`",)))
    1 finding in the state
    grants.csv:2: unknown privilege `SELET`
    """

    exit_code = ExitCode.FINDINGS

    def __init__(self, findings: tuple[object, ...], why: str = "") -> None:
        lines = [f"{_findings(findings)} in the state" + (f": {why}" if why else "")]
        lines += [_short(line) for finding in findings[:_ROWS] for line in str(finding).splitlines()]
        if len(findings) > _ROWS:
            lines.append(f"and {len(findings) - _ROWS:,} more, all in `findings`")
        super().__init__("\n".join(lines))
        self.findings = findings


class HasWindows(UsageError):
    """Rows of a state hold for a time, and the reader needs the state of one moment; `state` is the whole state.

    >>> HasWindows("rows hold for a time: name a moment", {"grants": []}).state
    {'grants': []}
    """

    def __init__(self, message: str, state: object) -> None:
        super().__init__(message)
        self.state = state


class UnsupportedError(UsageError):
    """A tool does not support a feature of the policy, or a back end cannot express what it says at `span`.

    >>> from privtab.base import Span
    >>> place = Span(path="lake.yaml", line=3, column=7, end_line=3, end_column=9)
    >>> str(UnsupportedError("Spark has no such condition", place))
    'lake.yaml:3:7: Spark has no such condition'
    """

    def __init__(self, message: str, span: Span | None = None) -> None:
        place = f"{span.path}:{span.line}:{span.column}: " if span else ""
        super().__init__(place + message)
        self.span = span


class Undecided(UnsupportedError):
    """A question about conditions costs more than its budget: the answer may be yes or no.

    >>> issubclass(Undecided, UnsupportedError)
    True
    """


class FormatError(PrivtabError):
    """A file cannot be reformatted without changing its meaning, which is a defect of privtab; the file is unchanged."""


class BrokenBundle(PrivtabError):
    """A bundle is incomplete, contains a file twice, or is not a bundle.

    >>> int(BrokenBundle("it has no manifest").exit_code)
    3
    """


class OpaError(PrivtabError):
    """OPA could not be found, built, started or stopped."""


class DecisionError(PrivtabError):
    """No answer that may be treated as an allow.

    >>> all(issubclass(kind, DecisionError) for kind in (InvalidRequest, PolicyError, DecisionUnavailable))
    True
    """


class InvalidRequest(DecisionError):
    """The request names an operation, type, path or object that the policy does not know.

    >>> int(InvalidRequest("unknown operation `drp`").exit_code)
    2
    """

    exit_code = ExitCode.USAGE

    def written(self, object_: str) -> str:
        r"""The message for callers who do not write JSON: with `object_` for `context.with.NAME`, where `\1` stands for the name.

        >>> InvalidRequest("`run` needs context.with.template: …").written(r"`--with \1=…`")
        '`run` needs `--with template=…`: …'
        """
        return re.sub(r"context\.with\.(\w+)", object_, str(self))


class PolicyError(DecisionError):
    """The decision point answered, but not with a decision: undefined, a wrong shape, a 4xx.

    >>> int(PolicyError("the decision is undefined").exit_code)
    3
    """


class SignatureRefused(PolicyError):
    """A bundle is not signed as required: not at all, by another key, for another scope, changed, or older than an earlier one.

    >>> issubclass(SignatureRefused, PolicyError)
    True
    """


class DecisionUnavailable(DecisionError):
    """No answer in time: refused, timed out, 5xx, or no bundle is active.

    `retry`: a retry may help. `retry_after`: the seconds that the decision point asks to wait.

    >>> DecisionUnavailable("no answer within 1 s", retry_after=0.5).retry_after
    0.5
    """

    def __init__(self, message: str = "", *, retry: bool = True, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry = retry
        self.retry_after = retry_after


_MOST = 20
"""How many findings of a policy or of settings a message shows."""
_ROWS = 5
"""How many wrong rows a message shows."""
_WIDEST = 240


def _findings(found: Sequence[object]) -> str:
    return "1 finding" if len(found) == 1 else f"{len(found):,} findings"


def _short(line: str) -> str:
    return line if len(line) <= _WIDEST else f"{line[: _WIDEST - 1]}…"


def _first(diagnostics: Sequence[Diagnostic]) -> list[str]:
    """The first findings with position, code and advice, and the number of the others."""
    lines = []
    for d in diagnostics[:_MOST]:
        code = f"{d.code} " if d.code else ""
        lines.append(f"{d.span.path}:{d.span.line}:{d.span.column}: {code}{d.message}")
        if d.help is not None:
            lines.append(f"  help: {d.help}")
    if len(diagnostics) > _MOST:
        lines.append(f"and {len(diagnostics) - _MOST:,} more, all in `diagnostics`")
    return lines
