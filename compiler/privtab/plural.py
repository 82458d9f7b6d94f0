"""Numbers with their nouns."""


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 policy`, `2 policies`, `1,000 grants`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
