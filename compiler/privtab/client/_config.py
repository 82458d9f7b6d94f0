"""The settings of the clients: from arguments, else the environment, else a file, else the default.

The file is the one that PRIVTAB_CONFIG names, else `privtab.toml` in the working directory; its table `client` is read.
Others may write to the working directory, so a file found there may not set whom to trust, where tokens are sent and
what is enforced.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from privtab.client import _values
from privtab.client._asking import Mode
from privtab.errors import UsageError
from privtab.hints import hint

if TYPE_CHECKING:
    from privtab.client._address import Cert, Verify
    from privtab.client._transport import Timeout

FILE = "privtab.toml"
FILE_VARIABLE = "PRIVTAB_CONFIG"
PREFIX = "PRIVTAB_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting."""

    name: str
    default: Any
    read: Callable[[Any], Any]
    """Converts a value for the clients; raises ValueError, which says what is expected."""
    parse: Callable[[str], Any] = str
    """Converts the text of a variable to the value that a file would have; raises ValueError."""
    help: str
    shown: str | None = None
    """The default as text, if its repr is not clear."""
    secret: bool = False
    protects: bool = False
    """Whether nothing is checked without it: an empty variable is an error then."""

    @property
    def variable(self) -> str:
        """The name of its environment variable."""
        return PREFIX + self.name.upper()


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
    """The settings of the clients of an OPA."""

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
    """The settings of `AsyncClient`."""

    batch_window: float | str | None


class BundleArguments(SharedArguments, total=False):
    """The settings of `Embedded`."""

    verification_key: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    verification_scope: str | None
    min_sequence: int | None
    sequence_file: str | os.PathLike[str] | None


# --- the settings ----------------------------------------------------------------------------------------------------

SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="url",
        default="http://127.0.0.1:8181",
        read=_values.text,
        help="Address of OPA: `http://host:port`, `https://host:port` or `unix:/path/to/opa.sock`. `connect()` also takes bundles",
    ),
    Setting(
        name="system",
        default=None,
        read=_values.text,
        shown="the only one",
        help="System to ask about; required only if OPA has several",
    ),
    Setting(
        name="mode",
        default=Mode.ENFORCE,
        read=_values.mode,
        help="`enforce`; `observe`: log denials and failures as warnings, and let everything pass; `off`: send nothing, and let everything pass",
    ),
    Setting(
        name="timeout",
        default=(1.0, 5.0),
        shown="1, 5",
        read=_values.timeout,
        parse=_values.numbers,
        help="Seconds to connect and to wait for bytes: two numbers, or one for both",
    ),
    Setting(
        name="total",
        default=None,
        shown="their sum",
        read=_values.seconds,
        parse=_values.number,
        help="Seconds for a whole call, including name resolution, retries and pauses. Each further chunk of a large batch has as many again",
    ),
    Setting(
        name="retries",
        default=2,
        read=_values.count(0),
        parse=_values.whole_number,
        help="Number of times a failed exchange is repeated while time is left",
    ),
    Setting(
        name="breaker_failures",
        default=5,
        read=_values.count(0),
        parse=_values.whole_number,
        help="Number of consecutive failed exchanges after which calls are refused at once; 0: never",
    ),
    Setting(
        name="breaker_seconds",
        default=1.0,
        shown="1",
        read=_values.seconds,
        parse=_values.number,
        help="Seconds until OPA is tried again; doubled each time, up to 30",
    ),
    Setting(
        name="max_staleness",
        default=None,
        shown="not asked",
        read=_values.seconds,
        parse=_values.number,
        help="Seconds since OPA last reached its bundle server after which its answers are refused",
    ),
    Setting(name="token", default=None, shown="none", read=_values.text, secret=True, help="Bearer token to send"),
    Setting(
        name="token_file",
        default=None,
        shown="none",
        read=_values.path,
        help="File that contains the token; read again when it changes",
    ),
    Setting(
        name="verify",
        default=True,
        shown="true",
        read=_values.verify,
        parse=_values.switch,
        help="Whether to verify the certificate of an https address, or a file or folder of certificate authorities to verify it with",
    ),
    Setting(
        name="cert",
        default=None,
        shown="none",
        read=_values.cert,
        parse=_values.pair,
        help="Client certificate: one file with certificate and key, or two files",
    ),
    Setting(
        name="verification_key",
        default=None,
        shown="none",
        read=_values.paths,
        parse=_values.pair,
        protects=True,
        help="`Embedded`: public key files that bundles must be [signed](../how-to/signing.md) with, one or several; read again when they change. An OPA verifies bundles by its own configuration",
    ),
    Setting(
        name="verification_scope",
        default="",
        shown="none",
        read=_values.text,
        protects=True,
        help="`Embedded`: scope that bundles must be signed for",
    ),
    Setting(
        name="min_sequence",
        default=None,
        shown="none",
        read=_values.count(0),
        parse=_values.whole_number,
        protects=True,
        help="`Embedded`: lowest [sequence](../how-to/signing.md#older-bundles) that the signatures of bundles may have",
    ),
    Setting(
        name="sequence_file",
        default=None,
        shown="none",
        read=_values.path,
        protects=True,
        help="`Embedded`: file in which the highest sequences are kept, so that a restarted process accepts no older bundle",
    ),
    Setting(
        name="chunk_size",
        default=1000,
        read=_values.count(1),
        parse=_values.whole_number,
        help="Most requests in one exchange of `check_many`, `decide_many`, `visible` or `filter`; fewer where OPA takes long for one",
    ),
    Setting(
        name="concurrency",
        default=1,
        read=_values.count(1),
        parse=_values.whole_number,
        help="Number of such exchanges that run at once",
    ),
    Setting(
        name="pool_size",
        default=10,
        read=_values.count(1),
        parse=_values.whole_number,
        help="Number of idle connections to keep",
    ),
    Setting(
        name="max_body",
        default=64 * 1024 * 1024,
        shown="64 MiB",
        read=_values.count(1),
        parse=_values.whole_number,
        help="Most bytes of an answer; a longer answer is refused",
    ),
    Setting(
        name="batch_window",
        default=0.0,
        shown="0",
        read=_values.window,
        parse=_values.number_or_off,
        help="`AsyncClient`: seconds within which concurrent checks are sent as one exchange; 0: those of one turn of the event loop; `off`: each on its own",
    ),
    Setting(
        name="cache_size",
        default=0,
        shown="0, no cache",
        read=_values.count(0),
        parse=_values.whole_number,
        help="Number of answers to cache",
    ),
    Setting(
        name="cache_ttl",
        default=60.0,
        shown="60",
        read=_values.seconds,
        parse=_values.number,
        help="Seconds for which an answer is cached",
    ),
    Setting(
        name="cache_refresh",
        default=1.0,
        shown="1",
        read=_values.seconds,
        parse=_values.number,
        help="Seconds after which cached answers are used only if the revisions of policy and state have not changed",
    ),
)
TUNING = frozenset(
    [
        "timeout",
        "total",
        "retries",
        "breaker_failures",
        "breaker_seconds",
        "max_staleness",
        "chunk_size",
        "concurrency",
        "pool_size",
        "max_body",
        "batch_window",
    ]
)
"""Settings that any file may have: times, sizes and numbers, which cannot turn a denial into an allow."""
_BY_NAME = {setting.name: setting for setting in SETTINGS}
NAMES = frozenset(_BY_NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The value of each setting and its source."""

    values: Mapping[str, Any]
    sources: Mapping[str, str] = field(default_factory=dict)
    """The sources of values other than defaults: `argument`, the variable, or the file."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __repr__(self) -> str:
        shown = (f"{n}={'…' if _BY_NAME[n].secret and v is not None else repr(v)}" for n, v in self.values.items())
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
    for setting in SETTINGS:
        argument = arguments.get(setting.name)
        text = os.environ.get(setting.variable)
        if argument is not None:
            source, value = "argument", argument
        elif text or (text is not None and setting.protects):
            if not text.strip():
                raise UsageError(
                    f"{setting.variable} is empty, which would turn a check off: give it a value, or unset it"
                )
            source = setting.variable
            value = _convert(setting, source, text, setting.parse, text.strip())
        elif setting.name in document:
            source, value = file, document[setting.name]
        else:
            values[setting.name] = setting.default
            continue
        values[setting.name] = _convert(setting, source, value, setting.read, value)
        sources[setting.name] = source
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


def _convert(setting: Setting, source: str, value: Any, read: Callable[[Any], Any], argument: Any) -> Any:
    try:
        return read(argument)
    except ValueError as error:
        shown = "wrong" if setting.secret else f"`{value}`"
        label = setting.name if source == "argument" else f"{source}: {setting.name}"
        raise UsageError(f"{label} is {shown}: {error}") from None


def _file() -> tuple[str, Mapping[str, Any]]:
    """The settings file and its table."""
    explicit_path = os.environ.get(FILE_VARIABLE)
    path = Path(explicit_path or FILE)
    if not explicit_path and not path.is_file():
        return FILE, {}
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        prefix = f"{FILE_VARIABLE}: " if explicit_path else ""
        raise UsageError(f"{prefix}{path} cannot be read as TOML: {error}") from None
    table = document.get("client", {})
    if not isinstance(table, dict):
        raise UsageError(f"{path}: `client` is not a table")
    for name in table:
        if name not in _BY_NAME:
            raise UsageError(f"{path}: unknown setting `{name}` in `client`" + hint(name, _BY_NAME))
        if not explicit_path and name not in TUNING:
            raise UsageError(
                f"{path}: `{name}` is not taken from a file in the working directory: give it as an argument or in "
                f"{_BY_NAME[name].variable}, or name the file in {FILE_VARIABLE}"
            )
    return str(path), table


def table() -> str:
    """The settings as a Markdown table, for the documentation."""
    lines = ["| argument, key in the file | environment | usual | what |", "|---|---|---|---|"]
    for setting in SETTINGS:
        default = setting.shown or f"`{setting.default}`"
        star = " \\*" if setting.name in TUNING else ""
        lines.append(f"| `{setting.name}`{star} | `{setting.variable}` | {default} | {setting.help} |")
    return "\n".join(lines)
