"""Names that readers and engines might confuse with others."""

from __future__ import annotations

UNUSABLE = (
    *map(chr, range(0x20)), "\x7f", *map(chr, range(0x80, 0xA0)), "\u2028", "\u2029", "\ud800", "\udfff", "\ufffe", "\uffff",
)  # fmt: skip
"""Characters that names in a state or a request must not contain."""

CARRIED = (
    "caf\u00e9", "cafe\u0301", "\u212b", "\u00c5", "A\u030a", "\ufb01", "fi",  # composed, decomposed, compatible
    "\U00010000", "\U0002070e", "\U0001070e", "\U0010fffd", "\U0001f469", "\ud7ff", "\ue000",
    "\ufffd",  # the replacement character
    "..", ".", "...", "%2F", "%25", "100%", "a/b", "/", "//", "a%2Fb", "%252F", "\\", "a\\b", "~", "-", "#", "a#b", "a: b", "::",
    "0", "007", "1e3", "0x1F", "-1", "1_000", ".5", "NaN", "Infinity", "12:30:45", "2024-01-01",
    "null", "true", "false", "True", "yes", "on", "None", "undefined", "input", "data", "import", "default", "some",
    "__proto__", "constructor", "this", "scoped:x", "a*", "what?", "%s", "{x}", "${x}", "{{x}}", "'", '"',
    "''", '""', "`x`", "<b>", "&amp;", "a,b", "a;b", "a|b", "[x]", "{x: y}", "- x", "? x", "! x", "&x", "*x", "@x", "=1+1",
    "\u0130stanbul", "istanbul", "I", "\u0131", "stra\u00dfe", "strasse",  # equal only if case is folded
    "n" * 10_000, "\U0002070e" * 3_000,
)  # fmt: skip
"""Names that are accepted and compared unchanged."""

INVISIBLE = (
    "\u202egpj.hr", "a\u200bb", "a\u200db", "a\u00adb", "\ufeffx", "x\ufeff", "\u2066y\u2069", "\U000e0041",  # formatting
    "\u00a0", "a\u3000b", "no\u00a0break", "\u2800",  # spaces other than U+0020
    "\U0001f469\u200d\U0001f680", "a\ufe0f", "\u3164", "a\u034f", "a\U000e0100",  # joiners, fillers, variation selectors
)  # fmt: skip
"""Names of requests, which engines compare unchanged; no name of a state holds their characters."""

ALIKE = (
    ("caf\u00e9", "cafe\u0301", "cafe"), ("\u212b", "\u00c5", "A\u030a"), ("\ufb01", "fi"), ("\u1e9b\u0323", "\u1e69"),
    ("\U0002070e", "\U0001070e", "\u070e"), ("\U0010fffd", "\ufffd"), ("\ue000", "\U00010000", "\ud7ff"),
    ("a/b", "a%2Fb", "a%252Fb"), ("100%", "100%25", "100"), ("a", "a  a", "a a"),
    ("I", "i", "\u0131", "\u0130"), ("stra\u00dfe", "strasse"), ("0", "-0", "00", "0.0"), ("1", "1.0", "1e0"), ("null", "Null", "~"),
    ("..", ".", "x"), ("\\", "\\\\", "/"), ("<b>", "\\u003cb\\u003e"), ("\u0430", "a"), ("user", "u"), ("scoped:x", "x"),
)  # fmt: skip
"""Names that are confused if they are normalised, case-folded, parsed or escaped once too often."""

ALIKE_UNSEEN = (("\U000e0041", "A"), ("a", "a ", " a"), ("a\u00a0b", "a b"), ("x\ufeff", "\ufeffx", "x"))
"""As ALIKE, and of requests alone: confused if they are trimmed or cleaned."""
