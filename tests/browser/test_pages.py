"""Pages of others in real browsers, which the user merely visits, and the daemon's page of its API.

`make browser` runs them. Names that are not ours are mapped to loopback by the browsers themselves,
which is what rebinding of DNS amounts to.
"""

from __future__ import annotations

import html
import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from runner.server.ui import page as page_module
from tests.browser.conftest import LOCAL_NAMES, OpenPage, Watch
from tests.conftest import RunningDaemon, StartDaemon

FOREIGN, LOCAL = LOCAL_NAMES  # of LOCAL, whoever runs the network answers for it

BUILT = Path(page_module.__file__ or "").parent / "built"

pytestmark = pytest.mark.slow

# Tries all that a page can send without asking and with it, and writes what came of it.
_ATTACK = """<!doctype html><pre id="told"></pre><script>
const body = JSON.stringify({model: "echo", prompt: "stolen", stream: false});
const tries = {
  read: () => fetch(DAEMON + "/api/tags"),
  simple: () => fetch(DAEMON + "/api/generate", {method: "POST", body, mode: "no-cors"}),
  text: () => fetch(DAEMON + "/api/generate", {method: "POST", body,
    headers: {"content-type": "text/plain"}}),
  json: () => fetch(DAEMON + "/api/generate", {method: "POST", body,
    headers: {"content-type": "application/json"}}),
  remove: () => fetch(DAEMON + "/api/delete", {method: "DELETE", body: '{"model": "echo"}',
    headers: {"content-type": "application/json"}}),
  beacon: async () => navigator.sendBeacon(DAEMON + "/api/delete", body),
  form: () => new Promise((done, failed) => {
    const form = document.createElement("form");
    form.method = "post"; form.action = DAEMON + "/api/generate"; form.enctype = "text/plain";
    form.innerHTML = `<input name='${body.slice(0, -1)}, "x": "' value='"}'>`;
    const frame = document.createElement("iframe");
    frame.name = form.target = "frame";
    document.body.append(frame, form);
    form.submit();
    frame.onload = () => done();
    setTimeout(() => failed(new Error("no page")), 1000);
  }),
  socket: () => new Promise((done, failed) => {
    const socket = new WebSocket(DAEMON.replace("http", "ws") + "/v1/responses");
    socket.onopen = done; socket.onerror = () => failed(new Error("no socket"));
    setTimeout(() => failed(new Error("no answer")), 1000);
  }),
  script: () => import(DAEMON + "/ui/SCRIPT"),
  worker: () => new Promise((done, failed) => {
    const worker = new Worker(DAEMON + "/ui/SCRIPT");
    worker.onmessage = done; worker.onerror = () => failed(new Error("no worker"));
    setTimeout(() => failed(new Error("no answer")), 1000);
  }),
  opened: () => new Promise((done, failed) => {
    const page = open(DAEMON + "/#/settings");
    if (!page) throw new Error("no window");
    setTimeout(() => {
      try { if (page.length >= 0 && !page.closed) { page.postMessage("stolen", "*"); } }
      catch { }
      try { done(page.document.body); } catch { failed(new Error("not ours")); }
    }, 1000);
  }),
  framed: () => new Promise((done, failed) => {
    const frame = document.createElement("iframe");
    frame.src = DAEMON + "/";
    frame.onload = () => {
      try { done(frame.contentDocument.body.textContent); } catch { failed(new Error("not ours")); }
    };
    document.body.append(frame);
    setTimeout(() => failed(new Error("no page")), 2000);
  }),
  image: () => new Promise((done, failed) => {
    const image = new Image();
    image.onload = done; image.onerror = () => failed(new Error("no image"));
    image.src = DAEMON + "/api/tags";
  }),
};
(async () => {
  const told = {};
  for (const [name, attempt] of Object.entries(tries)) {
    try {
      const response = await attempt();
      told[name] = response && response.type ? response.type + " " + response.status : "sent";
    } catch (error) { told[name] = "refused"; }
  }
  document.getElementById("told").textContent = JSON.stringify(told);
})();
</script>"""


