"""The view of operations: what a service does for requests, and what its slow requests do that the fast ones do not."""

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Site
from tests.browser.page import Page

pytestmark = pytest.mark.browser

CHECKOUT = '{service="checkout"}'
NO_OPERATION = "(no operation)"


def nanoseconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"s": 1e9, "ms": 1e6}[unit]


def test_a_service_has_its_operations_and_what_belongs_to_none(page: Page, site: Site) -> None:
    page.open(view="services", start=site.middle)
    page.click("#service-rows tr[data-value=checkout] button")
    page.settle()
    page.click("nav a[data-view=operations]")
    page.until(lambda: page.find("#operations").is_displayed())
    page.settle()
    answer = site.ask("operations", selector=CHECKOUT, start=site.middle)
    listed = answer["operations"]
    assert page.texts("#operation-rows th button") == [*(row["operation"] for row in listed), NO_OPERATION]
    assert page.texts("#operation-rows tr:first-child .where") == ["checkout"]
    cells = page.texts("#operation-rows tr:first-child td")
    assert cells[1].split("\n")[0] == str(listed[0]["requests"])
    assert cells[1].endswith(f"/ s, was {listed[0]['previous_requests']}")
    changed = [row[name]["status"] for row in listed for name in ("cpu_change", "error_change")].count("changed")
    assert len(page.all("#operation-rows td:is(.worse, .better)")) == changed
    mean, interval = cells[2].split("\n")
    assert nanoseconds(mean) == pytest.approx(listed[0]["mean_cpu_ns"], rel=0.01)
    low, high = (listed[0][f"sampled_cpu_{side}_ns"] / listed[0]["requests"] for side in ("low", "high"))
    assert low < listed[0]["sampled_cpu_ns"] / listed[0]["requests"] < high
    assert [nanoseconds(text) for text in interval.split(" \u2013 ")] == pytest.approx([low, high], rel=0.01)
    shares = [row["share"] for row in (*listed, *answer["unattributed"])]
    assert sum(shares) == pytest.approx(1, abs=1e-4)
    assert page.texts("#operation-rows .wide") == [f"{100 * share:.1f} %" for share in shares]
    assert len(page.all("#operation-rows .sparkline")) == len(shares)
    total = site.ask("merge", selector=CHECKOUT, start=site.middle)["total"]
    assert page.find("#total").get_attribute("data-value") == str(total)


def test_without_anything_before_nothing_is_new(page: Page, site: Site) -> None:
    page.open(view="operations", selector=CHECKOUT)
    cells = page.all("#operation-rows td:nth-child(5)")
    said = [(cell.text, cell.get_attribute("title")) for cell in cells]
    assert said == [("\N{EN DASH}", "no data before")] * len(
        site.ask("operations", selector=CHECKOUT)["operations"]
    ) + [("", "")]


def test_labels_that_requests_do_not_have_are_left_out_which_a_line_says(page: Page, site: Site) -> None:
    page.open(view="profile", selector='{service="checkout", version="1.5.0"}')
    page.click("nav a[data-view=operations]")
    page.settle()
    assert page.texts("#operations-skipped") == ["Labels that requests do not have are left out: version."]
    listed = site.ask("operations", selector=CHECKOUT)
    assert page.texts("#operation-rows th button") == [
        *(row["operation"] for row in listed["operations"]),
        NO_OPERATION,
    ]
    assert page.find("#total").get_attribute("data-value") == str(listed["total"])
    assert page.state()["selector"] == '{service="checkout", version="1.5.0"}'
    page.js("icestream.state.update({ selector: arguments[0] })", CHECKOUT)
    page.settle()
    assert page.texts("#operations-skipped") == [""]


