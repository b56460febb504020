"""Takes the README's picture of the page.

    python -m tests.browser.picture ADDRESS docs/img/page.png

ADDRESS is that of a running page with what it shall show, for example of `python -m tests.browser.serve FOLDER`.
"""

import sys
import tempfile
import time
from pathlib import Path

from selenium.webdriver.common.action_chains import ActionChains

from tests.browser import chromium

_WIDTH, _HEIGHT = 1360, 800
_CHROME_PIXELS = 143
"""What the window has above the page, headless or not."""
_SETTLE_S = 2


def main(address: str, file: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        browser = chromium.launch(Path(folder), _WIDTH, _HEIGHT + _CHROME_PIXELS)
        try:
            chromium.set_scheme(browser, "light")
            browser.get(address)
            time.sleep(_SETTLE_S)
            pointer = ActionChains(browser)
            pointer.w3c_actions.pointer_action.move_to_location(200, 345)
            pointer.perform()
            time.sleep(_SETTLE_S / 4)
            browser.save_screenshot(file)
        finally:
            browser.quit()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
