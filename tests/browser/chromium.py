"""A headless Chromium, driven over WebDriver; the Debian packages `chromium` and `chromium-driver`."""

from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.waiting import PATIENCE_S

CHROMIUM = Path("/usr/bin/chromium")
DRIVER = Path("/usr/bin/chromedriver")

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
)


def missing() -> str | None:
    """Returns why there is no browser, or None if there is one."""
    absent = [str(path) for path in (CHROMIUM, DRIVER) if not path.exists()]
    return f"not installed: {', '.join(absent)} (apt install chromium chromium-driver)" if absent else None


def launch(profile: Path, width: int = 1440, height: int = 900) -> webdriver.Chrome:
    """Starts a browser with an empty profile folder. get_log("browser") returns its console."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*_FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
        options.add_argument(flag)
    # Milliseconds; without it, ChromeDriver gives up after 20 s, which a busy machine may need.
    options.add_experimental_option("browserStartupTimeout", int(PATIENCE_S * 1000))
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(str(DRIVER)))


def set_scheme(browser: webdriver.Chrome, scheme: str) -> None:
    """Emulates the system's colour scheme: `light` or `dark`."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
