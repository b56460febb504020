"""The view of requests: the heaviest ones, and one of them."""

from collections.abc import Callable, Iterable

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Site
from tests.browser.page import Page
from tests.browser.test_operations import nanoseconds

pytestmark = pytest.mark.browser
TIMES: dict[str, Callable[[Iterable[int]], int]] = {"start": min, "end": max}


def test_the_heaviest_requests_are_listed_page_by_page(page: Page, site: Site) -> None:
    page.open(view="requests")
    listed = site.ask("traces", limit=100)["traces"]
    shown = page.texts("#trace-rows code")
    assert shown == [trace["trace_id"][:8] for trace in listed[:50]]
    assert page.texts("#trace-rows tr:first-child th") == [listed[0]["operation"]]
    page.click("#traces-more")
    page.until(lambda: page.texts("#trace-rows code") == [trace["trace_id"][:8] for trace in listed])


def test_a_refresh_lists_as_many_requests_as_are_shown(page: Page, site: Site) -> None:
    page.open(view="requests")
    page.click("#traces-more")
    page.until(lambda: len(page.all("#trace-rows tr")) == 100)
    page.click("#reload")
    page.settle()
    listed = site.ask("traces", limit=100)["traces"]
    assert page.texts("#trace-rows code") == [trace["trace_id"][:8] for trace in listed]
    page.click("#traces-more")
    page.until(lambda: len(page.all("#trace-rows tr")) > 100)
    page.js("icestream.state.update({ selector: arguments[0] })", '{service=~".+"}')
    page.settle()
    assert len(page.all("#trace-rows tr")) == 50


def test_a_listed_request_has_its_start_and_duration(page: Page, site: Site) -> None:
    page.open(view="requests")
    first = site.ask("traces", limit=1)["traces"][0]
    start, duration = page.texts("#trace-rows tr:first-child td")[1:3]
    clock = "const at = new Date(arguments[0]); return at.toLocaleTimeString('en-GB')"
    assert start.split()[-1] == page.js(clock, first["start_unix_nano"] / 1e6)
    assert nanoseconds(duration) == pytest.approx(first["duration_ns"], rel=0.01)


def test_a_trace_id_that_is_pasted_shows_its_cpu_per_span_and_its_graph(page: Page, site: Site) -> None:
    trace = site.ask("traces", limit=1)["traces"][0]
    page.open(view="requests")
    page.type("#trace-id", "  " + trace["trace_id"] + " ", Keys.ENTER)
    page.until(lambda: page.find("#graph").is_displayed())
    page.settle()
    about = site.ask(f"traces/{trace['trace_id']}/cpu")
    assert page.state()["trace"] == trace["trace_id"]
    assert page.find("#trace-title").text == trace["operation"]
    assert (
        page.js("return icestream.graph.tree.total[0]") == trace["cpu_ns"] == sum(s["cpu_ns"] for s in about["spans"])
    )
    spans = {span["name"] for span in about["spans"]}
    assert set(page.texts("#span-rows th")) == spans
    assert page.texts("#span-rows th")[0] == trace["operation"]  # parents come before what they called
    figures = page.find("#trace-figures").text
    assert "by the threads' CPU clocks" in figures
    assert f"{trace['thread_cpu_ns'] / 1e9:.2f} s" in figures
    assert f"{trace['sampled_cpu_high_ns'] / 1e9:.2f} s" in figures
    assert f" = {trace['thread_cpu_ns'] / 1e9:.2f} s CPU" in figures  # its time as a sum
    assert f"Waits are not profiled on {about['hosts'][0]['host_id']}: icestream collect --off-cpu 1" in figures
    assert not page.find("#trace-few").is_displayed()


def test_a_link_with_a_trace_opens_the_request_with_its_spans_on_a_time_axis(page: Page, site: Site) -> None:
    trace = site.ask("traces", limit=1)["traces"][0]
    page.browser.get(f"{site.address}?trace={trace['trace_id']}")
    page.settle()
    about = site.ask(f"traces/{trace['trace_id']}/cpu")
    span = next(each for each in about["spans"] if each["cpu_ns"])
    row = f'tr[title="span {span["span_id"]}"]'
    share = "return document.querySelector(arguments[0]).getBoundingClientRect().width"
    filled, extent, axis = (page.js(share, f"{row} .{part}") for part in ("filled", "extent", "axis"))
    length = span["end_unix_nano"] - span["start_unix_nano"]
    assert filled / extent == pytest.approx(min(1, span["cpu_ns"] / length), abs=0.05)
    start, end = (pick(each[f"{name}_unix_nano"] for each in about["spans"]) for name, pick in TIMES.items())
    assert extent / axis == pytest.approx(length / (end - start), abs=0.02)


