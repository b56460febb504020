"""Folds an interpreter's plumbing: the native frames that only carry out a call of its language.

A stack of a Python program has the interpreter's own functions between its Python functions: `method_vectorcall`,
`_PyObject_Call`... They are folded into the frame above them if a Python function is anywhere above
them. Functions that do something themselves stay, as `list_sort` between `sorted` and its key function.
"""

import re
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from api.tree.functions import NOT_CODE, Function
from api.tree.stack_cache import FunctionStacks
from api.views.hide import without
from api.views.used_part import used_part, with_rows_below


class FrameChoice(StrEnum):
    ALL = "all"
    OWN = "own"
    USER = "user"


_SUFFIX = r"(?:\.(?:part|constprop|isra|cold|localalias|lto_priv|llvm)\b.*)?"
_PYTHON_FILE = re.compile(r"(?:lib)?python\d[\w.-]*")
_PYTHON_PLUMBING = re.compile(
    r"(?:"
    # The evaluation of frames (Python/ceval.c), where a sample has its frame beside the Python function.
    r"_?PyEval_Eval\w*|_PyEval_Vector|"
    # Calls (Objects/call.c, methodobject.c, classobject.c, descrobject.c) under each convention.
    r"_?Py\w*Vectorcall\w*|(?:method|cfunction|partial|type)_vectorcall\w*|vectorcall_\w+|"
    r"_?PyObject_(?:Fast)?Call\w*|_PyObject_MakeTpCall|PyCFunction_Call|PyEval_Call\w+|"
    r"_?Py(?:Function|Method)_\w*[cC]all\w*|call_(?:function|method|unbound\w*|attribute)|callmethod|object_vacall|"
    r"do_call_core|trace_call_function|function_code_fastcall|cfunction_call|method_call|type_call|"
    r"(?:wrapper|wrapperdescr|methoddescr|classmethoddescr)_call|wrap_\w+|"
    # Methods of classes that are written in Python, called by the interpreter (Objects/typeobject.c).
    r"slot_\w+|lookup_maybe_method|tp_new_wrapper|"
    # Generators and coroutines that go on (Objects/genobject.c).
    r"gen_(?:send\w*|iternext|throw|close)|_gen_throw|PyGen_am_send|_?PyGen_Send|PyIter_Send|coro_wrapper_send|"
    r"async_gen_a\w+"
    rf"){_SUFFIX}"
)


def fold(stacks: FunctionStacks, frames: FrameChoice) -> FunctionStacks:
    """Without an interpreter's plumbing below its language, and with `FrameChoice.USER` without the kernel's frames.

    The own value of a folded frame goes to the frame above it.
    """
    if frames is FrameChoice.ALL:
        return stacks
    used = used_part(stacks)
    tree = used.tree
    rows, index = np.unique(tree.function, return_inverse=True)
    functions = [used.whole_functions[row] for row in rows.tolist()]
    is_language = np.array([_is_language(function) for function in functions])[index]
    is_plumbing = np.array([_is_plumbing(function) for function in functions])[index]
    dropped: npt.NDArray[np.bool_] = is_plumbing & with_rows_below(tree, is_language)
    if frames is FrameChoice.USER:
        dropped |= (np.array([function.kind == "kernel" for function in functions]) & (rows >= len(NOT_CODE)))[index]
    return without(used, dropped)


def _is_language(function: Function) -> bool:
    # Python's own perf map (python -X perf) names its functions `py::name:file`.
    return function.module == "[python]" or (function.kind == "jit" and function.name.startswith("py::"))


def _is_plumbing(function: Function) -> bool:
    file = function.module.rpartition("/")[2]
    return bool(_PYTHON_FILE.fullmatch(file) and _PYTHON_PLUMBING.fullmatch(function.name))
