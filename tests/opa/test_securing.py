"""The sidecar with its door shut: a real OPA that authorizes by opa/system/authz, over HTTP and over TLS."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import studio_policy
from failing_servers import Authority, free_port, opa_process

from privtab import AsyncClient, Client, DecisionUnavailable, PolicyError
from privtab.base.resources import opa as opa_folder

ASK, STATUS, BOTH, WRONG = "ask-0123456789", "status-0123456789", "both-0123456789", "wrong-0123456789"
AUTHZ = opa_folder() / "system" / "authz" / "authz.rego"
SALARIES = ("read", "dataset:web/salaries")


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@dataclass(frozen=True)
class Secured:
    """An OPA that is up."""

    url: str
    log: Path
    authority: Path | None = None


Start = Callable[..., contextlib.AbstractContextManager[Secured]]


@pytest.fixture(scope="module")
def start(opa_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Starts OPAs with the studio's bundles."""
    folder = tmp_path_factory.mktemp("secured")
    policy, state = studio_policy.write(folder)
    access = {
        "tokens": {digest(ASK): ["ask"], digest(STATUS): ["status"], digest(BOTH): ["ask", "status"]},
        "certificates": {"CN=reader": ["ask"], "CN=watcher": ["status"]},
    }
    (folder / "access.json").write_text(json.dumps({"privtab_access": access}), encoding="utf-8")

    @contextlib.contextmanager
    def starting(*arguments: str | Path, scheme: str = "http", ready: Any = True) -> Iterator[Secured]:
        port = free_port()
        log = folder / f"opa-{port}.log"
        options = ["--addr", f"127.0.0.1:{port}", "--authorization=basic", "--set=status.prometheus=true"]
        options += [f"--set=bundles.{p.name[:-7]}.resource=file://{p}" for p in (policy, state)]
        url = f"{scheme}://127.0.0.1:{port}"
        with opa_process(opa_binary, log, *options, *arguments, AUTHZ, folder / "access.json") as process:
            deadline = time.monotonic() + 20
            while not answers(url, ready):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.03)
            yield Secured(url, log)

    return starting


def answers(url: str, settings: Any) -> bool:
    with contextlib.suppress(requests.RequestException):
        more = settings if isinstance(settings, dict) else {}
        return requests.get(f"{url}/health?bundles", timeout=2, **more).status_code == 200
    return False


@pytest.fixture(scope="module")
def secured(start: Start) -> Iterator[Secured]:
    with start("--authentication=token") as opa:
        yield opa


# --- which door opens to whom ---

ASKED = [
    ("POST", "/v1/data/privtab/studio/allow"),
    ("GET", "/v1/data/privtab/studio/allow"),
    ("POST", "/v1/data/privtab/studio/check"),
    ("POST", "/v1/data/privtab/studio/decision"),
    ("POST", "/v1/data/privtab/studio/decisions"),
    ("POST", "/v1/data/privtab/studio/explained"),
    ("POST", "/v1/data/privtab/studio/visible"),
    ("GET", "/v1/data/privtab_program"),
    ("GET", "/v1/data/privtab_program/studio"),
    ("GET", "/v1/data/privtab_program/studio/revision"),
    ("GET", "/v1/data/privtab_state/studio/revision"),
]
REPORTED = [("GET", "/v1/status"), ("GET", "/v1/config"), ("GET", "/metrics")]
SHUT = [
    ("GET", "/"),
    ("POST", "/"),
    ("GET", "/v1/data"),
    ("POST", "/v1/data"),
    ("PUT", "/v1/data"),
    ("PATCH", "/v1/data/privtab_state/studio"),
    ("PUT", "/v1/data/privtab_access"),
    ("GET", "/v1/data/privtab_access"),
    ("DELETE", "/v1/data/privtab_state"),
    ("GET", "/v1/data/privtab"),
    ("POST", "/v1/data/privtab/studio"),
    ("POST", "/v1/data/privtab/studio/lib"),
    ("POST", "/v1/data/privtab/studio/allow?explain=full"),
    ("POST", "/v1/data/privtab/studio/allow?instrument"),
    ("POST", "/v1/data/privtab/studio%2Frows/allow"),
    ("POST", "/v1/data/privtab%2Fstudio%2Fallow"),
    ("HEAD", "/v1/data/privtab/studio/allow"),
    ("PUT", "/v1/data/privtab/studio/allow"),
    ("POST", "/v0/data/privtab/studio/allow"),
    ("GET", "/v1/data/privtab_state"),
    ("GET", "/v1/data/privtab_state/studio"),
    ("GET", "/v1/data/privtab_state/studio%2Fallow/revision"),
    ("GET", "/v1/data/system"),
    ("GET", "/v1/policies"),
    ("GET", "/v1/policies/authz.rego"),
    ("PUT", "/v1/policies/authz.rego"),
    ("DELETE", "/v1/policies/authz.rego"),
    ("GET", "/v1/query?q=data"),
    ("POST", "/v1/query"),
    ("POST", "/v1/compile"),
    ("GET", "/debug/pprof/"),
    ("GET", "/health/live"),
    ("GET", "/nowhere"),
]
TOKENS: dict[str | None, str] = {
    None: "nobody",
    WRONG: "wrong",
    digest(ASK): "hash",
    ASK: "ask",
    STATUS: "status",
    BOTH: "both",
}
OPEN_TO: tuple[tuple[list[tuple[str, str]], tuple[str | None, ...]], ...] = (
    (ASKED, (ASK, BOTH)),
    (REPORTED, (STATUS, BOTH)),
    (SHUT, ()),
    ([("GET", "/health"), ("GET", "/health?bundles=true")], tuple(TOKENS)),
)
CELLS = [(method, path, tokens) for endpoints, tokens in OPEN_TO for method, path in endpoints]


