"""What this version publishes, and what it makes of what another version has published.

    python -m tests.mixed_versions write FOLDER    # messages of collectors, and of streams
    python -m tests.mixed_versions read FOLDER     # prints what streams and sinks make of them, as JSON

tests/test_mixed_versions.py runs it with the code of the last release and with this one, so both commands stay.
"""

import json
import sys
from collections import Counter
from pathlib import Path

from icestream.messages.message_id import MessageId
from icestream.messages.samples import decode_samples
from icestream.messages.stack_names import StackNames
from icestream.messages.stacks import decode_stacks
from icestream.topics import ACTIVITY, RAW, SAMPLES, STACKS
from sinks.tables.decode import decode
from streams.partition.process import Processor
from tests.data.windows import window

WINDOWS = 4
START_UNIX_NANO = 1_770_000_000_000_000_000


def write(folder: Path) -> None:
    """Raw and activity messages, and the outputs of streams, a file each, with the sum of their values."""
    processor = Processor()
    for sequence in range(1, WINDOWS + 1):
        made = window(START_UNIX_NANO, sequence)
        outputs = [
            processor.activity(made.activity, MessageId("C", ACTIVITY, 0, sequence)),
            processor.raw(made.raw, MessageId("C", RAW, 0, sequence)),
        ]
        files = {"activity": [made.activity], "raw": [made.raw]}
        files["samples"] = [message for output in outputs for message in output.samples]
        files["stacks"] = [message for output in outputs for message in output.stacks]
        for name, messages in files.items():
            for number, message in enumerate(messages):
                (folder / f"{sequence}-{name}-{number}").write_bytes(message)
        (folder / f"{sequence}-value").write_text(str(made.value))


def read(folder: Path) -> dict[str, object]:
    """The sums of values that streams and sinks get, and of each function's."""
    processor = Processor()
    of_streams: list[bytes] = []
    for sequence in range(1, WINDOWS + 1):
        for name, topic, process in (("activity", ACTIVITY, processor.activity), ("raw", RAW, processor.raw)):
            for file in sorted(folder.glob(f"{sequence}-{name}-*")):
                of_streams += process(file.read_bytes(), MessageId("C", topic, 0, sequence)).samples
    names, of_sinks, by_function = StackNames(), 0, Counter[str]()
    for file in sorted(folder.glob("*-stacks-*")):
        decode(file.read_bytes(), MessageId("C", STACKS, 0, 1))
        names.learn(decode_stacks(file.read_bytes()))
    for file in sorted(folder.glob("*-samples-*")):
        decode(file.read_bytes(), MessageId("C", SAMPLES, 0, 1))
        samples = decode_samples(file.read_bytes())
        of_sinks += int(samples.value.sum())
        for stack_id, value in zip(samples.stack_id.tolist(), samples.value.tolist(), strict=True):
            by_function[names.leaf(stack_id)] += value
    return {
        "published": sum(int(file.read_text()) for file in folder.glob("*-value")),
        "streams": sum(int(decode_samples(message).value.sum()) for message in of_streams),
        "sinks": of_sinks,
        "functions": dict(by_function),
    }


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]))
    else:
        print(json.dumps(read(Path(sys.argv[2]))))
