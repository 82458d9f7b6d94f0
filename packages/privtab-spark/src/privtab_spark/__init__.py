"""Decisions on Spark for whole DataFrames, by the same policies and with the same answers as the other engines.

Names are imported lazily: `import privtab_spark` loads neither pyspark nor numpy. No submodule may share the name of a function
exported here, because importing the submodule would overwrite the function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base import face

if TYPE_CHECKING:
    from privtab_spark.certification.certifying import certify
    from privtab_spark.choose import Choice, Limits, plan
    from privtab_spark.deciding import decide, each_batch
    from privtab_spark.executors import decide_with
    from privtab_spark.functions import register_function, require, user, visible
    from privtab_spark.matrix.frame import entitlements
    from privtab_spark.policies import OpenPolicy, open_policy
    from privtab_spark.state import SparkState, read_state
else:
    __getattr__, __dir__, __all__ = face(__name__)
