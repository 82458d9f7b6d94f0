"""What reads edited texts in a browser: privtab and its libraries as far as they are Python, as one archive.

Pyodide, which is Python for browsers, and the solver, which is compiled, are not in it: `docs/how-to/explore.md` says how to put them beside it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from privtab.base import needing, text_templates

OWN = ("privtab", "privtab_analysis", "privtab_pages", "privtab_testing")
LIBRARIES = ("annotated_doc", "jinja2", "lark", "markupsafe", "rich", "shellingham", "typer", "yaml")
"""The packages that `edited` imports, by module."""
DISTRIBUTIONS = {"annotated_doc": "annotated-doc", "yaml": "PyYAML"}
"""Names of distributions that differ from their modules."""
TEMPLATES = ("explore", "pages")
_WANTED = re.compile(r"[\w./-]+\.(py|lark|j2)")
_LICENCE = re.compile(r".*\.dist-info/.*(licen[cs]e|copying|notice)[^/]*", re.IGNORECASE)


def archive() -> bytes:
    """The archive: the same installation gives the same bytes. Raises UsageError for a library that is missing."""
    with needing("a page that edits without a server", "compiler"):
        paths = {name: path for module in (*OWN, *LIBRARIES) for name, path in _modules(module)}
        names = [DISTRIBUTIONS.get(module, module) for module in (*LIBRARIES, OWN[0])]
        paths |= {name: path for each in names for name, path in _licences(each)}
    files = {name: path.read_bytes() for name, path in paths.items()}
    templates = text_templates("")
    assert templates.loader is not None
    for name in templates.list_templates(filter_func=lambda name: name.partition("/")[0] in TEMPLATES):
        files[f"privtab/_data/templates/{name}"] = templates.loader.get_source(templates, name)[0].encode()
    packed = io.BytesIO()
    with ZipFile(packed, "w") as made:
        for name, content in sorted(files.items()):
            made.writestr(ZipInfo(name), content, ZIP_DEFLATED)
    return packed.getvalue()


def _modules(module: str) -> Iterator[tuple[str, Path]]:
    """The files of a package that are Python, or that its modules read."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(name=module)
    folder = Path(spec.submodule_search_locations[0])
    for path in folder.rglob("*"):
        inner = path.relative_to(folder).as_posix()
        if _WANTED.fullmatch(inner) and not inner.startswith(("_data/", "__pyinstaller/")):
            yield f"{module}/{inner}", path


def _licences(name: str) -> Iterator[tuple[str, Path]]:
    files = distribution(name).files or ()
    return ((file.as_posix(), Path(str(file.locate()))) for file in files if _LICENCE.fullmatch(file.as_posix()))
