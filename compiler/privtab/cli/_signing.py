"""Options of commands that sign or verify, and their interpretation."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from privtab.cli._parameters import option
from privtab.errors import UsageError

if TYPE_CHECKING:
    from privtab.bundle.sign import SigningKey
    from privtab.signatures import Trust

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
    from privtab.signatures import Trust

    return Trust.of(key_texts, scope)
