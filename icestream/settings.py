"""Settings: frozen dataclasses whose fields are flags of the command line and `ICESTREAM_*` variables alike.

A field `kafka_ssl_ca` is the flag `--kafka-ssl-ca` and the variable `ICESTREAM_KAFKA_SSL_CA`; the flag wins, then the
variable, then the default. An empty variable counts as not given, unless the setting's help says what empty means: a
deployment that fills its variables in from others may leave any of them empty. A part declares its settings as one
subclass of `Settings`.
"""

import argparse
import dataclasses
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, get_args, get_type_hints

from icestream.files.data_folder import default_data
from icestream.files.run_info import kafka_clients
from icestream.labels.request_labels import BadNames, label_names

PREFIX = "ICESTREAM_"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ABOUT = "Each setting is also an environment variable, named in brackets."


class SettingError(ValueError):
    """A setting cannot be read; the message says which one, what was expected and what came."""


class UnreadableFile(SettingError):
    """A file that a setting names cannot be read now. Unlike other settings, it can be read later: somebody else writes
    it, or permits it."""


def setting(default: Any, help_text: str) -> Any:
    """A field of a settings class, with the text that `--help` and docs/settings.md show."""
    return dataclasses.field(default=default, metadata={"help": help_text})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The base of all settings classes."""

    @classmethod
    def load(cls, environ: Mapping[str, str] = os.environ, **overrides: Any) -> Self:
        """Reads the environment; a value in `overrides` that is not None wins. Raises SettingError."""
        types = get_type_hints(cls)
        values = {}
        for field in dataclasses.fields(cls):
            given, text = overrides.get(field.name), environ.get(variable(field.name))
            if given is None and (text or (text is not None and _may_be_empty(field))):
                given = _parse(text, types[field.name], variable(field.name))
            if given is not None:
                values[field.name] = given
        return cls(**values)

    @classmethod
    def add_arguments(
        cls, parser: argparse.ArgumentParser, groups: Mapping[str, Sequence[str]] = MappingProxyType({})
    ) -> None:
        """Adds a flag for each field; call it after a command has added its own arguments.

        `--help` shows the fields that `groups` names under that title, then the others, then Kafka's.
        """
        types = get_type_hints(cls)
        fields = {field.name: field for field in dataclasses.fields(cls)}
        named = {name for names in groups.values() for name in names}
        others = [name for name in fields if name not in named]
        kafka = [name for name in others if name.split("_")[0] == "kafka"]
        sections = {**groups, "settings": [name for name in others if name not in kafka], "Kafka": kafka}
        usage = _COLOUR.sub("", parser.format_usage()).removeprefix("usage: ").strip()
        parser.usage = f"{usage} [SETTING...]".replace("%", "%%")
        for title, names in sections.items():
            if names:
                group = parser.add_argument_group(title, _ABOUT if title == "settings" else None)
                for name in names:
                    _add_flag(group.add_argument, fields[name], types[name])

    @classmethod
    def from_args(cls, args: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Self:
        """Reads parsed arguments, and the environment for those that were not given. Raises SettingError."""
        given = vars(args)
        return cls.load(environ, **{f.name: given[f.name] for f in dataclasses.fields(cls) if f.name in given})

    def environ(self) -> dict[str, str]:
        """The environment variables from which another process loads the same settings."""
        given = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value not in (None, "") or (value == "" and _may_be_empty(field)):
                given[variable(field.name)] = str(value)
        return given


@dataclasses.dataclass(frozen=True, kw_only=True)
class KafkaSettings(Settings):
    """How to reach Kafka; every part has these settings."""

    kafka: str = setting("127.0.0.1:9092", "connect to these bootstrap servers of Kafka, HOST:PORT[,HOST:PORT...]")
    kafka_prefix: str = setting(
        "", "put this before the names of all topics, consumer groups and transactional IDs: for several installations"
    )
    kafka_security_protocol: str = setting("PLAINTEXT", "use PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL")
    kafka_sasl_mechanism: str = setting("", "log in with PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER")
    kafka_sasl_username: str = setting("", "log in as this SASL user; with a token endpoint: the client ID")
    kafka_sasl_password: str = setting(
        "",
        "log in with this SASL password, or client secret; set it as an environment variable, because "
        "others can read command lines",
    )
    kafka_oauth_token_file: str = setting("", "read the OAUTHBEARER token from this file, again before it expires")
    kafka_oauth_token_url: str = setting(
        "", "ask this token endpoint for the OAUTHBEARER token, with the client's ID and secret"
    )
    kafka_oauth_scope: str = setting("", "ask the token endpoint for this scope")
    kafka_ssl_ca: str = setting("", "trust the CA certificates in this file, PEM")
    kafka_ssl_certificate: str = setting("", "show the client's certificate in this file, PEM")
    kafka_ssl_key: str = setting("", "use the client's key in this file, PEM")
    kafka_in_process: bool = setting(
        False, "hold messages back so that the in-process broker does not drop unread ones"
    )

    @classmethod
    def from_args(cls, args: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Self:
        """Reads them as other settings. The login to a Kafka that a running `icestream up` started is in its data
        folder, so nobody needs to give it. Raises SettingError; UnreadableFile if this user may not read it."""
        settings = super().from_args(args, environ)
        if settings.kafka_security_protocol != "PLAINTEXT":
            return settings
        data = getattr(args, "data", None) or environ.get(variable("data"))
        file = kafka_clients(settings.kafka, Path(data) if data else None)
        return super().from_args(args, {**environ, **_clients_environ(file, settings.kafka)}) if file else settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings(Settings):
    """The data folder."""

    data: Path | None = setting(
        None, "keep everything in this folder; by default /var/lib/icestream for root, else ~/.local/share/icestream"
    )

    @property
    def folder(self) -> Path:
        return (self.data or default_data()).absolute()


@dataclasses.dataclass(frozen=True, kw_only=True)
class MessageSettings(KafkaSettings):
    """Which messages are processed and stored; every part that does either has these settings."""

    max_late_days: int = setting(
        30,
        "refuse times in a message more than so many days before Kafka got it: it becomes a dead letter",
    )
    max_early_hours: int = setting(
        24, "refuse times in a message more than so many hours after Kafka got it: it becomes a dead letter"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamesSettings(Settings):
    """Where to find names of stacks that Kafka no longer has."""

    names_url: str = setting(
        "",
        "ask the API at this http://HOST:PORT for names of stacks that Kafka no longer has; empty: that of an "
        "`icestream up` on this machine with the same Kafka, if one runs",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestLabelSettings(Settings):
    """The labels of requests; every part that makes, stores or reads requests has these settings."""

    request_labels: str = setting(
        "service_version",
        "let requests have these labels of their processes, separated by commas; give all parts the same; empty: none",
    )

    def __post_init__(self) -> None:
        self.request_label_names()

    def request_label_names(self) -> tuple[str, ...]:
        """The names of these labels, in order. Raises SettingError."""
        try:
            return label_names(self.request_labels)
        except BadNames as error:
            raise SettingError(f"request_labels: {error}") from None


def variable(name: str) -> str:
    """The environment variable of a field."""
    return PREFIX + name.upper()


def _clients_environ(file: Path, kafka: str) -> dict[str, str]:
    try:
        lines = file.read_text().splitlines()
    except OSError as error:
        raise UnreadableFile(
            f"the Kafka at {kafka} wants a password, and you cannot read it in {file} ({error.strerror}): "
            "run this as root, or as the user whose file that is"
        ) from None
    return dict(line.split("=", 1) for line in lines)


def _may_be_empty(field: "dataclasses.Field[Any]") -> bool:
    """Whether its default is a text, and its help says what the empty text means."""
    return isinstance(field.default, str) and "empty: " in field.metadata["help"]


def shown(default: object) -> str:
    """A default as a user would write it."""
    return str(default).lower() if isinstance(default, bool) else str(default)


def _add_flag(add_argument: Callable[..., object], field: "dataclasses.Field[Any]", kind: Any) -> None:
    flag = "--" + field.name.replace("_", "-")
    default = "" if field.default in (None, "") else f" (default: {shown(field.default)})"
    text = f"{field.metadata['help']}{default} [{variable(field.name)}]".replace("%", "%%")
    if kind is bool:
        add_argument(flag, dest=field.name, action=argparse.BooleanOptionalAction, default=None, help=text)
    else:
        metavar = field.name.rsplit("_", 1)[-1].upper()
        add_argument(flag, dest=field.name, default=None, help=text, metavar=metavar, type=_argument(kind, flag))


def _argument(kind: Any, flag: str) -> Any:
    def parse(text: str) -> Any:
        try:
            return _parse(text, kind, flag)
        except SettingError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def _parse(text: str, kind: Any, name: str) -> Any:
    kind = next((k for k in get_args(kind) if k is not type(None)), kind)
    if kind is bool:
        lowered = text.strip().lower()
        if lowered in ("1", "true", "yes", "on"):
            return True
        if lowered in ("0", "false", "no", "off"):
            return False
        raise SettingError(f"{name}: expected true or false, got {text!r}")
    if kind is Path:
        return Path(text).expanduser()
    try:
        value = kind(text)
    except ValueError:
        raise SettingError(f"{name}: expected {kind.__name__}, got {text!r}") from None
    if kind in (int, float) and not 0 <= value < math.inf:  # no setting is less: 0 often means none, or no limit
        raise SettingError(f"{name}: expected 0 or more, got {text!r}")
    return value
