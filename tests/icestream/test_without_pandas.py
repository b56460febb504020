"""Commands do without pandas."""

import subprocess
import sys

import pytest

from tests.waiting import PATIENCE_S

IN_A_COMMAND = """
import sys
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from icestream import cli

def run(args):
    import pyarrow as pa
    print(pa.array([7])[0], pa.table({"a": [1, 2]}).take(pa.array([1]))["a"][0], "pandas" in sys.modules)
    return 0

EntryPoint.load = lambda entry: SimpleNamespace(__doc__="", add_arguments=lambda parser: None, run=run)
cli.main(["topics"])
"""
AFTER_IT = IN_A_COMMAND + "import pyarrow as pa; print(pa.table({'a': [5]}).to_pandas()['a'][0])"


@pytest.mark.parametrize(("program", "printed"), [(IN_A_COMMAND, "7 2 False\n"), (AFTER_IT, "7 2 False\n5\n")])
def test_arrays_of_a_command_do_not_load_pandas(program: str, printed: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.stdout, done.stderr) == (printed, "")
