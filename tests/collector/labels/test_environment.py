"""What is read of a process's environment."""

from collector.labels.environment import read_environment, resource_attributes
from tests.collector.labels.threads import python


def test_an_environment_of_any_size_and_content_is_read() -> None:
    huge = {f"FILL_{i}": "x" * 100_000 for i in range(10)}
    odd = {"ODD": "é\udcff\n", "OTEL_SERVICE_NAME": "a\nb\x1b[31m"}
    environ = {"FIRST": "1", **huge, **odd, "LAST": "=a=b"}
    with python(**environ) as process:
        actual = read_environment(f"/proc/{process.pid}", [b"FIRST", b"LAST", b"ODD", b"ABSENT", b"FILL_3"])
    assert (actual["FIRST"], actual["LAST"], actual["ODD"]) == ("1", "=a=b", "é\ufffd\n")
    assert len(actual["FILL_3"]) == 100_000
    assert resource_attributes(actual) == {"service.name": "a?b?[31m"}
    assert read_environment(f"/proc/{2**22 + 1}", [b"FIRST"]) == {}


def test_resource_attributes_are_read_as_opentelemetry_specifies() -> None:
    def attributes(text: str, name: str = "") -> dict[str, str]:
        return resource_attributes({"OTEL_RESOURCE_ATTRIBUTES": text, "OTEL_SERVICE_NAME": name})

    assert attributes("host.name=a, service.name=my%20shop ,x=") == {"host.name": "a", "service.name": "my shop"}
    assert attributes("service.name=other", "checkout") == {"service.name": "checkout"}
    assert attributes("service.name") == {}
    assert len(attributes(",".join(f"k{i}=v" for i in range(1000)))) <= 256