def test_operations_are_sorted_and_have_percentiles_of_duration_or_cpu(page: Page, site: Site) -> None:
    page.open(view="operations", selector=CHECKOUT)
    for measure, order in (("duration", ""), ("cpu", "name"), ("cpu", "p99_duration")):
        chosen = {"measure": "" if measure == "duration" else measure, "order": order}
        page.js("icestream.state.update(arguments[0])", chosen)
        page.settle()
        listed = site.ask("operations", selector=CHECKOUT, **{"order": order} if order else {})["operations"]
        assert page.texts("#operation-rows th button")[:-1] == [row["operation"] for row in listed]
        heads = page.texts("#operation-table [data-percentile]")
        assert heads == [f"{part} {'CPU' if measure == 'cpu' else measure}" for part in ("p50", "p95", "p99")]
        p95 = [row[f"p95_{measure}_ns"] for row in listed]
        shown = page.texts("#operation-rows td:nth-child(7)")
        assert [nanoseconds(text) for text in shown[:-1]] == pytest.approx(p95, rel=0.01)
        assert shown[-1] == ""
    page.find("#order").send_keys("requests")
    page.until(lambda: page.state()["order"] == "requests")


def test_an_operation_leads_to_its_graph_and_to_slow_against_fast_by_keyboard(page: Page, site: Site) -> None:
    page.open(view="operations", selector=CHECKOUT)
    operation = page.texts("#operation-rows th button")[0]
    selector = f'{{service="checkout", operation="{operation}"}}'
    page.find("#operation-rows tr:first-child th button").send_keys(Keys.ENTER)
    page.until(lambda: page.find("#graph").is_displayed())
    page.settle()
    assert (page.state().get("view", "profile"), page.state()["selector"]) == ("profile", selector)
    assert page.js("return icestream.graph.tree.total[0]") == site.ask("merge", selector=selector)["total"]
    page.browser.back()
    page.until(lambda: page.find("#operations").is_displayed())
    page.settle()
    page.find("#operation-rows tr:first-child td button").send_keys(Keys.ENTER)
    page.until(lambda: page.find("#graph").is_displayed())
    page.settle()
    assert (page.state()["view"], page.state()["selector"]) == ("slow", selector)
    answer = site.ask("operations/slow", selector=selector)
    total, before = page.js("const { total, baseline } = icestream.graph.tree; return [total[0], baseline.total[0]]")
    of_one = (answer["total"] / answer["slow"]["requests"], answer["baseline_total"] / answer["fast"]["requests"])
    assert (total, before) == pytest.approx(of_one)
    told = page.find("#summary").text
    assert f"{answer['slow']['requests']} slow requests" in told
    assert f"{answer['fast']['requests']} fast requests" in told
    assert page.find("nav a[data-view=operations]").get_attribute("aria-current") == "page"


def test_operations_are_split_by_a_label_of_requests_and_lead_to_their_own(page: Page) -> None:
    page.open(view="operations", selector=CHECKOUT)
    assert page.texts("#split option") == ["none", "service_version"]
    page.find("#split").send_keys("service_version")
    page.until(lambda: page.state().get("split") == "service_version")
    page.settle()
    operation = page.texts("#operation-rows th button")[0]
    page.find("#operation-rows tr:first-child th button").send_keys(Keys.ENTER)
    page.until(lambda: page.find("#graph").is_displayed())
    selector = f'{{service="checkout", operation="{operation}", service_version=""}}'
    assert page.state()["selector"] == selector  # no process says its version


def test_two_operations_that_are_ticked_are_compared(page: Page, site: Site) -> None:
    page.open(view="operations", selector=CHECKOUT)
    for row in (2, 1):
        page.click(f"#operation-rows tr:nth-child({row}) input")
    now, before = site.ask("operations", selector=CHECKOUT)["operations"]
    said = f"Compare {now['operation']} with baseline {before['operation']}"
    assert page.texts("#compare-operations") == [said]
    page.click("#compare-operations")
    page.settle()
    state = page.state()
    assert state["view"] == "compare"
    assert (state["selector"], state["baseline_selector"]) == (now["selector"], before["selector"])


def test_a_service_without_requests_says_where_they_come_from(page: Page) -> None:
    page.open(view="operations", selector='{service="search"}')
    said = page.find("#operations-empty").text
    assert said.startswith('Nothing that {service="search"} selects had requests')  # others had
    assert "icestream-trace" in said
    assert page.find("#summary").text == ""  # 0 s would be wrong: it used CPU, for no request
    assert not page.find("#operation-table").is_displayed()
    page.open(view="slow", selector='{service="search", operation="none"}')
    assert "no requests of this operation" in page.find("#problem").text
    assert page.errors()
