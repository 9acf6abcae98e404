"""The pictures of docs/page.md: `make page-pictures`.

Eight views of a real daemon with ember, in light and dark: docs/images/page/NAME-SCHEME.webp. The
answer in chat and narrow is written by hand, in EXAMPLE, and imported; all others are ember's.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from PIL import Image
from playwright.sync_api import sync_playwright

from tests.browser.conftest import launch
from tests.conftest import RunningDaemon, running_daemon
from tests.mcp_servers import entry
from tests.registry_server import fake_registry

OUT = Path(__file__).parents[2] / "docs/images/page"
WIDTH, HEIGHT, NARROW = 1200, 750, 360
SCHEMES = ("light", "dark")
TITLE = "How long does a fire burn?"
EXAMPLE = r"""A log burns for about as long as its **energy** lasts at the power of the fire:

$$
t = \frac{m \cdot H}{P}
$$

```python
def hours(mass_kg: float, power_kw: float, energy_kwh_per_kg: float = 4.2) -> float:
    return mass_kg * energy_kwh_per_kg / power_kw
```

| wood, air-dried | kWh per kg | 5 kg at 6 kW |
| --- | ---: | ---: |
| beech | 4.0 | 3.3 h |
| spruce | 4.3 | 3.6 h |
"""
DRAFT = """FROM ember
SYSTEM You are a careful proofreader.
PARAMETER temprature 0.2
PARAMETER num_ctx 2048
PARAMETER stop "<|im_end|>"
"""
OTHERS = ("Plan a garden of 20 square metres", "Rhymes for ember", "Reading list for the winter")


@dataclass(frozen=True, slots=True)
class Scene:
    """Where pictures are taken. until_taken: ends once a picture is taken."""

    daemon: RunningDaemon
    page: Any
    until_taken: ExitStack

    def at(self, testid: str) -> Any:
        """The elements of a test id."""
        return self.page.get_by_test_id(testid)

    def show(self, place: str, height: int = HEIGHT, width: int = WIDTH) -> None:
        """Go to a view, in a window of a size."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.goto(f"{self.daemon.url}/#/{place}")
        self.at(f"view-{place.partition('/')[0]}").wait_for()

    def ask(self, text: str) -> None:
        """Send a message in a new conversation, and wait until it is answered."""
        self.at("message").fill(text)
        self.at("send").click()
        self.page.locator('[data-testid=answer][data-state="done"]').last.wait_for()


def chat(scene: Scene) -> None:
    """An answer with a formula, code and a table."""
    scene.show("chat")
    chat_of_example(scene)
    scene.page.locator(".code-keyword").first.wait_for()


def chat_of_example(scene: Scene) -> None:
    """The conversation of EXAMPLE, imported where it is not there yet."""
    found = scene.at("conversation").filter(has_text=TITLE)
    if not found.count():
        bring_example(scene)
    found.click()
    scene.page.locator("math").first.wait_for()


def bring_example(scene: Scene) -> None:
    """Import the conversation."""
    scene.at("import-file").set_input_files(
        {"name": "example.json", "mimeType": "application/json", "buffer": example().encode()}
    )
    scene.at("toast").get_by_role("button").click()


def compare(scene: Scene) -> None:
    """Two models side by side."""
    scene.show("chat", 480)
    scene.at("model").select_option("ember:latest")
    scene.at("compare").click()
    scene.at("second-model").select_option("proofreader:latest")
    scene.ask("Spell hearth backwards.")
    scene.page.locator('[data-testid=answer][data-state="done"]').nth(1).wait_for()


def tools(scene: Scene) -> None:
    """A tool that was called, and one that asks."""
    scene.show("chat", 900)
    scene.at("model").select_option("ember:latest")
    if scene.at("compare").get_attribute("aria-pressed") == "true":
        scene.at("compare").click()
    scene.at("chat-settings").click()
    scene.at("mcp-weather").check()
    scene.at("settings-apply").click()
    for city in ("Lisbon", "Oslo"):
        scene.at("message").fill(f"What is the weather in {city}?")
        scene.at("send").click()
        scene.at("tool-allow").wait_for()
        if city == "Lisbon":
            scene.at("tool-allow").click()
            scene.page.locator('[data-testid=answer][data-state="done"]').wait_for()
            scene.at("tool-call").locator("summary").click()


def models(scene: Scene) -> None:
    """Models, their memory, and a pull on its way."""
    unload = {"model": "proofreader", "keep_alive": 0}  # it was loaded to be compared
    httpx.post(f"{scene.daemon.url}/api/generate", json=unload).raise_for_status()
    scene.show("models")
    scene.at("model-plan").filter(has_text="needs").first.wait_for()


def create(scene: Scene) -> None:
    """A Modelfile with a mistake in it."""
    scene.show("models")
    scene.at("create-open").click()
    scene.at("create-name").fill("proofreader")
    scene.at("create-modelfile").fill(DRAFT)
    scene.at("finding-error").wait_for()


