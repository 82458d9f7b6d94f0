from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import POLICIES
from jsonschema import Draft202012Validator

from privtab.base.source import SourceFile
from privtab.language.syntax import read_policy
from privtab.language.syntax.keys import KEYS, policy_schema
from privtab.language.syntax.yaml_tree import MappingNode, ScalarNode, YamlNode, compose_yaml

SHIPPED = [p for p in sorted(POLICIES.rglob("*.yaml")) if "\nprivtab: 1" in "\n" + p.read_text("utf-8")]
MINIMAL = {"privtab": 1, "system": "shop", "version": "1", "entities": {"shop": None}}


def plain(node: YamlNode | None) -> Any:
    """The tree as an editor's YAML reader gives it to a schema checker."""
    if isinstance(node, MappingNode):
        return {key.text: plain(value) for key, value in node.entries}
    if isinstance(node, ScalarNode) or node is None:
        return None if node is None else node.value
    return [plain(item) for item in node.items]


def wrong(document: Any) -> bool:
    return not Draft202012Validator(policy_schema()).is_valid(document)


def test_the_schema_itself_is_valid() -> None:
    Draft202012Validator.check_schema(policy_schema())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.relative_to(POLICIES).as_posix())
def test_shipped_policies_fit(path: Path) -> None:
    tree = compose_yaml(SourceFile.of(str(path), path.read_text("utf-8")), [])
    errors = [f"{e.json_path}: {e.message}" for e in Draft202012Validator(policy_schema()).iter_errors(plain(tree))]
    assert errors == []


def test_there_are_shipped_policies_to_check() -> None:
    assert len(SHIPPED) >= 6


def test_every_key_has_a_description_for_editors() -> None:
    assert all(key.about for keys in KEYS.values() for key in keys)
    row = policy_schema()["$defs"]["row"]["properties"]
    assert row["requires"]["description"].startswith("may the call be made")


WRONG: dict[str, dict[str, Any]] = {
    "another format": {"privtab": 2},
    "a system that cannot name a package": {"system": "My-Shop"},
    "an unknown key": {"privilege": ["READ"]},
    "entities as a list": {"entities": ["shop"]},
    "a child that is no mapping": {"entities": {"shop": "shelf"}},
    "a type name in capitals": {"entities": {"Shop": None}},
    "a type called parent": {"entities": {"parent": None}},
    "a privilege of a wrong shape": {"privileges": {"READ": {"at": ["shop"]}}},
    "an unknown inheritance": {"semantics": {"inheritance": "up"}},
    "an owner that is true": {"semantics": {"owner": True}},
    "owners of an unknown kind": {"semantics": {"owner": {"kinds": ["robot"]}}},
    "a row that is a list": {"tables": {"shop": {"open": ["READ (shop)"]}}},
    "a row without a condition": {"tables": {"shop": {"open": {"note": "…"}}}},
    "a row with an unknown key": {"tables": {"shop": {"open": {"require": "anyone"}}}},
    "an operation with a dash": {"tables": {"shop": {"open-all": "anyone"}}},
    "a report that reports something else": {"tables": {"shop": {"open": {"each": "anyone", "report": "all"}}}},
    "`for` outside `any`": {"tables": {"shop": {"open": {"requires": "anyone", "for": ["shop"]}}}},
    "`any` under `tables` that is a list": {"tables": {"any": ["open"]}},
    "a source that is no line": {"tables": {"shop": {"open": {"requires": "anyone", "source": "top"}}}},
    "an empty reading": {
        "tables": {"shop": {"open": {"requires": "anyone", "ambiguous": {"readings": {"other": {}}}}}}
    },
    "a role with an unknown key": {"roles": {"boss": {"grant": {"shop": "READ"}}}},
    "conflicts as a mapping": {"conflicts": {"operations": ["a/b", "c/d"]}},
    "a conflict with one operation": {"conflicts": [{"operations": ["shop/open"]}]},
    "a conflict of operations without types": {"conflicts": [{"operations": ["open", "close"]}]},
    "a variant with entities": {"variants": {"old": {"entities": {"shop": None}}}},
}


def test_the_smallest_policy_fits() -> None:
    assert not wrong(MINIMAL)


def test_any_stands_at_the_top_or_under_tables() -> None:
    rows = {"open": {"requires": "anyone", "for": ["shop"]}}
    strict = {"strict": {"tables": {"any": rows}}}
    for sections in ({"any": rows}, {"tables": {"any": rows}}, {"tables": {"any": None}}, {"variants": strict}):
        assert not wrong(MINIMAL | sections)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_policies_do_not_fit_and_the_reader_says_so_too(name: str) -> None:
    document = MINIMAL | WRONG[name]
    assert wrong(document)
    text = yaml.safe_dump(document, allow_unicode=True)
    assert any(d.severity == "error" for d in read_policy(SourceFile.of("shop.yaml", text))[1])


@pytest.mark.parametrize("key", ["privtab", "system", "version", "entities"])
def test_required_keys(key: str) -> None:
    assert wrong({k: v for k, v in MINIMAL.items() if k != key})
