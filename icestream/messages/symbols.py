"""icestream.symbol-requests and icestream.symbols: the messages, checked."""

from icestream.messages import checks
from icestream.messages.plausible import ANY_TIME
from icestream.v1.symbols_pb2 import SymbolFile, SymbolRequest


def decode_symbol_request(data: bytes | None) -> SymbolRequest:
    """Raises BadMessage."""
    request = checks.parse(SymbolRequest, data)
    checks.check_text("build_id", request.build_id)
    checks.check_id("host_id", request.host_id)
    checks.check_text("file", request.file, least=0, most=checks.MAX_FILE)
    ANY_TIME.check("requested_unix_nano", request.requested_unix_nano)
    return request


def decode_symbol_file(data: bytes | None) -> SymbolFile:
    """A message with a symbol file, or a part of one. Raises BadMessage; what the file holds is not checked here."""
    file = checks.parse(SymbolFile, data)
    checks.check_text("build_id", file.build_id)
    checks.check_most("version", file.version, checks.MAX_VERSION)
    return file
