"""Folders, sockets and servers that the collector uses. The checks leave nothing behind."""

import errno
import fcntl
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path

from collector.activity.activity_socket import answers
from collector.checks.row import CheckRow, limited, missing, ok
from collector.settings import CollectorSettings

_KAFKA_S = 5.0


def spool(settings: CollectorSettings) -> CheckRow:
    folder, limit_mb = settings.spool, settings.spool_limit_mb
    if _locked(folder / "lock"):
        return limited("spool", f"another collector is running and uses {folder}")
    if reason := _not_writable(folder):
        return limited(
            "spool", f"{reason}: only 8 MB of batches can wait for Kafka, in memory", "choose another with --spool"
        )
    free_mb = shutil.disk_usage(_nearest(folder)).free >> 20
    if free_mb < limit_mb:
        advice = "make room, or set a lower --spool-limit-mb"
        return limited("spool", f"{folder} has {free_mb} MB free, less than the limit of {limit_mb} MB", advice)
    return ok("spool", f"{folder} can be written; {free_mb} MB free, {limit_mb} may be used")


def folder(thing: str, path: Path, without: str, flag: str) -> CheckRow:
    """The folder of a cache. `without` says what follows if it cannot be used; `flag` sets another folder."""
    if reason := _not_writable(path):
        return limited(thing, f"{reason}: {without}", f"choose another with {flag}, or let this user write there")
    return ok(thing, f"{path} can be written")


def activity_socket(settings: CollectorSettings) -> CheckRow:
    thing, path = "activity socket", settings.activity_socket
    if path.exists() and answers(path):
        return limited(thing, f"another collector listens on {path}")
    if path.exists() and not path.is_socket():
        advice = "choose another with --activity-socket"
        return missing(thing, f"{path} exists, and is no socket", advice, needed=True)
    advice = "choose another path with --activity-socket, or let this user write there"
    if reason := _not_writable(path.parent):
        return missing(thing, reason, advice, needed=True)
    if path.parent.is_dir():
        probe = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
                listener.bind(str(probe))
        except OSError as error:
            return missing(thing, f"{path} cannot be bound: {error}", advice, needed=True)
        finally:
            probe.unlink(missing_ok=True)
    return ok(thing, f"{path} can be bound")


def metrics_listen(settings: CollectorSettings) -> CheckRow:
    thing, listen = "metrics", settings.metrics_listen
    if not listen:
        return ok(thing, "off")
    host, _, port = listen.rpartition(":")
    advice = "choose another with --metrics-listen HOST:PORT"
    try:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host or "127.0.0.1", int(port)))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return limited(thing, f"{listen} is in use, perhaps by a running collector", advice)
        return missing(thing, f"{listen}: {error}", advice, needed=True)
    except (OverflowError, ValueError):
        return missing(thing, f"{listen!r} is no HOST:PORT", advice, needed=True)
    return ok(thing, f"{listen} is free")


def kafka(settings: CollectorSettings) -> CheckRow:
    """Whether a broker answers, and has the topic."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    from icestream.kafka.clients import client_config
    from icestream.topics import RAW

    errors: list[KafkaError] = []
    client = AdminClient(client_config(settings) | {"log_level": 0, "error_cb": errors.append})
    topics, deadline = None, time.monotonic() + _KAFKA_S
    while topics is None and time.monotonic() < deadline:
        try:
            topics = client.list_topics(timeout=0.5).topics
        except KafkaException:
            client.poll(0)
            if any(error.code() == KafkaError._ALL_BROKERS_DOWN for error in errors):
                break
    if topics is None:
        reason = errors[0].str() if errors else "no answer in time"
        advice = "set its address with --kafka HOST:PORT"
        return limited("Kafka", f"cannot be reached ({reason}): batches would wait in the spool", advice)
    if RAW not in topics:
        return limited(
            "Kafka", f"{settings.kafka} answers, but has no topic {RAW}", "create the topics: icestream topics create"
        )
    return ok("Kafka", f"{settings.kafka} answers and has the topics")


def _nearest(path: Path) -> Path:
    """The path itself, or the first folder above it that exists."""
    return next((one for one in (path, *path.parents) if one.exists()), Path("/"))


def _not_writable(folder: Path) -> str | None:
    """Why no file can be made in a folder, or the folder itself; None where it can."""
    try:
        if folder.is_dir():
            tempfile.TemporaryFile(dir=folder).close()
            return None
        above = _nearest(folder)
        tempfile.TemporaryDirectory(dir=above, prefix=".icestream-").cleanup()
        return None
    except OSError as error:
        return f"{folder} cannot be written ({error.strerror or error})"


def _locked(path: Path) -> bool:
    try:
        with open(path, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
