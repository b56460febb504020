"""The page around the graphs: errors, nothing found, refresh, colours of the system, windows of any size."""

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from selenium.webdriver.common.keys import Keys

from tests.browser.chromium import set_scheme
from tests.browser.conftest import Site
from tests.browser.fill import MEMORY_IN_USE
from tests.browser.page import Page
from tests.browser.shop import HOSTILE_LABEL

pytestmark = pytest.mark.browser

_LAY_OUT = """
import("./graph/tree.js").then(({ readTree, depthOf, nodeAt }) => {
  const [parent, self] = given;
  const total = [...self];
  for (let row = parent.length - 1; row > 0; row--) total[parent[row]] += total[row];
  const functions = { name: [0], module: [0], file: [0], line: [0], kind: [0], named: [1], flat: [1], cumulative: [1] };
  const nodes = { parent, self, total, function: parent.map(() => 0) };
  const others = { root: 0, cut: { nodes: 0 }, rest: { flat: 0 }, unit: "count" };
  const tree = readTree({ nodes, functions, strings: ["f"], kinds: ["user"], ...others });
  const { x, width, childStart } = tree;
  const under = (row) => nodeAt(tree, depthOf(tree, row), x[row] + width[row] / 2);
  const atMiddle = [...parent.keys()].map((row) => (width[row] > 0 ? under(row) : row));
  done({ x: [...x], width: [...width], childStart: [...childStart], atMiddle });
}).catch((error) => done(String(error)));
"""


def test_what_the_api_says_is_wrong_is_shown_with_its_hint(page: Page) -> None:
    page.open(selector="{service=")
    assert "expected a value in quotes" in page.find("#problem strong").text
    assert "for example" in page.find("#problem span").text
    assert not page.find("#graph").is_displayed()
    noted: list[str] = []
    page.until(lambda: noted.extend(page.errors()) or len(noted) == 3)  # tree, timeline, marks: status 400
    page.type("#selector", '"search"}', Keys.ENTER)
    page.until(lambda: not page.find("#problem").is_displayed())
    page.until(lambda: page.find("#graph").is_displayed())


def test_nothing_found_offers_where_to_look(page: Page) -> None:
    page.open(selector='{service="nobody"}')
    assert "No samples" in page.find("#empty h2").text
    assert '{service="nobody"}' in page.find("#empty").text
    assert page.texts("#empty button") == ["Show the last day", "Show the last 30 days", "Show all labels"]
    page.click("#empty button:nth-of-type(3)")
    page.until(lambda: page.find("#graph").is_displayed())
    assert "selector" not in page.state()
    page.open(selector='{service="nobody"}', start="now-1d", end="now")
    assert page.texts("#empty button") == ["Show the last 30 days", "Show all labels"]  # older samples are found, too


def test_what_a_filter_or_a_function_leaves_out_is_not_called_absent(page: Page, site: Site) -> None:
    """There are samples of the selector, but none of what was asked for."""
    page.open(selector='{service="search"}', function="nobody")
    assert 'of CPU of {service="search"} with the function nobody' in page.find("#empty p").text
    page.click("#empty button")
    page.until(lambda: page.find("#graph").is_displayed())
    assert "function" not in page.state()
    page.open(focus="nobody")
    assert "in the stacks that the filters keep" in page.find("#empty p").text
    trace = site.ask("traces", limit=1)["traces"][0]["trace_id"]
    page.open(view="requests", trace=trace, profile_type=MEMORY_IN_USE)
    assert page.find("#empty p").text == "There are no samples of memory · inuse_space (bytes) of this request."
    assert page.texts("#empty button") == []