def activity(scene: Scene) -> None:
    """The graphs while four clients are answered."""
    scene.show("activity", 1000)
    scene.until_taken.enter_context(clients(scene.daemon, 4))
    scene.page.wait_for_timeout(60_000)
    scene.at("request").first.wait_for()


def settings(scene: Scene) -> None:
    """Keys, and how programs are pointed at the daemon."""
    scene.show("settings")
    scene.at("connect-program").select_option("claude-code")


def narrow(scene: Scene) -> None:
    """The chat on a telephone."""
    scene.show("chat", width=NARROW)
    scene.at("menu").click()
    chat_of_example(scene)


VIEWS: tuple[Callable[[Scene], None], ...] = (
    *(chat, compare, tools, models, create, activity, settings, narrow),
)


def example() -> str:
    """An export with the conversation of EXAMPLE and some that show their titles only."""
    answer = {"model": "example", "rounds": [{"text": EXAMPLE}], "state": "done"}
    turns = [
        {"id": "1", "parent": None, "at": 1, "role": "user", "text": TITLE},
        {"id": "2", "parent": "1", "at": 2, "role": "assistant", "answers": [answer]},
    ]
    told = {"model": "ember:latest"}
    heads = [
        {"title": title, "settings": told, "updated": 100 - number}
        for number, title in enumerate((TITLE, *OTHERS))
    ]
    conversations = [
        {"conversation": head, "turns": turns if not at else []} for at, head in enumerate(heads)
    ]
    kind = {"kind": "hearth.conversations", "version": 1}
    return json.dumps({**kind, "conversations": conversations})


@contextmanager
def clients(daemon: RunningDaemon, count: int) -> Iterator[None]:
    """So many clients that ask ember for long answers, again and again, until the end."""
    ended = threading.Event()

    def ask(number: int) -> None:
        with daemon.client() as client:
            while not ended.is_set():
                body = {
                    "model": "ember",
                    "messages": [{"role": "user", "content": f"Tell story {number}."}],
                    "min_tokens": 900,
                    "max_tokens": 1000,
                    "stream": True,
                }
                with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                    for _ in answer.iter_lines():
                        if ended.is_set():
                            break

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


@contextmanager
def half_pulled(daemon: RunningDaemon) -> Iterator[None]:
    """A pull that has come half of its way and stays there."""
    held = threading.Event()
    with fake_registry() as registry:
        registry.add_model("library/story-writer", bytes(48_000_000))
        registry.before_part = lambda served: held.wait(600) if served > 20_000_000 else None
        asked = {"model": f"{registry.address}/library/story-writer", "insecure": True}
        httpx.post(f"{daemon.url}/api/pulls", json=asked).raise_for_status()
        try:
            yield
        finally:
            held.set()
            for pull in httpx.get(f"{daemon.url}/api/pulls").json()["pulls"]:
                httpx.delete(f"{daemon.url}/api/pulls/{pull['number']}")


def take(scene: Scene, name: str) -> None:
    """Take both pictures of what is shown."""
    for scheme in SCHEMES:
        scene.page.evaluate(
            f"document.querySelector('[data-testid=theme] [value={scheme}]').click()"
        )
        scene.page.wait_for_timeout(1500)  # transitions, and graphs that are drawn anew
        png = OUT / f"{name}-{scheme}.png"
        scene.page.screenshot(path=png)
        with Image.open(png) as image:
            image.convert("RGB").save(png.with_suffix(".webp"), quality=82, method=6)
        png.unlink()


def main() -> None:
    """Take all pictures, or those that are named."""
    names = sys.argv[1:] or [each.__name__ for each in VIEWS]
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hearth-") as folder, sync_playwright() as driver:
        home = Path(folder)
        (home / "mcp.json").write_text(json.dumps({"mcpServers": {"weather": entry("weather")}}))
        (home / "mcp.json").chmod(0o600)
        env = {"HEARTH_OFFLINE": "0", "HEARTH_KEEP_ALIVE": "30m"}
        with running_daemon(home, (), env) as daemon, half_pulled(daemon):
            made = {"model": "proofreader", "from": "ember", "stream": False}
            made |= {"system": "You are a careful proofreader.", "parameters": {"temperature": 0.2}}
            httpx.post(f"{daemon.url}/api/create", json=made, timeout=120).raise_for_status()
            browser = launch(driver, "chromium")
            page = browser.new_page(
                viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=1.5
            )
            page.set_default_timeout(60_000)
            for view in (each for each in VIEWS if each.__name__ in names):
                with ExitStack() as stack:
                    scene = Scene(daemon, page, stack)
                    view(scene)
                    take(scene, view.__name__)
                print(view.__name__, flush=True)
            browser.close()
    print(sum(each.stat().st_size for each in OUT.iterdir()) / 1e6, "MB")


if __name__ == "__main__":
    main()
