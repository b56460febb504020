"""Fields of a request that icestream does not know. They may choose or change what is asked for. So a request with one
is refused, with the name of the field, and never answered as if it had none. An empty field asks for nothing."""

from functools import cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet


def unknown_in_json(fields: dict[str, object], asked: type[Message]) -> str | None:
    """The path of the first field, or value of an enumeration, that `asked` does not have; None without any."""
    return _first_unknown(fields, _known(asked.DESCRIPTOR))


def unknown_in_message(message: Message) -> str | None:
    """As `unknown_in_json`; the wire has only the number of the field. Values of enumerations are for the caller."""
    unknown = UnknownFieldSet(message)
    for each in (unknown[row] for row in range(len(unknown))):
        if each.data:
            return f"field {each.field_number} of {message.DESCRIPTOR.name}"
    for field, value in message.ListFields():
        if field.message_type:
            for part in value if field.is_repeated else [value]:
                below = unknown_in_message(part)
                if below is not None:
                    return f"{field.json_name}: {below}"
    return None


def _first_unknown(fields: dict[str, object], known: dict[str, FieldDescriptor]) -> str | None:
    for name, value in fields.items():
        field = known.get(name)
        if field is None:
            if value:
                return name
            continue
        enum, message = field.enum_type, field.message_type
        for each in value if isinstance(value, list) else [value]:
            if enum and isinstance(each, str) and not each.lstrip("-").isdigit():
                if each not in enum.values_by_name:
                    return f"{name}: {each}"
            elif message and isinstance(each, dict):
                below = _first_unknown(each, _known(message))
                if below is not None:
                    return f"{name}.{below}"
    return None


@cache
def _known(message: Descriptor) -> dict[str, FieldDescriptor]:
    """The fields by both of their names."""
    return dict(message.fields_by_name) | {field.json_name: field for field in message.fields}
