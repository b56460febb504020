"""The selector field: completed with the keyboard, and what it writes can be read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selenium.webdriver.common.keys import Keys

from api.queries.selection.selector import Matcher, parse
from tests.browser.page import Page

pytestmark = pytest.mark.browser

_COMPLETE = """
import("./controls/selector_completion.js").then(({ completionAt, complete }) => {
  const [cases] = given;
  done(cases.map(([text, cursor, choice]) => {
    const spot = completionAt(text, cursor);
    return spot && { ...spot, text: complete(text, spot, choice).text };
  }));
}).catch((error) => done(String(error)));
"""


@pytest.fixture(scope="module")
def module_page(browser: object, site: object) -> Page:
    """One page for all examples of a property."""
    page = Page(browser, site)
    page.open(view="requests")
    return page


def test_names_and_values_are_completed_with_the_keyboard(page: Page) -> None:
    page.open()
    field = page.find("#selector")
    field.send_keys(Keys.CONTROL + "a")
    field.send_keys("{ser")
    page.until(lambda: page.texts(".completions li") == ["service", "service_version"])
    field.send_keys(Keys.TAB)
    page.until(lambda: page.texts(".completions li") == ["checkout", "odd", "postgres", "search", "sidecar"])
    assert field.get_attribute("value") == '{service=""}'
    assert field.get_attribute("aria-expanded") == "true"
    field.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    active = field.get_attribute("aria-activedescendant")
    assert page.find(f"#{active}").text == "postgres"
    field.send_keys(Keys.ENTER)
    page.until(lambda: page.state().get("selector") == '{service="postgres"}')
    page.settle()
    assert page.node("PostgresMain") > 0
    assert page.node("main.(*Server).Search") == -1


def test_typing_faster_than_the_answers_completes_what_was_typed(page: Page) -> None:
    page.open()
    field = page.find("#selector")
    field.send_keys(Keys.CONTROL + "a")
    field.send_keys("{")
    page.until(lambda: len(page.texts(".completions li")) > 3)
    field.send_keys("ver", Keys.TAB)
    page.until(lambda: field.get_attribute("value") == '{version=""}')


def test_values_depend_on_the_matchers_in_front(page: Page) -> None:
    page.open()
    field = page.find("#selector")
    field.send_keys(Keys.CONTROL + "a")
    field.send_keys('{service="odd", host="')
    page.until(lambda: page.texts(".completions li") == ["node-9"])


def test_escape_closes_the_list_and_enter_asks(page: Page) -> None:
    page.open()
    field = page.find("#selector")
    field.send_keys(Keys.CONTROL + "a")
    field.send_keys("service=~")
    field.send_keys('"s.*"')
    page.click("#search")
    page.until(lambda: page.state()["selector"] == '{service=~"s.*"}')
    field.send_keys(Keys.HOME, Keys.ARROW_RIGHT)
    page.until(lambda: page.find(".completions").is_displayed())
    field.send_keys(Keys.ESCAPE)
    page.until(lambda: not page.find(".completions").is_displayed())


def test_escape_also_takes_back_a_list_that_is_not_open_yet(page: Page) -> None:
    page.open()
    field = page.find("#selector")
    field.send_keys(Keys.CONTROL + "a")
    field.send_keys("{ser", Keys.ESCAPE)
    page.js_async("setTimeout(done, 500)")  # the field asks 60 ms after the last key
    assert not page.find(".completions").is_displayed()
    field.send_keys("v")
    page.until(lambda: page.find(".completions").is_displayed())


_WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(st.lists(st.tuples(_WORDS, st.sampled_from(["=", "!=", "=~", "!~"]), _WORDS), min_size=1, max_size=20))
def test_whatever_a_label_is_called_its_completion_can_be_read_and_means_it(
    module_page: Page, labels: list[tuple[str, str, str]]
) -> None:
    cases = [('{other="x", ', 12, name) for name, _, _ in labels]
    for name, operator, value in labels:
        typed = "{" + json.dumps(name, ensure_ascii=False) + operator
        cases.append((typed, len(typed.encode("utf-16-le")) // 2, value))  # a cursor counts as JavaScript does
    spots = module_page.js_async(_COMPLETE, cases)
    assert isinstance(spots, list), spots
    names, values = spots[: len(labels)], spots[len(labels) :]
    for (name, operator, value), completed_name, completed_value in zip(labels, names, values, strict=True):
        assert parse(completed_name["text"]) == (Matcher("other", "=", "x"), Matcher(name, "=", ""))
        assert completed_value["what"] == "value"
        [matcher] = parse(completed_value["text"])
        assert matcher.operator == operator
        if operator in ("=", "!="):
            assert matcher.value == value


@given(st.lists(st.tuples(st.text("{}\"'`\\,=!~ abz.é\n", max_size=30), st.integers(0, 30)), min_size=1, max_size=20))
def test_nothing_that_can_be_typed_breaks_the_completion(module_page: Page, typed: list[tuple[str, int]]) -> None:
    cases = [(text, min(cursor, len(text)), "x") for text, cursor in typed]
    spots = module_page.js_async(_COMPLETE, cases)
    assert isinstance(spots, list), spots
    for (text, cursor, _), spot in zip(cases, spots, strict=True):
        if spot is not None:
            assert 0 <= spot["from"] <= cursor <= spot["to"] <= len(text)
            parse(spot["others"])
