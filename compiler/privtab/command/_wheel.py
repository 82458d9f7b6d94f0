"""The wheel of the privtab that runs: what pip unpacked, packed again."""

from __future__ import annotations

import io
from base64 import urlsafe_b64encode
from hashlib import sha256
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from privtab.base.lazy import pattern
from privtab.base.resources import DATA, data_path, needing

_LEFT_OUT = pattern(r"\.\./.*|.*\.pth|.*/__pycache__/.*|.*\.dist-info/(RECORD|INSTALLER|REQUESTED|direct_url\.json)")


def installed_wheel() -> bytes:
    """The wheel that installs this privtab elsewhere: the same installation gives the same bytes."""
    with needing("a wheel of privtab for the workflow", "compiler"):
        places = {path.as_posix(): Path(str(path.locate())) for path in distribution("privtab").files or ()}
    top = data_path(DATA[0]).parent
    if top.name != "_data":  # a checkout: its data lie beside its packages, and copies of them may be old
        places = {name: path for name, path in places.items() if ".dist-info/" in name}
        for source in (top / "compiler", *top.glob("packages/*/src")):
            places |= {path.relative_to(source).as_posix(): path for path in source.rglob("*")}
        data = [path for name in DATA for path in (top / name, *(top / name).rglob("*"))]
        places |= {f"privtab/_data/{path.relative_to(top).as_posix()}": path for path in data}
    wanted = {name: path for name, path in sorted(places.items()) if _LEFT_OUT.fullmatch(name) is None}
    files = {name: path.read_bytes() for name, path in wanted.items() if path.is_file()}
    record = next(name.partition("/")[0] for name in files if ".dist-info/" in name) + "/RECORD"
    digests = {name: urlsafe_b64encode(sha256(content).digest()).rstrip(b"=") for name, content in files.items()}
    lines = [f"{name},sha256={digests[name].decode()},{len(content)}\n" for name, content in files.items()]
    files[record] = "".join((*lines, f"{record},,\n")).encode()
    packed = io.BytesIO()
    with ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(ZipInfo(name), content, ZIP_DEFLATED)
    return packed.getvalue()
