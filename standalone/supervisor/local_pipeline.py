"""The pipeline of one machine: a broker, and the store, the stream processors and the collector as processes."""

import contextlib
import errno
import logging
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException

from collector.activity.activity_socket import answers
from gateway.scrape.config import load_jobs
from gateway.settings import GatewaySettings
from icestream.commands import topics
from icestream.files.data_folder import SYSTEM_DATA, SYSTEM_SOCKET, default_data
from icestream.files.run_info import RunInfo
from icestream.http.metrics import HealthServer
from icestream.settings import KafkaSettings, variable
from icestream.topics import ARCHIVE_GROUP, CLICKHOUSE_GROUP, LAKE_GROUP, SAMPLES, STREAMS_GROUP
from standalone.settings import UpSettings
from standalone.supervisor.account import Account, others_with_login
from standalone.supervisor.data_lock import lock_data
from standalone.supervisor.free_port import free_port, listener
from standalone.supervisor.in_process_broker import PARTITIONS, start_process
from standalone.supervisor.local_kafka import KafkaUnavailable, LocalKafka, why_unavailable
from standalone.supervisor.parts_user import UserError, choose_user
from standalone.supervisor.supervisor import SupervisedProcess, Supervisor, ask_ready
from standalone.supervisor.topic_watch import TopicWatch

_READY_TIMEOUT_S = 90.0
_KAFKA_PORT = 9092
_MEMORY = "memory only: stored data stays, messages on their way are lost when this ends"
_GROWTH = "0.1 to 0.6 GB a day"
"""As measured (docs/sizing.md). How long it is kept, settings say."""
_METRICS = {"streams": 4061, "collector": 4062}

_STOP_S = 2.5
_GATEWAY_STOP_S = 20.0
"""How long the gateway may wait for requests over HTTP (7 s) and gRPC (5 s), in addition to its waits for Kafka."""

_LISTEN = {"api": "listen", "gateway": "gateway_listen"}
"""Settings of the parts that serve more than metrics."""

log = logging.getLogger(__name__)


class StartError(Exception):
    """icestream cannot run here; the message says what to do."""