@pytest.mark.parametrize("token", TOKENS, ids=TOKENS.values())
def test_each_path_opens_to_its_tokens_alone(secured: Secured, token: str | None) -> None:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    wrong: list[Any] = []
    with requests.Session() as session:
        for method, path, open_to in CELLS:
            body = b'{"input": {"requests": [], "items": []}}' if method == "POST" else None
            answer = session.request(
                method, secured.url + path, headers=headers, data=body, timeout=5, allow_redirects=False
            )
            # What is open may still have nothing to say: a policy answers a request without a subject with an error.
            opened = answer.status_code not in (401, 301, 404, 405)
            if opened is not (token in open_to):
                wrong.append((method, path, answer.status_code, answer.text[:80]))
    assert wrong == []


def test_a_token_in_any_other_form_opens_nothing(secured: Secured) -> None:
    url = f"{secured.url}/v1/data/privtab_program"
    for header in (ASK, f"Basic {ASK}", f"bearer  {ASK}", f"Bearer {ASK} {ASK}", "Bearer", "Bearer "):
        assert requests.get(url, headers={"Authorization": header}, timeout=5).status_code == 401, header
    assert requests.get(f"{url}?token={ASK}", timeout=5).status_code == 401
    assert requests.get(url, cookies={"Authorization": f"Bearer {ASK}"}, timeout=5).status_code == 401


# --- clients ---


def test_a_client_with_its_token_asks_everything_that_it_needs(secured: Secured) -> None:
    with Client(secured.url, token=ASK) as client:
        assert client.health()
        assert client.system == "studio"
        assert client.check("ann", *SALARIES)
        assert not client.check("ben", *SALARIES)
        assert client.decide("ben", *SALARIES).missing
        assert client.visible("ben", "list", "dataset", ["web/clicks", "web/salaries"]) == ["web/clicks"]
        assert client.filter("ben", "read", ["dataset:web/clicks", "dataset:web/salaries"]) == ["dataset:web/clicks"]
        condition = client.filter("ben", "read", "dataset")
        assert [condition.allows("web", name) for name in ("clicks", "salaries")] == [True, False]
        assert client.revision().state
    with Client(secured.url, token=BOTH, max_staleness=3600) as client:
        assert client.check("ann", *SALARIES), "the age of bundles is a matter of status"


@pytest.mark.parametrize("token", [None, WRONG, STATUS])
def test_a_client_without_the_right_token_gets_an_error_never_an_allow(secured: Secured, token: str | None) -> None:
    with Client(secured.url, system="studio", token=token) as client, pytest.raises(PolicyError, match="401") as raised:
        client.check("ann", *SALARIES)
    assert token is None or token not in str(raised.value)


