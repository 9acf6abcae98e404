"""Real browsers for the tests of the page: Debian's Chromium and Firefox, driven by Playwright.

Both are told apart by a parameter of the session: `-k chromium`, `-k firefox`. Whatever a test
does, its pages ask no other host, break no policy and throw no error: that is checked at its end.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunningDaemon

playwright = pytest.importorskip(
    "playwright.sync_api", reason="needs Playwright: run these by `make browser`"
)

NAMES = {"chromium": ("chromium", "google-chrome"), "firefox": ("firefox-esr", "firefox")}
LOCAL_NAMES = ("visited.example", "visited.local")  # the browsers find these on this machine
TIMEOUT_MS = 120_000  # of what has to come, on a machine that does other things as well
AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"

# What the page cannot hide: a broken policy, and a script of somebody else's that has run.
_WATCH = """
addEventListener("securitypolicyviolation", (event) => console.error(
  "POLICY", event.effectiveDirective, event.blockedURI, event.sourceFile, event.sample));
for (const name of ["hit", "alert", "confirm", "prompt", "print"])
  Object.defineProperty(window, name, {value: (what) => console.error("SCRIPT", name, what)});
"""


@dataclass
class Watch:
    """What the pages of a test have asked and said. allowed: origins that they may ask; expected:
    a pattern of what may be told as an error."""

    allowed: set[str] = field(default_factory=set)
    expected: str = r"Failed to load resource|(?i:cross-origin|networkerror)"
    asked: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def saw(self, request: Any) -> None:
        """Note a request."""
        self.asked.append(request.url)

    def heard(self, message: Any) -> None:
        """Note a line of the console that is an error."""
        if message.type == "error":
            self.told.append(message.text)

    @property
    def foreign(self) -> list[str]:
        """The requests to others."""
        own = (*self.allowed, "data:", "blob:", "about:")
        return [url for url in self.asked if not url.startswith(own)]

    @property
    def faults(self) -> list[str]:
        """The errors that nobody expects."""
        return [text for text in self.told if not re.search(self.expected, text)]


OpenPage = Callable[..., Any]


def launch(driver: Any, engine: str) -> Any:
    """A browser, or a skipped test where there is none."""
    found = next(filter(None, map(shutil.which, NAMES[engine])), None)
    # The tests' own config folder is no folder, without which Firefox does not start.
    env = {name: value for name, value in os.environ.items() if name != "XDG_CONFIG_HOME"}
    if found is None:
        pytest.skip(f"needs {engine} (Debian: apt install {NAMES[engine][0]})")
    if engine == "chromium":
        rules = ", ".join(f"MAP {name} 127.0.0.1" for name in LOCAL_NAMES)
        flags = [f"--host-resolver-rules={rules}", "--disable-quic"]
        return driver.chromium.launch(
            executable_path=found, args=flags, chromium_sandbox=False, env=env
        )
    # The stock Firefox, over WebDriver BiDi: Playwright's own `firefox` is a patched build.
    preferences = {"network.dns.localDomains": ",".join(LOCAL_NAMES)}
    return driver.firefox.launch(
        executable_path=found, channel="moz-firefox", firefox_user_prefs=preferences, env=env
    )


@pytest.fixture(scope="session", params=list(NAMES))
def engine(request: pytest.FixtureRequest) -> str:
    """Which browser: its name."""
    return str(request.param)


@pytest.fixture(scope="session")
def browser(engine: str) -> Iterator[Any]:
    """That browser, for all tests."""
    playwright.expect.set_options(timeout=TIMEOUT_MS)
    with playwright.sync_playwright() as driver:
        started = launch(driver, engine)
        yield started
        started.close()


@pytest.fixture
def watch() -> Iterator[Watch]:
    """What the pages of this test ask and say, which is checked at its end."""
    watch = Watch()
    yield watch
    assert watch.foreign == [], "the page asked another host"
    assert watch.faults == [], "the page broke its policy or failed"


@pytest.fixture
def open_page(browser: Any, watch: Watch) -> Iterator[OpenPage]:
    """Opens pages, each in a profile of its own: open(url, width=1280, theme=None, **options)."""
    contexts: list[Any] = []

    def open_at(url: str, width: int = 1280, theme: str | None = None, **options: Any) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": options.pop("height", 800)}, **options
        )
        contexts.append(context)
        context.set_default_timeout(TIMEOUT_MS)
        context.add_init_script(_WATCH)
        if theme is not None:
            kept = f"localStorage.setItem('hearth.theme', {theme!r})"
            context.add_init_script(f"if (location.protocol === 'http:') {kept}")
        context.on("request", watch.saw)
        context.on("console", watch.heard)
        context.on("weberror", lambda error: watch.told.append(f"uncaught: {error.error}"))
        watch.allowed.add("/".join(url.split("/")[:3]))
        page = context.new_page()
        page.goto(url)
        return page

    yield open_at
    for context in contexts:
        context.close()


@pytest.fixture
def page(open_page: OpenPage, shared_daemon: RunningDaemon) -> Any:
    """The page of the shared daemon, wide."""
    return open_page(f"{shared_daemon.url}/")


def breaches(page: Any) -> list[str]:
    """What axe-core finds wrong with a page as it is: the rule, and where."""
    if not AXE.exists():
        pytest.skip("needs axe-core: run these by `make browser`")
    page.evaluate(AXE.read_text() + ";undefined")
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{rule['id']}: {node['target']} {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


def overflow(page: Any) -> list[str]:
    """What is wider than the window, or the page itself that can be scrolled sideways."""
    return page.evaluate(
        """() => {
          const {scrollWidth, clientWidth} = document.documentElement;
          const main = document.querySelector("main");
          const wide = scrollWidth > clientWidth ? ["document"] : [];
          if (main && main.scrollWidth > main.clientWidth) wide.push("main");
          return wide;
        }"""
    )
