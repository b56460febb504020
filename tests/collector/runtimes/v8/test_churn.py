"""Node programs that make functions all the time and drop them."""

import subprocess
from pathlib import Path

import pytest

from tests.collector.runtimes import churning
from tests.collector.runtimes.v8.nodes import Node, nodes
from tests.collector.watching import watching

pytestmark = [pytest.mark.ebpf, pytest.mark.soak]
PROGRAM = Path(__file__).parent / "churn.js"
MODES = {
    "default": ["--expose-gc"],
    "flushed code": ["--expose-gc", "--stress-flush-code", "--flush-bytecode"],
    "optimized": ["--expose-gc", "--always-turbofan", "--stress-compaction"],
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("node", nodes(), ids=lambda node: node.name)
def test_functions_have_names_of_those_that_were_there(node: Node, mode: str) -> None:
    flags = [flag.replace("turbofan", "opt") if node.major < 20 else flag for flag in MODES[mode]]
    command = [node.path, *flags, str(PROGRAM)]
    with (
        watching(churning.FREQUENCY_HZ) as (host, sampler),
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
    ):
        try:
            assert process.stdout
            assert process.stdout.readline() == b"ready\n"
            churning.check_names(host, sampler, process, f"Node {node.name}, {mode}, that drops functions", "[v8]")
        finally:
            process.kill()