def test_an_api_that_is_away_is_said_and_found_again(page: Page) -> None:
    page.open()
    page.browser.execute_cdp_cmd("Network.enable", {})
    offline = {"latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    page.browser.execute_cdp_cmd("Network.emulateNetworkConditions", offline | {"offline": True})
    try:
        page.click("#reload")
        page.until(lambda: "cannot be reached" in page.find("#problem").text)
        page.settle()
    finally:
        page.browser.execute_cdp_cmd(
            "Network.emulateNetworkConditions",
            offline | {"offline": False, "downloadThroughput": -1, "uploadThroughput": -1},
        )
    page.click("#reload")
    page.until(lambda: not page.find("#problem").is_displayed())
    page.until(lambda: page.find("#graph").is_displayed())
    assert page.errors()


@pytest.mark.parametrize("body", ["<h1>Please log in</h1>", '{"total": 12', "null"])
def test_an_answer_that_is_not_the_apis_is_not_said_to_be_right(page: Page, body: str) -> None:
    page.open()
    page.js("window.fetch = async () => new Response(arguments[0])", body)
    page.click("#reload")
    page.settle()
    assert page.find("#problem strong").text == "The answer is incomplete, or not one of the query API."


def test_the_time_range_is_chosen_from_the_usual_ones_or_typed(page: Page) -> None:
    page.open()
    page.click("#range")
    page.click(".presets button:nth-child(3)")
    page.until(lambda: page.find("#range").text == "last 1 hour")
    assert page.state() == {"view": "profile", "chains": "all", "frames": "all", "start": "now-1h"}
    page.click("#range")
    field = page.find(".popover input")
    field.send_keys(Keys.CONTROL + "a")
    field.send_keys("yesterday", Keys.ENTER)
    page.until(lambda: "not a time" in page.find(".field-problem").text)
    field.send_keys(Keys.CONTROL + "a")
    field.send_keys("2026-01-31 12:00", Keys.ENTER)
    page.until(lambda: page.state()["start"].startswith("2026-01-3"))
    page.settle()


def test_a_range_that_is_applied_again_is_the_same_to_the_millisecond(page: Page, site: Site) -> None:
    page.open(start=f"{site.middle + 10}.25", end=f"{site.middle + 10}.75")
    page.click("#range")
    page.click("#range-field button[type=submit]")
    page.until(lambda: page.state()["start"].endswith(".250Z"))
    assert page.state()["end"].endswith(".750Z")
    page.settle()


def test_it_refreshes_by_itself_when_told_to_and_keeps_the_zoom(page: Page) -> None:
    page.open(selector='{service="postgres"}')
    page.point_at("PostgresMain", click=True)
    page.until(lambda: "at" in page.state())
    count = "return performance.getEntriesByType('resource').filter((entry) => entry.name.includes('/merge?')).length"
    asked = page.js(count)
    page.js("icestream.state.update({ refresh: '1' }, { replace: true })")
    page.until(lambda: page.js(count) >= asked + 2)
    page.settle()
    assert page.texts("#crumbs button")[-1] == "PostgresMain"


@pytest.mark.parametrize(
    ("view", "button"),
    [("services", "#service-rows tr:nth-child(2) button"), ("operations", "#operation-rows td button"),
     ("requests", "#trace-rows tr:nth-child(3) button")],
)  # fmt: skip
def test_a_refresh_keeps_the_keyboard_on_the_row_it_was_on(page: Page, view: str, button: str) -> None:
    page.open(view=view)
    title = "return document.activeElement.title"
    page.js("document.querySelector(arguments[0]).focus()", button)
    focused = page.js(title)
    assert focused
    page.js("document.querySelector(arguments[0]).old = true", button)
    page.js("icestream.state.update({ refresh: '1' }, { replace: true })")
    page.until(lambda: not page.js("return document.querySelector(arguments[0]).old", button))
    assert page.js(title) == focused


def test_a_refresh_keeps_the_keyboard_on_the_frame_it_was_on(page: Page) -> None:
    page.open(selector='{service="checkout"}')
    graph = page.find("#icicle .scroll")
    graph.send_keys(*[Keys.ARROW_DOWN] * 4)
    asked = page.js("const before = icestream.graph.tree; window.before = before; return before.count")
    page.js("icestream.state.update({ refresh: '1' }, { replace: true })")
    page.until(lambda: page.js("return icestream.graph.tree !== window.before"))
    page.js("icestream.state.update({ refresh: '' }, { replace: true })")
    page.settle()
    assert page.js("return icestream.graph.tree.count") == asked
    assert page.js("return document.querySelector('#icicle .cursor').style.top") == f"{4 * 19}px"
    graph.send_keys(Keys.ARROW_DOWN)
    announced = page.js("return document.getElementById('announcer').textContent")
    assert announced.startswith("py::serve_forever:")


def test_it_follows_the_colours_of_the_system(page: Page) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    page.open()
    box = page.box(page.node("_start"))
    where = (box["left"] + 2, box["top"] + 2)
    light = page.js(ground), sum(page.colour_at(*where))
    set_scheme(page.browser, "dark")
    page.until(lambda: sum(page.colour_at(*where)) < light[1] - 150)
    assert page.js(ground) != light[0]


@pytest.mark.parametrize("view", ["profile", "compare", "requests", "operations"])
def test_a_narrow_window_needs_no_scrolling_sideways(page: Page, view: str) -> None:
    page.browser.set_window_size(500, 900)
    page.open(view=view)
    assert page.js("return document.documentElement.scrollWidth <= window.innerWidth")


def test_a_range_with_holes_says_so_and_opens_to_a_list_of_them(page: Page, site: Site) -> None:
    page.open()
    assert site.ask("completeness")["holes"] == []
    page.open(start=site.wide_end - 600, end=site.wide_end)
    page.until(lambda: page.find("#holes").is_displayed())
    assert page.find("#holes summary").text == (
        f"About 158 ms of CPU of {HOSTILE_LABEL} is missing: windows are missing."
        " See docs/operations.md: icestream replay fetches what Kafka still has."
    )
    assert not page.find("#holes table").is_displayed()
    page.click("#holes summary")
    cells = page.texts("#holes tbody tr > *")
    assert cells[:5] == [HOSTILE_LABEL, "3", "windows are missing", "15.0 s", "158 ms"]
    page.open()
    assert not page.find("#holes").is_displayed()


def test_a_hole_without_missing_cpu_is_a_grey_line_that_says_what_to_do(page: Page, site: Site) -> None:
    end = site.wide_end - 3 * 3600
    page.open(start=end - 600, end=end)
    page.until(lambda: page.find("#holes").is_displayed())
    assert page.find("#holes summary").text == (
        "node-slow: windows at a lower frequency. Raise ICESTREAM_CPU_BUDGET, or lower ICESTREAM_FREQUENCY."
        " All CPU that was sampled is there."
    )
    assert page.js("return document.querySelector('#holes').classList.contains('wrong')") is False
    page.open(start=site.wide_end - 600, end=site.wide_end)
    page.until(lambda: page.find("#holes.wrong").is_displayed())


def test_what_is_missing_before_batches_are_remembered_is_not_known_and_said_so(page: Page, site: Site) -> None:
    page.open(start=site.end - 30 * 86_400, end=site.end)
    page.until(lambda: page.find("#holes").is_displayed())
    assert page.find("#holes summary").text.startswith("What is missing before ")
    assert (
        f"is not known. About 158 ms of CPU of {HOSTILE_LABEL} and 1 other host is missing"
        in page.find("#holes summary").text
    )
    page.open(start=site.end - 30 * 86_400, end=site.end - 20 * 86_400)
    page.until(lambda: page.find("#holes summary").text.endswith(" is not known."))
    page.click("#holes summary")
    assert page.find("#holes p").is_displayed()


def test_numbers_of_any_size_can_be_read(page: Page) -> None:
    page.open()
    formatted = page.js_async(
        "const [cpus, values, units] = given;"
        "import('./base/format.js').then(({ formatCpus, formatValue }) => done([cpus.map(formatCpus),"
        "  values.flatMap((value) => units.map((unit) => formatValue(value, unit)))]))",
        [0, 1e-9, 0.044, 4.4, 99.6, 1234],
        [1, 10**18],
        ["nanoseconds", "bytes", "count"],
    )
    cpus = ["0.0", "<0.001", "0.044", "4.4", "100", "1\u202f234"]
    assert formatted == [
        [f"{number} CPUs" for number in cpus],
        ["1.00 ns", "1.00 B", "1.00", "277778 h", "888 PiB", "1.00 E"],
    ]


def test_the_graph_fits_the_window_when_it_changes(page: Page) -> None:
    page.open()
    wide = page.box(0)["width"]
    page.browser.set_window_size(1000, 700)
    page.until(lambda: page.box(0)["width"] < wide - 100)
    bitmap, shown = page.js("const c = document.querySelector('#icicle canvas'); return [c.width, c.clientWidth]")
    assert bitmap == shown * page.js("return devicePixelRatio")


def test_a_link_of_another_time_and_broken_values_still_open(page: Page, site: Site) -> None:
    page.open(view="nonsense", at="zz", sort="nonsense", search="", refresh="-5", unknown="x")
    assert page.find("#graph").is_displayed()
    assert page.js("return icestream.graph.tree.total[0]") == site.ask("merge")["total"]


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({"start": "yesterday"}, "start: "),
        ({"end": "1795747680000"}, "end: "),  # milliseconds
        ({"baseline_start": "1795747680", "baseline_end": "noon", "view": "compare"}, "baseline_end: "),
    ],
)
def test_a_link_with_what_is_not_a_time_says_so_and_can_be_put_right(
    page: Page, times: dict[str, str], said: str
) -> None:
    page.open(**times)
    assert page.find("#problem strong").text.startswith(said)
    wrong = [name for name in times if name != "view"][-1]
    assert times[wrong] in page.find("#baseline-range" if wrong.startswith("baseline") else "#range").text
    assert page.errors()  # answers with status 400
    page.click("#baseline-range" if wrong.startswith("baseline") else "#range")
    page.find(".popover:not([hidden]) .presets button:nth-child(6)").click()
    page.settle()
    assert not page.find("#problem").is_displayed()
    page.errors()


