"""Back ends: each turns a policy into the text of files. `BACKENDS` lists the modules of this folder; plug-ins add others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import face

if TYPE_CHECKING:
    from privtab.backends.describe import described_policy, minimal_set_texts, type_forest
    from privtab.backends.protocol import BACKENDS, Backend, Compilation, backend, backend_names
    from privtab.backends.rego.layout import rego_string, rego_template
else:
    __getattr__, __dir__, __all__ = face(__name__)
