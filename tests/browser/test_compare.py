"""The view that compares two profiles: release 1.5.0 against 1.4.2, the half before."""

import pytest
from selenium.webdriver.common.keys import Keys

from icestream.topics import DEFAULT_PROFILE_TYPE
from tests.browser.conftest import Site
from tests.browser.fill import MEMORY_IN_USE
from tests.browser.page import Page

pytestmark = pytest.mark.browser


def colour(page: Page, name: str) -> tuple[int, int, int]:
    """What the widest frame of a function is filled with."""
    page.settle()
    box = page.box(page.node(name))
    return page.colour_at(box["left"] + 2, box["top"] + 2)


def test_the_baseline_is_the_time_just_before_and_both_totals_are_the_apis(page: Page, site: Site) -> None:
    page.open(view="compare", start=site.middle)
    answer = site.ask("diff", start=site.middle, baseline_start=site.start, baseline_end=site.middle)
    sums = page.js(
        "const { total, self, baseline } = icestream.graph.tree; const sum = (c) => c.reduce((a, b) => a + b, 0);"
        "return [total[0], sum(self), baseline.total[0], sum(baseline.self)]"
    )
    assert sums == [answer["total"], answer["total"], answer["baseline_total"], answer["baseline_total"]]


def test_worse_is_red_better_is_green_and_the_table_says_it_in_words(page: Page, site: Site) -> None:
    page.open(view="compare", start=site.middle, selector='{service="checkout"}')
    names = page.texts("#table tbody th button")
    changes = page.texts("#table tbody td:last-child")
    assert names[0] == "py::rule_matches:/app/checkout/rules.py"
    assert changes[0].startswith("+")
    assert changes[names.index("sha256_block_data_order_avx2")].startswith("\N{MINUS SIGN}")
    red, green, _ = colour(page, "py::rule_matches:/app/checkout/rules.py")
    assert red > green + 40
    red, green, _ = colour(page, "sha256_block_data_order_avx2")
    assert green > red + 40
    page.click("#colours")
    page.until(lambda: page.state().get("colours") == "blue-orange")
    red, _, blue = colour(page, "sha256_block_data_order_avx2")
    assert blue > red + 40


def test_slow_requests_are_shown_by_the_values_of_one_request_and_what_samples_support(page: Page, site: Site) -> None:
    selector = '{service="checkout", operation="POST /checkout"}'
    page.open(view="slow", selector=selector)
    answer = site.ask("operations/slow", selector=selector, frames="all")
    functions, names = answer["functions"], [answer["strings"][name] for name in answer["functions"]["name"]]
    slow, fast = answer["slow"]["requests"], answer["fast"]["requests"]
    more = {
        name: now / slow - before / fast
        for name, now, before, changed in zip(
            names, functions["flat"], functions["baseline_flat"], functions["changed"], strict=True
        )
        if changed
    }
    assert 0 < len(more) < len(names) - 1
    rows = page.texts("#table tbody tr:not(.folded) th button")
    assert sorted(rows) == sorted(more)
    first = max(more, key=lambda name: more[name])
    shown = page.texts("#table tbody td:last-child")[rows.index(first)]
    assert shown.startswith("+")
    factor = {"s": 1e9, "ms": 1e6}[shown.split()[1]]
    assert float(shown[1:].split()[0]) * factor == pytest.approx(more[first], rel=0.01)


def test_what_samples_do_not_support_is_folded_into_a_row_with_its_sum_and_not_coloured(page: Page, site: Site) -> None:
    page.open(view="compare", start=site.middle, selector='{service="checkout"}')
    changed, count = page.js(
        "const { functions } = icestream.graph.tree;"
        "return [functions.changed.filter(Boolean).length, functions.count - 1]"
    )
    assert 0 < changed < count
    assert len(page.all("#table tbody tr:not(.folded)")) == changed
    (folded,) = page.texts("#table tr.folded th button")
    assert folded == f"▸ {count - changed} others, not certain"
    page.click("#table tr.folded th button")
    assert len(page.all("#table tbody tr")) == count
    assert len(page.all("#table tbody :is(.worse, .better)")) == changed
    node = page.js(
        "const { baseline, total, width, count } = icestream.graph.tree; const nodes = [...Array(count).keys()];"
        "const differs = (n) => Math.abs(total[n] / baseline.total[n] - 1) > 0.1 && !baseline.changed[n];"
        "return nodes.filter(differs).sort((a, b) => width[b] - width[a])[0]"
    )
    box = page.box(node)
    red, green, _ = page.colour_at(box["left"] + 2, box["top"] + 2)
    assert abs(red - green) < 10


