"""Records of icestream.flat as Avro (https://avro.apache.org/docs/1.12.0/specification/): flat.avsc is the schema."""

import io
import json
from pathlib import Path

from fastavro import parse_schema, schemaless_writer

from streams.flatten.record import Encode, Fields

SCHEMA_FILE = Path(__file__).parent / "flat.avsc"


def avro_encoder(schema_id: int | None) -> Encode:
    """Returns what encodes a record as Avro's binary form.

    With a schema ID it is framed as readers with a schema registry expect it: a zero byte and the ID in four bytes, big
    endian, come first (docs.confluent.io, "Wire format").
    """
    schema = parse_schema(json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))
    frame = b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")

    def encode(fields: Fields) -> bytes:
        data = io.BytesIO()
        data.write(frame)
        schemaless_writer(data, schema, fields)
        return data.getvalue()

    return encode
