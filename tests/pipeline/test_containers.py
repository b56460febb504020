"""Real containers, profiled by a collector on their host, and by one in a container of its own."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.activity.activity_socket import answers
from icestream.version import VERSION
from tests.pipeline.docker_host import BASE, ROOT, Docker, missing, options_of_service, running_docker
from tests.pipeline.running import Pipeline, between
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.pipeline,
    pytest.mark.ebpf,
    pytest.mark.soak,  # a Debian and an image are made, and packages downloaded, for minutes
]
IMAGE, COLLECTOR = f"icestream:{VERSION}", f"icestream:{VERSION}-collector"
TRACING = f"{ROOT}/icestream/tracing:/lib/python3/icestream/tracing:ro"
PROGRAM = f"{Path(__file__).with_name('boxed.py')}:/boxed.py:ro"


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Docker]:
    assert not missing(), f"needs {missing()}: run make containers"
    with running_docker(tmp_path_factory.mktemp("docker")) as engine:
        engine.make_base()
        yield engine


@pytest.fixture(scope="module")
def images(docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """IDs of the images that a fleet runs, by their tags."""
    return docker.build_images(tmp_path_factory.mktemp("images"), "icestream", "collector")


def test_the_images_are_small_and_run_as_nobody(docker: Docker, images: dict[str, str]) -> None:
    most = {IMAGE: 400, COLLECTOR: 205}
    sizes = {tag: int(docker.run("image", "inspect", "--format", "{{.Size}}", tag)) / 1e6 for tag in most}
    assert all(sizes[tag] < most[tag] for tag in most), sizes
    for tag in most:
        found = docker.run("image", "inspect", "--format", "{{.Id}} {{.Config.User}}", tag)
        assert found == f"{images[tag]} 10001:10001"
        labels = docker.run("image", "inspect", "--format", "{{json .Config.Labels}}", tag)
        assert f'"org.opencontainers.image.version":"{VERSION}"' in labels
    alone = ("run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL")
    for command in ("collect", "streams", "sink", "migrate", "api", "gateway", "scrape", "topics", "query"):
        assert f"usage: icestream {command}" in docker.run(*alone, IMAGE, command, "--help")
    assert "usage: icestream collect" in docker.run(*alone, COLLECTOR, "collect", "--help")


def test_the_health_check_asks_what_runs(docker: Docker, images: dict[str, str]) -> None:
    """Kafka is away, so the gateway is alive and not ready."""
    options = ("--read-only", "--tmpfs=/tmp", "--network=none", "--health-interval=1s", "--health-start-period=0s")
    docker.start("healthy", IMAGE, *options, command=("gateway",))
    docker.start("unhealthy", IMAGE, *options, "--health-retries", "1", "--entrypoint", "sleep", command=("600",))
    try:
        for name in ("healthy", "unhealthy"):
            wait_until(lambda name=name: docker.run("inspect", "--format", "{{.State.Health.Status}}", name) == name)
    finally:
        docker.remove("healthy")
        docker.remove("unhealthy")


def test_an_image_that_is_built_again_is_the_same(docker: Docker, images: dict[str, str], tmp_path: Path) -> None:
    """Also at another time, and with nothing kept of the first build."""
    assert docker.build_images(tmp_path, "collector", "--build-option=--no-cache")[COLLECTOR] == images[COLLECTOR]


@pytest.fixture
def containers(docker: Docker) -> Iterator[Callable[..., str]]:
    """`containers(SOCKET FOLDER, NAME, OPTIONS...)` starts the traced program in one; all end with the test."""
    started = []

    def start(sockets: Path, name: str, *options: str) -> str:
        started.append(name)
        return docker.start(
            name, BASE, "--volume", TRACING, "--volume", PROGRAM, "--volume", f"{sockets}:/run/icestream",
            "--env", "PYTHONPATH=/lib/python3", *options, command=("python", "/boxed.py", f"service-of-{name}"),
        )  # fmt: skip

    yield start
    for name in started:
        docker.remove(name)


def test_containers_are_profiled_by_their_names_and_by_their_requests(
    embedded_pipeline: Pipeline, containers: Callable[..., str]
) -> None:
    """Whatever namespaces they have, and whoever runs in them."""
    pipeline, begin = embedded_pipeline, time.time_ns()
    pipeline.start("collect")
    pipeline.wait(lambda: (pipeline.data / "activity.sock").exists(), bool)
    pipeline.data.chmod(0o755)
    ids = {
        "of-root": containers(pipeline.data, "of-root", "--network", "none"),
        "of-a-user": containers(pipeline.data, "of-a-user", "--network", "none", "--user", "1000"),
        "with-the-host": containers(pipeline.data, "with-the-host", "--network", "host", "--pid", "host"),
        "small": containers(pipeline.data, "small", "--network", "none", "--cpus", "0.2", "--memory", "64m"),
    }
    for name, container_id in ids.items():
        assert_profiled(pipeline, begin, name, container_id)


def test_the_image_has_a_collector_that_profiles_its_host(
    embedded_pipeline: Pipeline, docker: Docker, images: dict[str, str], containers: Callable[..., str]
) -> None:
    """With the rights that the service has in docker-compose.yml."""
    pipeline, begin = embedded_pipeline, time.time_ns()
    environ = [f"--env={name}={value}" for name, value in pipeline.settings.environ().items()]
    command = "collect --interval 1 --frequency 99 --cpu-budget 0 --metrics-listen 127.0.0.1:0"
    options = [*options_of_service(docker, "collector", pipeline.data), "--network", "host", *environ]
    docker.start("collector", COLLECTOR, *options, command=tuple(command.split()))
    try:
        pipeline.data.chmod(0o755)
        pipeline.wait(lambda: answers(pipeline.data / "activity.sock"), bool)
        container_id = containers(pipeline.data, "beside", "--network", "none")
        # Where nobody may look at process 1, a collector in a container does not find the files of Docker.
        assert_profiled(pipeline, begin, "beside", container_id, sees_names=os.access("/proc/1/root/proc", os.F_OK))
    except AssertionError as error:
        raise AssertionError(f"{error}\n{docker.logs('collector')}") from error
    finally:
        docker.remove("collector")


def assert_profiled(pipeline: Pipeline, begin: int, name: str, container_id: str, sees_names: bool = True) -> None:
    """The container's samples have its labels, its functions and its requests."""
    time_range = between(begin, begin + 3600 * 10**9)
    selector = f'{{service="service-of-{name}"}}'

    def get(path: str, **query: Any) -> Any:
        return pipeline.get(path, **{"selector": selector} | time_range | query)

    def attributed() -> float:
        groups = get("/api/v1/timeline", sum_by="operation", step="1h")["groups"]
        sums = {group["labels"].get("operation", ""): sum(group["values"]) for group in groups}
        return sums.get("GET /boxed", 0) / max(sum(sums.values()), 1)

    def named() -> float:
        lines = get("/api/v1/merge", format="collapsed").splitlines()
        values = {line: int(line.rpartition(" ")[2]) for line in lines}
        return sum(value for line, value in values.items() if ";serve;spin" in line) / max(sum(values.values()), 1)

    pipeline.wait(lambda: get("/api/v1/merge")["total"], lambda total: total > 10**9)
    labels = {
        label: get(f"/api/v1/labels/{label}/values")["values"]
        for label in ("container", "container_id", "container_runtime")
    }
    names = [name] if sees_names else []
    assert labels == {"container": names, "container_id": [container_id], "container_runtime": ["docker"]}
    pipeline.wait(attributed, lambda share: share > 0.9)  # imports and the start are no request
    pipeline.wait(named, lambda share: share > 0.8)  # on a busy host, the first stacks are not known yet
    (operation,) = get("/api/v1/operations")["operations"]
    assert operation["requests"] > 5
    assert 0.030 <= operation["mean_cpu_ns"] / 1e9 < 0.040
