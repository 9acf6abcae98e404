"""Measures the page in Chromium: `make page-figures`.

Size and time of loading are those of a real daemon with ember. The long answer comes from a server
that sends TOKENS tokens of Markdown at RATE a second, so that what is measured is the page and not
the model. The machine and its load are printed, and so is what Chromium's main thread took in
processor time: on a busy machine frames are lost that the page did not cost.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from runner.server.ui.page import page_file
from tests.browser.conftest import launch
from tests.conftest import running_daemon

BUILT = Path(__file__).parents[2] / "runner/server/ui/built"
VIEWS = ("chat", "models", "activity", "settings")
TOKENS, RATE, TOKEN_CHARS = 10_000, 100, 4
MAX_PACKED_KB, MAX_PAINT_MS, MIN_FPS, MAX_MEMORY_MB = 350, 200, 50, 150
MODEL = "writer:latest"
_BLOCK = """## Part {number}

A paragraph of **some** words about `fire` and [wood](https://example.com/{number}), which is long
enough to be broken over several lines of the page, with *emphasis* and a formula $x_{number}^2$.

- the first of three points
- the second, which says a little more than the first
- the third

```python
def burn(wood: int) -> float:
    return wood * {number}.5  # hours
```

| wood | hours |
| --- | ---: |
| oak | {number} |
| pine | 2 |

"""
_PAINTS = """() => new Promise((done) => {
  new PerformanceObserver((list) => done(list.getEntries()[0].startTime))
    .observe({type: "paint", buffered: true});
})"""
_WATCH = """() => {
  const seen = (window.seen = {frames: [], shift: 0, moved: []});
  const frame = (at) => { seen.frames.push(at); requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
  new PerformanceObserver((list) => {
    for (const each of list.getEntries().filter((found) => !found.hadRecentInput)) {
      seen.shift += each.value;
      const names = each.sources.map(({node}) => node?.className ?? node?.nodeName);
      seen.moved.push(`${each.value.toFixed(4)} at ${Math.round(each.startTime)} ms: ${names}`);
    }
  }).observe({type: "layout-shift", buffered: true});
}"""


class _Writer(BaseHTTPRequestHandler):
    """The page, and one model that writes long answers."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The page's files; a model that is loaded."""
        path = self.path.partition("?")[0]
        if path == "/" or path.startswith("/ui/"):
            file = page_file(path.removeprefix("/ui/").strip("/") or "index.html")
            self._send(file.packed, file.content_type, "gzip")
        elif path in ("/api/tags", "/api/ps"):
            details = {"parameter_size": "", "quantization_level": "", "context_length": 1 << 15}
            model = {"name": MODEL, "capabilities": ["completion"], "details": details, "size": 1}
            self._send(json.dumps({"models": [model | {"context_length": 1 << 15}]}).encode())
        else:
            self._send(b"{}")

    def do_POST(self) -> None:
        """The answer, a chunk a token; of everything else, what a model has of its own."""
        self.rfile.read(int(self.headers.get("content-length", "0")))
        if not self.path.endswith("/chat/completions"):
            shown = {"parameters": "", "capabilities": ["completion"], "details": {}}
            self._send(json.dumps(shown).encode())
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        begun = time.monotonic()
        for number, text in enumerate(tokens()):
            time.sleep(max(0.0, begun + number / RATE - time.monotonic()))
            self.wfile.write(_event({"choices": [{"delta": {"content": text}}]}))
        usage = {"prompt_tokens": 10, "completion_tokens": TOKENS}
        self.wfile.write(_event({"choices": [{"delta": {}, "finish_reason": "stop"}]}))
        self.wfile.write(_event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n")
        self.close_connection = True

    def _send(self, body: bytes, kind: str = "application/json", coding: str = "") -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if coding:
            self.send_header("content-encoding", coding)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def tokens() -> Iterator[str]:
    """The tokens of the long answer."""
    length = TOKENS * TOKEN_CHARS
    text = "".join(_BLOCK.format(number=number) for number in range(length // len(_BLOCK) + 2))
    return (text[at : at + TOKEN_CHARS] for at in range(0, length, TOKEN_CHARS))


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


@contextmanager
def writer() -> Iterator[str]:
    """The server of the long answer. Yields its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Writer)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


@dataclass(frozen=True, slots=True)
class Streamed:
    """What a long answer took. frame_ms: processor time of the main thread for each frame;
    moved: what layout shifts come from; heap_mb: JavaScript's, the most; kept_mb: of it what is
    left after a collection; private_mb: of the page's process, the most."""

    fps: float
    frame_ms: float
    shift: float
    moved: list[str]
    heap_mb: float
    kept_mb: float
    private_mb: float


def empty_fps(browser: Any) -> float:
    """The frames that this machine draws of a page that does nothing."""
    page = browser.new_page()
    page.evaluate(_WATCH)
    page.wait_for_timeout(10_000)
    frames = page.evaluate("window.seen.frames")
    page.close()
    return float(1000 * (len(frames) - 1) / (frames[-1] - frames[0]))


def stream(browser: Any, url: str) -> Streamed:
    """Have a long answer written."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    cdp = context.new_cdp_session(page)
    cdp.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(url)
    page.get_by_test_id("model").select_option(MODEL)
    page.get_by_test_id("message").fill("Write.")
    process = _process_of(page, browser)
    page.evaluate(_WATCH)
    before = _metrics(cdp)
    page.get_by_test_id("send").click()
    heaps, sizes = [], []
    answer = page.get_by_test_id("answer")
    answer.wait_for()
    deadline = time.monotonic() + 4 * TOKENS / RATE
    while answer.get_attribute("data-state") != "done" and time.monotonic() < deadline:
        page.wait_for_timeout(1000)
        heaps.append(_metrics(cdp)["JSHeapUsedSize"])
        sizes.append(_private_bytes(process))
    took = _metrics(cdp)["TaskDuration"] - before["TaskDuration"]
    seen = page.evaluate("window.seen")
    frames = seen["frames"]
    assert answer.get_attribute("data-state") == "done", "the answer did not come to its end"
    shown = answer.locator(".markdown :is(h3, h4)").all_inner_texts()
    assert shown == re.findall(r"^## (.+)", "".join(tokens()), re.MULTILINE), "blocks are missing"
    cdp.send("HeapProfiler.collectGarbage")
    kept = _metrics(cdp)["JSHeapUsedSize"]
    context.close()
    fps = 1000 * (len(frames) - 1) / (frames[-1] - frames[0])
    return Streamed(
        fps=fps,
        frame_ms=1000 * took / len(frames),
        shift=seen["shift"],
        moved=seen["moved"],
        heap_mb=max(heaps) / 1e6,
        kept_mb=kept / 1e6,
        private_mb=max(sizes) / 1e6,
    )


def _metrics(cdp: Any) -> dict[str, float]:
    return {each["name"]: each["value"] for each in cdp.send("Performance.getMetrics")["metrics"]}


def _process_of(page: Any, browser: Any) -> int:
    """The process of a page: the renderer that works while the page does."""
    cdp = browser.new_browser_cdp_session()

    def times() -> dict[int, float]:
        found = cdp.send("SystemInfo.getProcessInfo")["processInfo"]
        return {each["id"]: each["cpuTime"] for each in found if each["type"] == "renderer"}

    for _ in range(10):
        before = times()
        page.evaluate("{ const end = performance.now() + 1000; while (performance.now() < end); }")
        took = {each: at - before.get(each, 0.0) for each, at in times().items()}
        busiest = sorted(took, key=lambda each: took[each])[-2:]
        if took[busiest[-1]] > 4 * sum(took[each] for each in busiest[:-1]):
            break
    else:
        raise SystemExit("The process of the page was not found: another one works as much.")
    cdp.detach()
    return busiest[-1]


def _private_bytes(process: int) -> int:
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def loads(browser: Any, url: str, view: str, rounds: int) -> tuple[list[float], float, int]:
    """Times to the first paint in ms, in a process that is there and without a cache; the processor
    time of the main thread until the view is there, at best; the bytes of the page's files."""
    paints: list[float] = []
    took_ms: list[float] = []
    packed = 0
    for _ in range(rounds):
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        page = context.new_page()
        cdp = context.new_cdp_session(page)
        cdp.send("Network.enable")
        cdp.send("Performance.enable", {"timeDomain": "threadTicks"})
        names: dict[str, str] = {}
        sizes: dict[str, int] = {}
        cdp.on("Network.responseReceived", lambda e, to=names: to.update({e["requestId"]: e["response"]["url"]}))  # fmt: skip  # noqa: E501
        cdp.on("Network.loadingFinished", lambda e, to=sizes: to.update({e["requestId"]: e["encodedDataLength"]}))  # fmt: skip  # noqa: E501
        page.goto(url)
        page.get_by_test_id("view-chat").wait_for()
        cdp.send("Network.setCacheDisabled", {"cacheDisabled": True})
        page.goto(f"{url}#/{view}")
        page.get_by_test_id(f"view-{view}").wait_for()
        names.clear()
        sizes.clear()
        page.reload()
        page.get_by_test_id(f"view-{view}").wait_for()
        took_ms.append(1000 * _metrics(cdp)["TaskDuration"])
        paints.append(page.evaluate(_PAINTS))
        page.wait_for_load_state("networkidle") if view == "chat" else page.wait_for_timeout(1500)
        own = [each for each, name in names.items() if name == url or "/ui/" in name]
        packed = int(sum(sizes.get(each, 0) for each in own))
        context.close()
    return paints, min(took_ms), packed


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="loads of each view")
    parser.add_argument("--streams", type=int, default=2, help="long answers")
    options = parser.parse_args()
    print(f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}")
    print("load when it began:", *(f"{each:.1f}" for each in os.getloadavg()))
    sizes = {path.name: len(page_file(path.name).packed) for path in BUILT.iterdir()}
    print(f"built/: {sum(sizes.values()) / 1000:.1f} kB by gzip (at most {MAX_PACKED_KB})")
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as home:
        browser = launch(driver, "chromium")
        print(f"Chromium {browser.version}")
        with running_daemon(Path(home)) as daemon:
            for view in VIEWS:
                paints, took_ms, packed = loads(browser, f"{daemon.url}/", view, options.rounds)
                print(
                    f"{view}: {packed / 1000:.1f} kB, first paint {min(paints):.0f} ms at best, "
                    f"{statistics.median(paints):.0f} ms median (at most {MAX_PAINT_MS}), "
                    f"{took_ms:.0f} ms of the processor"
                )
        with writer() as url:
            for number in range(options.streams):
                print(
                    f"load before answer {number + 1}: {os.getloadavg()[0]:.1f}; an empty page: "
                    f"{empty_fps(browser):.1f} frames/s",
                    flush=True,
                )
                found = stream(browser, url)
                print(
                    f"{TOKENS:,} tokens at {RATE}/s: {found.fps:.1f} frames/s (above {MIN_FPS}), "
                    f"{found.frame_ms:.1f} ms of the processor for each, layout shift "
                    f"{found.shift:.4f}, JavaScript {found.heap_mb:.0f} MB ({found.kept_mb:.0f} MB "
                    f"after a collection), process {found.private_mb:.0f} MB "
                    f"(below {MAX_MEMORY_MB})"
                )
                print(*(f"  moved: {each}" for each in found.moved), sep="\n", end="")
        browser.close()


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "?")


if __name__ == "__main__":
    main()