def test_where_nothing_is_certain_the_table_has_the_largest_changes_under_a_heading(page: Page, site: Site) -> None:
    page.open(view="compare", start=site.middle, selector='{service="search"}')
    changed = page.js("return icestream.graph.tree.functions.changed.filter(Boolean).length")
    assert changed == 0
    assert page.texts("#table > p") == ["Not certain, largest first"]
    changes = page.texts("#table tbody td:last-child")
    assert len(changes) > 1
    units = {"s": 1.0, "ms": 1e-3}
    sizes = [float(number[1:]) * units[unit] for number, unit in (text.split() for text in changes if text != "0 s")]
    assert sizes == sorted(sizes, reverse=True)
    assert {text[0] for text in changes} >= {"+", "\N{MINUS SIGN}"}
    assert page.all("#table :is(.worse, .better, .folded)") == []


def test_what_is_almost_gone_is_not_said_to_be_gone(page: Page) -> None:
    page.open(view="compare")
    sides = [[1, 300], [1, 150], [0, 300], [300, 1], [99, 100]]
    changes = page.js_async(
        "import('./graph/change.js').then(({ formatChange }) => done(given[0].map((sides) => formatChange(...sides))))",
        sides,
    )
    assert changes == ["\u00f7300", "\N{MINUS SIGN}99 %", "gone", "\u00d7300", "\N{MINUS SIGN}1 %"]


def test_what_one_side_does_not_have_is_new_or_gone_and_nothing_is_infinite(page: Page, site: Site) -> None:
    page.open(view="compare", start=site.middle, search="inflate|<img", regex="1")
    rows = page.texts("#table tbody tr")
    gone = next(row for row in rows if row.startswith("inflate_fast"))
    assert "gone" in gone
    new = next(row for row in rows if row.startswith("<img"))
    assert "new" in new
    assert not any(
        word in row for row in [*rows, page.find("#summary").text] for word in ("NaN", "Infinity", "undefined")
    )
    page.point_at("inflate_fast")
    page.until(lambda: page.find("#tooltip").is_displayed())
    assert "gone" in page.find("#tooltip").text


def test_selectors_compare_releases_in_one_time_range(page: Page, site: Site) -> None:
    new, old = ('{service="search", version="1.5.0"}', '{service="search", version="1.4.2"}')
    page.open(view="compare", selector=new, baseline_selector=old, baseline_start=site.start, baseline_end=site.end)
    sides = page.js("const { total, baseline } = icestream.graph.tree; return [total[0], baseline.total[0]]")
    assert sides == [site.ask("merge", selector=selector)["total"] for selector in (new, old)]


def test_another_selector_is_compared_in_the_same_time_unless_another_is_chosen(page: Page, site: Site) -> None:
    new, old = ('{service="search", version="1.5.0"}', '{service="search", version="1.4.2"}')
    page.open(view="compare", selector=new, baseline_selector=old)
    sides = page.js("const { total, baseline } = icestream.graph.tree; return [total[0], baseline.total[0]]")
    assert sides == [site.ask("merge", selector=selector)["total"] for selector in (new, old)]
    page.click("#shifts button:nth-child(1)")
    page.until(lambda: "baseline_start" in page.state())


OLD_CART, NEW_CART = (f'{{service="cart", service_version="{version}"}}' for version in ("1.9", "1.10"))


def of_versions(site: Site) -> dict[str, int]:
    """The time in which two versions of `cart` ran side by side."""
    return {"start": site.versions_end - 600, "end": site.versions_end}


def sides(page: Page) -> tuple[str, str]:
    """The selectors of Now and of the baseline."""
    state = page.state()
    return state["selector"], state["baseline_selector"]


