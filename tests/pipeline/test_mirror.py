"""Two clusters, each with an Apache Kafka, and one set of streams, by docs/many-clusters.md: MirrorMaker 2 runs with
examples/mirror-maker.properties.

`make test-more` runs it: it needs Maven, which fetches 33 MB once, and three Java processes.
"""

import os
import re
import shutil
import subprocess
import textwrap
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from icestream.commands.topics import create
from icestream.settings import KafkaSettings
from icestream.topics import SYMBOLS
from standalone.supervisor.in_process_broker import PARTITIONS
from standalone.supervisor.local_kafka import JARS, LocalKafka
from tests.data.windows import window
from tests.pipeline.reading import messages
from tests.pipeline.running import Pipeline, between
from tests.ports import free_port
from tests.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.pipeline,
    pytest.mark.kafka,
    pytest.mark.ebpf,
    pytest.mark.soak,
    pytest.mark.skipif(not shutil.which("mvn"), reason="needs Maven"),
]
ROOT = Path(__file__).parents[2]
POM = Path(__file__).with_name("mirror_maker.xml")
RECIPE = ROOT / "examples/mirror-maker.properties"
PROGRAM = Path(__file__).with_name("known.c")


@pytest.fixture
def other_kafka(kafka_jars: None, tmp_path: Path) -> Iterator[KafkaSettings]:
    """The Kafka of cluster b."""
    running = LocalKafka(tmp_path / "kafka-b", port=free_port())
    running.start()
    create(running.settings(), partitions=PARTITIONS, replication=1)
    yield running.settings()
    running.close()


@pytest.fixture
def mirror(apache_kafka: KafkaSettings, other_kafka: KafkaSettings, tmp_path: Path) -> Iterator[Path]:
    """MirrorMaker between both; its log."""
    jars, log, recipe = tmp_path / "jars", tmp_path / "mirror-maker.log", tmp_path / "mirror-maker.properties"
    fetch = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    subprocess.run([*fetch, f"-DoutputDirectory={jars}"], check=True)
    text = RECIPE.read_text()
    for name, settings in (("kafka-a:9092", apache_kafka), ("kafka-b:9092", other_kafka)):
        assert name in text
        text = text.replace(name, settings.kafka)
    recipe.write_text(text)
    java = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*:{JARS}/*"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*java, "org.apache.kafka.connect.mirror.MirrorMaker", str(recipe)], stdout=output, stderr=output
        )
    yield log
    process.terminate()
    process.wait(PATIENCE_S)


def test_hosts_of_another_cluster_have_their_label_and_their_names(
    kafka_pipeline: Pipeline, other_kafka: KafkaSettings, mirror: Path, tmp_path: Path
) -> None:
    rule = re.search(r"```yaml\n(.*?)```", (ROOT / "docs/many-clusters.md").read_text(), re.DOTALL)
    assert rule is not None
    (rules := tmp_path / "rules.yaml").write_text(textwrap.dedent(rule[1]))
    program = tmp_path / f"known-{os.getpid()}"
    build_id = f"-Wl,--build-id=0x{uuid.uuid4().hex}"  # nobody has its names yet
    subprocess.run(["gcc", "-O0", "-g", build_id, "-o", program, PROGRAM], check=True)
    begin = time.time_ns()
    of_a = window(begin - 60 * 10**9, 1)
    kafka_pipeline.publish(of_a)

    def graph() -> str:
        selector = f'{{cluster="b", executable="{program.name}"}}'
        span = between(begin, time.time_ns())
        return str(kafka_pipeline.get("/api/v1/merge", format="collapsed", selector=selector, **span))

    (tmp_path / "b").mkdir()
    b = Pipeline(other_kafka, tmp_path / "b")
    b.start("collect", "--relabel", str(rules), "--symbol-store", "")
    with subprocess.Popen([program]) as known:
        try:
            kafka_pipeline.wait(graph, lambda text: "main;three_quarters;work" in text)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{b.logs()}\n{mirror.read_text()[-5000:]}") from None
        finally:
            known.kill()
            b.close()
    assert list(messages(other_kafka, SYMBOLS))
    assert kafka_pipeline.total(begin - 120 * 10**9, begin, '{cluster=""}') == of_a.value
