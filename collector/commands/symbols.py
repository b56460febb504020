"""Upload names of programs, so that profiles of stripped ones show functions.

  icestream symbols upload build/shop build/libcart.so
  icestream symbols upload --recursive --symbol-store s3://profiles/symbols build/
  icestream symbols inspect build/shop

Takes executables, shared libraries and their separate debug files. Sends names, files and lines, never code. Profiles
stored earlier get the names too. Ends with exit code 1 if a file that was named could not be uploaded.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Producer

from collector.settings import UploadSettings
from collector.symbols.builder import SymbolBuilder
from collector.symbols.name_kinds import IN_WORDS, UPLOADED
from collector.symbols.symbol_files import SymbolFiles
from collector.symbols.symbol_upload import Candidate, NotElfError, UploadError, best_of, examine, files_below
from icestream.cli import CommandError
from icestream.kafka.clients import producer
from icestream.topics import SYMBOLS
from icestream.v1.symbols_pb2 import SymbolFile

TIMEOUT_S = 60.0
_CHUNK_PAUSE_S = 0.05
"""The pause between the messages of a large file, for the consumers that read along."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    upload = actions.add_parser("upload", help="upload the names in files")
    upload.add_argument("--recursive", action="store_true", help="take all ELF files in folders, and skip other files")
    upload.add_argument("--dry-run", action="store_true", help="only print what would be uploaded")
    upload.add_argument("files", nargs="+", type=Path, metavar="FILE", help="ELF file, or folder with --recursive")
    UploadSettings.add_arguments(upload)
    inspect = actions.add_parser("inspect", help="print which names files have")
    inspect.add_argument("files", nargs="+", type=Path, metavar="FILE", help="ELF file")


def run(args: argparse.Namespace) -> int:
    if args.action == "inspect":
        return _inspect(args.files)
    candidates, failed = _examine(args.files, args.recursive)
    named, stripped = best_of(candidates)
    for candidate in stripped:
        # Found in a folder it is nothing to complain about.
        failed += (
            _fail(candidate.path, f"stripped: {IN_WORDS[candidate.version]}") if candidate.path in args.files else 0
        )
    if args.dry_run:
        for at, candidate in enumerate(named, 1):
            _say(at, len(named), candidate, IN_WORDS[candidate.version])
        print(f"{len(named)} to upload, {len(stripped)} stripped, {failed} failed")
        return 1 if failed else 0
    uploaded = _upload(named, UploadSettings.from_args(args)) if named else 0
    failed += len(named) - uploaded
    print(f"{uploaded} uploaded, {len(stripped)} stripped, {failed} failed")
    return 1 if failed else 0


def _inspect(files: list[Path]) -> int:
    failed = 0
    for path in files:
        try:
            candidates = examine(path)
            print(f"{path}: {candidates.build_id}, {IN_WORDS[candidates.version]}")
        except UploadError as error:
            failed += _fail(path, str(error))
    return 1 if failed else 0


def _examine(files: list[Path], recursive: bool) -> tuple[list[Candidate], int]:
    """What can be uploaded, and how many of the files that were named cannot be."""
    candidates: list[Candidate] = []
    failed = 0
    for given in files:
        if given.is_dir() and not recursive:
            failed += _fail(given, "a folder: add --recursive to take the files in it")
            continue
        for path in files_below(given) if given.is_dir() else [given]:
            try:
                candidates.append(examine(path))
            except NotElfError as error:
                failed += _fail(path, str(error)) if path == given else 0
            except UploadError as error:
                failed += _fail(path, str(error))
    return candidates, failed


def _upload(named: list[Candidate], settings: UploadSettings) -> int:
    """How many were uploaded. Raises CommandError where Kafka cannot be reached."""
    sender = producer(settings, **{"message.timeout.ms": int(TIMEOUT_S * 1000), "log_level": 0})
    _check_topic(sender, settings.kafka)
    builder = SymbolBuilder("", settings.symbol_store, SymbolFiles())
    uploaded = 0
    try:
        for at, candidate in enumerate(named, 1):
            begun = time.monotonic()
            try:
                size = _send(sender, builder.answer(candidate.build_id, str(candidate.path.absolute())))
            except UploadError as error:
                _fail(candidate.path, str(error))
                continue
            uploaded += 1
            took = time.monotonic() - begun
            _say(at, len(named), candidate, f"{IN_WORDS[candidate.version]}, {size:,} bytes, {took:.1f} s")
    finally:
        builder.end_children()
    return uploaded


def _send(sender: Producer, messages: Iterator[SymbolFile]) -> int:
    """The size of the SymCache, when Kafka has it. Raises UploadError."""
    failures: list[KafkaError] = []
    size = 0
    for message in messages:
        if message.error:
            raise UploadError(message.error)
        message.version += UPLOADED
        size = message.size
        if message.chunk:
            time.sleep(_CHUNK_PAUSE_S)
        try:
            sender.produce(
                SYMBOLS, message.SerializeToString(), message.build_id.encode(),
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )  # fmt: skip
        except KafkaException as error:
            raise UploadError(f"Kafka: {error.args[0].str()}") from None
        sender.poll(0)
    if sender.flush(TIMEOUT_S) or failures:
        raise UploadError(f"Kafka: {failures[0].str() if failures else 'not acknowledged'}")
    return size


def _check_topic(sender: Producer, kafka: str) -> None:
    try:
        error = sender.list_topics(SYMBOLS, timeout=min(15.0, TIMEOUT_S)).topics[SYMBOLS].error
    except KafkaException as failed:
        raise CommandError(f"Kafka at {kafka}: {failed.args[0].str()}") from None
    if error is not None:
        raise CommandError(f"Kafka at {kafka}: no topic {SYMBOLS}: run `icestream topics create`")


def _say(at: int, count: int, candidate: Candidate, what: str) -> None:
    print(f"[{at:{len(str(count))}}/{count}] {candidate.path}: {candidate.build_id}: {what}", flush=True)


def _fail(path: Path, reason: str) -> int:
    print(f"{path}: {reason}", flush=True)
    return 1
