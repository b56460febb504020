"""Commands do without pandas."""

import subprocess
import sys
from pathlib import Path

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
WITH_OPERATORS_OF_A_USER = IN_A_COMMAND.replace(
    "    return 0",
    """\
    sys.path.insert(0, sys.argv[1])
    from jobs.run import make_operators
    from sinks.settings import StorageSettings
    make_operators("operators_of_a_user:OPERATORS", StorageSettings())
    return 0""",
)
AFTER_IT = IN_A_COMMAND + "import pyarrow as pa; print(pa.table({'a': [5]}).to_pandas()['a'][0])"


@pytest.mark.parametrize(("program", "printed"), [(IN_A_COMMAND, "7 2 False\n"), (AFTER_IT, "7 2 False\n5\n")])
def test_arrays_of_a_command_do_not_load_pandas(program: str, printed: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.stdout, done.stderr) == (printed, "")


def test_operators_of_a_user_may_need_pandas(tmp_path: Path) -> None:
    source = "import pandas\nfrom streams.partition.process import Operators\nOPERATORS = Operators()\n"
    (tmp_path / "operators_of_a_user.py").write_text(source)
    asked = [sys.executable, "-c", WITH_OPERATORS_OF_A_USER, str(tmp_path)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.stdout, done.stderr) == ("7 2 False\n", "")
