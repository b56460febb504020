"""Takes the README's picture of the page: the demo's web service, profiled on this machine (root, BPF and Chromium).

    python docs/take_picture.py docs/img/page.png

Starts `icestream up` in a temporary folder, lets the demo's web service answer requests, waits until its functions have
names, opens the page in a headless Chromium, and writes what it shows.
"""

import argparse
import sys
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from selenium import webdriver

from icestream.times import format_unix_nano
from standalone.demo.report import QueryRange
from standalone.demo.run import (
    is_profiling,
    profile_web_service,
    report_when_settled,
    say,
    start_icestream,
    why_not_profiling,
)
from tests.browser import chromium

_WIDTH, _HEIGHT = 1600, 900
_HANDLER = "_Handler.do_GET"
"""Where a request's Python functions begin; they go on into C and the kernel."""
_SELECTOR = '{service="shop"}'
_FREQUENCY = 199
_TIMEOUT_S = 60
_SETTLE_S = 1.0
_ZOOM = """
const { tree } = window.icestream.graph;
let node = 0;
for (let row = 0; row < tree.count; row++) {
  if (tree.functions.name[tree.frame[row]] !== arguments[0]) continue;
  if (node === 0 || tree.width[row] > tree.width[node]) node = row;
}
if (node) window.icestream.state.update({ at: tree.pathId[node].toString(16).padStart(8, "0") });
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="PNG to write")
    parser.add_argument("--seconds", type=float, default=40, help="seconds to send requests for (default: 40)")
    parser.add_argument("--zoom", default=_HANDLER, help=f"function to zoom to (default: {_HANDLER})")
    parser.add_argument("--wait", type=float, default=120, help="seconds to wait for symbols (default: 120)")
    args = parser.parse_args()
    stop = threading.Event()
    with (
        tempfile.TemporaryDirectory(prefix="icestream-picture-", ignore_cleanup_errors=True) as folder,
        start_icestream(Path(folder), _FREQUENCY, stop) as info,
    ):
        if not is_profiling(info):
            sys.exit(f"this machine cannot be profiled: {why_not_profiling(Path(folder))}")
        say(f"the web service works for {args.seconds:g} s")
        profiled = profile_web_service(info, args.seconds, stop)
        report_when_settled(profiled, "ebpf", stop)
        say(f"waiting {args.wait:g} s for the symbols of its libraries")
        time.sleep(args.wait)
        photograph(address(profiled), args.file, _WIDTH, _HEIGHT, _ZOOM, args.zoom)


def address(profiled: QueryRange) -> str:
    """The page's address with the service and the time in which it worked."""
    query = {
        "selector": _SELECTOR,
        "frames": "all",  # also those of libraries and the kernel
        "start": format_unix_nano(profiled.start_unix_nano),
        "end": format_unix_nano(profiled.end_unix_nano),
    }
    return f"{profiled.page}?{urllib.parse.urlencode(query)}"


def photograph(url: str, file: Path, width: int, height: int, script: str, *arguments: object) -> None:
    """Writes the page as a PNG of so many pixels, in light colours, after a script of JavaScript."""
    with tempfile.TemporaryDirectory() as profile:
        browser = chromium.launch(Path(profile), width, height)
        try:
            chromium.set_scheme(browser, "light")
            metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            browser.get(url)
            _wait_for_graph(browser)
            browser.execute_script(script, *arguments)
            time.sleep(_SETTLE_S)
            browser.save_screenshot(str(file))
            say(f"wrote {file}, {file.stat().st_size / 1000:.0f} kB")
        finally:
            browser.quit()


def _wait_for_graph(browser: webdriver.Chrome) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    ready = "return !document.getElementById('graph').hidden && window.icestream.unanswered() === 0"
    while not browser.execute_script(ready):
        if time.monotonic() > deadline:
            sys.exit("the page shows no graph")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
