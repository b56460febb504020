"""Makes one function of those that differ by the path of their file only, though it is one file."""

import itertools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from api.array_types import Values
from api.tree.distinct import distinct_numbers
from api.tree.functions import Function
from api.tree.moved_files import moved_files
from api.tree.stack_cache import FunctionStacks
from api.views.hide import rebuild
from api.views.used_part import levels_below_root, used_part

_Paths = tuple[str, str]
"""Of a function: its module and its source file."""
_Key = tuple[str, str, bool, _Paths]


def join_copies(stacks: FunctionStacks) -> FunctionStacks:
    """Functions of one file, by its build ID, are one, whatever paths it was mapped by: that of the first path in
    order, of those that these stacks have."""
    if not stacks.mappings.has_copies:
        return stacks
    used = _used(stacks)
    modules = stacks.mappings.one_file({function.module for function in used.functions})
    return _join(used, lambda function: (modules.get(function.module, function.module), function.file)) or stacks


def join_moved(stacks: FunctionStacks, values: Values) -> FunctionStacks:
    """Functions of a profile and of its baseline are one if their file has moved in between (api/tree/moved_files.py).
    Those of one side never are. `values`: (2, n), of the profile and of its baseline.

    The sources of one module are paired with each other only. Code without names is not paired.
    """
    used = _used(stacks)
    now, before = (_with_values(used, side) for side in values)
    modules = moved_files({function.module for function in before}, {function.module for function in now})

    def module_of(function: Function) -> str:
        return modules.get(function.module, function.module)

    sources = defaultdict[str, tuple[set[str], set[str]]](lambda: (set(), set()))
    for number, side in enumerate((before, now)):
        for function in side:
            sources[module_of(function)][number].add(function.file)
    files = {module: moved_files(*both) for module, both in sources.items()}

    def paths_now(function: Function) -> _Paths:
        module = module_of(function)
        if not function.named or module not in files:
            return function.module, function.file
        return module, files[module].get(function.file, function.file)

    return _join(used, paths_now) or stacks


class _Used(NamedTuple):
    """The functions of some stacks, each once."""

    stacks: FunctionStacks  # as of `used_part`
    rows: npt.NDArray[np.int64]
    functions: list[Function]
    number: npt.NDArray[np.int64]  # of each row of the tree: in both


def _used(stacks: FunctionStacks) -> _Used:
    used = used_part(stacks)
    rows, number = distinct_numbers(used.tree.function)
    return _Used(used, rows, [used.functions[row] for row in rows.tolist()], number)


def _with_values(used: _Used, values: npt.NDArray[np.int64]) -> list[Function]:
    """The functions of the stacks that have values."""
    tree = used.stacks.tree
    has_values = np.zeros(len(tree.parent), bool)
    has_values[used.stacks.leaves[values != 0]] = True
    for level in reversed(list(levels_below_root(tree))):
        has_values[tree.parent[level][has_values[level]]] = True
    has_function = np.zeros(len(used.functions), bool)
    has_function[used.number[has_values]] = True
    return list(itertools.compress(used.functions, has_function.tolist()))


def _join(used: _Used, common_paths: Callable[[Function], _Paths]) -> FunctionStacks | None:
    """The stacks with functions joined whose names and `common_paths` are equal, if these are not their own paths. The
    function whose own they are stands for the others. None if there is nothing to join."""
    others = defaultdict[_Key, list[int]](list)
    own: dict[_Key, int] = {}
    for number, function in enumerate(used.functions):
        paths = common_paths(function)
        key = _own_name(function), function.kind, function.named, paths
        if paths == (function.module, function.file):
            own.setdefault(key, number)
        else:
            others[key].append(number)
    joined = used.rows.copy()
    for key, numbers in others.items():
        joined[numbers] = used.rows[own.get(key, numbers[0])]
    if (joined == used.rows).all():
        return None
    leaves, tree = rebuild(used.stacks, np.zeros(len(used.number), bool), joined[used.number].astype(np.int32))
    return replace(used.stacks, leaves=leaves, tree=tree)


def _own_name(function: Function) -> str:
    """The name without that of a file: files and modules are named by their paths, and code without symbols by its file
    and an address."""
    if function.name in (function.module, function.file):
        return ""
    return function.name if function.named else function.name.rpartition("+")[2]