@pytest.mark.parametrize("order", [("1.9", "1.10"), ("1.10", "1.9")])
def test_of_ticked_versions_the_lower_one_is_the_baseline_as_the_button_says(
    page: Page, site: Site, order: tuple[str, str]
) -> None:
    page.open(view="services", selector='{service="cart"}', label="service_version", **of_versions(site))
    assert page.texts("#compare-ticked") == ["Compare ticked rows"]
    for version in order:
        page.click(f"tr[data-value='{version}'] input")
    assert page.texts("#compare-ticked") == ["Compare 1.10 with baseline 1.9"]
    page.click("#compare-ticked")
    page.settle()
    assert sides(page) == (NEW_CART, OLD_CART)
    assert page.texts("#ticked option") == ["1.9", "1.10"]


def test_versions_are_ordered_number_by_number(page: Page) -> None:
    page.open(view="compare")
    ordered = ["1.9", "1.9.1", "1.10-rc1", "1.10", "1.10-1", "v2.0", "10"]
    script = (
        "import('./base/version_order.js').then(({ compareVersions, isVersion }) =>"
        " done([given[0].toReversed().sort(compareVersions), given[1].filter(isVersion)]))"
    )
    assert page.js_async(script, ordered, [*ordered, "", "3f2a9c1", "node-1", "latest"]) == [ordered, ordered]


def test_both_sides_are_swapped_with_their_times(page: Page, site: Site) -> None:
    page.open(view="compare", selector=OLD_CART, baseline_selector=NEW_CART, **of_versions(site))
    page.click("#swap")
    page.settle()
    assert (*sides(page), "baseline_start" in page.state()) == (NEW_CART, OLD_CART, False)
    page.open(view="compare", start=site.middle)
    totals = "const { total, baseline } = icestream.graph.tree; return [total[0], baseline.total[0]]"
    before = page.js(totals)
    for swapped in (before[::-1], before):
        page.click("#swap")
        page.settle()
        assert page.js(totals) == swapped
    assert "baseline_selector" not in page.state()


def test_the_baseline_starts_as_what_is_selected_and_everything_is_an_empty_field(page: Page, site: Site) -> None:
    page.open(view="compare", start=site.middle)
    fields = ("#selector", "#baseline-selector")
    assert [page.find(field).get_attribute("value") for field in fields] == ["", ""]
    page.js("icestream.state.update({ selector: arguments[0] })", '{service="search"}')
    page.settle()
    assert page.find("#baseline-selector").get_attribute("value") == '{service="search"}'
    assert "baseline_selector" not in page.state()
    page.find("#baseline-selector").clear()
    page.type("#baseline-selector", Keys.ENTER)
    page.until(lambda: page.state().get("baseline_selector") == "{}")
    page.type("#baseline-selector", 'service="search"', Keys.ENTER)
    page.until(lambda: "baseline_selector" not in page.state())


def test_a_function_of_a_comparison_has_its_lines_and_callers(page: Page, site: Site) -> None:
    page.open(view="compare", start=site.middle, selector='{service="checkout"}')
    page.js("document.querySelector('#table tbody tr').dispatchEvent(new MouseEvent('contextmenu', { bubbles: true }))")
    assert {"Source lines", "Callers and callees"} < set(page.texts("[role=menuitem]"))
    page.js("[...document.querySelectorAll('[role=menuitem]')].find((e) => /Callers/.test(e.textContent)).click()")
    page.until(lambda: page.find("#sandwich").is_displayed())
    assert page.find("#sandwich-title").text.startswith("py::rule_matches:/app/checkout/rules.py")


def test_a_baseline_without_samples_is_said_instead_of_making_everything_new(page: Page, site: Site) -> None:
    page.open(view="compare", selector='{service="checkout"}')
    assert page.find("#empty h2").text.startswith('No samples of {service="checkout"} in 20')
    assert not page.find("#graph").is_displayed()
    assert not page.find("#costs").is_displayed()
    assert page.texts("#empty button, #summary strong") == []  # it says no version


