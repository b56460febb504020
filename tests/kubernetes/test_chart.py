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


def rendered(*arguments: str, release: str = "icestream", namespace: str = "profiles") -> list[Object]:
    """The objects that an installation with these values makes."""
    text = helm("template", release, str(CHART), "--namespace", namespace, "--kube-version", "1.34.0", *arguments)
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
    assert len({(one["kind"], one["metadata"]["name"]) for one in found}) == len(found) >= 5
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
def test_every_container_says_what_it_takes(example: Path) -> None:
    """A namespace with a quota refuses those that do not."""
    assert [name for name, one in containers(of_example(example)).items() if not one.get("resources")] == []


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
        ("trial=true,image.tag=0.1.0@sha256:1234", "image/tag"),
        ("trial=true,collector.hostPaths.spool=spool", "spool"),
        ("trial=true,trialPod.storage=20GB", "storage"),
        ("trial=true,api.allowedHosts[0]=https://profiles.example.com", "allowedHosts"),
        ("kafka.bootstrapServers=k:9092,kafka.securityProtocol=SASL_SSL", "SASL_SSL has to have a saslMechanism"),
        ("kafka.bootstrapServers=k:9092,kafka.saslMechanism=PLAIN", "PLAINTEXT has no saslMechanism"),
        ("kafka.bootstrapServers=k:9092,kafka.saslSecret.name=s", "saslMechanism"),
        ("streams.replicas=3,streams.autoscaling.kind=hpa,streams.autoscaling.maxReplicas=2", "fewer than the 3"),
    ],
)
def test_values_that_are_missing_or_wrong_are_named(values: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        rendered("--set", values)


@needs_helm
def test_values_come_as_they_were_written(tmp_path: Path) -> None:
    """Helm reads each number of a file as a float, and one of a million is 1e+06 then. A variable that is there twice
    is refused, or one of the two is lost, when Kubernetes changes the other."""
    values = {
        "env": {"ICESTREAM_API_MAX_MEMORY": 4000000000, "ICESTREAM_CPU_BUDGET": 0.5, "http_proxy": "http://proxy:3128"},
        "collector": {
            "env": {"ICESTREAM_HOST": "$(NODE_NAME).example.com", "ICESTREAM_KAFKA_SECURITY_PROTOCOL": "SSL"}
        },
        "streams": {"autoscaling": {"kind": "keda", "lag": 1000000}},
        "sinks": {"resources": None},
        "podLabels": {"azure.workload.identity/use": "true", "app.kubernetes.io/name": "other"},
        "priorityClassName": "high",
        "volumes": [{"name": "rules", "configMap": {"name": "rules"}}],
        "volumeMounts": [{"name": "rules", "mountPath": "/etc/rules", "readOnly": True}],
        "image": {"digests": {"collector": "sha256:" + 64 * "0"}},
    }
    (tmp_path / "values.yaml").write_text(json.dumps(values))
    found = rendered("--values", str(CHART / "examples/plain.yaml"), "--values", str(tmp_path / "values.yaml"))
    assert [problem for one in found if one["kind"] not in FOREIGN for problem in validator()(one)] == []
    for name, container in containers(found).items():
        names = [entry["name"] for entry in container["env"]]
        assert len(names) == len(set(names))
        env = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert (env["ICESTREAM_API_MAX_MEMORY"], env["ICESTREAM_CPU_BUDGET"]) == ("4000000000", "0.5")
        assert {"name": "rules", "mountPath": "/etc/rules", "readOnly": True} in container["volumeMounts"]
        if name.endswith("/collector"):
            assert names.index("NODE_NAME") < names.index("ICESTREAM_HOST")
            assert env["ICESTREAM_HOST"] == "$(NODE_NAME).example.com"
            assert env["ICESTREAM_KAFKA_SECURITY_PROTOCOL"] == "SSL"
            assert container["image"] == f"icestream:{VERSION}-collector@sha256:{64 * '0'}"
    for pod in (one["spec"]["template"] for one in found if "template" in one.get("spec", {})):
        assert pod["metadata"]["labels"]["azure.workload.identity/use"] == "true"
        assert pod["metadata"]["labels"]["app.kubernetes.io/name"] == "icestream"
        assert pod["spec"]["priorityClassName"] == "high"
    (scaled,) = [one for one in found if one["kind"] == "ScaledObject"]
    assert scaled["spec"]["triggers"][0]["metadata"]["lagThreshold"] == "1000000"


@needs_helm
def test_names_of_digits_are_no_numbers() -> None:
    secrets = [
        f"kafka.{secret}.{key}=123"
        for secret, keys in {
            "saslSecret": ("name", "usernameKey", "passwordKey"),
            "caSecret": ("name", "key"),
            "certificateSecret": ("name", "certificateKey", "keyKey"),
        }.items()
        for key in keys
    ]
    secrets += [f"clickhouse.{secret}.{key}=123" for secret in ("urlSecret", "caSecret") for key in ("name", "key")]
    parts = ("--set-string", ",".join([*secrets, "gateway.tlsSecret=123", "priorityClassName=123"]))
    trial = ("--set", "trial=true", "--set-string", "trialPod.storageClassName=123")
    for values in (("--values", str(CHART / "examples/keda.yaml"), *parts), trial):
        found = rendered(*values, release="true", namespace="123")
        assert [problem for one in found if one["kind"] not in FOREIGN for problem in validator()(one)] == []
        assert '"123"' in json.dumps(found)
        assert not re.search(r": 123[,}]", json.dumps(found))


@needs_helm
def test_an_affinity_replaces_that_of_the_chart() -> None:
    wanted = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    parts = ("collector", "streams", "api")
    values = [word for part in parts for word in ("--set-json", f"{part}.affinity={json.dumps(wanted)}")]
    affinities = {
        one["metadata"]["name"].removeprefix("icestream-"): one["spec"]["template"]["spec"].get("affinity")
        for one in rendered("--values", str(CHART / "examples/plain.yaml"), *values)
        if "template" in one.get("spec", {})
    }
    assert {name for name, affinity in affinities.items() if affinity == wanted} == set(parts)
    assert {name for name, affinity in affinities.items() if affinity and "podAntiAffinity" in affinity} == {
        "sinks",
        "gateway",
    }


@needs_helm
def test_releases_do_not_share_a_name() -> None:
    plain = ("--values", str(CHART / "examples/plain.yaml"))
    objects = [
        rendered(*plain, release=release, namespace=namespace)
        for release, namespace in (("a-icestream", "team"), ("icestream", "team-a"), ("b.c" + 50 * "d", "team"))
    ]
    of_cluster = [{one["metadata"]["name"] for one in found if one["kind"].startswith("Cluster")} for found in objects]
    assert len(set.union(*of_cluster)) == 3
    services = [one["metadata"]["name"] for found in objects for one in found if one["kind"] == "Service"]
    assert all(re.fullmatch(r"[a-z][a-z0-9-]{,62}", name) for name in services)
    with pytest.raises(AssertionError, match="begins with a letter"):
        rendered(*plain, release="1-icestream")


@needs_helm
def test_a_cluster_may_have_collectors_only() -> None:
    found = of_example(CHART / "examples/collectors-only.yaml")
    assert {one["kind"] for one in found if "template" in one.get("spec", {})} == {"DaemonSet", "Job"}
    assert [name for name in containers(found) if name.startswith("Job")] == ["Job/icestream-topics/topics"]


@needs_helm
def test_who_may_read_metrics_may_not_ask_the_api() -> None:
    (policy,) = [one for one in of_example(CHART / "examples/openshift.yaml") if one["kind"] == "NetworkPolicy"]
    ours = {"app.kubernetes.io/name": "icestream", "app.kubernetes.io/instance": "icestream"}
    ports = {
        json.dumps(peer): [port["port"] for port in rule["ports"]]
        for rule in policy["spec"]["ingress"]
        for peer in rule["from"]
    }
    assert ports.pop(json.dumps({"podSelector": {"matchLabels": ours}})) == [4060, 9094]
    assert [asked for asked in ports.values() if 4060 in asked] == [[4060], [4060]]
    assert [peer for peer, asked in ports.items() if 4060 in asked and "openshift" not in peer] == [
        '{"podSelector": {}}'
    ]


@needs_helm
def test_prometheus_asks_a_gateway_with_tls_by_https() -> None:
    schemes = []
    for example in ("certificates", "plain"):
        found = rendered(
            "--values", str(CHART / f"examples/{example}.yaml"), "--set", "monitoring.serviceMonitor.enabled=true"
        )
        (monitor,) = [one for one in found if one["kind"] == "ServiceMonitor"]
        (endpoint,) = monitor["spec"]["endpoints"]
        schemes.append([(rule["regex"], rule["replacement"]) for rule in endpoint.get("relabelings", [])])
    assert schemes == [[("gateway", "https")], []]


@needs_helm
def test_pods_with_ipv6_only_listen_there() -> None:
    for example in ("plain", "trial"):
        found = rendered("--values", str(CHART / f"examples/{example}.yaml"), "--set", "listen=[::]")
        assert "0.0.0.0" not in json.dumps(found)
        assert json.dumps(found).count("[::]:") == (6 if example == "plain" else 5)


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
