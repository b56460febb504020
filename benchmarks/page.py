"""How long the page takes with a graph of 50,000 frames, in a headless Chromium without a GPU.

    python -m benchmarks.page

Loads the page from an API with generated data, has it show all frames, also those that are too narrow to see, and
prints one JSON object, in milliseconds: making typed arrays of the answer (`read_tree`), drawing one picture at the
root, zoomed in, and while it scrolls (`paint_*`, `scroll`), what a click that zooms takes before the first picture
(`zoom_click`), the median time between two pictures of the zoom and the longest until the table has followed
(`zoom_frame_*`), finding and outlining the frame under the pointer (`hover`), searching all names (`search`), and the
sums of the table (`functions`).
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.browser import chromium

_ROOT = Path(__file__).parents[1]
_MEASURE = """
const done = arguments[0];
const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
const timed = (times, act) => median(Array.from({ length: times }, () => {
  const started = performance.now();
  act();
  return performance.now() - started;
}));
(async () => {
  const { readTree } = await import("./graph/tree.js");
  const { matcher, matchFunctions, matchedTotal, sumFunctions } = await import("./graph/function_sums.js");
  const { graph } = icestream;
  const { icicle } = graph;
  const route = new URL(performance.getEntriesByType("resource").find(({ name }) => name.includes("/merge?")).name);
  route.searchParams.delete("width");
  const body = await (await fetch(route)).text();
  graph.show(readTree(JSON.parse(body)));
  const { tree } = graph;
  const result = { frames: tree.count, megabytes: body.length / 1e6 };
  result.parse = timed(5, () => JSON.parse(body));
  const answer = JSON.parse(body);
  result.read_tree = timed(9, () => readTree(answer));
  result.functions = timed(9, () => sumFunctions(tree));
  result.search = timed(9, () => matchedTotal(tree, matchFunctions(tree.functions, matcher("function_12", ""))));
  result.paint_root = timed(31, () => icicle.paintNow());
  result.rectangles_root = icicle.paintNow().rectangles;
  const { left, top } = document.querySelector("#icicle").getBoundingClientRect();
  const scroll = document.querySelector("#icicle .scroll");
  let step = 0;
  result.hover = timed(200, () => {
    const [clientX, clientY] = [left + (step * 37) % 800, top + 200 + (step++ * 19) % 250];
    scroll.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY }));
    document.querySelector("#icicle .hover").getBoundingClientRect();
  });
  result.scroll = timed(31, () => {
    scroll.scrollTop = (step++ * 57) % 400;
    icicle.paintNow();
  });
  scroll.scrollTop = 0;
  const node = tree.levelStart[12];
  const between = [];
  const clicked = performance.now();
  icestream.state.update({ at: tree.pathId[node].toString(16).padStart(8, "0") });
  result.zoom_click = performance.now() - clicked;
  let last = performance.now();
  while (last < clicked + 1000 || between.length < 12) {
    await new Promise(requestAnimationFrame);
    between.push(performance.now() - last);
    last = performance.now();
  }
  result.zoom_frame_median = median(between.slice(0, 12));
  result.zoom_frame_longest = Math.max(...between);
  result.paint_zoomed = timed(31, () => icicle.paintNow());
  done(result);
})().catch((error) => done({ error: String(error) }));
"""


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args(argv)
    if (reason := chromium.missing()) is not None:
        print(reason, file=sys.stderr)
        return 1
    print(json.dumps(measure()))
    return 0


def measure() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.browser.serve", f"{folder}/shop"]
        process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            return _measure_at(json.loads(process.stdout.readline()), Path(folder))
        finally:
            process.terminate()
            process.wait(20)


def _measure_at(site: dict[str, Any], folder: Path) -> dict[str, float]:
    browser = chromium.launch(folder / "chromium")
    try:
        browser.set_script_timeout(120)
        browser.get(f"{site['address']}?view=profile&chains=all&start={site['wide_end'] - 900}&end={site['wide_end']}")
        for _ in range(600):
            if browser.execute_script("return document.getElementById('main').getAttribute('aria-busy')") == "false":
                break
        seconds: dict[str, float] = browser.execute_async_script(_MEASURE)
    finally:
        browser.quit()
    if "error" in seconds:
        raise RuntimeError(seconds["error"])
    return {name: round(value, 3) for name, value in seconds.items()}


if __name__ == "__main__":
    sys.exit(main())
