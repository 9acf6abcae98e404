"""Models, activity and settings, as a person uses them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.browser.conftest import OpenPage, breaches, playwright
from tests.conftest import RunningDaemon, running_daemon
from tests.echo_models import echo_gguf
from tests.integration.test_console import CONTENT, Gate
from tests.registry_server import FakeRegistry, fake_registry

pytestmark = pytest.mark.slow
expect = playwright.expect
PROGRAMS = {
    *(
        "OpenAI: Python",
        "OpenAI: JavaScript",
        "OpenAI: curl",
        "Anthropic: Python",
        "Ollama: Python",
    ),
    *("Claude Code", "Codex", "opencode", "Continue", "Zed", "Open WebUI", "LangChain"),
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, engine: str) -> Iterator[RunningDaemon]:
    home = tmp_path_factory.mktemp(f"managed-{engine}")
    env = {"HEARTH_OFFLINE": "0", "HEARTH_KEEP_ALIVE": "9m"}
    with running_daemon(home, ("echo", "tools"), env) as running:
        yield running


@pytest.fixture
def remote() -> Iterator[FakeRegistry]:
    with fake_registry() as registry:
        registry.add_model("t/m", CONTENT)
        yield registry


def model(page: Any, name: str) -> Any:
    """The card of a model."""
    return page.locator(f'[data-testid=model][data-model="{name}:latest"]')


def view(open_page: OpenPage, daemon: RunningDaemon, name: str) -> Any:
    page = open_page(f"{daemon.url}/#/{name}")
    page.get_by_test_id(f"view-{name}").wait_for()
    return page


def test_a_model_is_loaded_pinned_and_unloaded(open_page: OpenPage, daemon: RunningDaemon) -> None:
    page = view(open_page, daemon, "models")
    echo = model(page, "echo")
    expect(echo.get_by_test_id("model-plan")).to_have_text(
        re.compile(r"^needs [\d.]+ \wB of [\d.]+ \wB free")
    )
    listed = httpx.get(f"{daemon.url}/api/tags").json()["models"]
    ember = next(each for each in listed if each["name"] == "ember:latest")
    for fact in (ember["details"]["quantization_level"], ", ".join(ember["capabilities"])):
        expect(model(page, "ember").locator(".facts")).to_contain_text(fact)
    echo.get_by_test_id("model-load").click()
    expect(echo.get_by_test_id("model-state")).to_have_text("loaded")
    expect(echo.get_by_test_id("model-plan")).to_contain_text("takes up to")
    echo.get_by_test_id("model-pin").click()
    expect(echo.get_by_test_id("model-state")).to_have_text("pinned")
    echo.get_by_test_id("model-unload").click()
    expect(echo.get_by_test_id("model-state")).to_have_text("not loaded")


def test_a_pull_is_paused_and_goes_on_without_the_page(
    open_page: OpenPage, daemon: RunningDaemon, remote: FakeRegistry
) -> None:
    page, gate, name = (
        view(open_page, daemon, "models"),
        Gate(daemon, remote),
        f"{remote.address}/t/m",
    )
    page.get_by_test_id("pull-name").fill(name)
    page.get_by_test_id("pull-start").click()
    pull = page.locator(f'[data-testid=pull][data-model="{name}"]')
    expect(pull.get_by_role("progressbar")).to_be_visible()
    assert gate.reached.wait(60)
    pull.get_by_test_id("pull-pause").click()
    expect(pull).to_have_attribute("data-phase", "paused")
    gate.open()
    pull.get_by_test_id("pull-resume").click()
    page.close()
    page = view(open_page, daemon, "models")
    pull = page.locator(f'[data-testid=pull][data-model="{name}"]')
    expect(pull).to_have_attribute("data-phase", "done")
    expect(model(page, name)).to_be_visible()
    pull.get_by_test_id("pull-cancel").click()
    expect(pull).to_have_count(0)


def test_a_file_is_pulled_by_its_url(
    open_page: OpenPage, daemon: RunningDaemon, remote: FakeRegistry
) -> None:
    blob = f"{remote.url}/v2/cdn/blobs/{remote.add_blob(echo_gguf(salt='web'))}"
    remote.special["/files/web.gguf"] = lambda handler: handler.reply(302, b"", Location=blob)
    page = view(open_page, daemon, "models")
    page.get_by_test_id("pull-name").fill(f"{remote.url}/files/web.gguf")
    page.get_by_test_id("pull-start").click()
    expect(page.get_by_test_id("pull").last).to_have_attribute("data-phase", "done")
    expect(model(page, f"{remote.address}/files/web")).to_be_visible()
    page.get_by_test_id("pull-name").fill(f"{remote.url}/files/none.gguf")
    page.get_by_test_id("pull-start").click()
    failed = page.get_by_test_id("pull").filter(has_text="none.gguf")
    expect(failed).to_have_attribute("data-phase", "failed")
    expect(failed.get_by_role("alert")).to_contain_text("has no file /files/none.gguf")


def test_a_cancelled_pull_is_gone(
    open_page: OpenPage, daemon: RunningDaemon, remote: FakeRegistry
) -> None:
    remote.add_model("t/cancelled", CONTENT + b"more")
    gate, name = Gate(daemon, remote), f"{remote.address}/t/cancelled"
    page = view(open_page, daemon, "models")
    page.get_by_test_id("pull-name").fill(name)
    page.get_by_test_id("pull-start").click()
    assert gate.reached.wait(60)
    pull = page.locator(f'[data-testid=pull][data-model="{name}"]')
    pull.get_by_test_id("pull-cancel").click()
    expect(pull).to_have_count(0)
    gate.open()
    assert list((daemon.home / "models" / "tmp").glob("partial-*")) == []


def test_a_dropped_file_becomes_a_model(
    open_page: OpenPage, daemon: RunningDaemon, tmp_path: Path
) -> None:
    page = view(open_page, daemon, "models")
    file = tmp_path / "Given.gguf"
    file.write_bytes(echo_gguf(salt="given"))
    page.get_by_test_id("upload-file").set_input_files(file)
    dialog = page.get_by_test_id("create-dialog")
    expect(dialog.get_by_test_id("create-name")).to_have_value("given")
    dialog.get_by_test_id("create-submit").click()
    expect(model(page, "given")).to_be_visible()
    page.get_by_test_id("view-models").evaluate(
        """(view, content) => {
          const data = new DataTransfer();
          data.items.add(new File([new Uint8Array(content)], "fallen.gguf"));
          const how = {bubbles: true, cancelable: true, dataTransfer: data};
          for (const kind of ["dragover", "drop"]) view.dispatchEvent(new DragEvent(kind, how));
        }""",
        list(echo_gguf(salt="dropped")),
    )
    expect(dialog.get_by_test_id("create-name")).to_have_value("fallen")


def test_what_is_wrong_with_a_modelfile_is_shown_in_its_place(
    open_page: OpenPage, daemon: RunningDaemon
) -> None:
    page = view(open_page, daemon, "models")
    page.get_by_test_id("create-open").click()
    page.get_by_test_id("create-name").fill("mine")
    text = page.get_by_test_id("create-modelfile")
    text.fill("FROM echo\n\nPARAMETER temprature 1\n")
    finding = page.get_by_test_id("finding-error")
    expect(finding).to_have_attribute("data-line", "3")
    expect(finding).to_contain_text("temperature")
    expect(page.get_by_test_id("create-submit")).to_be_disabled()
    assert breaches(page) == []
    finding.get_by_role("button").click()
    selected = text.evaluate("area => area.value.slice(area.selectionStart, area.selectionEnd)")
    assert selected == "PARAMETER temprature 1"
    text.fill('FROM echo\nSYSTEM """<img src=x onerror=hit(1)>"""\n')
    expect(finding).to_have_count(0)
    page.get_by_test_id("create-submit").click()
    model(page, "mine").get_by_test_id("model-details").click()
    system = page.get_by_test_id("details-system")
    system.locator("summary").click()
    expect(system).to_contain_text("<img src=x onerror=hit(1)>")
    assert breaches(page) == []
    page.keyboard.press("Escape")
    model(page, "mine").get_by_test_id("model-delete").click()
    expect(page.get_by_test_id("delete-dialog")).to_contain_text("This frees")
    page.get_by_test_id("confirm-yes").click()
    expect(model(page, "mine")).to_have_count(0)


def test_the_store_is_checked_and_cleaned(open_page: OpenPage, daemon: RunningDaemon) -> None:
    page = view(open_page, daemon, "models")
    page.get_by_test_id("upkeep-open").click()
    page.get_by_test_id("fsck-start").click()
    expect(page.get_by_test_id("fsck-result")).to_contain_text("no problems found")
    page.get_by_test_id("gc-look").click()
    expect(page.get_by_test_id("gc-result")).not_to_be_empty()


def test_a_request_in_flight_is_seen_and_cancelled(
    open_page: OpenPage, daemon: RunningDaemon
) -> None:
    body = {
        "model": "ember",
        "messages": [{"role": "user", "content": "prompt-canary"}],
        "min_tokens": 90_000,
        "max_tokens": 100_000,
        "stream": True,
    }
    told: list[str] = []

    def ask() -> None:
        told.append(httpx.post(f"{daemon.url}/v1/chat/completions", json=body, timeout=120).text)

    asking = threading.Thread(target=ask)
    asking.start()
    page = view(open_page, daemon, "activity")
    request = page.get_by_test_id("request").filter(has_text="ember")
    expect(request).to_be_visible()
    expect(request).to_contain_text("127.0.0.1")  # whose it is
    for name in ("tokens", "requests", "batch", "cache", "memory"):
        expect(page.get_by_test_id(f"graph-{name}").locator("canvas")).to_be_visible()
    assert breaches(page) == []
    request.get_by_test_id("request-cancel").click()
    expect(request).to_have_count(0)
    asking.join(60)
    assert "request_cancelled" in told[0]
    expect(page.get_by_test_id("log")).to_contain_text("loaded ember")
    assert "prompt-canary" not in page.content()


def test_the_last_errors_are_shown_apart(open_page: OpenPage, daemon: RunningDaemon) -> None:
    with daemon.client() as client:
        asked = {"model": "echo", "messages": [{"role": "user", "content": "<|crash|>"}]}
        assert client.post("/v1/chat/completions", json=asked).status_code >= 500
    page = view(open_page, daemon, "activity")
    expect(page.get_by_test_id("log-errors")).to_contain_text("echo")
    page.get_by_test_id("log-level").select_option("error")
    expect(page.get_by_test_id("log").locator("li:not(.error)")).to_have_count(0)


def test_keys_are_made_used_and_deleted(open_page: OpenPage, daemon: RunningDaemon) -> None:
    page = view(open_page, daemon, "settings")
    page.get_by_test_id("key-name").fill("first")
    page.get_by_test_id("key-make").click()
    text = page.get_by_test_id("key-text").inner_text()
    assert text.startswith("hearth_")
    headers = {"authorization": f"Bearer {text}"}
    try:
        assert httpx.get(f"{daemon.url}/api/keys").status_code == 401
        page.get_by_test_id("key-made-use").click()
        expect(page.get_by_test_id("key")).to_contain_text("do everything")
        page.reload()
        expect(page.get_by_test_id("key-dialog")).to_be_visible()
        page.get_by_test_id("key-field").fill(text)
        page.get_by_test_id("key-use").click()
        page.get_by_test_id("key-delete").click()
        page.get_by_test_id("confirm-yes").click()
        expect(page.get_by_test_id("key")).to_have_count(0)
    finally:
        httpx.delete(f"{daemon.url}/api/keys/first", headers=headers)


def test_settings_and_texts_for_other_programs(open_page: OpenPage, daemon: RunningDaemon) -> None:
    page = view(open_page, daemon, "settings")
    kept = page.locator('[data-testid=setting][data-name="keep_alive"]')
    expect(kept).to_contain_text("HEARTH_KEEP_ALIVE")
    expect(page.locator('[data-testid=setting][data-name="num_parallel"]')).to_have_count(0)
    page.get_by_test_id("settings-all").check()
    expect(page.locator('[data-testid=setting][data-name="num_parallel"]')).to_contain_text("16")
    programs = page.get_by_test_id("connect-program")
    options = programs.locator("option")
    assert set(PROGRAMS) <= set(options.all_text_contents())
    values = options.evaluate_all("found => found.map(each => each.value)")
    for value in values:
        programs.select_option(value)
        expect(page.get_by_test_id("connect-snippet")).to_contain_text(daemon.url)