class LocalPipeline:
    """Everything that `icestream up` runs, while its context is open. Main thread only (see `spawn`)."""

    def __init__(self, settings: UpSettings) -> None:
        self._settings = settings
        self._folder = settings.folder
        self._socket = settings.folder / "activity.sock"
        self._open = contextlib.ExitStack()
        self._supervisor = Supervisor()
        self._addresses: dict[str, str] = {}
        self._user: Account | None = None
        self._kafka_clients = ""
        self._topics: TopicWatch | None = None
        self._starting = True

    def __enter__(self) -> Self:
        """Raises StartError, and SettingError for a mistake in the file of scrape jobs."""
        if self._settings.gateway:
            if self._settings.gateway_scrape:
                load_jobs(Path(self._settings.gateway_scrape))
            if os.environ.get(client_ca := variable("gateway_tls_client_ca_file")):
                raise StartError(
                    f"with {client_ca}, the gateway could not be asked whether it is ready: unset it, or use "
                    "--no-gateway and run icestream gateway by itself"
                )
        with contextlib.ExitStack() as opened:
            try:
                opened.callback(os.close, lock_data(self._folder))
            except OSError as error:
                raise StartError(f"cannot use the data folder: {error}") from error
            self._addresses["api"] = _free_address(self._settings.listen, "--listen")
            if self._settings.gateway:
                settings = self._settings
                self._addresses["gateway"] = _free_or_other_address(settings.gateway_listen, "--gateway-listen")
                self._addresses["otlp_grpc"] = _free_or_other_address(
                    settings.gateway_grpc_listen, "--gateway-grpc-listen"
                )
            try:
                self._user = choose_user(self._settings, self._addresses.values())
            except UserError as error:
                raise StartError(str(error)) from error
            for part, port in _METRICS.items():
                port = free_port(0 if self._settings.metrics_listen.endswith(":0") else port)
                self._addresses[part] = f"127.0.0.1:{port}"
            if self._settings.metrics_listen:
                self._addresses["supervisor"] = _free_address(self._settings.metrics_listen, "--metrics-listen")
                health = HealthServer(self._addresses["supervisor"], self.not_ready, "supervisor")
                opened.callback(health.close)
            self._open = opened.pop_all()
        return self

    def run(self, stop: threading.Event) -> None:
        """Runs until `stop` is set. Raises StartError, SettingError, PartFailed and PartLost."""
        broker = self._start_broker(stop)
        if stop.is_set():
            return
        self._make_topics(broker)
        self._socket = choose_socket(self._settings)  # only now: a killed icestream's collector may end a moment later
        environ = self._environ(broker)
        for part in self._parts(environ):
            self._supervisor.start(part)
        self._starting = False
        self._write_run_info(broker)
        if self._supervisor.wait_ready(stop, _READY_TIMEOUT_S):
            log.info("ready: http://%s (data in %s: %s)", self._addresses["api"], self._folder, _GROWTH)
        elif not stop.is_set():
            log.warning("not ready after %.0f s: %s", _READY_TIMEOUT_S, self._supervisor.not_ready())
        self._supervisor.run(stop)
        log.info("stopping")

    def not_ready(self) -> str | None:
        """Returns why it does not do all of its work, or that something was lost a moment ago; None: all is well."""
        problems = (
            "not all parts are started yet" if self._starting else None,
            self._supervisor.not_ready(),
            self._topics.problem if self._topics else None,
        )
        return "; ".join(filter(None, problems)) or None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._supervisor.close()
        self._open.close()

    def _start_broker(self, stop: threading.Event) -> KafkaSettings:
        settings = self._settings
        if settings.kafka:
            log.info("broker: the Kafka at %s", settings.kafka)
            return settings
        reason = why_unavailable() if settings.local_kafka else "start without --no-local-kafka"
        if reason is None:
            return self._start_local_kafka(stop)
        try:
            process, broker = start_process(self._user)
        except OSError as error:
            raise StartError(str(error)) from error
        part = SupervisedProcess(
            "broker", (), {}, lambda: None, user=self._user, replaceable=False
        )  # another one has other messages
        self._supervisor.start(part, process)
        log.info("broker: in-process, at %s; %s. For a durable broker: %s", broker.kafka, _MEMORY, reason)
        if others := others_with_login():
            log.warning(
                "the in-process broker has no password: %s can read, forge and delete what passes through it. On a "
                "machine of several people use Kafka, which has one (`icestream kafka --fetch`; docs/security.md)",
                ", ".join(others[:3]) + (f" and {len(others) - 3} others" if len(others) > 3 else ""),
            )
        return broker

    def _start_local_kafka(self, stop: threading.Event) -> KafkaSettings:
        try:
            local = LocalKafka(self._folder / "kafka", _KAFKA_PORT, user=self._user, login=True)
        except (KafkaUnavailable, OSError) as error:
            raise StartError(str(error)) from error
        self._kafka_clients = str(local.clients)
        log.info("broker: Apache Kafka at %s, durable, in %s", local.address, self._folder / "kafka")
        self._supervisor.start(
            SupervisedProcess("kafka", local.argv, os.environ, local.not_ready, stop_s=2.0, user=self._user)
        )
        if not self._supervisor.wait_ready(stop, _READY_TIMEOUT_S) and not stop.is_set():
            raise StartError(f"Kafka is not ready after {_READY_TIMEOUT_S:.0f} s: {self._supervisor.not_ready()}")
        return local.settings()

    def _make_topics(self, broker: KafkaSettings) -> None:
        try:
            if created := topics.create(broker, PARTITIONS):
                log.info("created the topics %s", ", ".join(created))
            if problems := topics.check(broker):
                raise StartError("; ".join(problems))
            for weakness in topics.weaknesses(broker):
                log.warning("%s", weakness)
            if not broker.kafka_in_process:  # there, nobody can delete a topic
                self._topics = TopicWatch(broker)
                self._open.callback(self._topics.close)
        except KafkaException as error:
            raise StartError(f"Kafka at {broker.kafka}: {error.args[0].str()}") from error

    def _environ(self, broker: KafkaSettings) -> dict[str, str]:
        """Returns the environment of all parts. A folder that our own environment names wins over the default."""
        settings = self._settings
        defaults: dict[str, object] = {
            "archive": self._folder / "archive",
            "spool": self._folder / "spool",
            "symbol_store": self._folder / "symbols",
            "symbol_cache": self._folder / "symbol-cache",
        }
        if broker.kafka_in_process:
            defaults |= _in_process_settings(lake=bool(settings.lake))
        ours = {
            "data": self._folder,
            "clickhouse": settings.clickhouse or f"chdb://{self._folder / 'clickhouse'}",
            "lake": settings.lake,
            "activity_socket": self._socket,
            "frequency": settings.frequency,
            "gateway_scrape": settings.gateway_scrape,
        }
        kafka_settings = {name: value for name, value in broker.environ().items() if name.startswith(variable("kafka"))}
        return _variables(defaults) | dict(os.environ) | kafka_settings | _variables(ours)

    def _parts(self, environ: dict[str, str]) -> list[SupervisedProcess]:
        parts = [self._part("store", "api", environ), self._part("streams", "streams", environ)]
        if self._settings.gateway:
            parts.append(self._gateway(environ | {variable("gateway_grpc_listen"): self._addresses["otlp_grpc"]}))
        elif self._settings.gateway_scrape:
            log.warning("nothing is scraped: --no-gateway")
        if not self._settings.collector:
            log.info("this machine is not profiled: --no-collector")
        elif os.geteuid() != 0:
            log.warning("this machine is not profiled: the collector needs root; everything else works without")
        else:
            parts.append(self._part("collect", "collector", environ, optional=True))
        return parts

    def _gateway(self, environ: dict[str, str]) -> SupervisedProcess:
        part = self._part("gateway", "gateway", environ, optional=True)
        settings = GatewaySettings.load(environ)
        # One acknowledgement for scraped profiles that wait for Kafka, and another one for what is on its way then.
        stop_s = 2 * settings.gateway_ack_s + _GATEWAY_STOP_S
        ask = partial(ask_ready, self._addresses["gateway"], tls=bool(settings.gateway_tls_cert_file))
        return replace(part, stop_s=stop_s, ask=ask)

    def _part(self, command: str, name: str, environ: dict[str, str], optional: bool = False) -> SupervisedProcess:
        address = self._addresses[name]
        own = {variable(_LISTEN.get(name, "metrics_listen")): address}
        argv = [sys.executable, "-m", "icestream.cli", command]
        user = None if name == "collector" else self._user
        return SupervisedProcess(command, argv, environ | own, partial(ask_ready, address), _STOP_S, optional, user)

    def _write_run_info(self, broker: KafkaSettings) -> None:
        socket = str(self._socket)
        RunInfo(os.getpid(), broker.kafka, self._addresses, socket, self._kafka_clients).write(self._folder)
        known = not self._kafka_clients or self._folder in (default_data(), SYSTEM_DATA)
        data = "" if known else f"{variable('data')}={self._folder} "  # where the password is
        log.info("to read the samples: %sicestream tail %s --kafka %s", data, SAMPLES, broker.kafka)
        environ = "" if self._socket == SYSTEM_SOCKET else f"{variable('activity_socket')}={self._socket} "
        log.info("to trace an application: %sicestream-trace COMMAND", environ)