class _Site(http.server.BaseHTTPRequestHandler):
    page = ""

    def do_GET(self) -> None:
        """The one page, at every path; at /sandbox it hides its origin."""
        body = self.page.encode()
        self.send_response(200)
        if self.path == "/sandbox":
            self.send_header("content-security-policy", "sandbox allow-scripts allow-forms")
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def site(page: str) -> Iterator[int]:
    """A server of one page, at every path. Yields its port."""
    handler = type("Site", (_Site,), {"page": page})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Visitor:
    """Visits pages that attack, and reads what came of it. What those pages ask and break is their
    own business."""

    def __init__(self, open_page: OpenPage, watch: Watch) -> None:
        self._open, self._watch = open_page, watch

    def attack(self, daemon: str, name: str = FOREIGN, path: str = "/") -> dict[str, str]:
        """What came of the attempts of a page of a site that the user visits; daemon: its origin
        as the page names it."""
        with site(attacking(daemon)) as port:
            return self.told_by(f"http://{name}:{port}{path}")

    def told_by(self, url: str) -> dict[str, str]:
        """What the page at url says of its attempts."""
        self._watch.allowed.add("")
        self._watch.expected = ""
        page = self._open(url)
        told = page.wait_for_function("document.getElementById('told').textContent")
        outcomes: dict[str, str] = json.loads(told.json_value())
        return outcomes


@pytest.fixture
def visitor(open_page: OpenPage, watch: Watch) -> Visitor:
    """A user of a browser who visits anything."""
    return Visitor(open_page, watch)


def attacking(daemon: str) -> str:
    """The page that attacks the daemon of an origin."""
    script = next(name.name for name in BUILT.glob("main-*.js"))
    return _ATTACK.replace("DAEMON", json.dumps(daemon)).replace("SCRIPT", script)


def assert_nothing_came_of(told: dict[str, str], daemon: RunningDaemon) -> None:
    """The page saw nothing, and the daemon did nothing for it."""
    sent = {each: result for each, result in told.items() if result != "refused"}
    assert set(sent) <= {"simple", "beacon", "form"}, "their answers are hidden from the page"
    assert sent.get("simple", "opaque 0") == "opaque 0"
    with daemon.client() as client:
        assert [model["name"] for model in client.get("/api/tags").json()["models"]]
        assert answered(client) == 0
        client.post("/api/generate", json={"model": "echo", "prompt": "ours", "stream": False})
        assert answered(client) == 1


def answered(client: httpx.Client) -> int:
    """How many requests the daemon has answered with text."""
    found = re.findall(
        r"^vllm:request_success_total\{.*\} (\S+)", client.get("/metrics").text, re.MULTILINE
    )
    return int(sum(map(float, found)))


def test_the_page_of_the_api_shows_every_operation_without_a_network(
    open_page: OpenPage, shared_daemon: RunningDaemon, watch: Watch
) -> None:
    watch.expected += "|favicon.ico|img-src 'none'"  # Firefox looks for an icon by itself
    with shared_daemon.client() as client:
        described = client.get("/openapi.json").json()["paths"]
    page = open_page(f"{shared_daemon.url}/docs")
    page.locator(".method").first.wait_for()
    shown = html.unescape(page.content())
    assert shown.count('class="method"') == sum(len(item) for item in described.values())
    assert [path for path in described if path not in shown] == []


@pytest.mark.parametrize(
    ("name", "visited", "path"),
    [
        ("127.0.0.1", FOREIGN, "/"),
        (FOREIGN, FOREIGN, "/"),
        (LOCAL, LOCAL, "/"),
        ("127.0.0.1", LOCAL, "/"),
        ("127.0.0.1", FOREIGN, "/sandbox"),
        ("127.0.0.1", "127.0.0.1", "/sandbox"),
    ],
)
def test_a_page_that_the_user_visits_reads_and_changes_nothing(
    name: str, visited: str, path: str, start_daemon: StartDaemon, visitor: Visitor
) -> None:
    daemon = start_daemon()
    told = visitor.attack(f"http://{name}:{daemon.port}", visited, path)
    assert_nothing_came_of(told, daemon)


def test_a_page_that_the_user_has_downloaded_reads_and_changes_nothing(
    start_daemon: StartDaemon, visitor: Visitor, tmp_path: Path
) -> None:
    daemon = start_daemon()
    page = tmp_path / "page.html"
    page.write_text(attacking(daemon.url))
    assert_nothing_came_of(visitor.told_by(page.as_uri()), daemon)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "0.0.0.0", FOREIGN])
def test_a_page_of_this_machine_or_of_an_allowed_origin_is_served(
    name: str, start_daemon: StartDaemon, visitor: Visitor, engine: str
) -> None:
    if (engine, name) == ("firefox", "0.0.0.0"):
        pytest.skip("Firefox opens no page there")
    daemon = start_daemon(env={"OLLAMA_ORIGINS": f"http://{FOREIGN}:*"})
    told = visitor.attack(f"http://127.0.0.1:{daemon.port}", name)
    assert [told[each] for each in ("read", "text", "json")] == ["cors 200"] * 3
    assert [told[each] for each in ("framed", "opened", "worker")] == ["refused"] * 3
