"""Settings: arguments before the environment before a file; what is wrong is told with its source."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

from privtab import Client, Embedded, UsageError, connect
from privtab.client import AsyncClient, Mode, _config
from privtab.client._config import SETTINGS, resolve, table


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings but the test's."""
    for name in list(os.environ):
        if name.startswith("PRIVTAB_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_an_argument_goes_before_the_environment_before_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert resolve({})["retries"] == 2
    (tmp_path / "privtab.toml").write_text("[client]\nretries = 5\nmax_body = 7\ntimeout = [1, 2.5]\n")
    assert resolve({})["retries"] == 5
    monkeypatch.setenv("PRIVTAB_RETRIES", "7")
    settings = resolve({"chunk_size": 3})
    assert settings["retries"] == 7
    assert settings["max_body"] == 7
    assert settings["timeout"] == (1.0, 2.5)
    assert settings.sources == {
        "retries": "PRIVTAB_RETRIES",
        "max_body": "privtab.toml",
        "timeout": "privtab.toml",
        "chunk_size": "argument",
    }
    assert resolve({"retries": 0})["retries"] == 0


def test_the_file_is_the_one_that_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "privtab.toml").write_text("[client]\nretries = 5\n")
    (tmp_path / "other.toml").write_text('[client]\nurl = "unix:/run/opa.sock"\n')
    monkeypatch.setenv("PRIVTAB_CONFIG", "other.toml")
    assert resolve({})["retries"] == 2
    assert resolve({})["url"] == "unix:/run/opa.sock"


TUNING = {
    *("timeout", "total", "retries", "breaker_failures", "breaker_seconds", "max_staleness"),
    *("chunk_size", "concurrency", "pool_size", "max_body", "batch_window"),
}


