from __future__ import annotations

import json
from pathlib import Path

from privtab.backends.rego.body import RESERVED, FunctionNames
from privtab.base import resources


def test_a_name_is_handed_out_once() -> None:
    names = FunctionNames()
    assert [names.take("a_b"), names.take("a_b"), names.take("a_b_2")] == ["a_b", "a_b_2", "a_b_2_2"]


def test_every_built_in_function_of_our_shape_is_reserved() -> None:
    capabilities = json.loads(Path(resources.opa() / "capabilities.json").read_text(encoding="utf-8"))
    names = {builtin["name"] for builtin in capabilities["builtins"]}
    assert {name for name in names if "_" in name and "." not in name} <= RESERVED
