"""Functions become the files or modules that they are in."""

from collections.abc import Callable

import numpy as np

from api.tree.functions import NOT_CODE, Function
from api.tree.granularity import Granularity
from api.tree.stack_cache import FunctionStacks
from api.views.hide import rebuild
from api.views.used_part import used_part


def coarse(stacks: FunctionStacks, by: Granularity) -> FunctionStacks:
    """Joins what is one file, module or address. Frames of one file or module that call each other become one."""
    if by in (Granularity.FUNCTION, Granularity.LINE):
        return stacks
    used = used_part(stacks)
    tree = used.tree
    rows, index = np.unique(tree.function, return_inverse=True)
    parts: dict[tuple[str, str, str], Function] = {_key(function): function for function in NOT_CODE}
    keys = []
    for row in rows.tolist():
        part = coarse_function(used.functions[row], by)
        keys.append(_key(part))
        parts.setdefault(keys[-1], part)
    row_of_key = {key: row for row, key in enumerate(parts)}
    number = np.array([row_of_key[key] for key in keys], np.int32)[index]
    dropped = np.zeros(len(number), bool)
    if by is not Granularity.ADDRESS:
        dropped[1:] = number[1:] == number[tree.parent[1:]]
    leaves, rebuilt = rebuild(used, dropped, number)
    functions = list(parts.values())
    return FunctionStacks(leaves, rebuilt, functions, functions, stacks.mappings)


def coarse_function(function: Function, by: Granularity) -> Function:
    """The file or module that a function is in; the function itself where `by` is finer."""
    return _PARTS[by](function) if by in _PARTS else function


def _key(function: Function) -> tuple[str, str, str]:
    return function.name, function.module, function.file


def _file(function: Function) -> Function:
    if function.kind == "icestream":
        return function
    name = function.file or function.module or function.name
    return Function(name, "" if function.file else name, function.file, kind=function.kind)


def _module(function: Function) -> Function:
    if function.kind == "icestream":
        return function
    name = function.module or function.name
    return Function(name, name, kind=function.kind)


_PARTS: dict[Granularity, Callable[[Function], Function]] = {
    Granularity.FILE: _file,
    Granularity.MODULE: _module,
    Granularity.ADDRESS: lambda function: function,
}
