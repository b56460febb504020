"""What a test does on the page, in the words of a user."""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

from tests.waiting import PATIENCE_S, wait_until

_SETTLE = """
const busy = () => document.getElementById("main")?.getAttribute("aria-busy") !== "false";
const look = () => {
  if (busy() || window.icestream?.unanswered() !== 0) setTimeout(look, 10);
  else requestAnimationFrame(() => requestAnimationFrame(() => done()));
};
look();
"""
_NODE_OF = """
const { count, frame, functions, width } = icestream.graph.tree;
let best = -1;
for (let node = 0; node < count; node++) {
  if (functions.name[frame[node]] === arguments[0] && (best < 0 || width[node] > width[best])) best = node;
}
return best;
"""
_PIXEL = """
const canvas = document.querySelector("#icicle canvas");
const { left, top, width } = canvas.getBoundingClientRect();
const ratio = canvas.width / width;
const copy = new OffscreenCanvas(1, 1).getContext("2d");
copy.drawImage(canvas, (arguments[0] - left) * ratio, (arguments[1] - top) * ratio, 1, 1, 0, 0, 1, 1);
return [...copy.getImageData(0, 0, 1, 1).data];
"""


class Page:
    def __init__(self, browser: Any, site: Any) -> None:
        self.browser = browser
        self.browser.set_script_timeout(PATIENCE_S)
        self.site = site

    def open(self, **state: object) -> None:
        """Opens the page with these values in its address; the default time range has all samples."""
        values = {
            "view": "profile",
            "chains": "all",
            "frames": "all",
            "start": self.site.start,
            "end": self.site.end,
        } | state
        self.browser.get(self.site.address + "?" + urlencode(values))
        self.settle()

    def settle(self) -> None:
        """Waits until the page shows all answers, also those of the timeline and of what is missing.

        It waits on the page: asking it again and again takes CPU of five processes.
        """
        try:
            self.js_async(_SETTLE)
        except TimeoutException as error:
            raise AssertionError(f"waited for answers: {self.texts('#problem, #summary')}") from error

    def until(self, condition: Callable[[], object]) -> None:
        wait_until(condition, lambda: self.texts("#problem, #summary"))

    def js(self, script: str, *arguments: object) -> Any:
        return self.browser.execute_script(script, *arguments)

    def js_async(self, script: str, *arguments: object) -> Any:
        """Runs until the script calls `done(result)`; `given` is the list of arguments."""
        wrapped = f"const done = arguments[arguments.length - 1], given = [...arguments].slice(0, -1); {script}"
        return self.browser.execute_async_script(wrapped, *arguments)

    def find(self, selector: str) -> Any:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[Any]:
        """The elements there are now."""
        found: list[Any] = self.browser.find_elements(By.CSS_SELECTOR, selector)
        return found

    def texts(self, selector: str) -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText.trim())"
        texts: list[str] = self.js(script, selector)
        return texts

    def click(self, selector: str) -> None:
        self.find(selector).click()

    def type(self, selector: str, *keys: str) -> None:
        self.find(selector).send_keys(*keys)

    def state(self) -> dict[str, str]:
        """The values in the address."""
        return {name: values[0] for name, values in parse_qs(urlsplit(self.browser.current_url).query).items()}

    def node(self, name: str) -> int:
        """Returns the widest node of a function, or -1."""
        return int(self.js(_NODE_OF, name))

    def box(self, node: int) -> dict[str, float]:
        box: dict[str, float] = self.js("return icestream.graph.screenBox(arguments[0])", node)
        return box

    def point_at(self, name: str, click: bool = False) -> None:
        """Moves the pointer onto the widest frame of a function."""
        box = self.box(self.node(name))
        where = (int(box["left"] + min(box["width"] / 2, 40)), int(box["top"] + box["height"] / 2))
        actions = ActionChains(self.browser)
        actions.w3c_actions.pointer_action.move_to_location(*where)
        if click:
            actions.w3c_actions.pointer_action.click()
        actions.perform()

    def colour_at(self, x: float, y: float) -> tuple[int, int, int]:
        """Returns red, green and blue of the graph at a point of the window."""
        red, green, blue, _ = self.js(_PIXEL, x, y)
        return red, green, blue

    def errors(self) -> list[str]:
        """Returns errors and warnings in the console since the last call."""
        return [
            entry["message"] for entry in self.browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")
        ]
