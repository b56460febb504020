"""The Helm chart, by Helm and by Kubernetes's own OpenAPI. `make chart` builds both from Go modules; without, only the
tests of its files run."""

import functools
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from ruamel.yaml import YAML

from icestream.http.allowed_hosts import allowed_hosts
from icestream.settings import variable
from icestream.version import VERSION
from tests.kubernetes.tools import TOOLS
from tests.test_deploy import COLLECTOR_UNIT, VARIABLES, parse

CHART = Path(__file__).parents[2] / "deploy/helm/icestream"
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))
FOREIGN = {"PrometheusRule", "ScaledObject", "SecurityContextConstraints", "ServiceMonitor", "TriggerAuthentication"}
"""Kinds of others than Kubernetes."""
HELM = shutil.which("helm", path=str(TOOLS))
needs_helm = pytest.mark.skipif(HELM is None or not (TOOLS / "swagger.json").exists(), reason="needs `make chart`")
Object = dict[str, Any]


def helm(*arguments: str) -> str:
    done = subprocess.run([str(HELM), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


def rendered(*arguments: str) -> list[Object]:
    """The objects that an installation with these values makes."""
    text = helm("template", "icestream", str(CHART), "--namespace", "profiles", "--kube-version", "1.34.0", *arguments)
    return [found for found in YAML(typ="safe", pure=False).load_all(text) if found]


@functools.cache
def of_example(example: Path) -> list[Object]:
    return rendered("--values", str(example))


def containers(found: list[Object]) -> dict[str, Object]:
    """Containers by `KIND/NAME` of what makes them."""
    return {
        f"{one['kind']}/{one['metadata']['name']}/{container['name']}": container
        for one in found
        if (template := one.get("spec", {}).get("template"))
        for container in template["spec"].get("initContainers", []) + template["spec"]["containers"]
    }


@functools.cache
def validator() -> Callable[[Object], list[str]]:
    """Says what of an object Kubernetes's OpenAPI does not permit; unknown fields count."""
    openapi = json.loads((TOOLS / "swagger.json").read_text())
    definitions = openapi["definitions"]
    for definition in definitions.values():
        if "properties" in definition:
            definition["additionalProperties"] = False
        if definition.get("format") == "int-or-string" or definition.get("description", "").startswith("Quantity is"):
            definition["type"] = ["string", "integer", "number"]
    names = {
        (kind["group"], kind["version"], kind["kind"]): name
        for name, definition in definitions.items()
        for kind in definition.get("x-kubernetes-group-version-kind", [])
    }

    def problems(found: Object) -> list[str]:
        group, _, version = found["apiVersion"].rpartition("/")
        name = names[group, version, found["kind"]]
        schema = {"$ref": f"#/definitions/{name}", "definitions": definitions}
        return [f"{'.'.join(map(str, e.path))}: {e.message[:200]}" for e in Draft7Validator(schema).iter_errors(found)]

    return problems


@needs_helm
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_what_the_chart_makes_is_what_kubernetes_knows(example: Path) -> None:
    found = of_example(example)
    assert len({(one["kind"], one["metadata"]["name"]) for one in found}) == len(found) > 5
    wrong = {one["metadata"]["name"]: validator()(one) for one in found if one["kind"] not in FOREIGN}
    assert {name: problems for name, problems in wrong.items() if problems} == {}


@needs_helm
def test_the_check_against_the_openapi_finds_mistakes() -> None:
    (deployment, *_) = [one for one in of_example(CHART / "examples/plain.yaml") if one["kind"] == "Deployment"]
    wrong = json.loads(json.dumps(deployment))
    wrong["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
    wrong["spec"]["replicas"] = "two"
    assert len(validator()(wrong)) == 2


@needs_helm
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_commands_and_settings_are_ours(example: Path) -> None:
    found = of_example(example)
    for name, container in containers(found).items():
        if "icestream" not in container["image"]:
            continue
        parse([word for word in container["args"] if word])
        ours = {entry["name"] for entry in container.get("env", []) if entry["name"].startswith("ICESTREAM_")}
        assert ours <= VARIABLES, name
        assert container["image"].partition(":")[2].partition("-")[0] == VERSION


@needs_helm
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_only_the_collector_has_rights(example: Path) -> None:
    for name, container in containers(of_example(example)).items():
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["allowPrivilegeEscalation"] is False
        assert not rights.get("privileged")
        assert rights["capabilities"]["drop"] == ["ALL"]
        if name.endswith("/collector"):
            (needed,) = re.findall(r"^CapabilityBoundingSet=(.+)$", COLLECTOR_UNIT.read_text(), re.MULTILINE)
            assert {f"CAP_{right}" for right in rights["capabilities"]["add"]} == set(needed.split())
        else:
            assert "add" not in rights["capabilities"]
            assert rights["runAsNonRoot"] is True


@needs_helm
def test_probes_ask_a_port_that_the_part_was_told_to_listen_at() -> None:
    for name, container in containers(of_example(CHART / "examples/certificates.yaml")).items():
        if name.startswith("Job/"):
            continue
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[probe]["httpGet"]
            assert f"0.0.0.0:{ports[asked['port']]}" in container["args"]
            assert asked.get("scheme", "HTTP") == ("HTTPS" if "gateway" in name else "HTTP")


@needs_helm
@pytest.mark.parametrize("part", ["api", "gateway"])
def test_pods_may_use_the_names_of_services(part: str) -> None:
    (container,) = [
        one for name, one in containers(of_example(CHART / "examples/plain.yaml")).items() if name.endswith(f"/{part}")
    ]
    setting = f"{part}_allowed_hosts"
    (value,) = [entry["value"] for entry in container["env"] if entry["name"] == variable(setting)]
    assert {f"icestream-{part}", f"icestream-{part}.profiles.svc"} <= set(allowed_hosts(setting, value))


@needs_helm
def test_no_more_workers_than_partitions() -> None:
    values = ("--values", str(CHART / "examples/plain.yaml"), "--set", "topics.partitions=4")
    assert rendered(*values, "--set", "streams.replicas=4")
    with pytest.raises(AssertionError, match=r"5 replicas are more than topics.partitions, 4"):
        rendered(*values, "--set", "streams.replicas=5")
    with pytest.raises(AssertionError, match="sinks: 5 replicas"):
        rendered(*values, "--set", "sinks.autoscaling.kind=hpa,sinks.autoscaling.maxReplicas=5")


@needs_helm
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("kafka.bootstrapServers=k:9092", "clickhouse.urlSecret.name"),
        ("clickhouse.urlSecret.name=c", "kafka.bootstrapServers"),
        ("trial=true,sinks.replica=3", "replica"),
        ("trial=true,archive=/srv/archive", "archive"),
    ],
)
def test_values_that_are_missing_or_wrong_are_named(values: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        rendered("--set", values)


@needs_helm
def test_helm_finds_nothing_to_complain_about() -> None:
    helm("lint", "--strict", str(CHART), "--values", str(CHART / "examples/plain.yaml"))


def test_every_value_has_a_default_and_is_in_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def of_schema(properties: Object) -> Object:
        inner = {key: value.get("properties") for key, value in properties.items()}
        return {key: of_schema(found) if found else None for key, found in inner.items()}

    def of_values(values: Object, known: Object) -> Object:
        return {key: of_values(value, known[key]) if known.get(key) else None for key, value in values.items()}

    known = of_schema(schema["properties"])
    known.pop("global")  # Helm's own
    assert of_values(YAML(typ="safe").load(CHART / "values.yaml"), known) == known


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = YAML(typ="safe").load(CHART / "Chart.yaml")
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