def test_a_link_with_an_empty_time_or_an_unknown_view_is_one_without_it(page: Page, site: Site) -> None:
    for view in ("toString", "__proto__"):
        page.open(view=view)
        assert page.js("return icestream.graph.tree.total[0]") == site.ask("merge")["total"]
        assert page.texts("header nav [aria-current]") == ["Profile"]
    page.open(end="", label="", view="services")
    assert page.texts("#services-label") == ["service"]
    assert page.texts("#service-rows th")


@pytest.fixture(scope="module")
def module_page(browser: object, site: object) -> Page:
    """One page for all examples of a property."""
    page = Page(browser, site)
    page.open(view="requests")
    return page


@given(st.data())
def test_no_frame_leaves_its_parent_or_covers_a_sibling(module_page: Page, data: st.DataObject) -> None:
    parent = [-1]
    for row in range(1, data.draw(st.integers(1, 30))):
        parent.append(data.draw(st.integers(max(0, parent[-1]), row - 1)))
    self_values = data.draw(st.lists(st.integers(-3, 20), min_size=len(parent), max_size=len(parent)))
    layout = module_page.js_async(_LAY_OUT, parent, self_values)
    assert isinstance(layout, dict), layout
    x, width, child = layout["x"], layout["width"], layout["childStart"]
    for row, above in enumerate(parent):
        assert width[row] >= 0
        if above >= 0:
            assert x[row] >= x[above]
            assert x[row] + width[row] <= x[above] + width[above]
            assert child[above] <= row < child[above + 1]
            if row > child[above]:
                assert x[row] >= x[row - 1] + width[row - 1]
    assert layout["atMiddle"] == list(range(len(parent)))  # what lies under the middle of a frame is the frame


