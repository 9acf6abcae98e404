"""Pages in a real browser: the daemon's own, and foreign ones that the user merely visits.

Needs Chromium in PATH; `make browser` runs them. Names that are not ours are mapped to loopback by
the browser itself, which is what rebinding of DNS amounts to.
"""

from __future__ import annotations

import html
import http.server
import json
import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import RunningDaemon, StartDaemon

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
TIMEOUT_S = 120
FOREIGN = "visited.example"
LOCAL = "visited.local"  # whoever runs the network answers for it
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--dump-dom",
    "--virtual-time-budget=20000",
    "--host-resolver-rules=MAP&visited.*&127.0.0.1",
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium in PATH"),
]

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


def dom_of(url: str, profile: Path) -> str:
    """The page at url as the browser has it once its scripts have run."""
    assert CHROMIUM is not None
    flags = [flag.replace("&", " ") for flag in FLAGS]
    done = subprocess.run(
        [CHROMIUM, *flags, f"--user-data-dir={profile}", url],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return done.stdout


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


def attack(
    daemon: str, profile: Path, port: int = 0, site: str = FOREIGN, path: str = "/"
) -> dict[str, str]:
    """What came of the attempts of a page of site that the user visits; daemon: its origin as the
    page names it."""
    handler = type("Site", (_Site,), {"page": _ATTACK.replace("DAEMON", json.dumps(daemon))})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        return told_by(f"http://{site}:{server.server_address[1]}{path}", profile)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def told_by(url: str, profile: Path) -> dict[str, str]:
    """What the page at url says of its attempts."""
    shown = dom_of(url, profile)
    told = re.search(r'<pre id="told">(.*?)</pre>', shown, re.DOTALL)
    assert told is not None, shown
    outcomes: dict[str, str] = json.loads(html.unescape(told[1]))
    return outcomes


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
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    daemon = start_daemon()
    with daemon.client() as client:
        described = client.get("/openapi.json").json()["paths"]
    shown = html.unescape(dom_of(f"{daemon.url}/docs", tmp_path / "profile"))
    assert shown.count('class="method"') == sum(len(item) for item in described.values())
    assert [path for path in described if path not in shown] == []


@pytest.mark.parametrize(
    ("name", "site", "path"),
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
    name: str, site: str, path: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    daemon = start_daemon()
    url = f"http://{name}:{daemon.port}"
    assert_nothing_came_of(attack(url, tmp_path / "profile", site=site, path=path), daemon)


def test_a_page_that_the_user_has_downloaded_reads_and_changes_nothing(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    daemon = start_daemon()
    page = tmp_path / "page.html"
    page.write_text(_ATTACK.replace("DAEMON", json.dumps(daemon.url)))
    assert_nothing_came_of(told_by(page.as_uri(), tmp_path / "profile"), daemon)


@pytest.mark.parametrize("site", ["localhost", "127.0.0.1", "0.0.0.0", FOREIGN])
def test_a_page_of_this_machine_or_of_an_allowed_origin_is_served(
    site: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    daemon = start_daemon(env={"OLLAMA_ORIGINS": f"http://{FOREIGN}:*"})
    told = attack(f"http://127.0.0.1:{daemon.port}", tmp_path / "profile", site=site)
    got = [told[name] for name in ("read", "text", "json")]
    assert got == ["cors 200", "cors 200", "cors 200"]
