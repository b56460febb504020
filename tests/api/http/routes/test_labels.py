from clickhouse_connect.driver.client import Client

from tests.api.conftest import Api
from tests.api.fill import Sample, fill, frame

MAIN = frame("main")


def test_labels_and_their_values_are_listed(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN,)), Sample((MAIN,), labels={"service": "cart", "k8s.pod": "a-1"})])
    assert api.json("/api/v1/labels") == {"labels": ["k8s.pod", "service"], "more": False}
    assert api.json("/api/v1/labels", selector='{service="checkout"}') == {"labels": ["service"], "more": False}
    assert api.json("/api/v1/labels/service/values") == {"values": ["cart", "checkout"], "more": False}
    assert api.json("/api/v1/labels/service/values", limit=1) == {"values": ["cart"], "more": True}
    assert api.json("/api/v1/labels/service/values", contains="OUT")["values"] == ["checkout"]
    assert api.json("/api/v1/labels/k8s.pod/values")["values"] == ["a-1"]
    assert api.json("/api/v1/labels/service/values", start="1000", end="2000")["values"] == []
