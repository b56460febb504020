"""Targets that a server lists, and those that a name has."""

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway import metrics
from gateway.scrape.config import load_jobs
from gateway.scrape.discovery import Discovery, Target
from gateway.scrape.job import ScrapeJob
from gateway.scrape.target_groups import MAX_TARGETS, parse_list
from icestream.settings import SettingError
from tests.gateway.scrape.name_server import NameServer, name_server
from tests.gateway.scrape.servers import Certificates, Request, serving
from tests.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers have time, also on a busy machine."""
    monkeypatch.setattr("gateway.scrape.discovery._ANSWER_S", PATIENCE_S)


class Asked:
    """Asks for the targets of a job again and again."""

    def __init__(self, job: ScrapeJob) -> None:
        self._runner = asyncio.Runner()
        self._discovery = self._runner.run(self._make(job))

    async def _make(self, job: ScrapeJob) -> Discovery:
        return Discovery(job)

    def targets(self) -> dict[str, dict[str, str]]:
        """Returns the labels of each target, by its address."""
        found: set[Target] = self._runner.run(self._discovery.targets())
        return {target.base.partition("://")[2]: dict(target.labels) for target in found}

    def queries(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """Returns the parameters of each target."""
        found: set[Target] = self._runner.run(self._discovery.targets())
        return {target.base.partition("://")[2]: target.parameters for target in found}

    def refresh_s(self) -> float:
        return self._discovery.refresh_s

    def close(self) -> None:
        self._runner.run(self._discovery.close())
        self._runner.close()


@contextmanager
def asked(folder: Path, fields: str) -> Iterator[Asked]:
    """`fields` of a job in YAML."""
    (folder / "jobs.yaml").write_text(f"scrape_configs: [{{job_name: shop, {fields}}}]")
    (job,) = load_jobs(folder / "jobs.yaml")
    one = Asked(job)
    try:
        yield one
    finally:
        one.close()


def test_a_server_lists_targets_over_https_to_whom_has_the_token(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    groups = [{"targets": ["shop-1:6060"], "labels": {"zone": "a", "__meta_rack": "7"}}, {"targets": ["shop-2:6060"]}]
    with serving(lambda request: request.answer(json.dumps(groups).encode()), certificates.context()) as served:
        source = (
            f"{{url: '{served.url}/targets?of=shop', authorization: {{credentials: secret}},"
            f" tls_config: {{ca_file: {certificates.file('ca.pem')}}}}}"
        )
        rules = (
            "[{source_labels: [__meta_rack], target_label: rack},"
            " {source_labels: [__meta_url], regex: '.*of=(.*)', target_label: list}]"
        )
        with asked(tmp_path, f"http_sd_configs: [{source}], relabel_configs: {rules}") as one:
            targets = one.targets()
    common = {"job": "shop", "service": "shop", "list": "shop"}
    assert targets == {
        "shop-1:6060": {"instance": "shop-1:6060", "zone": "a", "rack": "7", **common},
        "shop-2:6060": {"instance": "shop-2:6060", **common},
    }
    assert served.authorizations == ["Bearer secret"]
    assert served.headers[0].get_all("X-Prometheus-Refresh-Interval-Seconds") == ["30"]
    assert served.headers[0].get_all("Accept") == ["application/json"]


def test_a_header_of_the_file_is_sent_instead_of_ours(tmp_path: Path) -> None:
    with serving(lambda request: request.answer(GOOD)) as served:
        headers = "{Accept: {values: [application/vnd.targets+json]}}"
        with asked(tmp_path, f"http_sd_configs: [{{url: '{served.url}/', http_headers: {headers}}}]") as one:
            assert set(one.targets()) == {"shop-1:6060"}
    assert served.headers[0].get_all("Accept") == ["application/vnd.targets+json"]


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    """The name server of this machine."""
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\nsearch shop.internal\n")
    with name_server() as server:
        monkeypatch.setattr("gateway.scrape.names._RESOLV_CONF", str(tmp_path / "resolv.conf"))
        monkeypatch.setattr("gateway.scrape.names._DNS_PORT", server.port)
        yield server


def told_by(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("gateway.scrape")]


GOOD = b'[{"targets": ["shop-1:6060"]}]'
WRONG: dict[bytes, str] = {
    b"<html>": "expected a list of targets in JSON",
    b'{"targets": []}': "expected a list",
    b'[{"targets": ["http://shop-1"]}]': "expected HOST:PORT",
    b'[{"targets": ["shop-1:1"], "port": 7}]': "no field 'port'",
    b"[" * 100_000: "expected a list of targets in JSON",
    b" " * 10_000_001: "more than 10000000 bytes",
}


def test_what_a_server_cannot_say_now_is_what_it_said_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway.scrape")
    answers = [GOOD]

    def answer(request: Request) -> None:
        request.answer(answers[0], status=200 if answers[0] else 500)

    with serving(answer) as served, asked(tmp_path, f"http_sd_configs: [{{url: '{served.url}/'}}]") as one:
        assert set(one.targets()) == {"shop-1:6060"}
        for body, told in {**WRONG, b"": "it answers 500"}.items():
            caplog.clear()
            for answers[0] in (body, body, GOOD):
                assert set(one.targets()) == {"shop-1:6060"}
            warning, info = told_by(caplog)  # once, not each time
            assert told in warning
            assert served.url in warning
            assert f"{served.url}/ is read again" in info
        answers[0] = b'[{"targets": null, "labels": null}, {"targets": ["shop-2:6060"]}]'  # as Go writes no targets
        assert set(one.targets()) == {"shop-2:6060"}
        answers[0] = rb'[{"targets": ["shop-2:6060"], "labels": {"zone": "a\ud83d"}}]'  # half of an emoji
        assert one.targets()["shop-2:6060"]["zone"] == "a\ufffd"
        answers[0] = b"[]"
        assert one.targets() == {}


@pytest.mark.parametrize(("interval", "while_failing_s"), [("1d", 30), ("5s", 5)])
def test_a_server_that_failed_is_asked_again_soon(tmp_path: Path, interval: str, while_failing_s: float) -> None:
    answers = [b"", GOOD]

    def answer(request: Request) -> None:
        body = answers.pop(0)
        request.answer(body, status=200 if body else 500)

    with serving(answer) as served:
        source = f"{{url: '{served.url}/', refresh_interval: {interval}}}"
        with asked(tmp_path, f"http_sd_configs: [{source}]") as one:
            assert one.targets() == {}
            assert one.refresh_s() == while_failing_s
            assert set(one.targets()) == {"shop-1:6060"}
            assert one.refresh_s() == {"1d": 86_400, "5s": 5}[interval]


def test_a_server_that_says_nothing_holds_up_no_other_source_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.scrape.discovery._ANSWER_S", 0.2)
    with serving(lambda request: request.rfile.read(1)) as served:
        fields = f"http_sd_configs: [{{url: '{served.url}/'}}], static_configs: [{{targets: ['static:1']}}]"
        with asked(tmp_path, fields) as one:
            assert set(one.targets()) == {"static:1"}
    assert "no complete answer within 0.2 s" in caplog.text


def test_each_service_record_of_a_name_is_a_target(
    tmp_path: Path, names: NameServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway.scrape")
    names.records["_pprof._tcp.shop.internal"] = ["0 0 6060 shop-1.internal.", "0 0 6061 shop-2.internal."]
    rules = (
        "[{source_labels: [__meta_dns_srv_record_target, __meta_dns_srv_record_port], target_label: record},"
        " {source_labels: [__meta_dns_name], target_label: dns}]"
    )
    fields = f"dns_sd_configs: [{{names: [_pprof._tcp]}}], relabel_configs: {rules}"  # completed by the search list
    with asked(tmp_path, fields) as one:
        first = one.targets()
        common = {"job": "shop", "service": "shop", "dns": "_pprof._tcp"}
        assert first == {
            f"{host}:{port}": {"instance": f"{host}:{port}", "record": f"{host};{port}", **common}
            for host, port in (("shop-1.internal", 6060), ("shop-2.internal", 6061))
        }
        caplog.clear()
        saved = names.records.pop("_pprof._tcp.shop.internal")
        assert (one.targets(), one.targets()) == (first, first)
        names.silent = True
        monkeypatch.setattr("gateway.scrape.discovery._ANSWER_S", 0.2)
        assert one.targets() == first
        monkeypatch.setattr("gateway.scrape.discovery._ANSWER_S", PATIENCE_S)
        names.silent = False
        names.records["_pprof._tcp.shop.internal"] = saved[:1]
        assert set(one.targets()) == {"shop-1.internal:6060"}
        warning, info = told_by(caplog)
        assert "_pprof._tcp (SRV): " in warning
        assert "_pprof._tcp (SRV) is read again" in info
        names.records["_pprof._tcp.shop.internal"] = ["0 0 0 ."]  # the service is decidedly not available
        assert one.targets() == {}


def test_without_a_port_a_target_has_that_of_the_scheme(tmp_path: Path) -> None:
    with asked(tmp_path, "static_configs: [{targets: [shop-1, '[::1]', '10.0.0.1:1']}]") as one:
        assert {address: labels["instance"] for address, labels in one.targets().items()} == {
            "shop-1": "shop-1", "[::1]": "[::1]", "10.0.0.1:1": "10.0.0.1:1",
        }  # fmt: skip


def failing() -> float:
    """Sources of the job that fail, by the metric."""
    return float(metrics.SCRAPE_DISCOVERY_FAILING.labels("shop")._value.get())


def test_files_fail_until_they_are_read_or_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway.scrape")
    with asked(tmp_path, f"file_sd_configs: [{{files: ['{tmp_path}/*.json']}}]") as one:
        assert (one.targets(), failing()) == ({}, 1)
        (tmp_path / "bad.json").write_text("[{")
        (tmp_path / "good.json").write_text('[{"targets": ["shop-1:1"]}]')
        assert (set(one.targets()), failing()) == ({"shop-1:1"}, 1)
        (tmp_path / "bad.json").unlink()
        assert (set(one.targets()), failing()) == ({"shop-1:1"}, 0)
        (tmp_path / "good.json").unlink()
        assert (one.targets(), failing()) == ({}, 1)
    assert [line.split(": ")[-1].split(" ")[-1] for line in told_by(caplog) if "no such file" in line] == [
        "targets"
    ] * 2


def test_each_address_of_a_name_is_a_target(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    no_name = "x" * 70
    fields = f"dns_sd_configs: [{{names: [localhost], port: 6060, type: A}}, {{names: [{no_name}], port: 1}}]"
    with asked(
        tmp_path, f"{fields}, relabel_configs: [{{source_labels: [__meta_dns_name], target_label: dns}}]"
    ) as one:
        labels = {"job": "shop", "service": "shop", "instance": "127.0.0.1:6060", "dns": "localhost"}
        assert one.targets() == {"127.0.0.1:6060": labels}
        assert one.targets() == {"127.0.0.1:6060": labels}
    assert caplog.text.count(f"{no_name}:1: ") == 1


def test_a_name_without_addresses_of_one_kind_says_nothing_of_the_other_kind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "gateway.scrape")

    def only_ipv4(name: str, port: int, family: int, **more: object) -> list[tuple]:
        if family == socket.AF_INET6:
            raise OSError("no address of that kind")
        return [(family, socket.SOCK_STREAM, 0, "", ("127.0.0.7", port))]

    monkeypatch.setattr(socket, "getaddrinfo", only_ipv4)
    kinds = ", ".join(f"{{names: [shop], port: 6060, type: {kind}}}" for kind in ("A", "AAAA"))
    with asked(tmp_path, f"dns_sd_configs: [{kinds}]") as one:
        for _ in range(3):
            assert set(one.targets()) == {"127.0.0.7:6060"}
    assert len(told_by(caplog)) == 1


def test_name_servers_that_do_not_answer_take_no_threads_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()

    def waits(*arguments: object, **more: object) -> list[tuple]:
        assert answered.wait(PATIENCE_S)
        return []

    names = [f"shop-{number}" for number in range(50)]
    (tmp_path / "jobs.yaml").write_text(
        f"scrape_configs: [{{job_name: shop, dns_sd_configs: [{{names: {names}, port: 1}}]}}]"
    )
    (job,) = load_jobs(tmp_path / "jobs.yaml")

    async def ask() -> set[Target]:
        discovery = Discovery(job)
        monkeypatch.setattr(socket, "getaddrinfo", waits)
        asking = asyncio.create_task(discovery.targets())
        try:
            await asyncio.sleep(0.1)  # all names are asked for by now, or wait for a thread
            assert await asyncio.wait_for(asyncio.to_thread(lambda: "others work"), 30) == "others work"
        finally:
            answered.set()
        await discovery.close()
        return await asking

    assert asyncio.run(ask()) == set()


MIXED = [
    {"targets": ["shop-1:1", "http://shop-2:1", 5]},
    {"targets": ["shop-3:1"], "labels": {"a-b": "c"}},
    {"targets": ["shop-4:1"], "labels": {"zone": ["a"]}},
    {"targets": ["shop-5:1"], "port": 7},
    "shop-6:1",
    {"targets": ["shop-7:1"], "labels": {"zone": "a"}},
]
LEFT_OUT = [
    "'http://shop-2:1'",
    "got 5",
    "'a-b' is no label name",
    "zone: expected text",
    "no field 'port'",
    "shop-6:1",
]


def invalid() -> float:
    """Invalid targets of the job, by the metric."""
    return float(metrics.SCRAPE_INVALID_TARGETS.labels("shop")._value.get())


@pytest.mark.parametrize("from_server", [False, True])
def test_what_is_invalid_in_a_list_is_left_out_alone_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, from_server: bool
) -> None:
    with serving(lambda request: request.answer((tmp_path / "list.json").read_bytes())) as served:
        file = f"file_sd_configs: [{{files: ['{tmp_path}/list.json']}}]"
        with asked(tmp_path, f"http_sd_configs: [{{url: '{served.url}/'}}]" if from_server else file) as one:
            for listed in (MIXED, MIXED[::-1], [{"targets": ["shop-0:1"]}, *MIXED]):
                (tmp_path / "list.json").write_text(json.dumps(listed))
                assert one.targets().keys() >= {"shop-1:1", "shop-7:1"}
                assert (invalid(), failing()) == (6, 0)
            warnings = told_by(caplog)
            (tmp_path / "list.json").write_text(json.dumps(MIXED[:1]))
            assert (set(one.targets()), invalid()) == ({"shop-1:1"}, 2)
            (tmp_path / "list.json").write_text(json.dumps(MIXED[-1:]))
            assert (set(one.targets()), invalid()) == ({"shop-7:1"}, 0)
    assert len(warnings) == len(LEFT_OUT)
    assert [each for each in LEFT_OUT if not any(each in warning for warning in warnings)] == []
    assert all((served.url if from_server else "list.json") in warning for warning in warnings)


def test_the_log_names_a_few_of_very_many_invalid_targets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    targets = ["shop:1", *(f"shop/{number}" for number in range(1000))]
    (tmp_path / "list.json").write_text(json.dumps([{"targets": targets}]))
    with asked(tmp_path, f"file_sd_configs: [{{files: ['{tmp_path}/list.json']}}]") as one:
        assert (set(one.targets()), invalid()) == ({"shop:1"}, 1000)
    assert len(told_by(caplog)) == 11
    assert "990 more" in caplog.text


def test_a_target_without_an_address_after_relabeling_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rules = "[{source_labels: [__address__], regex: '(shop-2):.*', target_label: __address__, replacement: $1/debug}]"
    with asked(tmp_path, f"static_configs: [{{targets: ['shop-1:1', 'shop-2:1']}}], relabel_configs: {rules}") as one:
        for _ in range(2):
            assert (set(one.targets()), invalid()) == ({"shop-1:1"}, 1)
    assert len(told_by(caplog)) == 1
    assert "got 'http://shop-2/debug'" in caplog.text


def test_a_list_of_too_many_targets_is_refused() -> None:
    groups = [{"targets": ["shop:1"] * MAX_TARGETS}]
    assert len(parse_list(groups, "list").groups) == 1
    with pytest.raises(SettingError, match="list: expected at most 100000 targets, got 100001"):
        parse_list([*groups, {"targets": ["shop:2"]}], "list")


def test_parameters_are_labels_that_rules_read_and_change(tmp_path: Path) -> None:
    """As in Prometheus."""
    rules = (
        "[{source_labels: [__param_of], target_label: of},"
        " {source_labels: [__address__], regex: 'shop-2:.*', target_label: __param_of, replacement: changed},"
        " {source_labels: [__address__], regex: 'shop-2:.*', target_label: __param_more, replacement: '1'},"
        " {source_labels: [__address__], regex: 'shop-2:.*', target_label: __param_seconds, replacement: '1'}]"
    )
    fields = (
        f"params: {{of: [a, b], gc: [1]}}, static_configs: [{{targets: ['shop-1:1', 'shop-2:1']}}],"
        f" relabel_configs: {rules}"
    )
    with asked(tmp_path, fields) as one:
        assert {labels["of"] for labels in one.targets().values()} == {"a"}
        assert one.queries() == {
            "shop-1:1": (("gc", "1"), ("of", "a"), ("of", "b")),
            "shop-2:1": (("gc", "1"), ("more", "1"), ("of", "changed"), ("of", "b")),
        }


def test_a_targets_own_labels_win_over_external_ones(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(
        "{global: {external_labels: {zone: outside, cluster: eu-1}}, scrape_configs:"
        " [{job_name: shop, static_configs: [{targets: ['shop-1:1'], labels: {zone: a}}]}]}"
    )
    one = Asked(load_jobs(tmp_path / "jobs.yaml")[0])
    labels = one.targets()["shop-1:1"]
    one.close()
    assert (labels["zone"], labels["cluster"], labels["service"]) == ("a", "eu-1", "shop")