def test_a_request_links_to_a_tracing_ui_by_an_address_that_the_browser_keeps(page: Page, site: Site) -> None:
    trace = site.ask("traces", limit=1)["traces"][0]["trace_id"]
    page.open(view="requests", trace=trace)
    assert page.all("#trace-link a") == []
    page.click("#trace-link summary")
    page.type("#trace-template", "javascript:alert('{trace_id}')", Keys.ENTER)
    assert page.all("#trace-link a") == []
    page.find("#trace-template").clear()
    page.type("#trace-template", "https://jaeger.example.org/trace/{trace_id}", Keys.ENTER)
    page.open(view="requests", trace=trace)
    assert page.find("#trace-link a").get_attribute("href") == f"https://jaeger.example.org/trace/{trace}"
    page.js("localStorage.clear()")


def test_a_request_with_few_samples_says_so_and_leads_to_the_graph_of_requests_like_it(page: Page, site: Site) -> None:
    traces = site.ask("traces", limit=1000)["traces"]
    few = next(trace for trace in traces if trace["samples"] < 10)
    page.open(view="requests", trace=few["trace_id"])
    assert str(few["samples"]) in page.find("#trace-few").text
    assert page.js("return icestream.graph.tree.total[0]") > 100 * few["sampled_cpu_ns"]  # of its operation
    assert len(page.texts("#span-rows th")) == len(site.ask(f"traces/{few['trace_id']}/cpu")["spans"])
    page.click("#trace-like")
    page.settle()
    assert page.state()["selector"] == f'{{service="checkout", operation="{few["operation"]}"}}'
    assert page.js("return icestream.graph.tree.total[0]") > 100 * few["sampled_cpu_ns"]


def test_a_click_opens_a_request_and_back_closes_it(page: Page) -> None:
    page.open(view="requests")
    page.click("#trace-rows tr:nth-child(3) button")
    page.until(lambda: page.find("#trace-detail").is_displayed())
    page.settle()
    assert page.find("#trace-rows tr:nth-child(3)").get_attribute("aria-current") == "true"
    page.browser.back()
    page.until(lambda: not page.find("#trace-detail").is_displayed())
    assert not page.find("#graph").is_displayed()


@pytest.mark.parametrize("wrong", ["f" * 32, "no trace", "../../merge"])
def test_an_unknown_trace_is_said_so_beside_the_list(page: Page, wrong: str) -> None:
    page.open(view="requests", trace=wrong)
    page.until(lambda: page.find("#problem").is_displayed())
    assert page.find("#problem strong").text
    page.until(lambda: len(page.texts("#trace-rows tr")) == 50)
    assert not page.find("#trace-detail").is_displayed()
    assert page.errors()


def test_a_range_without_requests_says_where_requests_come_from(page: Page) -> None:
    page.open(view="requests", selector='{service="search"}')
    assert "icestream.tracing" in page.find("#traces-empty").text


def test_requests_are_sorted_by_duration_and_start(page: Page, site: Site) -> None:
    page.open(view="requests")
    for order in ("duration", "start"):
        page.click(f"[data-order={order}]")
        listed = [trace["trace_id"][:8] for trace in site.ask("traces", order=order)["traces"]]
        page.until(lambda listed=listed: page.texts("#trace-rows code") == listed)
        assert page.find(f"th:has([data-order={order}])").get_attribute("aria-sort") == "descending"
    page.click("#only-errors")
    page.until(lambda: page.find("#traces-empty").is_displayed())
    assert page.state()["status"] == "error"


def test_a_cell_of_the_map_opens_its_requests_and_their_graph_against_the_others(page: Page, site: Site) -> None:
    page.open(view="requests", measure="duration")
    found = site.ask("requests/map")
    most = max(range(12), key=found["requests"].__getitem__)
    page.js("document.getElementById('heat').focus()")
    keys = ActionChains(page.browser).send_keys(Keys.HOME)
    keys.send_keys(*[Keys.ARROW_RIGHT] * most).send_keys(Keys.ENTER).perform()
    page.until(lambda: page.find("#cell").is_displayed())
    page.settle()
    assert len(page.texts("#trace-rows code")) == found["requests"][most]
    page.click("#against")
    page.until(lambda: page.find("#graph").is_displayed())
    page.settle()
    assert page.js("return icestream.graph.tree.baseline !== null")
    assert "baseline" in page.find("#summary").text
    page.click("#cell-close")
    page.until(lambda: not page.find("#graph").is_displayed())
    page.settle()
    assert len(page.texts("#trace-rows code")) == 50
