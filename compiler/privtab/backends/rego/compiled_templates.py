"""Compiled templates, kept beside the templates as Python keeps compiled modules: who can write there can write templates, too."""

from __future__ import annotations

import hashlib
import sys
from contextlib import suppress
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket, FileSystemBytecodeCache

from privtab import __version__
from privtab.base import resources


class CompiledTemplates(FileSystemBytecodeCache):
    """Keeps the code of templates by their text and by what compiles them; a folder or file that is of no use is passed over."""

    def __init__(self, templates: Path) -> None:
        folder = templates / "__pycache__"
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                folder.mkdir(exist_ok=True)
        settings = Path(resources.__file__).stat()  # says how templates are compiled
        compiler = (sys.version, jinja2.__version__, __version__, settings.st_size, settings.st_mtime_ns)
        super().__init__(str(folder), f"{hashlib.sha256(repr(compiler).encode()).hexdigest()[:16]}_%s.code")

    def load_bytecode(self, bucket: Bucket) -> None:
        """As of the class above; a damaged file is none."""
        try:
            super().load_bytecode(bucket)
        except Exception:  # noqa: BLE001  whatever its bytes raise
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """As of the class above, where Python keeps the code of modules and the folder can be written."""
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                super().dump_bytecode(bucket)