def test_where_versions_ran_side_by_side_they_are_offered_instead_of_a_time_without_samples(
    page: Page, site: Site
) -> None:
    page.open(view="compare", selector='{service="cart"}', **of_versions(site))
    assert not page.find("#graph").is_displayed()
    assert page.texts("#empty button") == ["Compare 1.10 with 1.9"]
    page.click("#empty button")
    page.settle()
    assert sides(page) == (NEW_CART, OLD_CART)
    assert page.find("#graph").is_displayed()
    page.open(view="compare", **of_versions(site), baseline_start=site.start - 86400, baseline_end=site.start - 80000)
    assert page.texts("#empty button") == ["Compare 1.10 with 1.9"]  # as no other service ran


def test_values_are_compared_as_they_are_where_asked(page: Page, site: Site) -> None:
    page.open(view="compare", start=site.middle + 600)
    page.click("#shifts button:nth-child(2)")
    page.until(lambda: "baseline_start" in page.state())
    page.browser.back()
    page.until(lambda: "baseline_start" not in page.state())
    page.click("#absolute")
    page.until(lambda: page.state().get("absolute") == "true")
    page.settle()
    assert "compared by value" in page.find("#summary").text
    assert page.js("const { baseline } = icestream.graph.tree; return [baseline.scale, baseline.profileScale]") == [
        1,
        1,
    ]


def test_gauges_are_compared_by_value_without_a_choice(page: Page, site: Site) -> None:
    page.open(view="compare", profile_type=MEMORY_IN_USE, start=site.middle)
    assert "compared by value" in page.find("#summary").text
    assert page.js("const { baseline } = icestream.graph.tree; return [baseline.scale, baseline.profileScale]") == [
        1,
        1,
    ]
    assert not page.find("#absolute").is_displayed()
    page.js("icestream.state.update({ profile_type: arguments[0] })", DEFAULT_PROFILE_TYPE)
    page.settle()
    assert "compared by share" in page.find("#summary").text
    assert page.find("#absolute").is_displayed()


def test_above_the_graph_stands_what_a_request_costs_and_only_sure_changes_are_coloured(page: Page, site: Site) -> None:
    page.open(view="compare", start=site.middle, selector='{service="checkout"}')
    before = {"baseline_start": site.start, "baseline_end": site.middle}
    answer = site.ask("operations/compare", start=site.middle, selector='{service="checkout"}', **before)
    assert page.find("#costs-sentence").text == answer["sentence"]
    rows = {row["operation"]: row for row in answer["operations"]}
    assert page.texts("#cost-rows tr th button") == list(rows)
    for name, row in rows.items():
        coloured = page.js(
            "return [...document.querySelectorAll(`#cost-rows [data-operation='${arguments[0]}'] td`)]"
            ".map((cell) => cell.className).filter((name) => /worse|better/.test(name)).length",
            name,
        )
        costs = [row[what]["status"] for what in ("cpu", "duration", "errors")]
        assert coloured == costs.count("changed"), name
    hint = "The graph below has shares of all CPU: click an operation for the CPU of one request."
    assert page.find("#costs-hints").text == hint
    page.click("#cost-rows th button")
    page.settle()
    assert page.find("#costs-hints").text == ""
    assert page.state()["selector"] == f'{{service="checkout", operation="{next(iter(rows))}"}}'
    assert page.texts("#cost-rows tr th button") == [next(iter(rows))]
    diff = site.ask("diff", start=site.middle, selector=page.state()["selector"], **before)
    assert diff["scaling"] == "request"
    assert "compared by the CPU of one request" in page.find("#summary").text
    page.open(view="compare", start=site.middle, selector='{service="search"}')
    assert not page.find("#costs").is_displayed()


def test_a_narrow_page_has_change_and_cpu_of_operations_in_sight(page: Page, site: Site) -> None:
    size = {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        page.open(view="compare", start=site.middle, selector='{service="checkout"}')
        assert page.texts("#cost-table thead th")[:3] == ["Operation", "Change", "CPU / request"]
        edges = page.js(
            "const right = (cell) => cell.getBoundingClientRect().right;"
            "return [right(document.querySelector('#costs .scrolled')),"
            " ...[...document.querySelectorAll('#cost-rows td:nth-child(3)')].map(right)]"
        )
        assert len(edges) > 1
        assert max(edges[1:]) <= edges[0]
        assert page.js("return document.documentElement.scrollWidth") <= 360
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
