from __future__ import annotations

from pathlib import Path

import pytest

from privtab.base.diagnostics import Diagnostic, Severity
from privtab.base.errors import FileError, SettingsInvalid
from privtab.checks.lint.settings import FailOn, LintFormat, Settings, read_settings, settings_above

GOOD = """\
policies = ["tables", "more/one.yaml"]

[lint]
fail-on = "warning"
format = 'json'  # for the editor

[lint.severity]
P305 = "note"
P303 = "off"

[[lint.overrides]]
paths = ["old/*", "drafts"]
severity = {P310 = "error"}
"""


def wrong(folder: Path, text: str, name: str = "privtab.toml") -> tuple[Diagnostic, ...]:
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(SettingsInvalid) as raised:
        settings_above(folder / "policy.yaml")
    return raised.value.diagnostics


def test_everything_that_can_be_set(tmp_path: Path) -> None:
    (tmp_path / "privtab.toml").write_text(GOOD, encoding="utf-8")
    settings = settings_above(tmp_path / "deep" / "er" / "policy.yaml")
    assert (settings.fail_on, settings.format, settings.root) == (FailOn.WARNING, LintFormat.JSON, tmp_path)
    everywhere = settings.levels(tmp_path / "a.yaml")
    assert {code: level.severity for code, level in everywhere.items()} == {"P305": Severity.NOTE, "P303": None}
    assert everywhere["P303"].span.line == 9
    assert settings.policies == ("tables", "more/one.yaml")
    assert settings.levels(tmp_path / "old" / "a.yaml")["P310"].severity is Severity.ERROR


def test_pyproject_says_it_in_its_own_table_and_is_passed_over_where_it_does_not(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.privtab.lint]\nfail-on = "never"\n', encoding="utf-8")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "pyproject.toml").write_text('[tool.other]\nname = "privtab"\n', encoding="utf-8")
    assert settings_above(tmp_path / "in" / "a.yaml").fail_on is FailOn.NEVER
    (tmp_path / "in" / "privtab.toml").write_text("", encoding="utf-8")
    assert settings_above(tmp_path / "in" / "a.yaml").fail_on is None


@pytest.mark.parametrize("text", ["[tool.privtab.lint", "[build]\nx = \n[tool.privtab.lint]\n"])
def test_settings_in_a_broken_pyproject_are_not_passed_over(text: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    with pytest.raises(SettingsInvalid):
        settings_above(tmp_path / "a.yaml")
    (tmp_path / "pyproject.toml").write_text("[build]\nname = privtab", encoding="utf-8")
    assert settings_above(tmp_path / "a.yaml") == Settings()


def test_without_a_file_nothing_is_set(tmp_path: Path) -> None:
    assert settings_above(tmp_path / "a.yaml") == Settings()
    with pytest.raises(FileError):
        read_settings(tmp_path / "privtab.toml")


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "privtab.toml"
    for word in ("error", "never"):
        file.write_text(f'[lint]\nfail-on = "{word}"\n', encoding="utf-8")
        assert read_settings(file).fail_on == word


@pytest.mark.parametrize(
    ("text", "place", "message", "help_"),
    [
        ("[lint]\nfail_on = 'note'\n", (2, 1), "unknown setting `fail_on`", "did you mean `fail-on`?"),
        ("[lnt]\n", (1, 1), "unknown setting `lnt`", "did you mean `lint`?"),
        ("lint = 3\n", (1, 8), "`lint` is `3`, not a table", None),
        ("[lint]\nfail-on = 'warn'\n", (2, 11), "`fail-on` is `warn`", "did you mean `warning`?"),
        ("lint.fail-on = 1\n", (1, 16), "`fail-on` is `1`", "write one of: `error`, `warning`, `note` and `never`"),
        ("[lint]\nP305 = 'off'\n", (2, 1), "unknown setting `P305`", "severities belong in a table of their own"),
        (
            "[lint.severity]\nP305 = 'no'\n",
            (2, 8),
            "`P305` is `no`",
            "write one of: `error`, `warning`, `note` and `off`",
        ),
        ("lint = {severity = {P3O5 = 'off'}}", (1, 21), "there is no finding `P3O5`", "did you mean `P305`?"),
        ("[lint.severity]\nnever-granted = 'off'\n", (2, 1), "there is no finding", "did you mean `P305`?"),
        ("[lint.severity]\nP101 = 'off'\n", (2, 8), "`P101` stays an error", "leave it out"),
        ("[[lint.overrides]]\nseverity = {}\n", (1, 1), "`paths` is missing in `overrides`", "write `paths ="),
        ("policies = [1]\n", (1, 12), "`policies` is not a list of paths", None),
        (
            "[[lint.overrides]]\npaths = ['a']\n[[lint.overrides]]\npaths = [1]\n",
            (4, 9),
            "`paths` is not a list of patterns",
            None,
        ),
        ("[[lint.overrides]]\npath = ['a']\npaths = 'a'\n", (2, 1), "unknown setting `path`", "did you mean `paths`?"),
        ("[lint]\noverrides = 1\n", (2, 13), "`overrides` is `1`, not a list", None),
        ("[lint]\nseverity = 1\n", (2, 12), "`severity` is `1`, not a table", "write a table of codes"),
    ],
)
def test_mistakes_are_reported_at_their_place(
    text: str, place: tuple[int, int], message: str, help_: str | None, tmp_path: Path
) -> None:
    (found,) = wrong(tmp_path, text)
    assert (found.span.line, found.span.column) == place
    assert found.message.startswith(message)
    assert help_ is None or (found.help or "").startswith(help_)


def test_all_mistakes_come_at_once(tmp_path: Path) -> None:
    found = wrong(tmp_path, "[tool.privtab]\nx = 1\n[tool.privtab.lint]\ny = 1\nformat = 2\n", "pyproject.toml")
    assert [finding.span.line for finding in found] == [2, 4, 5]


@pytest.mark.parametrize(("text", "place"), [("[lint\n", (1, 6)), ("[lint]\na = \n", (2, 5)), ("a = '", (1, 6))])
def test_invalid_toml_is_reported_where_it_breaks(text: str, place: tuple[int, int], tmp_path: Path) -> None:
    (found,) = wrong(tmp_path, text)
    assert found.code == "C001"
    assert (found.span.line, found.span.column) == place
