"""Looking at what uses CPU: services first, then a service's frames, and what to do with one of them."""

import json
import struct
from pathlib import Path
from xml.etree import ElementTree

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Site
from tests.browser.page import Page
from tests.browser.shop import HOSTILE_FUNCTION

pytestmark = pytest.mark.browser

_TIMELINE_HAS = """
const canvas = document.querySelector("#timeline canvas");
const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
copy.drawImage(canvas, 0, 0);
const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
for (let i = 0; i < data.length; i += 4) if ([0, 1, 2].every((part) => data[i + part] === arguments[part])) return true;
return false;
"""
CHECKOUT = '{service="checkout"}'
PRICE = "py::price:/app/checkout/pricing.py"


def choose(page: Page, item: str) -> None:
    """Clicks an item of the menu."""
    page.until(lambda: page.all(".menu"))
    entries = {entry.text: entry for entry in page.all(".menu [role=menuitem]")}
    entries[item].click()


def open_menu(page: Page, name: str) -> None:
    """By a right click on the widest frame of a function."""
    box = page.box(page.node(name))
    where = (int(box["left"] + min(box["width"] / 2, 40)), int(box["top"] + box["height"] / 2))
    actions = ActionChains(page.browser)
    actions.w3c_actions.pointer_action.move_to_location(*where)
    actions.w3c_actions.pointer_action.click(button=2)
    actions.perform()
    page.until(lambda: page.all(".menu"))


def test_it_opens_on_services_and_a_click_shows_the_profile_of_one(page: Page, site: Site) -> None:
    page.open(view="services")
    names = page.texts("#service-rows th")
    groups = site.ask("timeline", sum_by="service")["groups"]
    assert names == [group["labels"]["service"] for group in groups]
    assert len(page.all("#service-rows .sparkline polygon")) == len(names)
    assert page.js("return Number(document.getElementById('total').dataset.value)") == site.ask("merge")["total"]
    assert page.texts("#service-rows tr:first-child td")[1] == "41.7 %"
    page.click("#service-rows tr:first-child button")
    page.until(lambda: page.find("#graph").is_displayed())
    assert (page.state()["view"], page.state()["selector"]) == ("profile", CHECKOUT)
    page.click("nav [data-view=services]")
    page.settle()
    page.click("#service-rows tr:first-child button")
    page.until(lambda: page.find("#graph").is_displayed())
    assert page.state()["selector"] == CHECKOUT
    page.browser.get(site.address)
    page.settle()
    assert page.find("a[aria-current=page]").text == "Services"


def test_services_of_a_selector_stay_in_the_address_and_in_the_link_to_them(page: Page) -> None:
    page.open(selector='{service="checkout"}')
    link = page.find("nav [data-view=services]")
    href = link.get_attribute("href")
    link.click()
    page.until(lambda: page.find("#services").is_displayed())
    page.browser.refresh()
    page.settle()
    assert page.texts("#service-rows th") == ["checkout"]
    page.click("nav [data-view=operations]")
    page.settle()
    page.browser.back()
    page.until(lambda: page.texts("header nav [aria-current]") == ["Services"])
    page.settle()
    page.browser.get(href)
    page.settle()
    assert page.texts("#service-rows th") == ["checkout"]


def test_values_of_any_label_can_be_listed(page: Page) -> None:
    page.open(view="services", label="version")
    page.until(lambda: page.texts("#service-rows th") == ["1.5.0", "1.4.2", "(no version)"])


def test_services_are_sorted_searched_and_those_that_are_ticked_compared(page: Page) -> None:
    page.open(view="services")
    names = page.texts("#service-rows th")
    page.click("#services-label")
    page.until(lambda: page.texts("#service-rows th") == sorted(names))
    assert "1 others" not in names
    page.type("#service-search", "SEA")
    page.until(lambda: page.texts("#service-rows th") == ["search"])
    page.type("#service-search", 3 * Keys.BACK_SPACE)
    page.until(lambda: len(page.texts("#service-rows th")) == len(names))
    assert not page.find("#compare-ticked").is_enabled()
    for name in ("postgres", "checkout", "search"):
        page.click(f"tr[data-value={name}] input")
    assert page.texts("#compare-ticked") == ["Compare checkout with baseline postgres"]
    page.click("#compare-ticked")
    page.settle()
    state = page.state()
    assert (state["view"], state["selector"]) == ("compare", CHECKOUT)
    assert (state["baseline_selector"], "baseline_start" in state) == ('{service="postgres"}', False)
    assert page.find("#baseline-range").text == page.find("#range").text
    assert page.texts("#ticked option") == ["postgres", "checkout", "search"]
    page.find("#ticked").send_keys("search")
    page.until(lambda: page.state()["selector"] == '{service="search"}')
    assert page.state()["baseline_selector"] == '{service="postgres"}'


