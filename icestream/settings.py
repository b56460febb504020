"""Settings: frozen dataclasses whose fields are flags of the command line and `ICESTREAM_*` variables alike.

A field `kafka_ssl_ca` is the flag `--kafka-ssl-ca` and the variable `ICESTREAM_KAFKA_SSL_CA`; the flag wins, then the
variable, then the default. A part declares its settings as one subclass of `Settings` and gets all three.
"""

import argparse
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, get_args, get_type_hints

PREFIX = "ICESTREAM_"


class SettingError(ValueError):
    """A setting cannot be read; the message says which, what came, and what was expected."""


def setting(default: Any, help: str) -> Any:
    """A field of a settings class, with the sentence that `--help` and docs/settings.md show."""
    return dataclasses.field(default=default, metadata={"help": help})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of all settings classes."""

    @classmethod
    def load(cls, environ: Mapping[str, str] = os.environ, **overrides: Any) -> Self:
        """From the environment, with what `overrides` gives instead (None: not given). Raises SettingError."""
        types = get_type_hints(cls)
        values = {}
        for field in dataclasses.fields(cls):
            given = overrides.get(field.name)
            if given is None and (text := environ.get(variable(field.name))) not in (None, ""):
                given = _parse(text, types[field.name], variable(field.name))
            if given is not None:
                values[field.name] = given
        return cls(**values)

    @classmethod
    def add_arguments(
        cls, parser: argparse.ArgumentParser, groups: Mapping[str, Sequence[str]] = MappingProxyType({})
    ) -> None:
        """Adds a flag per field that the parser does not have yet. `groups`: names of fields that `--help` shows under
        a title of their own, before the others."""
        types = get_type_hints(cls)
        titled: dict[str, argparse._ArgumentGroup] = {}
        for title, names in groups.items():
            titled |= dict.fromkeys(names, parser.add_argument_group(title))
        others = parser.add_argument_group("settings", "Each is also an environment variable, named in brackets.")
        for field in dataclasses.fields(cls):
            group = titled.get(field.name, others)
            flag = "--" + field.name.replace("_", "-")
            if flag in parser._option_string_actions:
                continue
            default = "" if field.default in (None, "") else f" (default: {field.default})"
            help = f"{field.metadata['help']}{default} [{variable(field.name)}]".replace("%", "%%")
            if types[field.name] is bool:
                group.add_argument(
                    flag, dest=field.name, action=argparse.BooleanOptionalAction, default=None, help=help
                )
            else:
                group.add_argument(
                    flag, dest=field.name, default=None, help=help,
                    metavar=field.name.rsplit("_", 1)[-1].upper(), type=_argument(types[field.name], flag),
                )  # fmt: skip

    @classmethod
    def from_args(cls, args: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Self:
        """From parsed arguments over the environment."""
        given = vars(args)
        return cls.load(environ, **{f.name: given[f.name] for f in dataclasses.fields(cls) if f.name in given})

    def environ(self) -> dict[str, str]:
        """The variables that make another process load these settings."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {variable(name): str(value) for name, value in values.items() if value not in (None, "")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class KafkaSettings(Settings):
    """How to reach Kafka; every part has these."""

    kafka: str = setting("127.0.0.1:9092", "Kafka's bootstrap servers, HOST:PORT[,HOST:PORT...]")
    kafka_security_protocol: str = setting("PLAINTEXT", "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL")
    kafka_sasl_mechanism: str = setting("", "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
    kafka_sasl_username: str = setting("", "user of SASL")
    kafka_sasl_password: str = setting("", "password of SASL; rather give it as a variable")
    kafka_ssl_ca: str = setting("", "file of the CA certificates to trust, PEM")
    kafka_ssl_certificate: str = setting("", "file of the client's certificate, PEM")
    kafka_ssl_key: str = setting("", "file of the client's key, PEM")
    kafka_in_process: bool = setting(
        False, "the broker is icestream's in-process one: hold messages back before it would drop unread ones"
    )


def variable(name: str) -> str:
    """The environment variable of a field."""
    return PREFIX + name.upper()


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
        return kind(text)
    except ValueError:
        raise SettingError(f"{name}: expected {kind.__name__}, got {text!r}") from None
