"""Images for the node: those of icestream, one with Kafka's jars in place of the official one, and the one of pods."""

import shutil
from pathlib import Path

from ruamel.yaml import YAML

from standalone.supervisor.local_kafka import JARS
from tests.pipeline.docker_host import BASE, ROOT, running_docker

PAUSE = "icestream-pause:1"
"""The image that keeps a pod's network."""
KAFKA: str = YAML(typ="safe").load(ROOT / "deploy/helm/icestream/values.yaml")["trialPod"]["kafkaImage"]
_DOCKERFILES = {
    PAUSE: 'ENTRYPOINT ["sleep", "infinity"]',
    KAFKA: """RUN mkdir -p /usr/share/man/man1
RUN apt-get update && apt-get install -y --no-install-recommends default-jre-headless
COPY libs /opt/kafka/libs
""",
}


def build_images(scratch: Path, out: Path) -> None:
    """Builds all with a Docker of its own, and leaves each as a file in `out`."""
    with running_docker(scratch) as engine:
        engine.make_base()
        engine.build_images(out)
        shutil.copytree(JARS, scratch / "context/libs")
        for tag, lines in _DOCKERFILES.items():
            (scratch / "context/Dockerfile").write_text(f"FROM {BASE}\n{lines}\n")
            engine.run("build", "--network=host", "--tag", tag, str(scratch / "context"))
            engine.run("save", "--output", str(out / f"{tag.replace('/', '-').replace(':', '-')}.tar"), tag)
