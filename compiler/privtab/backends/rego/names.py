"""Names of Rego functions: from the table, in small letters, made unique and distinct from OPA's own."""

from __future__ import annotations

from privtab.names import small_letters

# Built-in functions whose names look like generated ones, `word_word`: a rule with such a name would hide them.
RESERVED = frozenset(
    {
        "cast_array",
        "cast_boolean",
        "cast_null",
        "cast_object",
        "cast_set",
        "cast_string",
        "format_int",
        "indexof_n",
        "is_array",
        "is_boolean",
        "is_null",
        "is_number",
        "is_object",
        "is_set",
        "is_string",
        "re_match",
        "set_diff",
        "to_number",
        "trim_left",
        "trim_prefix",
        "trim_right",
        "trim_space",
        "trim_suffix",
        "type_name",
    }
)


class FunctionNames:
    """Issues each name once."""

    def __init__(self) -> None:
        self._used = set(RESERVED)

    def take(self, preferred: str) -> str:
        """The preferred name, or if it is taken, the name with the first number that makes it free.

        >>> names = FunctionNames()
        >>> names.take("table_load"), names.take("table_load"), names.take("is_string")
        ('table_load', 'table_load_2', 'is_string_2')
        >>> names.take("route_GET"), names.take("route_get")
        ('route_get', 'route_get_2')
        """
        first = name = small_letters(preferred)
        number = 1
        while name in self._used:
            number += 1
            name = f"{first}_{number}"
        self._used.add(name)
        return name
