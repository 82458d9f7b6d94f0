from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from privtab.base import FileError, UsageError
from privtab_server.authzen.app import Scope
from privtab_server.serving.tokens import Tokens, read

TOKEN = "a-token-0123456789"  # noqa: S105  (opens nothing)


def test_lines_are_names_tokens_and_scopes(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    digest = hashlib.sha256(b"another-token-0123").hexdigest()
    path.write_text(f"# who\n\n  gateway\t{TOKEN}\nconsole sha256:{digest} search\n", encoding="utf-8")
    tokens = Tokens(path, Scope)
    gateway, console = tokens.find(TOKEN), tokens.find("another-token-0123")
    assert gateway is not None
    assert (gateway.name, gateway.scopes) == ("gateway", frozenset(Scope))
    assert console is not None
    assert (console.name, console.scopes) == ("console", frozenset({Scope.SEARCH}))
    assert tokens.find(f"sha256:{digest}") is None
    assert tokens.find("") is None
    assert TOKEN not in repr(read(path, Scope))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no tokens"),
        ("# nothing\n", "no tokens"),
        (f"{TOKEN}\n", "tokens:1"),
        ("gateway short\n", "tokens:1"),
        (f"{TOKEN} gateway\n", "shorter"),
        (f"a {TOKEN}\nb {TOKEN}\n", "twice"),
        (f"a {TOKEN} everything\n", "evaluate, search"),
        (f"a b-token-0123456789 {TOKEN}\n", "evaluate, search"),
        ("a sha256:0123456789abcdef\n", "hash"),
        (f"a sha256:{'A' * 64}\n", "hash"),
    ],
)
def test_errors_name_the_mistake_without_the_token(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as raised:
        Tokens(path, Scope)
    assert says in str(raised.value)
    assert TOKEN not in str(raised.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileError):
        Tokens(tmp_path / "none", Scope)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(FileError):
        Tokens(tmp_path / "bytes", Scope)


def test_every_token_is_compared_whichever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of an answer says neither whether a token is nearly right nor where in the file it stands."""
    import hmac

    path = tmp_path / "tokens"
    path.write_text("".join(f"name-{at} token-number-{at:06}\n" for at in range(20)), encoding="utf-8")
    tokens = Tokens(path, Scope)
    compared: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def counting(left: bytes, right: bytes) -> bool:
        compared.append((len(left), len(right)))
        return real(left, right)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    for token in ("token-number-000000", "token-number-000019", "token-number-0", "", "x" * 100_000, "\udcff"):
        compared.clear()
        tokens.find(token)
        assert compared == [(32, 32)] * 20, "hashes of one length, all of them"
