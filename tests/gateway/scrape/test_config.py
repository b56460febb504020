"""Files of scrape jobs: what they mean, and how mistakes are told."""

import logging
from pathlib import Path

import pytest

from gateway.scrape.config import load_jobs
from gateway.scrape.job import GO_PROFILES, DnsName, Http, ProfilePath, TargetGroup, TargetsUrl
from icestream.settings import SettingError

FULL = """
scrape_configs:
  - job_name: shop
    scrape_interval: 1m30s
    scrape_timeout: 5s
    scheme: https
    follow_redirects: false
    static_configs:
      - targets: ["shop-1:6060", "[::1]:6060", "[fe80::1%eth0]:6060"]
        labels: {service: checkout, zone: 3}
    file_sd_configs:
      - files: [/etc/targets/*.yaml]
        refresh_interval: 1m
    dns_sd_configs:
      - {names: [shop.internal], port: 6060}
      - {names: [six.internal], port: 6061, type: AAAA}
      - {names: [_pprof._tcp.shop.internal]}
      - {names: [_pprof._tcp.pay.internal], type: SRV}
    http_sd_configs:
      - url: https://targets.internal/shop
        refresh_interval: 1m
        basic_auth: {username: u, password: p}
        tls_config: {ca_file: /sd.pem}
    profiling_config:
      path_prefix: /admin
      pprof_config:
        process_cpu: {enabled: false}
        memory: {path: /debug/pprof/heap}
        mutex: {enabled: false}
        block: {enabled: false}
        fgprof: {path: /debug/fgprof, delta: true}
    authorization: {credentials_file: /run/token}
    tls_config: {ca_file: /ca.pem, insecure_skip_verify: true}
    relabel_configs:
      - {source_labels: [__address__], regex: "(.*):.*", target_label: host}
"""


