"""A JVM that loads classes all the time and drops them."""

from pathlib import Path

import pytest

from tests.collector.runtimes import churning
from tests.collector.runtimes.hotspot.jvms import EACH, NEEDS_JAVA, started, version
from tests.collector.watching import watching

pytestmark = [pytest.mark.ebpf, NEEDS_JAVA]


@EACH
def test_methods_have_names_of_classes_that_were_there(home: Path) -> None:
    with (
        watching(churning.FREQUENCY_HZ, "libbpf") as (host, sampler),
        started(home, program=("Churn",)) as process,
    ):
        churning.check_names(host, sampler, process, f"Java {version(home)} that drops classes", "[hotspot]")
