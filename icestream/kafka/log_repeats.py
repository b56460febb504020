"""Keeps Kafka's clients from filling the log while a broker is away: they say the same many times a second."""

import logging
import re
import threading
import time

KAFKA_CLIENT = "icestream.kafka.clients.client"
"""The logger of librdkafka's clients."""
PERIOD_S = 30.0

_REPEATING = (KAFKA_CLIENT, "aiokafka")
_VARIES = re.compile(r"\[\w+#\w+-\d+\] |\[thrd:[^]]*\]: | \(after \d+ms in state .*\)|\d+ ?ms\b")
"""What differs between lines that say the same: the client, its thread, and how long something took."""
_MOST = 1000
_log = logging.getLogger(__name__)


class LimitRepeats(logging.Filter):
    """For handlers: passes what Kafka's clients say for the first time, and leaves out what they said within the last
    30 s. It says every 30 s how many lines it left out, until there were none."""

    def __init__(self, period_s: float = PERIOD_S) -> None:
        super().__init__()
        self._period_s = period_s
        self._lock = threading.Lock()
        self._said: dict[str, float] = {}  # when
        self._left_out = 0
        self._last = ""
        self._reporting = False

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(_REPEATING):
            return True
        line = record.getMessage()
        text = _VARIES.sub("", line)
        now = time.monotonic()
        with self._lock:
            is_new = now - self._said.get(text, float("-inf")) > self._period_s
            self._said[text] = now
            if len(self._said) > _MOST:
                self._said = {each: at for each, at in self._said.items() if now - at <= self._period_s}
            if not is_new:
                self._left_out += 1
                self._last = line
                self._report_later()
        return is_new

    def _report_later(self) -> None:
        if not self._reporting:
            self._reporting = True
            timer = threading.Timer(self._period_s, self._report)
            timer.daemon = True
            timer.start()

    def _report(self) -> None:
        with self._lock:
            left_out, last, self._left_out = self._left_out, self._last, 0
            self._reporting = False
            if left_out:
                self._report_later()
        if left_out:
            form = "Kafka's clients said the same %d times more within %.0f s, at last: %s"
            _log.warning(form, left_out, self._period_s, last)
        else:
            _log.info("Kafka's clients have complained of nothing for %.0f s", self._period_s)
