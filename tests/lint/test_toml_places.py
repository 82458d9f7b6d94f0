from __future__ import annotations

from privtab.checks.lint.settings import places

TEXT = '''\
# a comment with = and [brackets]
top = "a # b"   # c
"quoted key" = 'x'
a . b = [1, "]", {c = 2, d = [
  3,  # inside
  4,
]}]
long = """
x = 1
"""
[t.u]
when = 1979-05-27 07:32:00
"s.t" = true
[[list]]
k = 1
[[list]]
k = 2
[list.sub]
k = 3
'''


def test_every_key_and_value_has_its_place() -> None:
    shown = {path: (TEXT[slice(*spot.key)], TEXT[slice(*spot.value)]) for path, spot in places(TEXT).items()}
    assert shown["top",] == ("top", '"a # b"')
    assert shown["quoted key",] == ('"quoted key"', "'x'")
    assert shown["a", "b"][0] == "a . b"
    assert shown["a", "b", 1] == ('"]"', '"]"')
    assert shown["a", "b", 2, "c"] == ("c", "2")
    assert shown["a", "b", 2, "d", 1] == ("4", "4")
    assert shown["long",][1].endswith('"""')
    assert shown["t", "u"][0] == "[t.u]"
    assert shown["t", "u", "when"][1] == "1979-05-27 07:32:00"
    assert shown["t", "u", "s.t"][1] == "true"
    assert shown["list", 0, "k"][1] == "1"
    assert shown["list", 1, "k"][1] == "2"
    assert shown["list", 1, "sub", "k"][1] == "3"
    assert ("x",) not in shown


def test_an_empty_file_has_none() -> None:
    assert places("") == places("\n# only a comment") == {}