def test_a_service_that_ran_two_versions_says_so_and_a_click_compares_them(page: Page, site: Site) -> None:
    page.open(view="services", start=site.versions_end - 600, end=site.versions_end)
    assert page.texts("#service-rows .where") == ["versions 1.9, 1.10 · compare"]
    page.click("#service-rows .where button")
    page.settle()
    state = page.state()
    assert state["view"] == "compare"
    assert [state["selector"], state["baseline_selector"]] == [
        f'{{service="cart", service_version="{version}"}}' for version in ("1.10", "1.9")
    ]
    page.open(view="services")
    assert page.texts("#service-rows .where") == []  # none has more than one


def test_a_chain_of_frames_is_one_step_until_it_is_unfolded(page: Page) -> None:
    page.open(selector=CHECKOUT, chains="")
    drawn = "return icestream.graph.icicle.screenBox(arguments[0]).top"
    start, forever = page.node("_start"), page.node("py::serve_forever:/app/checkout/server.py")
    assert page.box(start) == page.box(forever)
    page.point_at("_start")
    page.until(lambda: "Py_BytesMain \u203a pymain_run_python" in page.find("#tooltip").text)
    open_menu(page, "_start")
    choose(page, "Show its 5 frames")
    page.until(lambda: page.box(forever)["top"] - page.box(start)["top"] == 4 * 19)
    page.browser.refresh()
    page.settle()
    page.click("#chains")
    page.until(lambda: page.box(forever)["top"] - page.box(start)["top"] == 4 * 19)
    assert page.js(drawn, 0) < page.box(start)["top"]


def test_a_service_in_an_interpreter_shows_ones_own_code_until_all_is_asked_for(page: Page) -> None:
    page.open(selector=CHECKOUT, frames="auto", chains="")
    assert page.find("#frames [value=own]").get_attribute("aria-pressed") == "true"
    whole = page.js("return icestream.graph.tree.total[0]")
    names = page.js("return icestream.graph.tree.functions.name")
    assert PRICE in names
    assert not {"sre_search", "sha256_block_data_order_avx2", "do_syscall_64", "_start"} & set(names)
    assert page.node("py::<module>:/app/checkout/server.py") >= 0
    assert "pricing.py" in page.find("#table").text
    page.click("#frames [value=all]")
    page.until(lambda: page.node("sre_search") >= 0)
    assert page.state()["frames"] == "all"
    assert page.js("return icestream.graph.tree.total[0]") == whole
    page.open(selector='{service="search"}', frames="user")  # as older links say
    assert page.find("#frames [value=all]").get_attribute("aria-pressed") == "true"


def test_chains_of_callers_are_one_step_that_is_named_by_what_ran(page: Page) -> None:
    page.open(selector='{service="postgres"}', invert="true", chains="")
    page.point_at("copy_page_from_iter")
    page.until(lambda: page.find("#tooltip strong").text == "copy_page_from_iter")
    assert "ext4_file_write_iter" in page.find("#tooltip").text
    before = page.box(node := page.node("copy_page_from_iter"))
    caller = page.js("return icestream.graph.tree.childStart[arguments[0]]", node)
    assert before == page.box(caller)
    open_menu(page, "copy_page_from_iter")
    page.find(".menu [role=menuitem]:nth-of-type(3)").click()  # Show its n frames
    page.until(lambda: page.box(caller)["top"] - before["top"] == 19)


