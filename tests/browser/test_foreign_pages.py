"""A page of another site in a real Chromium, which tries to send to the gateway and to the API."""

import re
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

from gateway.settings import GatewaySettings
from icestream.messages.raw import decode_raw
from icestream.settings import KafkaSettings
from icestream.topics import RAW
from tests.browser.conftest import Site
from tests.gateway.served import serve_on_ports
from tests.pipeline.reading import messages
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

FORM = """<form method=post enctype={kind} action="{action}"><input name="main;work" value="1"></form>
<script>document.forms[0].submit()</script>"""
FETCH = """const [url, body, done] = arguments;
fetch(url, {method: "POST", mode: "no-cors", body}).then(() => done("sent"), error => done(String(error)))"""
ASK = """const [url, body, done] = arguments;
fetch(url, {method: "POST", body}).then(answer => done(answer.status), error => done(String(error)))"""

LOAD = """const [url] = arguments;
["img", "script", "iframe"].forEach((tag, at) => {
    const one = document.createElement(tag);
    one.src = url + "?max_nodes=1" + at;
    document.body.append(one);
});
fetch(url, {mode: "no-cors"})"""


@pytest.fixture
def attacker() -> Iterator[str]:
    """The address of another site, whose path says which form its page sends, and where: /KIND/ADDRESS."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, _, action = self.path[1:].partition("?")
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(FORM.format(kind=kind, action=action).encode() if action else b"a page")

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_page_of_another_site_cannot_send_profiles(
    browser: Any, attacker: str, in_process_broker: KafkaSettings
) -> None:
    settings = GatewaySettings(
        kafka=in_process_broker.kafka, gateway_ack_s=PATIENCE_S, gateway_grpc_listen="127.0.0.1:0"
    )
    with serve_on_ports(settings) as ports:
        ingest = f"http://{ports.http}/ingest?name=forged&format=lines"
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            browser.get(f"{attacker}/{kind}?{ingest}")
            wait_until(lambda: "foreign_page" in browser.page_source)
        browser.get(attacker)
        browser.set_script_timeout(PATIENCE_S)
        for path in ("/ingest?name=forged&format=lines", "/api/v1/ingest/pprof?service=forged"):
            assert browser.execute_async_script(FETCH, f"http://{ports.http}{path}", "main;work") == "sent"
        browser.execute_script("navigator.sendBeacon(arguments[0], 'main;work')", ingest)
        assert browser.execute_async_script(FETCH, ingest, "main;work") == "sent"
        assert httpx2.post(ingest.replace("forged", "own"), content=b"main;work", timeout=PATIENCE_S).status_code == 200
    [own] = [decode_raw(message.value()) for message in messages(settings, RAW)]
    assert "own" in str(own.series)


def test_the_api_answers_its_own_page_and_no_other(browser: Any, attacker: str, site: Site) -> None:
    url, body = f"{site.address}api/v1/merge", '{"trace_ids": ["4bf92f3577b34da6a3ce929d0e0e4736"]}'
    browser.set_script_timeout(PATIENCE_S)
    browser.get(site.address)
    assert browser.execute_async_script(ASK.replace("body}", 'body, headers: {"content-type": "application/json"}}'),
                                        url, body) == 200  # fmt: skip
    browser.get(f"{attacker}/application/x-www-form-urlencoded?{url}")
    wait_until(lambda: "foreign_page" in browser.page_source)
    browser.get_log("browser")


def test_a_page_of_another_site_cannot_have_the_visitors_browser_ask_for_profiles(
    browser: Any, attacker: str, site: Site
) -> None:
    url = f"{site.address}api/v1/merge"
    browser.get(attacker)
    before = merges(site)
    browser.execute_script(LOAD, url)
    wait_until(lambda: (merges(site) - before).total() == 4)
    assert merges(site) - before == Counter({("", "400"): 4})
    browser.execute_script("location = arguments[0]", url)  # without a click of the user
    wait_until(lambda: "foreign_page" in browser.page_source)


def test_a_link_of_another_site_leads_to_a_profile(browser: Any, attacker: str, site: Site) -> None:
    browser.get(attacker)
    browser.execute_script("document.body.innerHTML = `<a href=${arguments[0]}>a</a>`", f"{site.address}api/v1/merge")
    browser.find_element("tag name", "a").click()
    wait_until(lambda: "process_cpu" in browser.page_source)
    browser.get(attacker)
    browser.execute_script("location = arguments[0]", site.address)
    wait_until(lambda: browser.title == "icestream")
    browser.get_log("browser")


def merges(site: Site) -> Counter[tuple[str, str]]:
    """How many profiles were asked for, and how much was refused before it had a route: by route and status."""
    metrics = httpx2.get(f"{site.address}metrics").text
    found = re.findall(r'api_requests_total{route="(|/api/v1/merge)",status="(\d+)"} (\S+)', metrics)
    return Counter({(route, status): int(float(count)) for route, status, count in found})
