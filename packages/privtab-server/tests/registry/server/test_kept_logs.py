"""Decision logs that the registry server keeps: what was acknowledged is in the files, whatever happens to the server."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import random
import resource
import signal
import socket
import stat
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import sidecars
from authzen_server import Server
from example_bundles import ExampleBundles

from privtab_logs import reading
from privtab_logs.moments import Moments, Policy, registered
from privtab_logs.replaying import replay
from privtab_logs.schema import Reading
from privtab_server.registry import Registry
from privtab_server.registry.server import kept_logs
from privtab_server.registry.server.kept_logs import KeptLogs
from privtab_server.serving.endpoint import HttpError

PACKED = {"Content-Type": "application/json", "Content-Encoding": "gzip"}


def entry(decision_id: str) -> dict[str, Any]:
    return {
        "labels": {"id": "sidecar"},
        "decision_id": decision_id,
        "path": "privtab/shop/allow",
        "input": {
            "subject": {"type": "user", "id": "ann"},
            "action": {"name": "read"},
            "resource": {"type": "item", "id": "s/a/i"},
        },
        "result": True,
        "timestamp": "2026-11-28T00:22:38Z",
    }


def upload(count: int) -> tuple[list[str], bytes]:
    ids = [str(uuid.uuid4()) for _ in range(count)]
    return ids, gzip.compress(json.dumps([entry(id_) for id_ in ids]).encode())


def kept(folder: Path) -> tuple[list[str], Reading]:
    account = Reading()
    return reading.read(folder, reading=account)["decision_id"].to_pylist(), account


class Sender(threading.Thread):
    """Uploads all the time, to where a server is; `acknowledged` has what was answered with 200."""

    def __init__(self, seed: int) -> None:
        super().__init__(daemon=True)
        self.random = random.Random(seed)
        self.url = ""
        self.acknowledged: list[str] = []
        self.ending = threading.Event()

    def run(self) -> None:
        with requests.Session() as session:
            session.trust_env = False
            while not self.ending.is_set():
                ids, body = upload(self.random.choice((1, 20, 2000)))
                with contextlib.suppress(requests.RequestException):
                    if session.post(f"{self.url}/logs", data=body, headers=PACKED, timeout=5).status_code == 200:
                        self.acknowledged += ids


@contextlib.contextmanager
def senders(count: int) -> Iterator[list[Sender]]:
    started = [Sender(number) for number in range(count)]
    try:
        yield started
    finally:
        for sender in started:
            sender.ending.set()
            if sender.is_alive():
                sender.join()


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.long)])
def test_nothing_acknowledged_is_lost_when_the_server_is_killed(kills: int, serving: Any, tmp_path: Path) -> None:
    folder, chance = tmp_path / "logs", random.Random(kills)
    with senders(3) as sending:
        for number in range(kills):
            server: Server = serving("--logs", folder, "--quiet")
            before = sum(len(sender.acknowledged) for sender in sending)
            for sender in sending:
                sender.url = server.url
                if not number:
                    sender.start()
            sidecars.until(lambda before=before: sum(len(s.acknowledged) for s in sending) > before)  # type: ignore[misc]
            time.sleep(chance.random() / 4)
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
            assert server.process.stdout is not None
            server.process.stdout.close()
    acknowledged = [id_ for sender in sending for id_ in sender.acknowledged]
    found, account = kept(folder)
    assert len(acknowledged) > kills
    assert set(acknowledged) <= set(found)
    assert account.damaged <= 2 * kills
    assert all("cut off" in place for place in account.places)
    assert len(list(folder.iterdir())) >= kills


def test_an_opa_loses_nothing_when_the_receiver_is_killed_on_the_way(
    serving: Any, opas: Any, registry: Registry, packed: ExampleBundles, tmp_path: Path
) -> None:
    """And what it sent is replayed: without a difference by the same policy, and by another with what that one allows."""
    folder = tmp_path / "logs"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    first: Server = serving("--logs", folder, "--listen", port)
    (opa,) = opas(sidecars.configuration(first.url))
    sidecars.until(lambda: opa.revision("state") and opa.revision("policy"))

    def asks(number: int) -> set[str]:
        """The ids of decisions, as OPA says them."""
        body = {"input": entry("")["input"] | {"subject": {"type": "user", "id": "olga"}}}
        answers = (
            opa.session.post(f"{opa.url}/v1/data/privtab/shop/allow", json=body, timeout=5) for _ in range(number)
        )
        return {answer.json()["decision_id"] for answer in answers}

    asked = asks(300)
    first.process.kill()
    first.process.wait()
    asked |= asks(300)
    second: Server = serving("--logs", folder, "--listen", port)
    asked |= asks(300)
    sidecars.until(lambda: asked <= set(kept(folder)[0]), 60)
    assert second.process.poll() is None
    policy, state = registered(registry, "shop")
    same, other = (Moments(new=Policy.of(program), policy=policy, state=state) for program in packed.programs)
    assert replay(reading.batches([folder], Reading()), same).questions.num_rows == 0
    found = replay(reading.batches([folder], Reading()), other)
    assert found.replayed >= len(asked)
    assert (found.count("gained"), found.count("unexplained")) == (found.replayed, 0)


def test_what_is_no_decision_log_is_neither_kept_nor_acknowledged(serving: Any, tmp_path: Path) -> None:
    server: Server = serving("--logs", tmp_path / "logs")
    assert server.post("/logs", {"no": "list"}).status_code == 400
    assert server.post("/logs", data=b"[{").status_code == 400
    assert server.post("/logs", data=upload(3)[1][:40], headers=PACKED).status_code == 400
    assert kept(tmp_path / "logs")[0] == []
    ids, body = upload(3)
    assert server.post("/logs/partition/one", data=body, headers=PACKED).status_code == 200
    assert kept(tmp_path / "logs")[0] == ids
    (file,) = (tmp_path / "logs").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_full_folder_refuses_and_goes_on_when_files_were_taken_away(serving: Any, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    server: Server = serving("--logs", folder, "--limit", "logs=0.001")
    acknowledged: list[str] = []
    ids, body = upload(500)
    while (answer := server.post("/logs", data=body, headers=PACKED)).status_code == 200:
        acknowledged += ids
        ids, body = upload(500)
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "10"
    assert "take files away" in answer.text
    assert kept(folder)[0] == acknowledged
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 1_000_000
    for file in folder.iterdir():
        file.rename(tmp_path / file.name)
    ids, body = upload(5)
    assert server.post("/logs", data=body, headers=PACKED).status_code == 200
    assert kept(folder)[0] == ids


def test_logs_need_the_token_of_a_sidecar(serving: Any, tmp_path: Path) -> None:
    folder, tokens = tmp_path / "logs", tmp_path / "tokens"
    tokens.write_text(f"reader {'r' * 40} operator\nopa {'s' * 40} sidecar\n")
    tokens.chmod(0o600)
    server: Server = serving("--logs", folder, "--token-file", tokens)
    ids, body = upload(2)
    statuses = [
        server.post("/logs", data=body, headers={**PACKED, **header}).status_code
        for header in ({}, {"Authorization": f"Bearer {'r' * 40}"}, {"Authorization": f"Bearer {'s' * 40}"})
    ]
    assert statuses == [401, 403, 200]
    assert kept(folder)[0] == ids


def appended(logs: KeptLogs, *texts: bytes) -> list[int]:
    """The statuses of uploads at once: 200 for what was kept."""

    async def one(text: bytes) -> int:
        try:
            await logs.append(text)
        except HttpError as error:
            return error.status
        return 200

    async def every() -> list[int]:
        return await asyncio.gather(*map(one, texts))

    return asyncio.run(every())


def test_more_than_may_wait_is_refused_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids, body = upload(10)
    text = gzip.decompress(body)
    monkeypatch.setattr(kept_logs, "MOST_WAITING", 3 * len(text))
    logs = KeptLogs(tmp_path / "logs", 1 << 30)
    statuses = appended(logs, *[text] * 8)
    assert statuses == [200] * 3 + [429] * 5
    assert logs.refused == {"waiting": 5, "failed": 0}
    assert logs.waiting_bytes == 0
    assert kept(tmp_path / "logs")[0] == ids * 3
    assert appended(logs, text) == [200]


def test_what_a_disk_takes_in_part_is_not_acknowledged_and_not_left_behind(tmp_path: Path) -> None:
    logs = KeptLogs(tmp_path / "logs", 1 << 30)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    acknowledged: list[str] = []
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
        status = 200
        while status == 200:
            ids, body = upload(20)
            (status,) = appended(logs, gzip.decompress(body))
            acknowledged += ids if status == 200 else []
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert status == 503
    found, account = kept(tmp_path / "logs")
    assert found == acknowledged != []
    assert account.damaged == 0
    ids, body = upload(20)
    assert appended(logs, gzip.decompress(body)) == [200]
    assert set(kept(tmp_path / "logs")[0]) == {*acknowledged, *ids}
    assert len(list((tmp_path / "logs").iterdir())) == 2


def test_what_failed_with_others_is_not_acknowledged(tmp_path: Path) -> None:
    """Uploads that are written together are kept together: not if one of them breaks the writer."""
    logs = KeptLogs(tmp_path / "logs", 1 << 30)
    text = gzip.decompress(upload(3)[1])

    async def append_concurrently() -> list[object]:
        with logs._writing:
            uploads = [asyncio.create_task(logs.append(one)) for one in (text, "no bytes", text)]  # type: ignore[arg-type]
            await asyncio.sleep(0.05)
            assert len(logs._waiting) == len(uploads)
        return await asyncio.gather(*uploads, return_exceptions=True)

    answers = asyncio.run(append_concurrently())
    assert kept(tmp_path / "logs")[0] == []
    assert not any(answer is None for answer in answers)
    assert appended(logs, text) == [200]


def test_uploads_whose_senders_left_count_until_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, body = upload(10)
    text = gzip.decompress(body)
    monkeypatch.setattr(kept_logs, "MOST_WAITING", 3 * len(text))
    logs = KeptLogs(tmp_path / "logs", 1 << 30)

    async def left() -> list[int]:
        with logs._writing:
            for _ in range(3):
                sending = asyncio.create_task(logs.append(text))
                await asyncio.sleep(0.05)
                sending.cancel()
                await asyncio.wait([sending])
            with pytest.raises(HttpError) as refused:
                await asyncio.wait_for(logs.append(text), 5)
        return [refused.value.status]

    assert asyncio.run(left()) == [429]
    assert appended(logs, text) == [200]
    assert set(kept(tmp_path / "logs")[0]) == set(ids)