# --- TLS ---


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls(authority: Authority) -> list[str]:
    certificate, key = authority.sign("opa")
    return [f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}"]


def test_token_and_tls_together(start: Start, authority: Authority, tls: list[str]) -> None:
    trusted = str(authority.certificate)
    with start("--authentication=token", *tls, scheme="https", ready={"verify": trusted}) as opa:
        with Client(opa.url, token=ASK, verify=trusted) as client:
            assert client.health()
            assert client.check("ann", *SALARIES)
        plain = opa.url.replace("https", "http")
        refused: list[tuple[str, dict[str, Any], type[Exception], str]] = [
            (opa.url, {"token": WRONG, "verify": trusted}, PolicyError, "401"),
            (opa.url, {"token": ASK}, DecisionUnavailable, "certificate"),
            (plain, {"token": ASK}, PolicyError, "400"),
        ]
        for url, settings, error, says in refused:
            with Client(url, system="studio", **settings) as client, pytest.raises(error, match=says):
                client.check("ann", *SALARIES)


def test_certificates_of_callers_in_place_of_tokens(
    start: Start, authority: Authority, tls: list[str], tmp_path: Path
) -> None:
    trusted = str(authority.certificate)
    reader, watcher, other = (authority.sign(name) for name in ("reader", "watcher", "other"))
    stranger = Authority(tmp_path / "stranger").sign("reader")
    ready = {"verify": trusted, "cert": tuple(map(str, other))}
    arguments = ["--authentication=tls", f"--tls-ca-cert-file={trusted}", *tls]

    async def ask_asynchronously(url: str) -> bool:
        cert = (str(reader[0]), str(reader[1]))
        async with AsyncClient(url, system="studio", verify=trusted, cert=cert) as client:
            return await client.check("ann", *SALARIES)

    with start(*arguments, scheme="https", ready=ready) as opa:

        def client(cert: tuple[Path, Path] | None, token: str | None = None) -> Client:
            pair = None if cert is None else (str(cert[0]), str(cert[1]))
            return Client(opa.url, system="studio", verify=trusted, cert=pair, token=token, retries=0)

        with client(reader) as asking:
            assert asking.check("ann", *SALARIES)
            assert not asking.check("ben", *SALARIES)
        assert asyncio.run(ask_asynchronously(opa.url))
        for known in (watcher, other):
            # A token is no certificate: it opens nothing where certificates are asked for.
            with client(known, ASK) as asking, pytest.raises(PolicyError, match="401"):
                asking.check("ann", *SALARIES)
        for unknown in (stranger, None):
            with client(unknown, ASK) as asking, pytest.raises(DecisionUnavailable):
                asking.check("ann", *SALARIES)


def test_a_token_that_reads_like_a_certificate_opens_nothing(secured: Secured) -> None:
    answer = requests.get(
        f"{secured.url}/v1/data/privtab_program", headers={"Authorization": "Bearer CN=reader"}, timeout=5
    )
    assert answer.status_code == 401


def test_whoever_writes_bundles_decides_everything(start: Start, bundle: Callable[..., Path]) -> None:
    """A bundle may take the place of the policy that guards OPA: where bundles come from is part of what must be guarded."""
    rego = "package system.authz\n\nallow := true\n"
    evil = bundle("system", {}, rego=rego)
    with start("--authentication=token", f"--set=bundles.evil.resource=file://{evil}") as opa:
        assert requests.get(f"{opa.url}/v1/data/privtab_access", timeout=5).status_code == 200


# --- the Rego ---


@pytest.mark.parametrize("folder", ["authz", "log"])
def test_the_rego_is_formatted_strict_and_tested(opa_binary: Path, folder: str) -> None:
    path = opa_folder() / "system" / folder

    def opa(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(opa_binary), *arguments, str(path)], check=False, capture_output=True, text=True, timeout=60
        )

    assert opa("fmt", "--list", "--fail").stdout == ""
    checked = opa("check", "--strict")
    assert checked.returncode == 0, checked.stderr
    tested = opa("test", "--format=json")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert len(json.loads(tested.stdout)) >= 5


def test_no_file_beside_the_policy_gives_roles() -> None:
    assert [path.suffix for path in sorted((opa_folder() / "system" / "authz").iterdir())] == [".rego", ".rego"]