def test_a_misspelt_selector_gets_the_same_help_in_all_views(page: Page) -> None:
    for view in ("services", "operations", "profile", "compare", "requests"):
        page.open(view=view, selector='{service="chekout"}')
        page.until(lambda: "No service is called chekout" in page.find("#selector-help").text)
        assert "checkout" in page.find("#selector-help").text.partition("There are")[2]
    page.open(selector='{servce="checkout"}')
    page.until(lambda: "have a label servce" in page.find("#selector-help").text)
    page.open()
    assert not page.find("#selector-help").is_displayed()


def test_a_narrow_page_does_not_scroll_sideways(page: Page, site: Site) -> None:
    size = {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        for view in ("services", "operations", "profile", "compare", "requests"):
            page.open(view=view)
            assert page.js("return document.documentElement.scrollWidth") <= 360, view
        page.open(view="requests", trace=site.ask("traces", limit=1)["traces"][0]["trace_id"])
        assert page.js("return document.documentElement.scrollWidth") <= 360
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_new_versions_and_annotations_are_marks_on_the_timeline(page: Page, site: Site) -> None:
    note = {"text": "<b>load test</b>", "time": str(site.middle + 300), "labels": {"service": "search"}}
    httpx2.post(f"{site.address}api/v1/annotations", json=note).raise_for_status()
    page.open()

    def told(at: int) -> str:
        share = (at - site.start) / (site.end - site.start)
        page.js(
            "const host = document.querySelector('#timeline');"
            "const { left, top, width } = host.getBoundingClientRect();"
            "const at = { clientX: left + width * arguments[0] + 1, clientY: top + 9, bubbles: true };"
            "host.dispatchEvent(new PointerEvent('pointermove', at))",
            share,
        )
        return str(page.find("#tooltip").text)

    assert "checkout: first samples of 1.5.0" in told(site.middle)
    assert "search: <b>load test</b>" in told(site.middle + 300)
    assert "first samples" not in told(site.middle + 600)
    page.open(selector='{service="checkout"}')
    assert "<b>" not in told(site.middle + 300)
