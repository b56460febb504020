"""Readable names of classes and methods.

Names that each process counts anew (lambdas, hidden classes, generated accessors) lose their number or address: else
every start of a program would have functions of its own.
"""

import re

_ADDRESS = re.compile(r"[+/]0x[0-9a-f]{6,16}$")  # hidden classes, and those of Unsafe.defineAnonymousClass
_NUMBER = re.compile(
    r"(\$\$Lambda)(?:\$\d+)?|(Generated(?:Serialization)?(?:Method|Constructor)Accessor)\d+|(\$Proxy)\d+"
    r"|(LambdaForm\$[A-Z]+)\$?\d*$"
)
_WRONG = re.compile(r"[\x00-\x1f\x7f;\[]")


def class_name(internal: str) -> str:
    """`com/example/Main$$Lambda$14+0x00007f0c0c000400` -> `com.example.Main$$Lambda`. ValueError: it is no name."""
    name = _ADDRESS.sub("", internal)
    if not name or _WRONG.search(name):
        raise ValueError(name)
    if "Lambda" in name or "Accessor" in name or "$Proxy" in name:
        name = _NUMBER.sub(lambda match: next(filter(None, match.groups())), name)
    return name.replace("/", ".")


def method_name(internal_class: str, method: str) -> str:
    """ValueError: one of them is no name."""
    if not method or "/" in method or _WRONG.search(method):
        raise ValueError(method)
    return f"{class_name(internal_class)}.{method}"


def file_name(internal_class: str, source: str) -> str:
    """The path of a source file below the folder of all sources: packages are folders there. "" if it is not known."""
    if not source or _WRONG.search(source):
        return ""
    package, slash, _ = _ADDRESS.sub("", internal_class).rpartition("/")
    return package + slash + source