def test_a_regular_expression_filters_stacks_and_hides_functions(page: Page) -> None:
    page.open(selector=CHECKOUT)
    whole = page.js("return icestream.graph.tree.total[0]")
    presets = page.js("return [...document.querySelectorAll('#filter-presets option')].map((o) => o.value)")
    page.type("#filter-pattern", "py::(price|tax):", Keys.ENTER)
    page.until(lambda: page.node("sha256_block_data_order_avx2") < 0)
    assert page.js("return icestream.graph.tree.total[0]") < whole
    page.click("#chips button")
    page.until(lambda: page.node("sha256_block_data_order_avx2") >= 0)
    page.click("#filter-kind option[value=hide]")
    for preset in presets:
        page.type("#filter-pattern", preset, Keys.ENTER)
        page.until(lambda shown=preset: shown in page.state()["hide"])
        page.settle()
    assert not page.find("#problem").is_displayed()
    assert page.js("return icestream.graph.tree.total[0]") == whole
    assert page.node("do_syscall_64") < 0 <= page.node("EVP_DigestUpdate")
    assert page.node("gc_collect_main") < 0


def test_the_menu_of_a_frame_hides_ignores_and_focuses(page: Page, site: Site) -> None:
    page.open(selector=CHECKOUT)
    whole = page.js("return icestream.graph.tree.total[0]")
    open_menu(page, PRICE)
    choose(page, "Hide it from stacks")
    page.until(lambda: page.node(PRICE) < 0)
    assert page.js("return icestream.graph.tree.total[0]") == whole
    assert page.texts("#chips code") == [f"^{PRICE.replace('.', chr(92) + '.')}$"]
    page.click("#chips button")
    page.until(lambda: page.node(PRICE) >= 0)
    open_menu(page, PRICE)
    choose(page, "Focus: only stacks with it")
    focused = site.ask("merge", selector=CHECKOUT, focus=f"^{PRICE}$")["total"]
    page.until(lambda: page.js("return icestream.graph.tree.total[0]") == focused)
    page.click("#chips button")
    page.until(lambda: page.js("return icestream.graph.tree.total[0]") == whole)
    row = page.find('[data-key="function sre_search"]')
    ActionChains(page.browser).context_click(row).perform()
    choose(page, "Ignore: stacks without it")
    ignored = whole - site.ask("merge", selector=CHECKOUT, focus="^sre_search$")["total"]
    page.until(lambda: page.js("return icestream.graph.tree.total[0]") == ignored)


def test_a_sandwich_shows_callers_and_callees(page: Page, site: Site) -> None:
    page.open(selector=CHECKOUT)
    open_menu(page, PRICE)
    choose(page, "Callers and callees")
    page.until(lambda: page.find("#sandwich").is_displayed())
    assert page.find("#sandwich-title").text.startswith(PRICE)
    total = site.ask("sandwich", selector=CHECKOUT, function=PRICE)["total"]
    assert page.js("return Number(document.getElementById('total').dataset.value)") == total
    page.click("#sandwich-close")
    page.until(lambda: page.find("#graph").is_displayed())
    assert "function" not in page.state()


def test_both_sides_of_a_sandwich_have_a_table_and_zoom_by_themselves(page: Page, site: Site) -> None:
    page.open(selector=CHECKOUT, function=PRICE)
    answer = site.ask("sandwich", selector=CHECKOUT, function=PRICE)
    for side, columns in (("callers", ["Function", "Cumulative"]), ("callees", ["Function", "Flat", "Cumulative"])):
        assert [text.rstrip(" \u2193") for text in page.texts(f"#{side}-table thead th")] == columns
        tree = answer[side]
        names = {tree["strings"][row] for row in tree["functions"]["name"]} - {"total"}
        shown = {text.partition("\n")[0] for text in page.texts(f"#{side}-table tbody th button")}
        assert shown == (names - {PRICE} if side == "callers" else names)
    rows = len(page.all("#callees-table tbody tr"))
    click = ActionChains(page.browser)
    click.w3c_actions.pointer_action.move_to_location(*below(page, "#callees", 2))
    click.w3c_actions.pointer_action.click()
    click.perform()
    page.until(lambda: page.find("#callees-reset").is_displayed())
    assert 0 < len(page.all("#callees-table tbody tr")) < rows
    assert not page.find("#callers-reset").is_displayed()
    page.click("#callees-reset")
    page.until(lambda: len(page.all("#callees-table tbody tr")) == rows)
    page.click("#callers-table tbody tr button")
    page.until(lambda: page.all("#callers-table tr[aria-current=true]"))
    caller = page.find("#callers-table tbody tr button").text
    ActionChains(page.browser).context_click(page.find("#callers-table tbody tr button")).perform()
    choose(page, "Callers and callees")
    page.until(lambda: page.find("#sandwich-title").text.startswith(caller))


