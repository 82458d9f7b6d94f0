"""The settings of the clients: from arguments, else the environment, else a file, else the default.

The file is the one that PRIVTAB_CONFIG names, else `privtab.toml` in the working directory; its table `client` is read.
Others may write to the working directory, so a file found there may not set whom to trust, where tokens are sent and
what is enforced.
"""

from __future__ import annotations

import math
import os
import ssl
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from privtab.base import files
from privtab.base.errors import FileError, UsageError
from privtab.base.hints import hint
from privtab.base.records import dataclass
from privtab.client._asking import Mode

if TYPE_CHECKING:
    from privtab.client._address import Cert, Verify
    from privtab.client._transport import Timeout

FILE = "privtab.toml"
FILE_VARIABLE = "PRIVTAB_CONFIG"
PREFIX = "PRIVTAB_"


# --- types of settings: how values of arguments, of the file and of variables are parsed and checked ---


class Kind(NamedTuple):
    read: Callable[[Any], Any]
    """Converts a value for the clients; raises ValueError, which says what is expected."""
    parse: Callable[[str], Any] = str
    """Converts the text of a variable to the value that a file would have; raises ValueError."""


def text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("give a text")
    return value


def path(value: Any) -> str:
    return text(os.fspath(value) if isinstance(value, os.PathLike) else value)


def at_least(least: int) -> Kind:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"give a whole number, {least} or more")
        return value

    return Kind(read, whole_number)


def seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value > 0):
        raise ValueError("give seconds above zero")
    return float(value)


def window(value: Any) -> float:
    """Seconds; negative for no window."""
    if value is False or value == "off":
        return -1.0
    try:
        return 0.0 if value == 0 else seconds(value)
    except ValueError:
        raise ValueError("give seconds, 0 or more, or `off`") from None


def timeout(value: Any) -> tuple[float, float]:
    pair = tuple(value) if isinstance(value, list | tuple) else (value, value)
    if len(pair) != 2:
        raise ValueError("give seconds above zero, for connect and read")
    try:
        return seconds(pair[0]), seconds(pair[1])
    except ValueError:
        raise ValueError("give seconds above zero, for connect and read") from None


def mode(value: Any) -> Mode:
    try:
        return Mode(value)
    except ValueError:
        raise ValueError(f"give one of {', '.join(Mode)}") from None


def verify(value: Any) -> bool | str | ssl.SSLContext:
    if isinstance(value, bool | ssl.SSLContext):
        return value
    try:
        return path(value)
    except ValueError:
        raise ValueError("give true, false, or a file or folder with certificates of authorities") from None


def cert(value: Any) -> str | tuple[str, str]:
    if isinstance(value, list | tuple):
        if len(value) != 2:
            raise ValueError("give a file, or a certificate and its key")
        return path(value[0]), path(value[1])
    return path(value)


def paths(value: Any) -> tuple[str, ...]:
    found = tuple(path(item) for item in (value if isinstance(value, list | tuple) else [value]))
    if not found:
        raise ValueError("give a file, or several")
    return found


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("it must be a number") from None


def number_or_off(text: str) -> float | str:
    return text if text == "off" else number(text)


def whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("it must be a whole number") from None


def numbers(text: str) -> float | list[float]:
    parts = [number(part) for part in text.split(",")]
    return parts[0] if len(parts) == 1 else parts


def pair(text: str) -> str | list[str]:
    parts = text.split(",")
    return parts[0] if len(parts) == 1 else parts


def switch(text: str) -> bool | str:
    return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)


TEXT, PATH, MODE = Kind(text), Kind(path), Kind(mode)
SECONDS, TIMEOUT, WINDOW = Kind(seconds, number), Kind(timeout, numbers), Kind(window, number_or_off)
VERIFY, CERT, PATHS = Kind(verify, switch), Kind(cert, pair), Kind(paths, pair)


@dataclass(frozen=True, slots=True)
class Setting:
    kind: Kind
    help: str
    _: KW_ONLY
    default: Any = None
    shown: str | None = None
    """The default as text, if that is not clear."""
    secret: bool = False
    protects: bool = False
    """True if nothing is checked without it: an empty variable is an error then."""
    tuning: bool = False
    """True if any file may have it: times, sizes and numbers, which cannot turn a denial into an allow."""

    @property
    def usual(self) -> str:
        if self.shown is not None:
            return self.shown
        if isinstance(self.default, float):
            return f"{self.default:g}"
        return "true" if self.default is True else f"`{self.default}`" if self.default else "none"


def variable(name: str) -> str:
    return PREFIX + name.upper()


