"""Several processes at one registry: one of them wins each release, and nothing is lost or mixed."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from buckets import bucket
from example_bundles import ExampleBundles

from privtab_server.registry import Registry
from privtab_server.registry.registry import StaticMirror

pytestmark = pytest.mark.slow

RACER = """\
import json, sys
from privtab_server.errors import RegistryConflict
from privtab_server.registry import Registry

url, options, name, policies, states, rounds = json.loads(sys.argv[1])
registry = Registry.open(url, **options)
registry.settings()
print("ready", flush=True)
sys.stdin.readline()
won = lost = 0
for at in range(rounds):
    before = registry.channel("dev", "shop").sequence
    which = at % 2
    try:
        registry.release(
            "dev", "shop", policy=policies[which], state=states[which], expect=before, by=name, why=str(at)
        )
        won += 1
    except RegistryConflict:
        lost += 1
for at in range(rounds // 2):
    registry.release("dev", "shop", policy=policies[0], state=states[0], by=name, why=f"again {at}")
    won += 1
print(json.dumps([won, lost]))
"""


def race(registry: Registry, options: dict[str, Any], packed: ExampleBundles, processes: int, rounds: int) -> None:
    policies = [registry.put(policy).id for policy in packed.policies]
    states = [registry.put(state).id for state in packed.states[:2]]
    running = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                RACER,
                json.dumps([registry.url, options, f"racer-{at}", policies, states, rounds]),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for at in range(processes)
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    results = [json.loads(process.communicate(timeout=120)[0]) for process in running]
    history = registry.history("dev", "shop")
    assert [entry.sequence for entry in history] == list(range(1, len(history) + 1))
    assert Counter(entry.by for entry in history) == {f"racer-{at}": won for at, (won, _) in enumerate(results) if won}
    assert sum(won + lost for won, lost in results) == processes * (rounds + rounds // 2)
    # Policy and state were always switched together, so no entry has one of each.
    assert {(entry.policy, entry.state) for entry in history} <= set(zip(policies, states, strict=True))
    # Nobody crashed: the copies are those of the last release.
    assert StaticMirror(registry).stale(registry.channel("dev", "shop")) == []


def test_two_processes_at_one_folder(tmp_path: Path, packed: ExampleBundles) -> None:
    race(Registry.open(str(tmp_path / "registry")), {}, packed, processes=2, rounds=40)


def test_two_processes_at_one_bucket(s3: str, packed: ExampleBundles) -> None:
    place = uuid.uuid4().hex
    options = bucket(s3, place)
    race(Registry.open(f"s3://{place}/registry", **options), options, packed, processes=2, rounds=3)


@pytest.mark.parametrize("which", ["file", "memory"])
def test_many_threads_store_the_same_bundle_and_release_it(which: str, tmp_path: Path, packed: ExampleBundles) -> None:
    from concurrent.futures import ThreadPoolExecutor

    url = str(tmp_path / "registry") if which == "file" else f"memory://{uuid.uuid4().hex}/registry"

    def work(at: int) -> int:
        registry = Registry.open(url)
        revision = registry.put(packed.policies[at % 2])
        return registry.release("dev", "shop", policy=revision.id, by=str(at)).sequence

    with ThreadPoolExecutor(8) as pool:
        sequences = list(pool.map(work, range(24)))
    assert sorted(sequences) == list(range(1, 25))
    assert len(Registry.open(url).revisions("shop")) == 2


CRASHER = """\
import json, os, sys
from privtab_server.registry import Registry

url, step, policy, state = json.loads(sys.argv[1])
registry = Registry.open(url)
done = 0

def after(name):
    inner = getattr(registry.store, name)
    def call(*arguments):
        global done
        if done == step:
            os._exit(9)
        inner(*arguments)
        done += 1
    setattr(registry.store, name, call)

for name in ("create", "replace", "remove"):
    after(name)
registry.release("dev", "shop", policy=policy, state=state)
print(done)
"""


def test_a_crash_at_any_step_leaves_the_old_or_the_new(tmp_path: Path, packed: ExampleBundles) -> None:
    steps = 0
    while True:
        registry = Registry.open(str(tmp_path / str(steps)))
        policies = [registry.put(policy).id for policy in packed.policies]
        states = [registry.put(state).id for state in packed.states[:2]]
        old = registry.release("dev", "shop", policy=policies[0], state=states[0])
        done = subprocess.run(
            [sys.executable, "-c", CRASHER, json.dumps([registry.url, steps, policies[1], states[1]])],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        now = registry.channel("dev", "shop")
        assert (now.policy, now.state) in {(policies[0], states[0]), (policies[1], states[1])}
        assert now.sequence == old.sequence + (now.policy == policies[1])
        assert (now.sequence == 1) == (steps <= 1)
        # Copies are each whole, whatever they are of; the next release, or a repair, brings them up.
        for name, bundles in (("policy", packed.policies), ("state", packed.states)):
            assert registry.store.read(f"channels/dev/shop/{name}.tar.gz") in bundles
        StaticMirror(registry).refresh(now)
        assert StaticMirror(registry).stale(now) == []
        assert list((tmp_path / str(steps)).rglob(".new-*")) == []
        if done.returncode == 0:
            break
        assert done.returncode == 9, done.stderr
        steps += 1
    assert steps == 6  # the hold, the entry, no hold any more, the two copies, channel.json
