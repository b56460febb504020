"""The `icestream` command.

A subcommand is a module with a docstring (its help text), `add_arguments(parser)` and `run(args) -> int`, registered as
an entry point of the group `icestream.commands`. It is imported only when it is used, so that a host with only the
collector installed needs only the collector's packages.
"""

import argparse
import errno
import importlib.util
import logging
import os
import re
import signal
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from icestream.clickhouse.without_pandas import without_pandas
from icestream.kafka.log_repeats import LimitRepeats
from icestream.process.printable import PrintableFormatter
from icestream.process.standard_output import OutputError, standard_output
from icestream.settings import PREFIX, SettingError, UnreadableFile, variable
from icestream.version import VERSION

GROUP = "icestream.commands"
WRONG_USAGE = 2
"""The exit code for arguments and settings that cannot be meant: running the command again changes nothing, as it may
if a file cannot be read."""


class CommandError(Exception):
    """What a command raises to end with one line on standard error and exit code 1."""


def main(argv: list[str] | None = None) -> int:
    """Runs a subcommand; returns its exit code: 0 done, 1 failed, 2 wrong usage or settings, 130 interrupted, 141 when
    nobody reads standard output any more (as a shell says of a program that SIGINT or SIGPIPE ended)."""
    try:
        with standard_output():
            return _main(sys.argv[1:] if argv is None else argv)
    except OutputError as error:
        if error.errno == errno.EPIPE:
            return 128 + signal.SIGPIPE
        print(f"icestream: cannot write standard output: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _main(argv: list[str]) -> int:
    entries = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    # The image of the collector has no other part.
    commands = {entry.name: entry for entry in entries if importlib.util.find_spec(entry.module.partition(".")[0])}
    if not argv or argv[0] not in commands:
        return _overview(list(commands.values()), argv)
    name, rest = argv[0], argv[1:]
    try:
        _set_prefix(rest)
        command = commands[name].load()
    except ModuleNotFoundError as error:
        print(
            f"icestream {name}: the package {error.name!r} is not installed; "
            f"install this part with: pip install 'icestream[{commands[name].module.split('.')[0]}]'",
            file=sys.stderr,
        )
        return 1
    except SettingError as error:
        print(f"icestream {name}: {error}", file=sys.stderr)
        return WRONG_USAGE
    args = command_parser(name, command).parse_args(rest)
    log_to_standard_error(name)
    for wrong, right in misspelt(vars(args), os.environ):
        logging.getLogger(name).warning("%s is no setting of icestream %s; is it %s?", wrong, name, right)
    try:
        with without_pandas():
            return int(command.run(args))
    except (CommandError, SettingError) as error:
        print(f"icestream {name}: {error}", file=sys.stderr)
        return 1 if isinstance(error, CommandError | UnreadableFile) else WRONG_USAGE


def log_to_standard_error(name: str) -> None:
    """`name` is the command's."""
    handler = logging.StreamHandler()
    handler.addFilter(LimitRepeats())
    handler.setFormatter(PrintableFormatter(f"%(asctime)s {name} %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def misspelt(fields: Iterable[str], environ: Iterable[str]) -> list[tuple[str, str]]:
    """The variables that are nearly those of a command's fields, each with the right one. Settings of other commands,
    which may be in the same file of variables, are not so near."""
    own = [variable(field).removeprefix(PREFIX) for field in fields]
    given = [name.removeprefix(PREFIX) for name in environ if name.startswith(PREFIX)]
    near = [(name, get_close_matches(name, own, 1, 0.9)) for name in given if name not in own]
    return [(PREFIX + name, PREFIX + close[0]) for name, close in near if close]


def _set_prefix(argv: list[str]) -> None:
    """Puts the flag --kafka-prefix where `icestream.topics` finds it, before a command imports that."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--kafka-prefix")
    flag, name = parser.parse_known_args(argv)[0].kafka_prefix, variable("kafka_prefix")
    if flag is not None:
        os.environ[name] = flag
    prefix = os.environ.get(name, "")
    if not re.fullmatch(r"[A-Za-z0-9._-]{0,100}", prefix):
        raise SettingError(f"{name}: expected at most 100 letters, digits, '.', '_' and '-', got {prefix!r}")


def positive(text: str) -> int:
    """Returns the number that an argument gives, at least 1. Raises ArgumentTypeError."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 up, got {text!r}")
    return int(text)


def command_parser(name: str, command: Any) -> argparse.ArgumentParser:
    """The parser of a subcommand's module."""
    parser = argparse.ArgumentParser(
        prog=f"icestream {name}",
        description=command.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # --kafka-prefix must be found before the command's flags are known
    )
    command.add_arguments(parser)
    return parser


def _overview(commands: list[EntryPoint], argv: list[str]) -> int:
    if argv and argv[0] in ("--version", "-V"):
        print(f"icestream {VERSION}")
        return 0
    asked = bool(argv) and argv[0] in ("--help", "-h", "help")
    out = sys.stdout if asked else sys.stderr
    if argv and not asked:
        print(f"icestream: no command {argv[0]!r}", file=out)
    print("icestream: continuous profiling as a Kafka stream\n\nusage: icestream COMMAND [OPTION...]\n", file=out)
    for entry in commands:
        print(f"  {entry.name:10} {_summary(entry.module)}", file=out)
    print("\n`icestream COMMAND --help` says more, with examples.", file=out)
    return 0 if asked else WRONG_USAGE


def _summary(module: str) -> str:
    """First line of a module's docstring as a help text, without running the module."""
    import pydoc

    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    line = pydoc.synopsis(spec.origin) or ""
    return line[:1].lower() + line[1:].removesuffix(".")


if __name__ == "__main__":
    # The module under its name: its classes are what commands raise, not those of a second copy called __main__.
    sys.exit(importlib.import_module("icestream.cli").main())
