"""Files that other users could have written, and links that they made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from privtab.base import staged as _staged
from privtab.base.errors import FileError, UsageError
from privtab.base.files import others_with_access
from privtab.base.staged import link_of_others, staged_file, write_file, write_files
from privtab.checks.lint.settings import settings_above

OTHER = 65534
pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the system has no owners of files")
as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "above" / "below" / "privtab.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[store]\nadministrators = ["mallory"]\n', encoding="utf-8")
    return file


def test_a_file_of_this_user_is_ours(file: Path) -> None:
    assert others_with_access(file) is None
    file.parent.parent.chmod(0o1777)
    assert others_with_access(file) is None, "others cannot replace the folder in it, which is ours"
    assert settings_above(file.parent / "a.yaml").administrators == ("mallory",)


@pytest.mark.parametrize(
    ("place", "mode"), [(".", 0o666), ("..", 0o777), ("..", 0o1777), ("..", 0o773), ("../..", 0o777), ("../..", 0o757)]
)
def test_a_file_that_others_could_have_written_sets_nothing(
    place: str, mode: int, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = Path(os.path.normpath(file / place)) if place != "." else file
    changed.chmod(mode)
    assert others_with_access(file) == f"other users may write to {changed}"
    with pytest.raises(
        UsageError, match=r"its settings are not taken, since other users may write to .* PRIVTAB_CONFIG"
    ):
        settings_above(file.parent / "deep" / "a.yaml")
    monkeypatch.setenv("PRIVTAB_CONFIG", str(file))
    assert settings_above(file.parent / "deep" / "a.yaml").administrators == ("mallory",)


@as_root
@pytest.mark.parametrize("index", range(3))
def test_a_file_of_another_user_sets_nothing(index: int, file: Path) -> None:
    theirs = (file, *file.parents)[index]
    os.chown(theirs, OTHER, -1)
    assert str(others_with_access(file)).startswith(f"{theirs} belongs to ")
    with pytest.raises(UsageError, match="its settings are not taken"):
        settings_above(file.parent / "a.yaml")


@as_root
def test_a_group_counts_unless_it_is_the_users_own(file: Path) -> None:
    os.chown(file.parent, 0, 0)
    file.parent.chmod(0o775)
    assert others_with_access(file) is None, "the group of root has no other members"
    os.chown(file.parent, 0, OTHER)
    assert others_with_access(file) == f"other users may write to {file.parent}"


# --- links -----------------------------------------------------------------------------------------------------------


def test_own_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "again").symlink_to(tmp_path / "link")
    write_file(tmp_path / "again" / "file", b"1")
    assert (tmp_path / "real" / "file").read_bytes() == b"1"
    (tmp_path / "loop").symlink_to("loop")
    assert link_of_others(tmp_path / "loop" / "x") is not None


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A link of another user to a folder of ours, in a folder that everybody may write to."""
    (tmp_path / "ours").mkdir()
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "build").symlink_to(tmp_path / "ours")
    os.chown(shared / "build", OTHER, OTHER, follow_symlinks=False)
    return shared / "build"


@as_root
def test_a_link_of_another_user_is_not_followed_without_a_question(
    trap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "inner"
    inner.symlink_to(trap / "deeper")
    for folder in (trap, inner):
        with pytest.raises(FileError, match=r"build is a link that another user made: name .*ours itself"):
            write_file(folder / "file", b"1")
        with pytest.raises(FileError, match="another user"):
            write_files({folder / "file": b"1"})
        with pytest.raises(OSError, match="another user"), staged_file(folder / "file", [b"1"]):
            pass
    assert list((tmp_path / "ours").iterdir()) == []
    asked: list[str] = []

    def yes(question: str) -> bool:
        asked.append(question)
        return True

    monkeypatch.setattr(_staged, "ask", yes)
    monkeypatch.setattr(_staged, "_followed", set())
    write_files({trap / name: b"1" for name in "abc"})
    write_file(trap / "d", b"1")
    assert asked == [f"{trap} is a link to {tmp_path / 'ours'}, which another user made. Write there?"]
    assert len(list((tmp_path / "ours").iterdir())) == 4


@as_root
def test_a_link_to_a_device_is_not_followed_either(trap: Path) -> None:
    trap.unlink()
    trap.symlink_to("/dev/null")
    os.chown(trap, OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(FileError, match="another user"):
        write_file(trap, b"1")
