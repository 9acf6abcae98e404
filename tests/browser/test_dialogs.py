"""Every dialog in both themes, wide and narrow; and the chat with a keyboard alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.browser.conftest import OpenPage, breaches, overflow, playwright
from tests.conftest import RunningDaemon, running_daemon

pytestmark = pytest.mark.slow
expect = playwright.expect


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, engine: str) -> Iterator[RunningDaemon]:
    with running_daemon(tmp_path_factory.mktemp(f"dialogs-{engine}")) as running:
        yield running


def _chat_settings(page: Any) -> None:
    page.get_by_test_id("chat-settings").click()
    page.get_by_test_id("mcp-servers").wait_for()


def _shortcuts(page: Any) -> None:
    page.get_by_test_id("shortcuts").click()


def _conversation(page: Any, entry: str) -> None:
    page.get_by_test_id("message").fill("hello")
    expect(page.get_by_test_id("send")).to_be_enabled()  # once the models are known
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("answer")).to_have_attribute("data-state", "done")
    if page.get_by_test_id("menu").is_visible():
        page.get_by_test_id("menu").click()
    page.get_by_test_id("conversation-menu").first.click()
    assert breaches(page) == []  # of the menu
    page.get_by_test_id(entry).click()


def _create(page: Any) -> None:
    page.get_by_test_id("create-open").click()
    page.get_by_test_id("create-modelfile").fill("FROM echo\nPARAMETER temprature 1\n")
    page.get_by_test_id("finding-error").wait_for()


def _upkeep(page: Any) -> None:
    page.get_by_test_id("upkeep-open").click()
    page.get_by_test_id("fsck-start").click()
    page.get_by_test_id("fsck-result").wait_for()


def _details(page: Any) -> None:
    page.get_by_test_id("model-details").first.click()
    page.get_by_test_id("details-modelfile").locator("summary").click()


def _delete(page: Any) -> None:
    page.get_by_test_id("model-delete").first.click()
    expect(page.get_by_test_id("delete-dialog")).to_contain_text("This frees")


DIALOGS: dict[str, tuple[str, Callable[[Any], None]]] = {
    "settings of a chat": ("chat", _chat_settings),
    "shortcuts": ("chat", _shortcuts),
    "rename": ("chat", lambda page: _conversation(page, "rename")),
    "delete a conversation": ("chat", lambda page: _conversation(page, "delete")),
    "create": ("models", _create),
    "upkeep": ("models", _upkeep),
    "details": ("models", _details),
    "delete a model": ("models", _delete),
}


@pytest.mark.parametrize("name", list(DIALOGS))
@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 360)])
def test_a_dialog_breaks_no_rule_and_escape_closes_it(
    name: str, theme: str, width: int, open_page: OpenPage, daemon: RunningDaemon
) -> None:
    view, opened = DIALOGS[name]
    page = open_page(f"{daemon.url}/#/{view}", width=width, theme=theme)
    page.get_by_test_id(f"view-{view}").wait_for()
    opened(page)
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    assert breaches(page) == []
    assert overflow(page) == []
    box = dialog.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    inside = "document.activeElement.closest('dialog') !== null"
    for _ in range(3):
        page.keyboard.press("Tab")
        assert page.evaluate(f"document.activeElement === document.body || {inside}")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


@pytest.mark.parametrize(("theme", "width"), [("light", 360), ("dark", 1280)])
def test_the_dialogs_of_keys_break_no_rule(
    theme: str, width: int, open_page: OpenPage, tmp_path: Any
) -> None:
    with running_daemon(tmp_path) as daemon:
        page = open_page(f"{daemon.url}/#/settings", width=width, theme=theme)
        page.get_by_test_id("key-name").fill("mine")
        page.get_by_test_id("key-make").click()
        text = page.get_by_test_id("key-text").inner_text()
        assert breaches(page) == []
        page.get_by_test_id("key-made-use").click()
        page.get_by_test_id("key-delete").click()
        assert breaches(page) == []
        page.keyboard.press("Escape")

        page.reload()
        field, use = page.get_by_test_id("key-field"), page.get_by_test_id("key-use")
        expect(page.get_by_test_id("key-dialog")).to_be_visible()
        assert breaches(page) == []
        field.fill("hearth_wrong")
        use.click()
        expect(page.get_by_test_id("key-dialog")).to_contain_text("does not accept this key")
        assert page.evaluate("JSON.stringify({...localStorage})").count("hearth_") == 0
        field.fill(text)
        page.get_by_test_id("key-remember").check()
        use.click()
        expect(page.get_by_test_id("key")).to_contain_text("mine")
        page.reload()
        expect(page.get_by_test_id("key")).to_contain_text("mine")
        expect(page.get_by_test_id("key-dialog")).to_have_count(0)


def tab_to(page: Any, testid: str, key: str = "Tab") -> None:
    """Press Tab until an element is reached. After the last one comes the browser itself, and from
    there the headless Firefox does not come back."""
    for _ in range(80):
        page.keyboard.press(key)
        if page.evaluate("document.activeElement.dataset.testid ?? ''") == testid:
            return
    raise AssertionError(f"the keyboard does not reach {testid}")


def test_a_conversation_needs_no_mouse(open_page: OpenPage, daemon: RunningDaemon) -> None:
    page = open_page(f"{daemon.url}/")
    keys, answer = page.keyboard, page.get_by_test_id("answer")
    page.get_by_test_id("model").select_option("echo:latest")
    keys.press("/")
    keys.type("first words")
    keys.press("Enter")
    expect(answer).to_have_attribute("data-state", "done")
    tab_to(page, "regenerate", "Shift+Tab")
    keys.press("Space")
    expect(page.get_by_test_id("versions")).to_contain_text("2 / 2")
    expect(answer).to_have_attribute("data-state", "done")
    tab_to(page, "conversation-menu", "Shift+Tab")
    keys.press("Enter")
    expect(page.get_by_test_id("rename")).to_be_focused()
    keys.press("ArrowDown")
    expect(page.get_by_test_id("export-json")).to_be_focused()
    keys.press("ArrowUp")
    keys.press("Enter")
    expect(page.get_by_test_id("rename-field")).to_be_visible()
    tab_to(page, "rename-field")
    keys.press("Control+a")
    keys.type("By hand")
    keys.press("Enter")
    expect(page.get_by_test_id("conversation")).to_have_text("By hand")
    keys.press("Control+Shift+o")
    expect(answer).to_have_count(0)
    keys.press("Control+k")
    keys.type("by hand")
    tab_to(page, "conversation")
    keys.press("Enter")
    expect(page.get_by_test_id("user-turn")).to_contain_text("first words")
    expect(page.get_by_test_id("versions")).to_contain_text("2 / 2")
    keys.press("/")
    expect(page.get_by_test_id("message")).to_be_focused()
    tab_to(page, "chat-settings", "Shift+Tab")
    keys.press("Enter")
    expect(page.get_by_test_id("settings-dialog")).to_be_visible()
    keys.press("Escape")
    expect(page.get_by_test_id("chat-settings")).to_be_focused()
