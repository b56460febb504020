"""Messages of all topics, generated from schemas/icestream/v1 by `make schemas`. Do not edit."""