def below(page: Page, graph: str, level: int) -> tuple[int, int]:
    """A point near the left edge of a graph, in one of its levels."""
    box = page.js("const { left, top } = document.querySelector(arguments[0]).getBoundingClientRect();"
                  "return { left, top }", graph)  # fmt: skip
    return int(box["left"]) + 15, int(box["top"]) + level * 19 + 9


def test_a_comparison_with_nothing_says_so(page: Page, site: Site) -> None:
    page.open(view="compare", selector=CHECKOUT, baseline_selector='{service="nobody"}')
    assert page.find("#empty h2").text.startswith('No samples of {service="nobody"} in ')
    page.open(view="compare", start=site.middle, focus="<img")  # a function that is new
    assert "The baseline has no samples" in page.find("#summary").text
    assert page.find("#graph").is_displayed()


def test_the_menu_works_with_keys_and_gives_the_focus_back(page: Page) -> None:
    page.open(selector=CHECKOUT)
    page.find("#icicle .scroll").send_keys(Keys.ARROW_DOWN, "m")
    page.until(lambda: page.all(".menu"))
    assert page.js("return document.activeElement.textContent") == "Copy name"
    ActionChains(page.browser).send_keys(Keys.ARROW_DOWN, Keys.ARROW_UP, Keys.ARROW_UP, Keys.ESCAPE).perform()
    page.until(lambda: not page.all(".menu"))
    assert page.js("return document.activeElement.className") == "scroll"


def test_frames_are_turned_round_grouped_and_drawn_by_module(page: Page) -> None:
    page.open(selector=CHECKOUT, chains="")
    names = "const t = icestream.graph.tree; return [...t.frame].slice(1, 3).map((row) => t.functions.name[row])"
    page.js("document.activeElement.blur()")
    ActionChains(page.browser).send_keys("i").perform()
    page.until(lambda: page.js(names)[0] == "py::rule_matches:/app/checkout/rules.py")
    page.click("#invert")
    page.until(lambda: page.js(names)[0] == "_start")
    page.js("icestream.state.update({ group_by: 'version' })")
    page.until(lambda: set(page.js(names)) == {"1.5.0", "1.4.2"})
    page.js("icestream.state.update({ group_by: '', by: 'module' })")
    page.until(lambda: "python3.11" in page.js(names)[0])


def test_files_of_what_is_shown_can_be_saved(page: Page) -> None:
    page.open(selector=CHECKOUT, hide="sre_search")
    page.click("#export")
    links = {link.text: link.get_attribute("href") for link in page.all(".menu a")}
    assert list(links) == [
        *("pprof", "Collapsed stacks", "speedscope", "Firefox Profiler", "Arrow", "JSON lines", "Go PGO"),
        "JSON",
    ]
    fetched = "fetch(given[0]).then((answer) => done(answer.status))"
    assert "format=pgo" in links.pop("Go PGO")  # nothing here is written in Go
    assert {page.js_async(fetched, link) for link in links.values()} == {200}


def test_an_export_is_saved_and_one_that_fails_says_why(page: Page, tmp_path: Path) -> None:
    behavior = {"behavior": "allow", "downloadPath": str(tmp_path)}
    page.browser.execute_cdp_cmd("Browser.setDownloadBehavior", behavior)
    page.open(selector=CHECKOUT)

    def export(title: str) -> None:
        page.click("#export")
        next(link for link in page.all(".menu a") if link.text == title).click()
        page.until(lambda: page.find("#export").text == "Export")

    export("Go PGO")
    page.until(lambda: page.find("#problem").is_displayed())
    assert page.find("#problem strong").text == "no samples in functions of Go"
    assert "select a service that is written in Go" in page.find("#problem span").text
    assert page.errors()  # the browser's own, of the status 404
    for title, name in (("pprof", "icestream.pb.gz"), ("JSON", "merge.json")):
        export(title)
        page.until(lambda name=name: (tmp_path / name).exists())
        assert not page.find("#problem").is_displayed()
    assert json.loads((tmp_path / "merge.json").read_text())["selector"] == CHECKOUT