def test_a_job_has_what_its_file_says(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(FULL)
    (job,) = load_jobs(tmp_path / "jobs.yaml")
    assert (job.name, job.interval_s, job.timeout_s, job.seconds) == ("shop", 90, 5, 90)
    targets = ("shop-1:6060", "[::1]:6060", "[fe80::1%eth0]:6060")
    assert job.groups == (TargetGroup(targets, (("service", "checkout"), ("zone", "3"))),)
    assert job.files == ("/etc/targets/*.yaml",)
    assert job.dns == (
        DnsName("shop.internal", "", 6060),
        DnsName("six.internal", "AAAA", 6061),
        DnsName("_pprof._tcp.shop.internal", "SRV"),
        DnsName("_pprof._tcp.pay.internal", "SRV"),
    )
    http = Http(username="u", password="p", ca_file="/sd.pem")
    assert job.urls == (TargetsUrl("https://targets.internal/shop", http),)
    assert job.profiles == (
        ProfilePath("memory", "/debug/pprof/heap"),
        ProfilePath("goroutine", "/debug/pprof/goroutine"),
        ProfilePath("fgprof", "/debug/fgprof", delta=True),
    )
    assert (job.scheme, job.path_prefix, job.http.follow_redirects) == ("https", "/admin", False)
    assert (job.http.credentials_file, job.http.ca_file, job.http.verify) == ("/run/token", "/ca.pem", False)
    assert len(job.rules) == 1


def test_a_short_job_scrapes_what_go_serves(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text("scrape_configs: [{job_name: a, static_configs: [{targets: ['h:1']}]}]")
    (job,) = load_jobs(tmp_path / "jobs.yaml")
    assert (job.profiles, job.interval_s, job.timeout_s) == (GO_PROFILES, 15, 10)


def test_a_bearer_token_may_be_written_in_the_old_way(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(
        "scrape_configs: [{job_name: a, bearer_token: t}, {job_name: b, bearer_token_file: f}]"
    )
    first, second = load_jobs(tmp_path / "jobs.yaml")
    assert (first.http.authorization_type, first.http.credentials) == ("Bearer", "t")
    assert second.http.credentials_file == "f"


PROMETHEUS = """
global:
  scrape_interval: 1m
  scrape_timeout: 5s
  evaluation_interval: 1m
  body_size_limit: 5MB
  external_labels: {cluster: eu-1}
rule_files: [rules.yaml]
alerting: {alertmanagers: [{static_configs: [{targets: ['alerts:9093']}]}]}
remote_write: [{url: https://elsewhere/api}]
scrape_configs:
  - job_name: as-global
    static_configs: [{targets: ['shop-1:6060']}]
  - job_name: own
    scrape_interval: 2s
    body_size_limit: 300KiB
    params: {gc: [1], of: [a, b]}
    proxy_url: http://user:secret@proxy:3128
    http_headers: {X-Scope-OrgID: {values: [shop], secrets: [s], files: [/run/tenant]}}
    file_sd_configs: [{files: [/etc/targets.json], refresh_interval: 5m}]
    http_sd_configs: [{url: 'http://targets/', refresh_interval: 1d}]
"""


def test_a_file_of_prometheus_can_be_pasted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway.scrape")
    (tmp_path / "prometheus.yaml").write_text(PROMETHEUS)
    first, own = load_jobs(tmp_path / "prometheus.yaml")
    assert (first.interval_s, first.timeout_s, first.body_size_limit, first.refresh_s) == (60, 5, 5 << 20, 30)
    assert first.external_labels == own.external_labels == (("cluster", "eu-1"),)
    assert (own.interval_s, own.timeout_s, own.body_size_limit, own.refresh_s) == (2, 2, 300 << 10, 300)
    assert own.parameters == (("gc", ("1",)), ("of", ("a", "b")))
    assert own.http.proxy == "http://user:secret@proxy:3128"
    names = [(header.value, header.is_file) for header in own.http.headers]
    assert names == [("shop", False), ("s", False), ("/run/tenant", True)]
    left_out = "global: evaluation_interval, alerting, remote_write, rule_files"
    assert [record.getMessage().rpartition(" profiles: ")[2] for record in caplog.records] == [left_out]


PARCA = """
object_storage:
  bucket: {type: FILESYSTEM, config: {directory: ./data}}
scrape_configs:
  - job_name: parca
    scrape_interval: 10s
    scrape_timeout: 15s
    static_configs: [{targets: ['127.0.0.1:7070']}]
    profiling_config:
      pprof_config:
        memory:
          enabled: true
          path: /debug/pprof/allocs
          keep_sample_type: [{type: inuse_space, unit: bytes}]
"""


def test_a_file_of_parca_can_be_pasted(tmp_path: Path) -> None:
    (tmp_path / "parca.yaml").write_text(PARCA)
    (job,) = load_jobs(tmp_path / "parca.yaml")
    assert {profile.name: profile.kept_types for profile in job.profiles if profile.kept_types} == {
        "memory": (("inuse_space", "bytes"),)
    }


def test_what_others_have_in_global_is_named(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text("global: {sample_limit: 5}")
    with pytest.raises(SettingError, match="global: icestream does not support sample_limit"):
        load_jobs(tmp_path / "jobs.yaml")


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ("{}", "expected a job_name"),
        ("{job_name: a, interval: 5s}", r"\(a\): there is no field 'interval'"),
        ("{job_name: a, scrape_interval: 5 apples}", "expected a duration"),
        ("{job_name: a, scrape_interval: 0s}", "100ms to 24h"),
        ("{job_name: a, static_configs: [{targets: ['http://h:1/x']}]}", "expected HOST:PORT"),
        ("{job_name: a, static_configs: [{targets: [5]}]}", "expected a list of texts"),
        ("{job_name: a, static_configs: [{targets: ['h:1'], labels: {a-b: c}}]}", "'a-b' is no label name"),
        ("{job_name: a, profiling_config: {pprof_config: {wall: {}}}}", "wall: path: expected /PATH"),
        ("{job_name: a, relabel_configs: [{action: jump}]}", "there is no action 'jump'"),
        ("{job_name: a, dns_sd_configs: [{names: [x], port: 70000}]}", "expected a port"),
        ("{job_name: a, dns_sd_configs: [{names: [x], port: 1, type: MX}]}", "SRV, A or AAAA"),
        ("{job_name: a, dns_sd_configs: [{names: [x], type: A}]}", "expected a port"),
        ("{job_name: a, http_sd_configs: [{url: 'ftp://h/x'}]}", "http_sd_configs 1: url: expected http"),
        ("{job_name: a, http_sd_configs: [{url: 'http://u:secret@h/x'}]}", "without a password"),
        ("{job_name: a, http_sd_configs: [{url: 'http://h/x', proxy_url: 'p:secret'}]}", "proxy_url: expected http"),
        ("{job_name: a, oauth2: {client_id: x}}", r"\(a\): icestream does not support oauth2, which others have"),
        ("{job_name: a, consul_sd_configs: [{server: c}]}", "does not support consul_sd_configs"),
        ("{job_name: a, sample_limit: 5}", "does not support sample_limit"),
        ("{job_name: a, metrics_path: /metrics}", "does not support metrics_path"),
        ("{job_name: a, tls_config: {min_version: TLS13}}", "tls_config: icestream does not support min_version"),
        ("{job_name: a, body_size_limit: much}", "expected a size such as 10MB"),
        ("{job_name: a, params: {seconds: ['5']}}", "expected no seconds"),
        ("{job_name: a, params: {gc: '1'}}", "expected a list of texts"),
        ("{job_name: a, params: {debug: [true]}}", "debug: expected a list of texts"),
        ("{job_name: a, http_headers: {Host: {values: [x]}}}", "Host: no header that may be set"),
        ("{job_name: a, static_configs: [{targets: ['h:1'], refresh_interval: 5s}]}", "no field 'refresh_interval'"),
        ("{job_name: a, file_sd_configs: [{files: [x], refresh_interval: often}]}", "expected a duration"),
        (
            "{job_name: a, profiling_config: {pprof_config: {memory: {keep_sample_type:"
            " [{type: samples, unit: count}]}}}}",
            "expected more than samples/count",
        ),
        ("{job_name: a, basic_auth: {username: u}, authorization: {credentials: c}}", "got several"),
        ("{job_name: a, bearer_token: t, authorization: {credentials_file: c}}", "got several"),
        ("{job_name: a, basic_auth: {password: p}}", r"\(a\): basic_auth: expected a username"),
        ("{job_name: a, basic_auth: {password_file: p}}", "expected a username"),
        (
            "{job_name: a, basic_auth: {username: u, password: p, password_file: f}}",
            "one of password and password_file",
        ),
        ("{job_name: a, http_sd_configs: [{url: 'http://h/x', basic_auth: {password: p}}]}", "expected a username"),
        ("{job_name: a, tls_config: {key_file: k}}", "expected a cert_file"),
        ("{job_name: a, scheme: file}", "expected http or https"),
        ("5", "expected fields"),
        ("{job_name: a}, {job_name: a}", "several jobs"),
        ("{", "cannot be read"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, job: str, told: str) -> None:
    (tmp_path / "jobs.yaml").write_text(f"scrape_configs: [{job}]")
    with pytest.raises(SettingError, match=told):
        load_jobs(tmp_path / "jobs.yaml")