@pytest.mark.parametrize("name", sorted(_config.NAMES))
def test_a_file_that_lies_in_the_working_directory_only_tunes(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody who can write there chooses what passes, who is believed, or who gets a token."""
    texts = {"mode": '"off"', "verify": "false", "cert": '["a", "b"]', "verification_key": '["mine.pem"]'}
    text = texts.get(name, "3" if name in TUNING or name.startswith(("cache", "min_")) else '"http://127.0.0.1:1"')
    file = tmp_path / "privtab.toml"
    file.write_text(f"[client]\n{name} = {text}\n")
    if name in TUNING:
        assert resolve({}).sources == {name: "privtab.toml"}
    else:
        for refused in (Client, AsyncClient, lambda: Embedded("policy.tar.gz"), connect):
            with pytest.raises(
                UsageError, match=rf"`{name}` is not taken from a file in the working directory.*_CONFIG"
            ):
                refused()
    monkeypatch.setenv("PRIVTAB_CONFIG", str(file))
    assert resolve({}).sources == {name: str(file)}


def test_no_file_that_lies_there_lets_anybody_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for mode in ("off", "observe", "enforce"):
        (tmp_path / "privtab.toml").write_text(f'[client]\nmode = "{mode}"\n')
        with pytest.raises(UsageError, match="`mode` is not taken"):
            Client("http://127.0.0.1:1").check("nobody", "read", "doc:s/d")
    (tmp_path / "privtab.toml").unlink()
    monkeypatch.setenv("PRIVTAB_MODE", "off")
    with Client("http://127.0.0.1:1") as client:
        assert client.check("nobody", "read", "doc:s/d")


def test_a_file_for_other_parts_of_privtab_is_no_matter(tmp_path: Path) -> None:
    (tmp_path / "privtab.toml").write_text('[lint]\nselect = ["P1"]\n')
    assert resolve({})["retries"] == 2


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("TIMEOUT", "2", (2.0, 2.0)),
        ("TIMEOUT", "0.5, 3", (0.5, 3.0)),
        ("VERIFY", "false", False),
        ("VERIFY", "True", True),
        ("VERIFY", "/etc/ca.pem", "/etc/ca.pem"),
        ("CERT", "a.pem,a.key", ("a.pem", "a.key")),
        ("CERT", "a.pem", "a.pem"),
        ("BATCH_WINDOW", "off", -1.0),
        ("BATCH_WINDOW", "0.01", 0.01),
        ("MODE", "off", Mode.OFF),
        ("MAX_STALENESS", "90", 90.0),
    ],
)
def test_the_text_of_a_variable(variable: str, text: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"PRIVTAB_{variable}", text)
    assert resolve({})[variable.lower()] == value


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("TIMEOUT", "soon"),
        ("TIMEOUT", "1,2,3"),
        ("TIMEOUT", "0"),
        ("TOTAL", "nan"),
        ("TOTAL", "inf"),
        ("RETRIES", "-1"),
        ("RETRIES", "1.5"),
        ("CHUNK_SIZE", "0"),
        ("MODE", "open"),
        ("CACHE_TTL", "0"),
        ("BATCH_WINDOW", "-1"),
    ],
)
def test_a_wrong_variable_is_named(variable: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"PRIVTAB_{variable}", text)
    with pytest.raises(UsageError, match=f"^PRIVTAB_{variable}: {variable.lower()} is `"):
        Client()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[client]\nretries = true\n", "privtab.toml: retries is `True`: give a whole number"),
        ('[client]\ntimeout = "1"\n', "privtab.toml: timeout is `1`: give seconds"),
        ("[client]\nretry = 1\n", "privtab.toml: unknown setting `retry` in `client`; did you mean `retries`"),
        ("client = 1\n", "`client` is not a table"),
        ("[client\n", "privtab.toml cannot be read as TOML"),
    ],
)
def test_a_wrong_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "privtab.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        Client()
    assert message in str(caught.value)


def test_a_file_that_is_named_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVTAB_CONFIG", "none.toml")
    with pytest.raises(UsageError, match=r"PRIVTAB_CONFIG: none\.toml cannot be read"):
        Client()


def test_a_wrong_token_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVTAB_TOKEN", "s3cret with a space")
    with pytest.raises(UsageError) as caught:
        Client()
    assert "s3cret" not in str(caught.value)
    with pytest.raises(UsageError) as caught:
        Client(token=7)  # type: ignore[arg-type]
    assert "7" not in str(caught.value)


def test_of_two_tokens_the_nearer_one_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("filed\n")
    monkeypatch.setenv("PRIVTAB_TOKEN", "old")
    settings = resolve({"token_file": tmp_path / "token"})
    assert (settings["token"], settings["token_file"]) == (None, str(tmp_path / "token"))
    monkeypatch.setenv("PRIVTAB_TOKEN_FILE", "x")
    with pytest.raises(UsageError, match="not both"):
        resolve({})
    assert resolve({"token": "mine"})["token_file"] is None


def test_a_client_takes_its_address_from_the_environment(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = raw_server(http_reply('{"result": true}'))
    monkeypatch.setenv("PRIVTAB_URL", server.url)
    monkeypatch.setenv("PRIVTAB_SYSTEM", "demo")
    with Client() as client:
        assert client.check("alice", "read", "doc:s/d")
        assert client.system == "demo"
    with connect() as client:
        assert isinstance(client, Client)
        assert client.check("alice", "read", "doc:s/d")


@pytest.mark.parametrize(
    "target", ["", "localhost:8181", "opa.acme.example:8181", "10.0.0.1:8181", "ftp://opa", "file:///b"]
)
def test_connect_takes_neither_nothing_nor_half_an_address_for_a_file(target: str) -> None:
    """Nothing would be the working directory, and whatever policy lies there."""
    with pytest.raises(UsageError, match="write http://host:port"):
        connect(target)


def test_connect_reads_addresses_as_they_are_written() -> None:
    with connect("HTTP://127.0.0.1:1") as client:
        assert isinstance(client, Client)


def test_connect_takes_settings_and_refuses_invalid_ones() -> None:
    with connect("http://127.0.0.1:1", mode="off") as client:
        assert client.check("alice", "read", "doc:s/d")
    with pytest.raises(UsageError, match="is an OPA; the engine `python` runs bundles"):
        connect("http://127.0.0.1:1", engine="python")
    with pytest.raises(UsageError, match="not the address of an OPA"):
        connect("policy.tar.gz", engine="opa")
    with pytest.raises(UsageError, match="verifies bundles itself"):
        connect("http://127.0.0.1:1", verification_key="key.pem")


def test_every_setting_is_an_argument() -> None:
    own = {name for name, setting in SETTINGS.items() if setting.help.startswith("`Embedded`")}
    of_opa = _config.NAMES - own - {"url"}
    assert set(_config.AsyncArguments.__annotations__) == of_opa
    assert set(_config.OpaArguments.__annotations__) == of_opa - {"batch_window"}
    assert own <= set(_config.BundleArguments.__annotations__) <= _config.NAMES


@pytest.mark.parametrize("client", [Client, AsyncClient, Embedded])
def test_an_argument_that_does_not_exist_is_refused(client: Any) -> None:
    with pytest.raises(TypeError, match=r"tokn.*did you mean `token`"):
        client("http://127.0.0.1:1", tokn="secret")


def test_the_page_shows_the_settings_as_they_are(update_golden: bool) -> None:
    page = ROOT / "docs" / "reference" / "asking.md"
    begin, end = "<!-- settings: begin -->", "<!-- settings: end -->"
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    expected = f"{head}{begin}\n\n{table()}\n\n{end}{tail}"
    if update_golden:
        page.write_text(expected, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == expected
    assert len(SETTINGS) == len({_config.variable(name) for name in SETTINGS})
