"""What an interpreter runs, by its command line: the script, module, jar or class."""

import os
import re
from collections.abc import Sequence

_INTERPRETER = re.compile(
    r"(python|pypy|node|nodejs|ruby|perl|php|java|sh|bash|dash|deno|bun)(?:-?\d[\d.]*t?)?", re.ASCII
)
_WITH_VALUE = {
    "python": {"-W", "-X", "-Q", "--check-hash-based-pycs"},
    "node": {"-r", "--require", "--import", "--loader", "--experimental-loader", "-C", "--conditions", "--env-file"},
    "ruby": {"-I", "-r", "-C", "-E", "-F", "-x"},
    "perl": {"-I", "-M", "-m"},
    "php": {"-c", "-d", "-z", "-S", "-t"},
    "java": {"-cp", "-classpath", "--class-path", "-p", "--module-path", "--add-modules", "--upgrade-module-path"},
    "sh": {"-o", "-O", "--rcfile", "--init-file"},
}
"""Options with a value behind them."""
_NAMES_IT = {"python": {"-m"}, "java": {"-jar", "-m", "--module"}, "php": {"-f"}}
"""Options whose value is what runs."""
_NO_SCRIPT = {
    "python": {"-c"}, "node": {"-e", "--eval", "-p", "--print", "-i"}, "ruby": {"-e"}, "perl": {"-e", "-E"},
    "php": {"-r"}, "sh": {"-c", "-s"}, "java": set(),
}  # fmt: skip
"""Options with the program itself as their value, and that read it from standard input."""
_ALIKE = {"pypy": "python", "nodejs": "node", "bun": "node", "deno": "node", "bash": "sh", "dash": "sh"}
_DENO_OR_BUN = ("run", "x", "serve")


def interpreter_of(executable: str) -> str:
    """Returns which kind of interpreter a program is, or "". `executable`: its path."""
    found = _INTERPRETER.fullmatch(os.path.basename(executable))
    return _ALIKE.get(found[1], found[1]) if found else ""


def script_of(executable: str, arguments: Sequence[str]) -> str:
    """Returns the name of what the program runs, "" if it is no interpreter or runs none. `arguments`: from its name
    on. A script is named by its file, a class by its name without the package."""
    kind = interpreter_of(executable)
    rest = iter(arguments[1:])
    if not kind:
        return ""
    for argument in rest:
        option = argument.partition("=")[0]
        if argument in _NAMES_IT.get(kind, ()):
            return _name(kind, next(rest, ""))
        if kind == "python" and argument.startswith("-m") and len(argument) > 2:
            return _name(kind, argument[2:])
        if option in _NO_SCRIPT[kind] or argument in ("-", "--version", "-V"):
            return ""
        if argument in _WITH_VALUE[kind]:
            next(rest, "")
        elif argument == "--":
            return _name(kind, next(rest, ""))
        elif not argument.startswith("-") and not (kind == "node" and argument in _DENO_OR_BUN):
            return _name(kind, argument)
    return ""


def _name(kind: str, what: str) -> str:
    name = os.path.basename(what.rstrip("/"))
    if kind == "java" and not name.endswith((".jar", ".war", ".java")):
        return name.rpartition(".")[2]
    return name
