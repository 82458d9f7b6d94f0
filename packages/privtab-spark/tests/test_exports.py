"""The front door of decisions on Spark: light, and every name opens."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest

import privtab_spark
from privtab_spark.deciding import BatchArguments


def test_every_name_is_there_and_none_is_hidden_by_a_module() -> None:
    names: list[str] = vars(privtab_spark)["__all__"]
    assert names == sorted(names)
    for name in names:
        assert callable(getattr(privtab_spark, name)), name


def test_the_names_are_listed_before_they_are_loaded() -> None:
    code = "import privtab_spark as s; print(sorted(set(s.__all__) - set(dir(s))))"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"


def test_the_door_alone_loads_nothing_heavy() -> None:
    code = (
        "import sys, privtab_spark; "
        "print([m for m in ('pyspark', 'numpy', 'pyarrow', 'pandas', 'yaml', 'jinja2') if m in sys.modules])"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"


@pytest.mark.slow
def test_the_kernel_never_needs_pandas() -> None:
    code = (
        "import sys; sys.modules['pandas'] = None; "
        "import privtab_spark.kernel, privtab_spark.deciding, privtab_spark.executors, privtab_spark.functions; print('fine')"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "fine"


@pytest.mark.slow
def test_workers_of_the_kernel_load_nothing_that_only_drivers_need() -> None:
    code = (
        "import sys, privtab_spark.kernel; from privtab.engines import Batches; Batches; "
        "print([m for m in ('privtab.ir', 'privtab.client', 'privtab.bundle', 'privtab.state', 'privtab_spark.arguments', "
        "'privtab_spark.refresh', 'pandas') if m in sys.modules])"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"


def test_batches_pass_on_every_argument_of_decide() -> None:
    taken = {
        name
        for name, parameter in inspect.signature(privtab_spark.decide).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    assert taken - {"refresh"} == set(BatchArguments.__annotations__)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"subject": "who", "action": "load"}, "missing a required argument: 'resource'"),
        ({"subject": "who", "action": "load", "resource": "what", "flag": "x"}, "unexpected keyword argument 'flag'"),
        ({"subject": "who", "action": "load", "resource": "what", "refresh": 1.0}, "takes no `refresh`"),
    ],
)
def test_each_batch_names_wrong_arguments_before_the_stream_starts(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        privtab_spark.each_batch(lambda *_: None, "cdap/final", "/state", **arguments)
