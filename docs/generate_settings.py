"""Writes docs/settings.md from the settings classes: make docs."""

import dataclasses
from pathlib import Path

from api.settings import ApiSettings
from collector.settings import CollectorSettings, UploadSettings
from gateway.settings import GatewaySettings, IntakeSettings, ScrapeSettings
from icestream.kafka.producer_settings import ProducerSettings
from icestream.settings import KafkaSettings, Settings, shown, variable
from jobs.settings import JobSettings
from sinks.settings import LakeSettings, SinkSettings
from standalone.settings import StoreSettings, UpSettings
from streams.settings import FlattenSettings, StreamsSettings

FILE = Path(__file__).parent / "settings.md"

PARTS: tuple[tuple[str, str, type[Settings]], ...] = (
    ("Kafka", "Every command that talks to Kafka takes these.", KafkaSettings),
    (
        "Everything on one machine",
        "`icestream up`. Its parts read their other settings from the environment.",
        UpSettings,
    ),
    ("Producers", "The collector and the gateway take these.", ProducerSettings),
    ("Collector", "`icestream collect` and `icestream record`.", CollectorSettings),
    ("Uploads of symbols", "`icestream symbols upload`, see [symbols](symbols.md).", UploadSettings),
    ("Stream processors", "`icestream streams`.", StreamsSettings),
    ("Flatten", "`icestream flatten`, see [topics](topics.md#icestreamflat).", FlattenSettings),
    ("Sinks", "`icestream sink`, `icestream migrate`.", SinkSettings),
    ("Lake", "`icestream lake`, see [lake](lake.md).", LakeSettings),
    (
        "Jobs",
        "`icestream replay`, `icestream backfill`.",
        JobSettings,
    ),
    ("Query API", "`icestream api`.", ApiSettings),
    ("Profiles of other tools", "`icestream gateway` and `icestream scrape` take these.", IntakeSettings),
    ("Gateway", "`icestream gateway`, see [gateway](gateway.md).", GatewaySettings),
    ("Scrape", "`icestream scrape`, see [scraping](gateway.md#scraping).", ScrapeSettings),
    ("Store", "`icestream store`: the settings of the sinks, the jobs and the query API.", StoreSettings),
)

_HEAD = """# Settings

<!-- Written by docs/generate_settings.py (make docs): change the settings classes instead. -->

Every setting is a flag and an environment variable: `--kafka-ssl-ca` is `ICESTREAM_KAFKA_SSL_CA`. The flag wins, then
the variable, then the default. A setting that says true or false has two flags, `--collector` and `--no-collector`; as
a variable it is `true` or `false`. An empty variable counts as not given, except where the table says what *empty*
means: `ICESTREAM_METRICS_LISTEN=` switches `/metrics` off. `icestream COMMAND --help` shows the same. Commands pass
over variables that are not theirs, but of one that is nearly one of theirs they log a warning, with the right name.
"""


def text() -> str:
    """The whole page."""
    sections = [_HEAD]
    for title, about, settings in PARTS:
        rows = [f"| `{variable(f.name)}` | {_shown(f.default)} | {f.metadata['help']} |" for f in _own(settings)]
        table = ["| variable | default | meaning |", "|---|---|---|", *rows] if rows else []
        sections.append("\n".join([f"## {title}\n", f"{about}\n", *table]))
    return "\n".join(f"{section.strip()}\n" for section in sections)


def _own(settings: type[Settings]) -> list["dataclasses.Field[object]"]:
    """The fields that no other section has already: its own, and those it changes."""
    bases = [base for _, _, base in PARTS if base is not settings and issubclass(settings, base)]
    inherited = {(f.name, f.default, f.metadata["help"]) for base in bases for f in dataclasses.fields(base)}
    return [f for f in dataclasses.fields(settings) if (f.name, f.default, f.metadata["help"]) not in inherited]


def _shown(default: object) -> str:
    return "" if default in (None, "") else f"`{shown(default)}`"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