def test_the_graph_as_it_stands_is_saved_as_a_picture(page: Page, tmp_path: Path) -> None:
    behavior = {"behavior": "allow", "downloadPath": str(tmp_path)}
    page.browser.execute_cdp_cmd("Browser.setDownloadBehavior", behavior)
    page.open(selector='{service="odd"}')
    for name in ("svg", "png"):
        page.click("#export")
        choose(page, f"Picture ({name.upper()})")
        page.until(lambda name=name: (tmp_path / f"icestream.{name}").exists())
    svg = ElementTree.parse(tmp_path / "icestream.svg").getroot()
    drawn = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert HOSTILE_FUNCTION in drawn
    width, height = page.js("const { width, height } = icestream.graph.icicle.size; return [width, height]")
    assert (svg.get("width"), svg.get("height")) == (str(width), str(height))
    size = struct.unpack(">II", (tmp_path / "icestream.png").read_bytes()[16:24])
    assert size == (2 * width, 2 * height)


def test_source_lines_of_a_function_have_values_and_links(page: Page, site: Site) -> None:
    page.open(selector=CHECKOUT)
    row = next(r for r in site.ask("top", selector=CHECKOUT, by="line")["top"] if r["line"] and r["file"])
    name = row["name"].rpartition(":")[0]
    shown = {"name": name, "module": row["module"], "file": row["file"]}
    page.js("import('./dialogs/lines.js').then((m) => m.showLines(icestream.state.values, arguments[0]))", shown)
    page.until(lambda: str(row["line"]) in page.texts("dialog tbody th"))
    page.find("#link-template").send_keys("https://example.org/blob/{file}#L{line}", Keys.ENTER, Keys.TAB)
    page.until(lambda: page.all("dialog tbody a"))
    assert page.find("dialog tbody a").get_attribute("href").endswith(f"#L{row['line']}")
    field = page.find("#link-template")
    field.clear()
    field.send_keys("javascript:alert({line})", Keys.TAB)
    page.until(lambda: not page.all("dialog tbody a"))
    page.js("localStorage.clear()")


@pytest.mark.parametrize(
    ("selector", "version"),
    [(CHECKOUT[:-1] + ', version="1.5.0"}', "1.5.0"), ('{service="odd", service_version="2.0/rc"}', "2.0%2Frc")],
)
def test_links_to_source_lines_have_the_version_of_the_selector(
    page: Page, site: Site, selector: str, version: str
) -> None:
    page.open(selector=selector)
    row = next(r for r in site.ask("top", selector=selector, by="line")["top"] if r["line"] and r["file"])
    shown = {"name": row["name"].rpartition(":")[0], "module": row["module"], "file": row["file"]}
    page.js("import('./dialogs/lines.js').then((m) => m.showLines(icestream.state.values, arguments[0]))", shown)
    page.until(lambda: str(row["line"]) in page.texts("dialog tbody th"))
    page.find("#link-template").send_keys("https://example.org/{version}/{file}#L{line}", Keys.TAB)
    page.until(lambda: page.all("dialog tbody a"))
    assert page.find("dialog tbody a").get_attribute("href").startswith(f"https://example.org/{version}/")
    page.js("localStorage.clear()")


def test_the_time_strip_selects_with_keys(page: Page) -> None:
    page.open()
    strip = page.find("#timeline")
    strip.send_keys(Keys.ARROW_RIGHT, Keys.SHIFT + Keys.ARROW_RIGHT + Keys.ARROW_RIGHT)
    assert page.find("#timeline .selection").is_displayed()
    assert "CPUs" in page.js("return document.getElementById('announcer').textContent")
    before = page.state()["start"]
    strip.send_keys(Keys.NULL, Keys.ENTER)
    page.until(lambda: page.state()["start"] != before)
    page.settle()
    assert not page.find("#timeline .selection").is_displayed()


