"""Entries of decision logs, bare and as other tools keep them: each form as its writer writes it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

TIME = "2026-01-02T03:04:05.123456789Z"
POD = {"pod_name": "opa-0", "namespace_name": "lake", "container_name": "opa", "docker_id": "ab12"}


REQUEST: dict[str, Any] = {
    "subject": {"type": "user", "id": "ann"},
    "action": {"name": "read"},
    "resource": {"type": "item", "id": "s/a/x"},
}


def entry(result: Any = True, input_: Any = REQUEST, rule: str = "allow", **more: Any) -> dict[str, Any]:
    """A decision of the policy `shop`."""
    return {
        "labels": {"id": "one"},
        "decision_id": "d1",
        "bundles": {"policy": {"revision": "p1"}, "state": {"revision": "s1"}},
        "path": f"privtab/shop/{rule}",
        "input": input_,
        "result": result,
        "timestamp": "2026-11-28T00:22:38.452483364Z",
        "metrics": {"timer_server_handler_ns": 852127},
        **more,
    }


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def docker(text: str) -> str:
    """Docker's `json-file`."""
    return _compact({"log": text + "\n", "stream": "stderr", "time": TIME})


def docker_in_parts(text: str, size: int = 200) -> str:
    """The same for a line longer than Docker keeps in one record."""
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    parts[-1] += "\n"
    return "\n".join(_compact({"log": part, "stream": "stderr", "time": TIME}) for part in parts)


def runtime(text: str) -> str:
    """The container runtime interface of Kubernetes."""
    return f"{TIME} stdout F {text}"


def runtime_in_parts(text: str, size: int = 150) -> str:
    """The same for a long line."""
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    return "\n".join([*(f"{TIME} stdout P {part}" for part in parts[:-1]), f"{TIME} stdout F {parts[-1]}"])


def hits(*entries: Any) -> Any:
    """What a search answers."""
    found = [{"_index": "opa", "_id": str(at), "_score": None, "_source": entry} for at, entry in enumerate(entries)]
    return {"took": 3, "timed_out": False, "hits": {"total": {"value": len(found), "relation": "eq"}, "hits": found}}


OBJECTS: dict[str, Callable[[Any], Any]] = {
    "docker": lambda entry: {"log": _compact(entry) + "\n", "stream": "stdout", "time": TIME},
    "docker with attributes": lambda entry: {
        "log": json.dumps(entry) + "\n", "stream": "stdout", "attrs": {"tag": "opa"}, "time": TIME
    },
    "fluent bit": lambda entry: {"date": 1767323045.1, "log": _compact(entry)},
    "fluent bit of kubernetes": lambda entry: {
        "date": 1767323045.1, "stream": "stdout", "_p": "F", "log": _compact(entry), "kubernetes": POD
    },
    "fluent bit, merged": lambda entry: {"date": 1.5, "log": _compact(entry) + "\n", "log_processed": entry},
    "fluent bit, nested": lambda entry: {"date": 1.5, "message": entry, "kubernetes": POD},
    "fluent bit, twice": lambda entry: {"date": 1.5, "log": {"msg": entry}},
    "fluent bit of a runtime": lambda entry: {"date": 1.5, "log": runtime(_compact(entry))},
    "elasticsearch": lambda entry: {"_index": "opa", "_id": "x", "_version": 1, "_source": entry},
    "search": hits,
    "filebeat": lambda entry: {
        "@timestamp": TIME, "log": {"file": {"path": "/var/log/opa"}, "offset": 7}, "message": _compact(entry), "stream": "stdout",
        "ecs": {"version": "8.0.0"}, "event": {"dataset": "opa", "original": _compact(entry)},
    },
    "journal": lambda entry: {"MESSAGE": _compact(entry), "_PID": "7", "PRIORITY": "6"},
    "solr": lambda entry: {"responseHeader": {"status": 0}, "response": {"numFound": 1, "docs": [entry]}},
}  # fmt: skip
"""An entry in an object."""

LINES: dict[str, Callable[[str], str]] = {
    "docker in parts": docker_in_parts,
    "runtime": runtime,
    "runtime in parts": runtime_in_parts,
    "compose": lambda text: f"opa-1  | {text}",
    "compose with times": lambda text: f"opa-1  | {TIME} {text}",
    "kubectl": lambda text: f"[pod/opa-0/opa] {text}",
    "kubectl with times": lambda text: f"[pod/opa-0/opa] {TIME} {text}",
    "docker with times": lambda text: f"{TIME} {text}",
    "logger": lambda text: f"2022-02-01 15:56:18,452 INFO  xaaudit - {text}",
    "system log": lambda text: f"<14>Jan  2 03:04:05 host opa[17]: {text}",
}
"""The text of an entry in lines."""


def wrapped(entry: Any, random_: random.Random) -> str:
    """An entry in up to three objects, and perhaps in lines."""
    for _ in range(random_.randrange(4)):
        entry = OBJECTS[random_.choice([*OBJECTS])](entry)
    text = _compact(entry)
    return LINES[random_.choice([*LINES])](text) if random_.random() < 0.5 else text
