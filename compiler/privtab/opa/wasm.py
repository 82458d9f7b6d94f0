"""Compile Rego modules to a WebAssembly module with OPA."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from privtab.errors import OpaError
from privtab.opa import binary as opa_binary

MODULE = "policy.wasm"
_SECONDS = 300


def build(modules: Mapping[str, str], entrypoints: Sequence[str], binary: Path | None = None) -> bytes:
    """Compile modules (by path) to Wasm with these entrypoints (`privtab/lake/allow`). Raises OpaError.

    Never uses `-O`: it assumes that data missing at compile time stays missing, and denies everything.
    """
    opa = binary or opa_binary.find()
    with tempfile.TemporaryDirectory(prefix="privtab-wasm-") as name:
        folder = Path(name)
        for path, text in modules.items():
            file = folder / "rego" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        packed = folder / "bundle.tar.gz"
        options = [f"--entrypoint={entrypoint}" for entrypoint in entrypoints]
        command = [str(opa.absolute()), "build", "--target=wasm", "--output=bundle.tar.gz", *options, "rego"]
        try:
            # The module records the paths of its sources: relative ones are the same every time.
            result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise OpaError(f"`opa build -t wasm` did not end well: {error}") from error
        if result.returncode != 0 or not packed.exists():
            output = result.stderr.strip() or result.stdout.strip() or f"exit code {result.returncode}"
            raise OpaError(f"`opa build -t wasm` failed: {output}")
        with tarfile.open(packed) as tar:
            module = next((tar.extractfile(member) for member in tar if member.name.lstrip("/") == MODULE), None)
            if module is None:
                raise OpaError("`opa build -t wasm` made a bundle without a module")
            return module.read()
