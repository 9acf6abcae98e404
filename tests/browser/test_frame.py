"""The page's frame and all of its views: who may see them, with a keyboard, narrow and dark."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import OpenPage, breaches, overflow, playwright
from tests.conftest import RunningDaemon

pytestmark = pytest.mark.slow
VIEWS = ("chat", "models", "activity", "settings")
expect = playwright.expect


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_a_view_breaks_no_rule_of_accessibility_and_is_not_too_wide(
    view: str, theme: str, width: int, open_page: OpenPage, shared_daemon: RunningDaemon
) -> None:
    page = open_page(f"{shared_daemon.url}/#/{view}", width=width, theme=theme)
    page.get_by_test_id(f"view-{view}").wait_for()
    assert breaches(page) == []
    assert overflow(page) == []


def test_the_open_menu_breaks_no_rule_and_escape_closes_it(
    open_page: OpenPage, shared_daemon: RunningDaemon
) -> None:
    page = open_page(f"{shared_daemon.url}/", width=360)
    menu = page.get_by_test_id("menu")
    menu.click()
    expect(page.get_by_test_id("nav-models")).to_be_visible()
    assert breaches(page) == []
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("nav-models")).to_be_hidden()
    expect(menu).to_be_visible()


def test_the_keyboard_reaches_every_view(page: Any) -> None:
    page.get_by_test_id("nav-chat").wait_for()
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.dataset.testid ?? ''"))
        if {f"nav-{view}" for view in VIEWS} <= reached:
            break
    assert {f"nav-{view}" for view in VIEWS} <= reached
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("view-settings")).to_be_visible()


def test_the_theme_is_kept(page: Any) -> None:
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_test_id("theme").get_by_text("Dark").click()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()
    page.get_by_test_id("theme").wait_for(state="attached")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark != before