def test_times_are_local_or_utc_and_colours_as_chosen(page: Page) -> None:
    page.browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    try:
        page.open()
        local = page.find("#range").text
        page.click("#zone")
        page.until(lambda: page.find("#range").text.endswith("UTC"))
        assert page.find("#range").text.split()[1] != local.split()[1]
        page.click("#zone")
        page.until(lambda: page.find("#range").text == local)
        ground = "return getComputedStyle(document.body).backgroundColor"
        light = page.js(ground)
        page.click("#scheme")
        page.until(lambda: page.js(ground) != light)
        assert page.find("#scheme").text == "Light"
        page.until(lambda: page.js(_TIMELINE_HAS, 0x3C, 0x68, 0x99))
        page.click("#scheme")
        page.until(lambda: page.js(ground) == light)
        page.until(lambda: page.js(_TIMELINE_HAS, 0x86, 0xB7, 0xEA))
    finally:
        page.browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})
        page.js("localStorage.clear()")


def test_the_time_zone_and_the_colours_chosen_in_another_tab_hold_in_this_one(page: Page) -> None:
    page.open()
    first = page.browser.current_window_handle
    try:
        page.browser.switch_to.new_window("tab")
        page.open()
        page.click("#zone")
        page.click("#scheme")
        page.browser.close()
        page.browser.switch_to.window(first)
        page.until(lambda: page.find("#range").text.endswith("UTC"))
        page.until(lambda: page.texts("#zone, #scheme") == ["UTC", "Light"])
        page.settle()
        assert any(part.endswith("UTC") for part in page.texts("#summary span"))
    finally:
        page.js("localStorage.clear()")


def test_a_slow_query_is_said_and_can_be_cancelled(page: Page) -> None:
    page.open(view="services")
    page.browser.execute_cdp_cmd("Network.enable", {})
    slow = {"offline": False, "latency": 60_000, "downloadThroughput": -1, "uploadThroughput": -1}
    page.browser.execute_cdp_cmd("Network.emulateNetworkConditions", slow)
    try:
        page.type("#selector", *[Keys.BACKSPACE] * 2, CHECKOUT, Keys.ENTER)
        page.until(lambda: page.find("#loading").is_displayed())
        faded = "return getComputedStyle(document.getElementById(arguments[0])).opacity < 0.6"
        page.until(lambda: page.js(faded, "summary") and page.js(faded, "services"))
        page.click("#cancel")
        page.until(lambda: not page.find("#loading").is_displayed())
        assert page.find("#services").is_displayed()
        assert page.js("return document.getElementById('main').getAttribute('aria-busy')") == "false"
        assert "the answer to an earlier query" in page.find("#problem").text  # that of all services
    finally:
        page.browser.execute_cdp_cmd("Network.emulateNetworkConditions", slow | {"latency": 0})
    page.click("#reload")
    page.settle()
    assert not page.find("#problem").is_displayed()
    assert page.texts("#service-rows th") == ["checkout"]


def test_help_has_the_keys(page: Page) -> None:
    page.open()
    page.js("document.activeElement.blur()")
    ActionChains(page.browser).send_keys("?").perform()
    page.until(lambda: "search functions" in page.find("dialog").text)
    ActionChains(page.browser).send_keys(Keys.ESCAPE).perform()
    page.until(lambda: not page.all("dialog"))


def test_a_comparison_lists_functions_that_are_new_or_gone(page: Page, site: Site) -> None:
    sides = {"selector": '{version="1.5.0"}', "baseline_selector": '{version="1.4.2"}'}
    ranges = {"baseline_start": site.start, "baseline_end": site.end}
    page.open(view="compare", **sides, **ranges)
    before = len(page.texts("tbody th"))
    functions = site.ask("diff", **sides, **ranges, frames="all")["functions"]
    both = zip(functions["cumulative"], functions["baseline_cumulative"], strict=True)
    gone = sum(1 for now, then in both if then and not now)
    button = page.find('[data-key="only gone"]')
    assert button.text == f"Gone ({gone})"
    button.click()
    page.until(lambda: len(page.all("#table tbody tr")) == gone != before)
