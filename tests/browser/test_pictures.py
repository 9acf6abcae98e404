"""Pictures in the chat: dropped, pasted and chosen, and seen by a model with a projector."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from modelfile.build import build
from modelfile.description import Description
from registry.names import Name
from registry.store import Store
from tests.browser.conftest import OpenPage, breaches, playwright
from tests.browser.test_chat import Chat, Open
from tests.conftest import RunningDaemon, running_daemon
from tests.integration.test_images import upload
from tests.vision_files import png, write_vision_model

pytestmark = pytest.mark.slow
expect = playwright.expect

PICTURES = [png(40, 30), png(64, 48, seed=1)]
CODED = [base64.b64encode(each).decode() for each in PICTURES]

# Files as a drop or a paste brings them: browsers let no script make a real one.
_BRING = """(where, [kind, coded, type]) => {
  const bytes = Uint8Array.from(atob(coded), (letter) => letter.charCodeAt(0));
  const files = new DataTransfer();
  files.items.add(new File([bytes], "fire.png", {type}));
  const how = {bubbles: true, cancelable: true};
  const make = (name) => {
    if (kind === "drop") return new DragEvent(name, {...how, dataTransfer: files});
    const event = new ClipboardEvent(name, how);  // Firefox leaves out files that are given here
    Object.defineProperty(event, "clipboardData", {value: files});
    return event;
  };
  if (kind === "drop") where.dispatchEvent(make("dragover"));
  return !where.dispatchEvent(make(kind));
}"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, engine: str) -> Iterator[RunningDaemon]:
    """A daemon with a model that sees, of random weights, and echo, which does not."""
    home = tmp_path_factory.mktemp(f"pictures-{engine}")
    files = write_vision_model(tmp_path_factory.mktemp("files"), "idefics3")
    store = Store.open(home / "models")
    model, projector = (upload(store, path) for path in (files.model, files.projector))
    description = Description(Name.parse("seer"), files={"m": model}, projector=projector)
    list(build(store, description))
    store.close()
    with running_daemon(home) as running:
        yield running


@pytest.fixture
def chat(open_page: OpenPage, daemon: RunningDaemon) -> Open:
    """Opens a chat with a model."""
    return lambda model="seer", **options: Chat(open_page(f"{daemon.url}/", **options), model)


def dropped(chat: Chat, number: int = 0, kind: str = "image/png") -> None:
    assert chat.at("view-chat").evaluate(_BRING, ["drop", CODED[number], kind])


def pasted(chat: Chat, number: int = 0, kind: str = "image/png") -> None:
    assert chat.at("message").evaluate(_BRING, ["paste", CODED[number], kind])


def chosen(chat: Chat, number: int = 0, kind: str = "image/png") -> None:
    file = {"name": "fire.png", "mimeType": kind, "buffer": PICTURES[number]}
    with chat.page.expect_file_chooser() as chooser:
        chat.at("attach").click()
    chooser.value.set_files(file)


WAYS: dict[str, Callable[..., None]] = {"dropped": dropped, "pasted": pasted, "chosen": chosen}


def sent(chat: Chat) -> list[dict[str, Any]]:
    """The parts of the last message that the daemon was sent."""
    parts: list[dict[str, Any]] = chat.bodies[-1]["messages"][-1]["content"]
    return parts


@pytest.mark.parametrize("way", list(WAYS))
def test_a_picture_is_seen_by_the_model_and_kept(way: str, chat: Open) -> None:
    one = chat()
    WAYS[way](one)
    attached = one.at("attached").locator("img")
    expect(attached).to_have_count(1)
    assert attached.evaluate("image => image.decode().then(() => image.naturalWidth)") == 40
    assert breaches(one.page) == []
    one.at("chat-settings").click()
    one.at("parameter-max_tokens").fill("4")
    one.at("settings-apply").click()
    answer = one.answer("What is this?")
    url = f"data:image/png;base64,{CODED[0]}"
    assert sent(one) == [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "What is this?"},
    ]
    expect(one.at("attached")).to_have_count(0)
    prompt = answer.get_by_test_id("stats").inner_text()
    assert "4 tokens" in prompt
    shown = one.at("user-turn").locator("img")
    expect(shown).to_have_attribute("src", url)
    assert breaches(one.page) == []
    one.page.reload()
    expect(shown).to_have_attribute("src", url)


def test_several_pictures_go_without_words_and_one_is_taken_away(chat: Open) -> None:
    one = chat()
    one.settings(parameter__max_tokens="4")
    for way in WAYS.values():
        way(one, 0)
    dropped(one, 1)
    expect(one.at("attached").locator("img")).to_have_count(4)
    one.at("attached").get_by_role("button").first.click()
    expect(one.at("attached").locator("img")).to_have_count(3)
    one.at("send").click()
    expect(one.at("answer")).to_have_attribute("data-state", "done")
    urls = [f"data:image/png;base64,{CODED[number]}" for number in (0, 0, 1)]
    assert [part["image_url"]["url"] for part in sent(one)] == urls
    expect(one.at("conversation")).to_have_text("Picture 1")


@pytest.mark.parametrize("way", list(WAYS))
def test_what_is_no_picture_is_refused(way: str, chat: Open) -> None:
    one = chat()
    WAYS[way](one, 0, "image/svg+xml")
    expect(one.at("toast")).to_contain_text("fire.png is not a picture that models read")
    expect(one.at("attached")).to_have_count(0)


def test_a_model_that_cannot_see_is_not_asked(chat: Open) -> None:
    one = chat("echo")
    dropped(one)
    one.at("message").fill("What is this?")
    one.at("send").click()
    expect(one.at("toast")).to_have_text("echo:latest cannot see pictures.")
    expect(one.at("message")).to_have_value("What is this?")
    expect(one.at("attached").locator("img")).to_have_count(1)
    assert one.asked == 0
    one.at("model").select_option("seer:latest")
    one.settings(parameter__max_tokens="4")
    one.at("send").click()
    expect(one.at("answer")).to_have_attribute("data-state", "done")


def test_pictures_go_to_a_file_and_back(chat: Open, tmp_path: Path) -> None:
    one = chat()
    one.settings(parameter__max_tokens="4")
    pasted(one)
    one.answer("What is this?")
    one.at("conversation-menu").click()
    one.at("export-json").click()
    while not (saved := one.page.evaluate("window.saved")):
        pass  # until the page has written it
    (tmp_path / "saved.json").write_text(saved[1])
    other = chat()
    other.at("import-file").set_input_files(tmp_path / "saved.json")
    other.at("conversation").click()
    picture = other.at("user-turn").locator("img")
    expect(picture).to_have_attribute("src", f"data:image/png;base64,{CODED[0]}")