def choose_socket(settings: UpSettings) -> Path:
    """Returns the socket that applications find by themselves, if nothing else was asked for and it can be ours."""
    if settings.activity_socket:
        return Path(settings.activity_socket).absolute()
    elsewhere = settings.folder / "activity.sock"
    if os.geteuid() != 0:  # there is no collector
        return elsewhere
    try:
        SYSTEM_SOCKET.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return elsewhere
    return SYSTEM_SOCKET if os.access(SYSTEM_SOCKET.parent, os.W_OK) and not answers(SYSTEM_SOCKET) else elsewhere


def _in_process_settings(lake: bool) -> dict[str, object]:
    """Returns the settings that keep the in-process broker from dropping unread messages.

    Producers wait for these consumer groups. The lake sink writes more often, because it reads on only after that.
    """
    tables = [CLICKHOUSE_GROUP, *([LAKE_GROUP] if lake else [])]
    return {
        "raw_readers": f"{STREAMS_GROUP},{ARCHIVE_GROUP}",
        "activity_readers": ",".join([STREAMS_GROUP, ARCHIVE_GROUP, *tables]),
        "hold_back_for": ",".join(tables),
        "lake_flush_s": 15,
    }


def _variables(values: Mapping[str, object]) -> dict[str, str]:
    return {variable(name): str(value) for name, value in values.items()}


def _free_address(listen: str, flag: str) -> str:
    """Returns HOST:PORT with a port that is free. Raises StartError, which names `flag`."""
    host, _, text = listen.rpartition(":")
    host = host or "127.0.0.1"
    try:
        if not text.isdecimal():
            raise ValueError("no port is given")
        port = int(text) or free_port(host=host.strip("[]"))
        listener(host.strip("[]"), port).close()
        return f"{host}:{port}"
    except (OSError, ValueError, OverflowError) as error:
        raise StartError(
            f"cannot listen on {flag} {listen}: {error}; choose another one with {flag} HOST:PORT"
        ) from error


def _free_or_other_address(listen: str, flag: str) -> str:
    """Returns HOST:PORT, with another port where that one is taken. Raises StartError, which names `flag`."""
    try:
        return _free_address(listen, flag)
    except StartError as error:
        if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.EADDRINUSE:
            raise
        other = _free_address(f"{listen.rpartition(':')[0]}:0", flag)
        log.warning("%s is taken: the gateway listens on %s", listen, other)
        return other
