"""Exit codes of commands and jobs."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    FINDINGS = 1
    """Findings, or a failed check."""
    USAGE = 2
    """The command line or a settings file is wrong."""
    EXTERNAL = 3
    """No OPA, no network, or a file that cannot be read or written."""
