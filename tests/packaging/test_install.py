"""Installed from the wheel into a clean environment: light alone, complete with the compiler extra."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from reader_folder import run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("packaging")]

HEAVY = (
    "pyspark",
    "yaml",
    "jinja2",
    "lark",
    "typer",
    "rich",
    "numpy",
    "pyarrow",
    "pandas",
    "httpcore",
    "opa_client",
    "prometheus_client",
)
LOADED = f"""
import sys
import privtab
assert privtab.Client and privtab.Request
print([name for name in {HEAVY!r} if name in sys.modules])
print(privtab.__file__)
"""


def test_the_base_install_imports_and_loads_nothing_heavy(environment: Callable[..., Any], tmp_path: Path) -> None:
    env = environment()
    answer = env.run(env.python, "-c", LOADED, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    loaded, file = answer.stdout.splitlines()
    assert loaded == "[]"
    assert Path(file).is_relative_to(env.path)


def test_importing_privtab_loads_no_extra(tmp_path: Path) -> None:
    installed = [name for name in HEAVY if find_spec(name) is not None]
    assert {"pyspark", "yaml", "jinja2", "lark", "typer", "rich"} <= set(installed), "nothing would be proved here"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'compiler')!r})\n{LOADED}"]
    answer = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60)
    assert answer.stdout.splitlines()[0] == "[]"


def test_the_base_install_s_command_names_the_extra_to_install(environment: Callable[..., Any], tmp_path: Path) -> None:
    env = environment()
    answer = env.run(env.command, "--help", cwd=tmp_path)
    assert answer.returncode == 3
    assert answer.stderr.count("\n") == 1
    assert "pip install '.[compiler]' in a checkout" in answer.stderr
    assert answer.stdout == ""
    version = env.run(env.command, "--version", cwd=tmp_path)
    assert (version.returncode, version.stdout) == (0, "privtab 0.1.0\n")
    assert version.stderr == answer.stderr, "one sentence says how to get the rest"


MISSING = {
    "privtab spark decide -p shop.yaml -s state.yaml -i matrix.csv -o out.csv --user a --action read --resource item:n": "pyspark",
    "privtab state build state/ --policy lake.yaml": "pyspark",
    "privtab state import postgresql postgresql+psycopg://a:secret@db/sales -p postgresql/15 -o state.json": "psycopg",
    "privtab state push postgresql postgresql+psycopg://a:secret@db/sales -p postgresql/15 -s none.yaml": "psycopg",
    "privtab store show postgresql+psycopg://a:secret@db/grants": "psycopg",
    "privtab registry status -r s3://policies/registry --stored policy": "s3fs",
    "privtab conform postgresql/15 --driver postgresql.yaml --url postgresql+psycopg://a:secret@db/x": "psycopg",
}


def test_what_is_missing_is_said_in_one_form(environment: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(home, tmp_path / "home")
    shutil.copy(ROOT / "examples" / "conform" / "postgresql.yaml", folder)
    (folder / "none.yaml").write_text("grants: []\n", encoding="utf-8")
    for (line, name), (code, output) in zip(
        MISSING.items(), run(environment("compiler"), folder, list(MISSING), apart=False), strict=True
    ):
        assert code in (2, 3), line
        assert re.search(
            rf"^privtab: \S.* needs {name}[\w.]*: pip install (?:{name}$|'.\[compiler,spark\]')", output, re.MULTILINE
        ), output
        assert "secret" not in output


def test_shipped_policies_are_described_from_an_empty_folder(environment: Callable[..., Any], tmp_path: Path) -> None:
    env = environment("compiler")
    answer = env.run(env.command, "describe", "cdap/final", "--format", "json", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    described = json.loads(answer.stdout)
    assert (described["system"], described["version"]) == ("cdap", "final")
    assert list(tmp_path.iterdir()) == []


def test_shipped_policies_are_compiled_from_an_empty_folder(environment: Callable[..., Any], tmp_path: Path) -> None:
    env = environment("compiler")
    answer = env.run(env.command, "compile", "gravitino/1.1.0", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / "build" / "gravitino" / "1.1.0" / "policy.tar.gz").is_file()


def test_resources_come_from_the_installed_package(environment: Callable[..., Any], tmp_path: Path) -> None:
    env = environment("compiler")
    source = "from privtab.base import resources as r; print(r.templates_folder(), r.policies(), r.rules(), r.opa(), sep='\\n')"
    answer = env.run(env.python, "-c", source, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    for line in answer.stdout.splitlines():
        assert Path(line).exists()
        assert Path(line).is_relative_to(env.path)


def test_modules_run_the_command_line(environment: Callable[..., Any], tmp_path: Path) -> None:
    env = environment("compiler")
    answer = env.run(env.python, "-m", "privtab", "--version", cwd=tmp_path)
    assert answer.stdout == f"privtab {metadata_version(env.path)}\n"


def metadata_version(path: Path) -> str:
    (info,) = path.glob("lib/python*/site-packages/privtab-*.dist-info")
    return info.name.removeprefix("privtab-").removesuffix(".dist-info")


def test_from_the_wheel_to_a_first_decision_without_java_spark_or_opa(
    environment: Callable[..., Any], tmp_path: Path
) -> None:
    env = environment("compiler")

    def privtab(*arguments: str, cwd: Path = tmp_path / "shop") -> str:
        ran = env.run(env.command, *arguments, cwd=cwd)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return str(ran.stdout)

    privtab("init", "shop", cwd=tmp_path)
    privtab("lint", "--fail-on", "warning")
    privtab("test", "--min", "coverage=100", "--min", "mutation=100")
    privtab("compile", "shop/1", "--state", "policy_src/shop/state.yaml")
    code = (
        "import privtab\n"
        "with privtab.connect('build/shop/1', system='shop') as client:\n"
        "    print(client.check('alice', 'load', 'table:main/sales/orders'))\n"
        "    print(client.check('alice', 'load', 'table:main/sales/payroll'))\n"
    )
    requests_file = env.run(env.python, "-c", code, cwd=tmp_path / "shop")
    assert (requests_file.returncode, requests_file.stdout) == (0, "True\nFalse\n"), requests_file.stderr