class SharedArguments(TypedDict, total=False):
    """The settings of every client, as keyword arguments; None: not given. `SETTINGS` says what each is."""

    system: str | None
    mode: Mode | str | None
    max_staleness: float | None
    timeout: Timeout | float | None
    token: str | None
    token_file: str | os.PathLike[str] | None
    verify: Verify | None
    cert: Cert


class OpaArguments(SharedArguments, total=False):
    total: float | None
    retries: int | None
    chunk_size: int | None
    concurrency: int | None
    pool_size: int | None
    max_body: int | None
    breaker_failures: int | None
    breaker_seconds: float | None
    cache_size: int | None
    cache_ttl: float | None
    cache_refresh: float | None


class AsyncArguments(OpaArguments, total=False):
    batch_window: float | str | None


class BundleArguments(SharedArguments, total=False):
    verification_key: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    verification_scope: str | None
    min_sequence: int | None
    sequence_file: str | os.PathLike[str] | None


# --- the settings ----------------------------------------------------------------------------------------------------

SETTINGS: Mapping[str, Setting] = {
    "url": Setting(
        TEXT,
        "Address of OPA: `http://host:port`, `https://host:port` or `unix:/path/to/opa.sock`. `connect()` also takes bundles",
        default="http://127.0.0.1:8181",
    ),
    "system": Setting(TEXT, "System to ask about; required only if OPA has several", shown="the only one"),
    "mode": Setting(
        MODE,
        "`enforce`; `observe`: log denials and failures as warnings, and let everything pass; `off`: send nothing, and let everything pass",
        default=Mode.ENFORCE,
    ),
    "timeout": Setting(
        TIMEOUT,
        "Seconds to connect and to wait for bytes: two numbers, or one for both",
        default=(1.0, 5.0),
        shown="1, 5",
        tuning=True,
    ),
    "total": Setting(
        SECONDS,
        "Seconds for a whole call, including name resolution, retries and pauses. Each further chunk of a large batch has as many again",
        shown="their sum",
        tuning=True,
    ),
    "retries": Setting(
        at_least(0), "Number of times a failed exchange is repeated while time is left", default=2, tuning=True
    ),
    "breaker_failures": Setting(
        at_least(0),
        "Number of consecutive failed exchanges after which calls are refused at once; 0: never",
        default=5,
        tuning=True,
    ),
    "breaker_seconds": Setting(
        SECONDS, "Seconds until OPA is tried again; doubled each time, up to 30", default=1.0, tuning=True
    ),
    "max_staleness": Setting(
        SECONDS,
        "Seconds since OPA last reached its bundle server after which its answers are refused",
        shown="not asked",
        tuning=True,
    ),
    "token": Setting(TEXT, "Bearer token to send", secret=True),
    "token_file": Setting(PATH, "File that contains the token; read again when it changes"),
    "verify": Setting(
        VERIFY,
        "Whether to verify the certificate of an https address, or a file or folder of certificate authorities to verify it with",
        default=True,
    ),
    "cert": Setting(CERT, "Client certificate: one file with certificate and key, or two files"),
    "verification_key": Setting(
        PATHS,
        "`Embedded`: public key files that bundles must be [signed](../how-to/signing.md) with, one or several; read again when they change. An OPA verifies bundles by its own configuration",
        protects=True,
    ),
    "verification_scope": Setting(TEXT, "`Embedded`: scope that bundles must be signed for", default="", protects=True),
    "min_sequence": Setting(
        at_least(0),
        "`Embedded`: lowest [sequence](../how-to/signing.md#older-bundles) that the signatures of bundles may have",
        protects=True,
    ),
    "sequence_file": Setting(
        PATH,
        "`Embedded`: file in which the highest sequences are kept, so that a restarted process accepts no older bundle",
        protects=True,
    ),
    "chunk_size": Setting(
        at_least(1),
        "Most requests in one exchange of `check_many`, `decide_many`, `visible` or `filter`; fewer where OPA takes long for one",
        default=1000,
        tuning=True,
    ),
    "concurrency": Setting(at_least(1), "Number of such exchanges that run at once", default=1, tuning=True),
    "pool_size": Setting(at_least(1), "Number of idle connections to keep", default=10, tuning=True),
    "max_body": Setting(
        at_least(1),
        "Most bytes of an answer; a longer answer is refused",
        default=64 * 1024 * 1024,
        shown="64 MiB",
        tuning=True,
    ),
    "batch_window": Setting(
        WINDOW,
        "`AsyncClient`: seconds within which concurrent checks are sent as one exchange; 0: those of one turn of the event loop; `off`: each on its own",
        default=0.0,
        tuning=True,
    ),
    "cache_size": Setting(at_least(0), "Number of answers to cache", default=0, shown="0, no cache"),
    "cache_ttl": Setting(SECONDS, "Seconds for which an answer is cached", default=60.0),
    "cache_refresh": Setting(
        SECONDS,
        "Seconds after which cached answers are used only if the revisions of policy and state have not changed",
        default=1.0,
    ),
}
NAMES = frozenset(SETTINGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    values: Mapping[str, Any]
    sources: Mapping[str, str] = field(default_factory=dict)
    """The sources of values other than defaults: `argument`, the variable, or the file."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __repr__(self) -> str:
        shown = (f"{n}={'…' if SETTINGS[n].secret and v is not None else repr(v)}" for n, v in self.values.items())
        return f"Settings({', '.join(shown)})"


def resolve(
    arguments: Mapping[str, Any], of: type[SharedArguments] | None = None, *, url: str | None = None
) -> Settings:
    """The settings for these arguments (None: not given); raises UsageError, which names the source of an invalid one.

    Raises TypeError for an argument that `of` lacks, as calls do.
    """
    for name in arguments:
        if of is not None and name not in of.__annotations__:
            raise TypeError(f"unexpected keyword argument `{name}`" + hint(name, of.__annotations__))
    arguments = {"url": url, **arguments}
    file, document = _file()
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, setting in SETTINGS.items():
        argument = arguments.get(name)
        text = os.environ.get(variable(name))
        if argument is not None:
            source, value = "argument", argument
        elif text or (text is not None and setting.protects):
            if not text.strip():
                raise UsageError(
                    f"{variable(name)} is empty, which would turn a check off: give it a value, or unset it"
                )
            source = variable(name)
            value = _convert(name, source, text, setting.kind.parse, text.strip())
        elif name in document:
            source, value = file, document[name]
        else:
            values[name] = setting.default
            continue
        values[name] = _convert(name, source, value, setting.kind.read, value)
        sources[name] = source
    _one_token(values, sources)
    return Settings(values=values, sources=sources)


def _one_token(values: dict[str, Any], sources: Mapping[str, str]) -> None:
    """Keep `token` or `token_file`, from the source with precedence; raises UsageError if one source sets both."""
    order = ("argument", PREFIX, "")
    if values["token"] is None or values["token_file"] is None:
        return
    ranks = {
        name: next(rank for rank, prefix in enumerate(order) if sources[name].startswith(prefix))
        for name in ("token", "token_file")
    }
    if ranks["token"] == ranks["token_file"]:
        raise UsageError(f"{sources['token']}: give a token or a token_file, not both")
    values[max(ranks, key=lambda name: ranks[name])] = None


def _convert(name: str, source: str, value: Any, read: Callable[[Any], Any], argument: Any) -> Any:
    try:
        return read(argument)
    except ValueError as error:
        shown = "wrong" if SETTINGS[name].secret else f"`{value}`"
        label = name if source == "argument" else f"{source}: {name}"
        raise UsageError(f"{label} is {shown}: {error}") from None


def _file() -> tuple[str, Mapping[str, Any]]:
    explicit_path = os.environ.get(FILE_VARIABLE)
    path = Path(explicit_path or FILE)
    if not explicit_path and not path.is_file():
        return FILE, {}
    try:
        document = tomllib.loads(files.read_content(path).decode())
    except (OSError, FileError, ValueError) as error:
        prefix = f"{FILE_VARIABLE}: " if explicit_path else ""
        raise UsageError(f"{prefix}{path} cannot be read as TOML: {error}") from None
    table = document.get("client", {})
    if not isinstance(table, dict):
        raise UsageError(f"{path}: `client` is not a table")
    for name in table:
        if name not in SETTINGS:
            raise UsageError(f"{path}: unknown setting `{name}` in `client`" + hint(name, SETTINGS))
        if not explicit_path and not SETTINGS[name].tuning:
            raise UsageError(
                f"{path}: `{name}` is not taken from a file in the working directory: give it as an argument or in "
                f"{variable(name)}, or name the file in {FILE_VARIABLE}"
            )
    return str(path), table


def table() -> str:
    """The settings as a Markdown table, for the documentation."""
    lines = ["| argument, key in the file | environment | usual | what |", "|---|---|---|---|"]
    for name, setting in SETTINGS.items():
        star = " \\*" if setting.tuning else ""
        lines.append(f"| `{name}`{star} | `{variable(name)}` | {setting.usual} | {setting.help} |")
    return "\n".join(lines)
