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
from api.tree.functions import NOT_CODE, Function
from api.tree.moved_files import moved_files
from api.tree.stack_cache import FunctionStacks
from api.views.hide import rebuild
from api.views.used_part import levels_below_root, used_part
from icestream.symbols.unnamed import is_unnamed

_Paths = tuple[str, str]
"""The module and the source file of a function."""
_Key = tuple[str, str, bool, str, str]


def join_copies(stacks: FunctionStacks) -> FunctionStacks:
    """Functions of one file, by its build ID, are one, whatever paths it was mapped by. They have the first of these
    paths in order, of those that these stacks have."""
    if not stacks.mappings.has_copies:
        return stacks
    used = _used(stacks)
    modules = stacks.mappings.one_file({function.module for function in used.functions})
    return _join(used, lambda function: (modules.get(function.module, function.module), function.file)) or stacks


def join_moved(stacks: FunctionStacks, values: Values) -> FunctionStacks:
    """Functions of a profile and of its baseline are one if their file has moved in between (api/tree/moved_files.py).
    They have the profile's paths. Those of one side never are one. `values`: (2, n), the profile's and its baseline's.

    The sources of one module are paired with each other only. What only an address names is not paired.
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
        if is_unnamed(function.name, function.module) or module not in files:
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
    """The stacks with `common_paths` as paths of functions, and those that are equal then joined; None if they have
    these paths already."""
    shown = [_with_paths(function, *common_paths(function)) for function in used.functions]
    is_changed = [new is not old for new, old in zip(shown, used.functions, strict=True)]
    changed = {_key(function) for function in itertools.compress(shown, is_changed)}
    if not changed:
        return None
    first: dict[_Key, int] = {}
    joined = used.rows.astype(np.int32)
    for number in sorted(range(len(shown)), key=is_changed.__getitem__):
        if (key := _key(shown[number])) in changed:
            joined[number] = used.rows[first.setdefault(key, number)]
    leaves, tree = rebuild(used.stacks, np.zeros(len(used.number), bool), joined[used.number])
    functions = dict(enumerate(NOT_CODE)) | dict(zip(used.rows.tolist(), shown, strict=True))
    return replace(used.stacks, leaves=leaves, tree=tree, functions=functions)


def _with_paths(function: Function, module: str, file: str) -> Function:
    if (module, file) == (function.module, function.file):
        return function
    # Files and modules are named by their paths.
    name = {function.module: module, function.file: file}.get(function.name, function.name)
    return replace(function, name=name, module=module, file=file)


def _key(function: Function) -> _Key:
    """What is equal where functions are one. Code without names is named by the name that its file had, and by an
    address if that tells it apart."""
    name = function.name if function.named else function.name.partition("+0x")[2]
    return name, function.kind, function.named, function.module, function.file
