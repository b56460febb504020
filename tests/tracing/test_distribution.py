"""What `pip install` brings: built as wheels, and installed into environments of their own."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from icestream import __version__
from tests.prose import tracked
from tests.tracing.traced import TRACE, Listener

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
    """Builds `icestream-tracing` and `icestream`, from copies: a build leaves files where it runs."""
    folder = tmp_path_factory.mktemp("wheels")
    for path in tracked():
        if not path.startswith(("tests/", "docs/", "benchmarks/")) and (ROOT / path).exists():
            (folder / "source" / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, folder / "source" / path)
    return _wheel(folder / "source/icestream/tracing", folder), _wheel(folder / "source", folder)


@pytest.fixture(scope="module")
def application(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the Python of an environment with `icestream-tracing` alone."""
    return _environment(tmp_path_factory.mktemp("application"), wheels[0])


def test_an_application_gets_the_tracing_package_and_nothing_else(application: Path) -> None:
    (packages,) = application.parents[1].glob("lib/python*/site-packages")
    assert {path.name for path in packages.iterdir()} == {"icestream", f"icestream_tracing-{__version__}.dist-info"}
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
    python = _environment(tmp_path, *wheels)
    code = "import icestream.cli, icestream.tracing; print(icestream.__version__, icestream.tracing.status().started)"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == f"{__version__} False\n"


def test_the_two_distributions_have_one_version() -> None:
    whole, tracing = (
        tomllib.loads((ROOT / path).read_text())["project"]
        for path in ("pyproject.toml", "icestream/tracing/pyproject.toml")
    )
    assert tracing["version"] == __version__
    assert whole["dependencies"] == [f"icestream-tracing=={__version__}"]
    assert tracing["dependencies"] == []


def _wheel(source: Path, folder: Path) -> Path:
    before = set(folder.glob("*.whl"))
    _pip("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", folder, source)
    (wheel,) = set(folder.glob("*.whl")) - before
    return wheel


def _environment(folder: Path, *wheels: Path) -> Path:
    python = folder / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    _pip("--python", python, "install", "--no-deps", "--no-index", "--no-compile", *wheels)
    return python


def _pip(*arguments: str | Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    done = subprocess.run([*pip, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
