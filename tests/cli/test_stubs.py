"""`privtab stubs`: to standard output, to a file, and held against a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_the_module_goes_to_standard_output_or_a_file(
    privtab: Callable[..., Any], policy: Path, tmp_path: Path
) -> None:
    printed = privtab("stubs", policy)
    assert printed.code == 0
    assert "class Shop:" in printed.out
    target = tmp_path / "deep" / "names.py"
    assert privtab("stubs", policy, "-o", target).code == 0
    assert target.read_text(encoding="utf-8") == printed.out
    compile(printed.out, "names.py", "exec")


def test_check_fails_for_a_file_that_is_old_or_missing(
    privtab: Callable[..., Any], policy: Path, tmp_path: Path
) -> None:
    target = tmp_path / "names.py"
    missing = privtab("stubs", policy, "-o", target, "--check")
    assert missing.code == 1
    assert "is not what the policy says now" in missing.err
    assert not target.exists()
    privtab("stubs", policy, "-o", target)
    assert privtab("stubs", policy, "-o", target, "--check").code == 0
    policy.write_text(policy.read_text(encoding="utf-8").replace("burn:", "scorch:"), encoding="utf-8")
    before = target.read_bytes()
    assert privtab("stubs", policy, "-o", target, "--check").code == 1
    assert target.read_bytes() == before


def test_bad_usage_writes_nothing(privtab: Callable[..., Any], policy: Path, tmp_path: Path) -> None:
    assert privtab("stubs", policy, "--check").code == 2
    assert privtab("stubs", "nothing/here").code == 2
    policy.write_text(policy.read_text(encoding="utf-8").replace("READ (item)", "RAED (item)"), encoding="utf-8")
    wrong = privtab("stubs", policy, "-o", tmp_path / "names.py")
    assert wrong.code == 1
    assert "RAED" in wrong.err
    assert not (tmp_path / "names.py").exists()
