"""What `pip install` brings: built as wheels, and installed into environments of their own."""

import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from icestream.version import VERSION
from tests.prose import PACKAGES, tracked
from tests.tracing.traced import TRACE, Listener
from tests.wheels import build_wheels, environment

ROOT = Path(__file__).parents[2]
APPLICATION = f"""
import sys
from api.prices import price
from icestream import tracing

tracing.start(service="shop")
with tracing.span("{TRACE}", name="GET /checkout"):
    price(200_000)

print(tracing.__file__)
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Builds `icestream-tracing` and `icestream`, as a release does."""
    tracing, whole = build_wheels(tmp_path_factory.mktemp("wheels"))
    return tracing, whole


@pytest.fixture(scope="module")
def application(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the Python of an environment with `icestream-tracing` alone."""
    return environment(tmp_path_factory.mktemp("application"), wheels[0])


def test_an_application_gets_the_tracing_package_and_nothing_else(application: Path) -> None:
    (packages,) = application.parents[1].glob("lib/python*/site-packages")
    assert {path.name for path in packages.iterdir()} == {"icestream", f"icestream_tracing-{VERSION}.dist-info"}
    assert [path.name for path in (packages / "icestream").iterdir()] == ["tracing"]
    assert (packages / "icestream/tracing/py.typed").exists()
    assert not list(packages.rglob("*.toml"))


def test_an_application_with_a_folder_named_api_starts_and_is_traced(
    application: Path, listener: Listener, tmp_path: Path
) -> None:
    (tmp_path / "shop/api").mkdir(parents=True)
    (tmp_path / "shop/api/prices.py").write_text("def price(n): return sum(sorted(str(i) for i in range(n))[0:0], n)\n")
    (tmp_path / "shop/app.py").write_text(APPLICATION)
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [application, "app.py"], cwd=tmp_path / "shop", env=environ | {"ICESTREAM_ACTIVITY_SOCKET": listener.path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert str(ROOT) not in done.stdout
    heard = listener.take()
    assert heard.thread_cpu_ns(TRACE) > 0
    assert [(span.name, span.service) for span in heard.spans] == [("GET /checkout", "shop")]


def test_the_two_distributions_share_no_file_and_work_together(wheels: tuple[Path, Path], tmp_path: Path) -> None:
    tracing, whole = (set(zipfile.ZipFile(wheel).namelist()) for wheel in wheels)
    assert not tracing & whole
    assert {"icestream/cli.py", "api/settings.py"} <= whole
    python = environment(tmp_path, *wheels)
    code = (
        "import icestream.cli, icestream.tracing; print(icestream.version.VERSION, icestream.tracing.status().started)"
    )
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == f"{VERSION} False\n"


def test_the_whole_requires_the_tracing_package_of_its_own_version(wheels: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(wheels[1]) as whole:
        (metadata,) = (name for name in whole.namelist() if name.endswith(".dist-info/METADATA"))
        required = re.findall(r"^Requires-Dist: (\S+)$", whole.read(metadata).decode(), re.MULTILINE)
    assert required == [f"icestream-tracing=={VERSION}"]


def test_the_wheel_has_every_file_of_its_packages(wheels: tuple[Path, Path]) -> None:
    built = {name for name in zipfile.ZipFile(wheels[1]).namelist() if ".dist-info/" not in name}
    packages = set(PACKAGES) - {"benchmarks"}
    ours = {path for path in tracked() if path.split("/")[0] in packages and not path.startswith("icestream/tracing/")}
    assert ours - built == {"bpf/LICENSE", "bpf/Makefile", "bpf/bcc/README.md", "sinks/schema/changes/.gitkeep"}
    assert built - ours == set()


@pytest.mark.soak
def test_the_same_files_give_the_same_bytes_anywhere(wheels: tuple[Path, Path], tmp_path: Path) -> None:
    again = build_wheels(tmp_path, umask=0o077)
    for built in (*again, *(path.with_name(path.name.replace("-py3-none-any.whl", ".tar.gz")) for path in again)):
        assert built.read_bytes() == (wheels[0].parent / built.name).read_bytes()
