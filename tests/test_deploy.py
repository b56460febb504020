"""docker-compose.yml and the systemd units, without Docker: the schema of the specification, and our own parsers."""

import dataclasses
import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from docs.generate_settings import PARTS
from icestream.cli import GROUP, command_parser
from icestream.http.allowed_hosts import allowed_hosts
from icestream.settings import variable

ROOT = Path(__file__).parents[1]
COMPOSE = ROOT / "docker-compose.yml"
CONSTRAINTS = ROOT / "constraints.txt"
COLLECTOR_UNIT = ROOT / "deploy/systemd/icestream-collector.service"
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
_COMPOSE: dict[str, Any] = YAML(typ="safe").load(COMPOSE)
SERVICES: dict[str, Any] = _COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if service["image"] == "icestream"]
VARIABLES = {variable(field.name) for _, _, settings in PARTS for field in dataclasses.fields(settings)}


@pytest.mark.slow
def test_the_compose_file_is_what_the_specification_wants() -> None:
    checker = [str(Path(sys.executable).with_name("check-jsonschema")), "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*checker, str(COMPOSE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_compose_1_29_knows_every_word_of_the_compose_file() -> None:
    """Debian 12 has that version. Its schema is the one of before the specification, without these."""
    assert _COMPOSE.keys().isdisjoint({"name", "include", "models"})
    later = {"annotations", "cgroup", "develop", "gpus", "post_start", "pre_stop", "pull_policy", "uts"}
    assert not {(name, key) for name, service in SERVICES.items() for key in later & service.keys()}


@pytest.mark.parametrize("name", OURS)
def test_every_command_of_the_compose_file_can_be_parsed(name: str) -> None:
    parse(SERVICES[name]["command"])


@pytest.mark.parametrize("name", OURS)
def test_every_variable_of_the_compose_file_is_a_setting(name: str) -> None:
    assert set(SERVICES[name]["environment"]) <= VARIABLES


def test_whoever_serves_health_is_asked_for_it_at_the_port_it_was_given() -> None:
    for name in OURS:
        listens = [word for word in SERVICES[name]["command"] if word.startswith("0.0.0.0:")]
        asked = re.findall(r"127\.0\.0\.1:\d+", " ".join(SERVICES[name].get("healthcheck", {}).get("test", [])))
        assert [port.partition(":")[2] for port in listens] == [port.partition(":")[2] for port in asked]


@pytest.mark.parametrize("name", ["api", "gateway"])
def test_other_containers_may_use_the_names_of_those_that_answer_them(name: str) -> None:
    setting = f"{name}_allowed_hosts"
    assert name in allowed_hosts(setting, SERVICES[name]["environment"].get(variable(setting), ""))


def test_topics_and_tables_are_made_before_anybody_needs_them() -> None:
    for name in ("streams", "sinks", "collector"):
        assert SERVICES[name]["depends_on"]["topics"] == {"condition": "service_completed_successfully"}
    for name in ("sinks", "api"):
        assert SERVICES[name]["depends_on"]["tables"] == {"condition": "service_completed_successfully"}


@pytest.mark.parametrize("name", OURS)
def test_each_part_has_no_right_that_it_does_not_need(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert "privileged" not in service
    (needed,) = re.findall(r"^AmbientCapabilities=(.+)$", COLLECTOR_UNIT.read_text(), re.MULTILINE)
    capabilities = {*needed.split(), "CAP_SETPCAP"} if name == "collector" else set()
    assert {f"CAP_{capability}" for capability in service.get("cap_add", [])} == capabilities
    assert service.get("user") == ("root" if name == "collector" else None)  # else the image's


def test_parts_share_a_volume_only_where_one_writes_what_others_read() -> None:
    writers: dict[str, list[str]] = {}
    for name in OURS:
        for volume in SERVICES[name].get("volumes", []):
            source, _, mode = volume.partition(":")[0], *volume.rpartition(":")[1:]
            if not source.startswith("/") and mode != "ro":
                writers.setdefault(source, []).append(name)
    assert writers
    assert all(len(names) == 1 for names in writers.values()), writers


def test_no_password_is_known_before() -> None:
    text = COMPOSE.read_text()
    assert text.count("${CLICKHOUSE_PASSWORD:?run make .env}") == text.count("CLICKHOUSE_PASSWORD:?") == 2
    assert not re.search(r"\$\{\w+:-", text)


def test_a_random_password_is_made_that_only_its_owner_reads(tmp_path: Path) -> None:
    made = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        subprocess.run(["make", "-s", "-C", str(folder), "-f", str(ROOT / "Makefile"), ".env"], check=True)
        assert (folder / ".env").stat().st_mode & 0o777 == 0o600
        made += re.findall(r"^CLICKHOUSE_PASSWORD=([0-9a-f]{48})\n$", (folder / ".env").read_text())
    assert len(set(made)) == 2


def test_the_image_has_the_versions_that_are_tested() -> None:
    versions = re.compile(r"^([\w.-]+)==([^\s;]+)", re.MULTILINE)
    tested = {name.lower().replace("_", "-"): version for name, version in versions.findall(CONSTRAINTS.read_text())}
    locked = versions.findall((ROOT / "deploy/docker/requirements.txt").read_text())
    assert len(locked) > 50
    assert [name for name, version in locked if name in tested and tested[name] != version] == []


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_every_command_of_the_units_can_be_parsed(unit: Path) -> None:
    (command,) = re.findall(r"^ExecStart=\S+/icestream (.+)$", unit.read_text(), re.MULTILINE)
    (sinks,) = re.findall(r"^ARGUMENTS=(.+)$", (ROOT / "deploy/debian/settings/sink.env").read_text(), re.MULTILINE)
    parts = {"streams": "", "sink": sinks, "api": "", "gateway": ""} if "%i" in command else {"": ""}
    for part, arguments in parts.items():
        parse(command.replace("%i", part).replace("$ARGUMENTS", arguments).split())


@pytest.mark.parametrize("name", ["icestream.env", "sink.env"])
def test_every_variable_of_the_settings_of_the_packages_exists(name: str) -> None:
    given = re.findall(r"^#?(\w+)=", (ROOT / "deploy/debian/settings" / name).read_text(), re.MULTILINE)
    assert given
    assert set(given) <= VARIABLES | {"ARGUMENTS"}


def parse(words: list[str]) -> None:
    command = {entry.name: entry for entry in entry_points(group=GROUP)}[words[0]].load()
    command_parser(words[0], command).parse_args(words[1:])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_exposure_of_the_units_is_what_the_docs_say(unit: Path) -> None:
    if not (analyze := shutil.which("systemd-analyze")):
        pytest.skip("needs systemd-analyze")
    command = [analyze, "security", "--offline=true", "--no-pager", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not (found := re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)):
        pytest.skip("this systemd-analyze does not check files")
    assert float(found[1]) <= 4.5  # versions differ a little; the docs say 4.0 and 4.1
