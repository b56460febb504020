"""Where functions are: what is written beside their names."""

from collections import defaultdict
from collections.abc import Collection, Sequence

Function = tuple[str, str, str]
"""Name, module and file."""


def places(functions: Sequence[Function], with_module: bool = False) -> list[str]:
    """Returns for each function what tells it from the others of its name; "" if nothing has to.

    That is its module, if they have several, and then its file, if those of the name and module have several. It
    is the last part of a path, or all of it if another one ends alike. `with_module`: the module is always there.
    """
    modules: defaultdict[str, set[str]] = defaultdict(set)
    files: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for name, module, file in functions:
        modules[name].add(module)
        files[name, module].add(file)

    def place(name: str, module: str, file: str) -> str:
        parts = []
        if with_module or len(modules[name]) > 1:
            parts.append(_short(module, modules[name]))
        if len(files[name, module]) > 1:
            parts.append(_short(file, files[name, module]))
        return " ".join(parts)

    return [place(*function) for function in functions]


def _short(path: str, paths: Collection[str]) -> str:
    """As short as tells it from the others."""
    if not path:
        return "unknown" if len(paths) > 1 else ""
    last = _last(path)
    return path if any(_last(other) == last for other in paths if other != path) else last


def _last(path: str) -> str:
    return path.rsplit("/", 1)[-1]
