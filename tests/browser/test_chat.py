"""The chat, as a person uses it: a real daemon, models that repeat what they hear, and ember."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from modelfile.parameters import PARAMETERS
from registry.store import Store
from tests.browser.conftest import OpenPage, breaches, playwright
from tests.clients.daemon import SLOW_TEMPLATE, THINKING_TEMPLATE
from tests.conftest import RunningDaemon, running_daemon
from tests.echo_models import install_echo
from tests.integration.conftest import TELLER
from tests.mcp_servers import entry

pytestmark = pytest.mark.slow
expect = playwright.expect

MARKDOWN = r"""# Heat

A **hot** fire, see [the source](https://example.com/fire).

```python
def burn(wood):
    return wood * 2
```

| wood | hours |
| --- | ---: |
| oak | 3 |

$$
E = mc^2
$$

1. first
2. second
"""
LONG = " ".join(f"word{number}" for number in range(150))  # of the slow model: several seconds
ENDLESS = " ".join(f"word{number}" for number in range(3000))
SLOW: dict[str, Any] = {
    "template": SLOW_TEMPLATE,
    "context_length": 1 << 16,
    "parameters": {"num_ctx": 1 << 16},
}
# What the page sends and saves, which Firefox does not tell over WebDriver BiDi.
_OBSERVE = """() => {
  const ask = window.fetch, make = URL.createObjectURL, click = HTMLAnchorElement.prototype.click;
  window.bodies = [];
  window.fetch = (url, init) => {
    if (String(url).endsWith("v1/chat/completions")) window.bodies.push(JSON.parse(init.body));
    return ask(url, init);
  };
  let blob = null;
  URL.createObjectURL = (given) => make.call(URL, blob = given);
  HTMLAnchorElement.prototype.click = function () {
    if (this.download) blob.text().then((text) => window.saved = [this.download, text]);
    click.call(this);
  };
}"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, engine: str) -> Iterator[RunningDaemon]:
    home = tmp_path_factory.mktemp(f"chat-{engine}")
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"plain": entry("plain")}}))
    (home / "mcp.json").chmod(0o600)
    store = Store.open(home / "models")
    install_echo(store, "teller", template=TELLER)
    install_echo(store, "thinker", template=THINKING_TEMPLATE)
    install_echo(store, "slow", **SLOW)
    install_echo(store, "own", system="Be brief.", parameters={"temperature": 0.3, "stop": ["END"]})
    store.close()
    with running_daemon(home, ("echo",)) as running:
        yield running


class Chat:
    """A page that shows the chat."""

    def __init__(self, page: Any, model: str = "echo") -> None:
        self.page = page
        self.asked = 0  # for answers
        page.on("request", self._note)
        self.at("message").wait_for()
        page.evaluate(_OBSERVE)
        self.at("model").select_option(f"{model}:latest")

    def _note(self, request: Any) -> None:
        if request.method == "POST" and request.url.endswith("/v1/chat/completions"):
            self.asked += 1

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What answers were asked for with, since the page was loaded."""
        found: list[dict[str, Any]] = self.page.evaluate("window.bodies")
        return found

    def at(self, testid: str) -> Any:
        """The elements of a test id."""
        return self.page.get_by_test_id(testid)

    def begin(self) -> None:
        """Begin another conversation."""
        self.at("new-chat").click()
        expect(self.at("answer")).to_have_count(0)

    def send(self, text: str) -> None:
        """Send a message, without waiting for the answer."""
        self.at("message").fill(text)
        self.at("send").click()

    def answer(self, text: str) -> Any:
        """Send a message: its answer, once that is complete."""
        before = self.at("answer").count()
        self.send(text)
        answer = self.at("answer").nth(before)
        expect(answer).to_have_attribute("data-state", "done")
        return answer

    def settings(self, **values: str) -> None:
        """Fill in fields of the conversation's settings."""
        self.at("chat-settings").click()
        for testid, value in values.items():
            self.at(testid.replace("__", "-")).fill(value)
        self.at("settings-apply").click()
        expect(self.at("settings-dialog")).to_have_count(0)


Open = Callable[..., Chat]


@pytest.fixture
def chat(open_page: OpenPage, daemon: RunningDaemon) -> Open:
    """Opens a chat with a model, each with a profile of its own."""
    return lambda model="echo", **options: Chat(open_page(f"{daemon.url}/", **options), model)


def test_an_answer_comes_as_markdown(chat: Open) -> None:
    one = chat()
    answer = one.answer(MARKDOWN)
    expect(answer.locator(".markdown :is(h3, h4)")).to_have_text("Heat")
    expect(answer.locator("strong")).to_have_text("hot")
    link = answer.get_by_role("link", name="the source")
    assert link.get_attribute("target") == "_blank"
    assert "noopener" in link.get_attribute("rel")
    expect(answer.get_by_role("cell", name="oak")).to_be_visible()
    expect(answer.locator("ol > li")).to_have_text(["first", "second"])
    expect(answer.locator(".katex, math").first).to_be_visible()
    code = answer.get_by_test_id("code")
    expect(code.locator("code")).to_have_text(re.compile(r"^def burn\(wood\):\s+return wood \* 2$"))
    expect(code.locator("code span").first).to_be_visible()  # coloured
    assert breaches(one.page) == []
    code.get_by_test_id("copy").click()
    expect(code.get_by_test_id("copy")).to_have_text("Copied")
    one.at("message").focus()
    one.page.keyboard.press("Control+v")
    expect(one.at("message")).to_have_value("def burn(wood):\n    return wood * 2")


def test_an_answer_is_seen_as_it_comes_and_stopped(chat: Open, daemon: RunningDaemon) -> None:
    one = chat("slow")
    one.send(ENDLESS)
    answer = one.at("answer")
    expect(answer).to_contain_text("word3")
    expect(answer).to_have_attribute("data-state", "streaming")
    expect(answer.get_by_test_id("live-tokens")).to_contain_text("tokens")
    full = one.at("context").inner_text()
    expect(one.at("context")).not_to_have_text(full)  # grows with the answer
    expect(answer).to_have_attribute("data-state", "streaming")
    one.at("stop").click()
    expect(answer).to_have_attribute("data-state", "stopped")
    expect(answer.get_by_test_id("status")).to_contain_text("Stopped.")
    assert "word2999" not in answer.inner_text()
    while httpx.get(f"{daemon.url}/api/requests").json()["requests"]:
        pass  # until the daemon has stopped as well
    one.send(ENDLESS)
    expect(one.at("answer").nth(1)).to_contain_text("word3")
    one.page.keyboard.press("Escape")
    expect(one.at("answer").nth(1)).to_have_attribute("data-state", "stopped")
    expect(one.at("message")).to_be_focused()


def test_what_has_begun_is_shown_as_what_it_will_be(chat: Open) -> None:
    one = chat("slow")
    one.send(f"A **bold {LONG[:400]}** and `code {LONG[400:]}` and [a link {ENDLESS}](x)")
    answer = one.at("answer")
    expect(answer.locator("strong")).to_contain_text("bold word0")
    expect(answer.locator(".markdown code")).to_contain_text("code")
    expect(answer.locator(".markdown")).to_contain_text("and a link word0")
    expect(answer).to_have_attribute("data-state", "streaming")
    assert not set("*`[") & set(answer.inner_text())
    one.at("stop").click()


def test_a_table_is_shown_by_whole_rows(chat: Open) -> None:
    one = chat("slow")
    one.send(f"| fuel | hours |\n| --- | ---: |\n| oak | 12 |\n| pine | {ENDLESS} |")
    answer = one.at("answer")
    expect(answer.locator("tbody tr")).to_have_count(1)
    expect(answer.locator("th").nth(1)).to_have_css("text-align", "right")
    expect(answer).to_have_attribute("data-state", "streaming")
    assert "|" not in answer.inner_text()
    one.at("stop").click()
    expect(answer.locator("tbody tr")).to_have_count(2)


def test_an_answer_of_many_blocks_is_whole_while_it_comes_and_after(chat: Open) -> None:
    one = chat()
    said = [f"paragraph {number}" for number in range(100)]
    answer = one.answer("\n\n".join(said))
    assert answer.locator("p").all_inner_texts() == said
    one.page.reload()
    expect(one.at("answer").locator("p")).to_have_count(len(said))
    assert one.at("answer").locator("p").all_inner_texts() == said


def test_an_answer_is_made_again_and_both_are_kept(chat: Open) -> None:
    one = chat()
    one.answer("first words")
    one.at("regenerate").click()
    expect(one.at("versions")).to_contain_text("2 / 2")
    expect(one.at("answer")).to_have_attribute("data-state", "done")
    one.at("version-previous").click()
    expect(one.at("versions")).to_contain_text("1 / 2")
    one.page.reload()
    expect(one.at("versions")).to_contain_text("1 / 2")
    expect(one.at("answer")).to_contain_text("first words")


def test_an_edited_message_is_a_new_branch(chat: Open) -> None:
    one = chat()
    one.answer("first words")
    one.answer("what follows")
    one.at("edit").first.click()
    expect(one.at("edit-field")).to_have_value("first words")
    one.at("edit-field").fill("other words")
    one.at("edit-save").click()
    expect(one.at("answer")).to_have_text(re.compile("other words"))
    expect(one.at("user-turn")).to_have_count(1)
    expect(one.at("versions")).to_contain_text("2 / 2")
    one.at("version-previous").click()
    expect(one.at("user-turn")).to_have_count(2)
    expect(one.at("answer").nth(1)).to_contain_text("what follows")
    one.at("message").focus()
    one.page.keyboard.press("ArrowUp")  # edits the last one
    expect(one.at("edit-field")).to_have_value("what follows")
    one.page.keyboard.press("Escape")
    expect(one.at("edit-field")).to_have_count(0)


def test_the_settings_of_a_conversation_are_sent_and_are_its_own(chat: Open) -> None:
    one = chat("own")
    one.at("chat-settings").click()
    dialog = one.at("settings-dialog")
    expect(dialog).to_contain_text("Be brief.")
    expect(one.at("parameter-temperature")).to_have_attribute("placeholder", "0.3")
    for name in ("top_p", "top_k", "min_p", "repeat_penalty"):
        default = f"{PARAMETERS[name].default:g}"
        expect(one.at(f"parameter-{name}")).to_have_attribute("placeholder", default)
    expect(one.at("parameter-stop")).to_have_attribute("placeholder", re.compile("END"))
    assert breaches(one.page) == []
    one.at("system").fill("Speak like a sailor.")
    one.at("parameter-temperature").fill("0.5")
    one.at("parameter-max_tokens").fill("100")
    one.at("parameter-stop").fill("STOP\nHALT")
    one.at("settings-apply").click()
    answer = one.answer("before HALT after")
    assert "after" not in answer.locator(".markdown").inner_text()
    body = one.bodies[-1]
    assert body["messages"][0] == {"role": "system", "content": "Speak like a sailor."}
    assert (body["temperature"], body["max_tokens"]) == (0.5, 100)
    one.begin()
    one.answer("hello")
    assert "temperature" not in one.bodies[-1]
    assert [message["role"] for message in one.bodies[-1]["messages"]] == ["user"]


def test_an_answer_keeps_to_a_schema(chat: Open) -> None:
    one = chat("ember")
    one.at("chat-settings").click()
    one.at("schema").fill("{")
    expect(one.at("settings-dialog")).to_contain_text("This is not JSON")
    schema = {
        "type": "object",
        "properties": {"warm": {"type": "boolean"}},
        "required": ["warm"],
        "additionalProperties": False,
    }
    one.at("schema").fill(json.dumps(schema))
    one.at("settings-apply").click()
    answer = one.answer("Is fire warm?")
    found = json.loads(answer.get_by_test_id("code").locator("code").inner_text())
    assert list(found) == ["warm"]
    assert isinstance(found["warm"], bool)


def test_reasoning_is_folded_and_says_how_long_it_took(chat: Open) -> None:
    one = chat("thinker")
    answer = one.answer("<think>\nhm, hm\n</think>\n\nyes")
    reasoning = answer.get_by_test_id("reasoning")
    expect(reasoning.locator("summary")).to_have_text(re.compile(r"^Thought for \d+\.\d s$"))
    expect(reasoning.get_by_text("hm, hm")).to_be_hidden()
    reasoning.locator("summary").click()
    expect(reasoning.get_by_text("hm, hm")).to_be_visible()
    expect(answer.locator(".markdown").last).to_have_text("yes")


def test_a_tool_is_called_when_the_user_allows_it(chat: Open) -> None:
    one = chat("teller")
    one.at("chat-settings").click()
    one.at("mcp-plain").check()
    one.at("settings-apply").click()
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 20, "b": 22}}\n</tool_call>'
    one.send(call)
    asked = one.at("tool-call")
    expect(asked).to_have_attribute("data-state", "asking")
    expect(asked).to_contain_text("The model wants to call add")
    expect(one.at("tool-arguments")).to_contain_text('"a": 20')
    assert breaches(one.page) == []
    one.at("tool-allow").click()
    expect(asked).to_have_attribute("data-state", "done")
    expect(one.at("answer")).to_have_attribute("data-state", "done")
    expect(one.at("answer").locator(".markdown").last).to_have_text("42")
    asked.locator("summary").click()
    expect(one.at("tool-result")).to_have_text("42")

    one.send(call)
    expect(asked.nth(1)).to_have_attribute("data-state", "asking")
    one.at("tool-refuse").click()
    expect(asked.nth(1)).to_have_attribute("data-state", "refused")
    last = one.at("answer").nth(1)
    expect(last).to_have_attribute("data-state", "done")
    expect(last.locator(".markdown").last).to_have_text("The user refused this call.")
    results = [message for message in one.bodies[-1]["messages"] if message["role"] == "tool"]
    assert [result["content"] for result in results] == ["42", "The user refused this call."]


def test_a_question_of_a_tool_is_there_after_a_reload(chat: Open) -> None:
    one = chat("teller")
    one.at("chat-settings").click()
    one.at("mcp-plain").check()
    one.at("settings-apply").click()
    one.send('<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>')
    expect(one.at("tool-call")).to_have_attribute("data-state", "asking")
    one.page.reload()
    one.at("tool-allow").click()
    expect(one.at("answer").locator(".markdown").last).to_have_text("3")


def test_two_models_answer_side_by_side(chat: Open) -> None:
    one = chat()
    one.at("compare").click()
    one.at("second-model").select_option("thinker:latest")
    one.send("for both")
    answers = one.at("answer")
    expect(answers).to_have_count(2)
    for at in range(2):
        expect(answers.nth(at)).to_have_attribute("data-state", "done")
        expect(answers.nth(at)).to_contain_text("for both")
    left, right = (answers.nth(at).bounding_box() for at in range(2))
    assert left["x"] + left["width"] <= right["x"]
    assert sorted(body["model"] for body in one.bodies) == ["echo:latest", "thinker:latest"]
    assert breaches(one.page) == []
    answers.nth(1).get_by_test_id("keep-answer").click()
    expect(answers).to_have_count(1)
    expect(answers).to_have_attribute("aria-label", "Answer of thinker:latest")


def test_how_full_the_context_is_and_what_an_answer_took(chat: Open) -> None:
    one = chat()
    answer = one.answer("a" * 1000)
    stats = answer.get_by_test_id("stats").inner_text()
    assert re.fullmatch(r"1,\d{3} tokens · [\d,.]+ tok/s( · [^·]+ cached)? · [\d.]+ s", stats), (
        stats
    )
    expect(one.at("context")).to_have_text(re.compile(r"^2,0\d\d / [\d,]+$"))
    one.at("regenerate").click()
    expect(one.at("stats")).to_contain_text(re.compile(r"\d+ of 1,\d\d\d prompt tokens cached"))
    one.at("message").fill("b" * 3000)  # counted before it is sent
    expect(one.at("context")).to_have_text(
        re.compile(r"^5,\d\d\d / [\d,]+$|^[34],\d\d\d / [\d,]+$")
    )


def test_conversations_are_found_renamed_and_deleted(chat: Open) -> None:
    one = chat()
    one.answer("the weather in Lisbon")
    one.begin()
    one.answer("a recipe for bread")
    titles = one.at("conversation")
    expect(titles).to_have_text(["a recipe for bread", "the weather in Lisbon"])
    one.page.keyboard.press("Control+k")
    expect(one.at("search")).to_be_focused()
    one.at("search").fill("lisbon")
    expect(titles).to_have_text(["the weather in Lisbon"])
    one.at("search").fill("nothing like that")
    expect(one.at("conversations").locator("..")).to_contain_text("No conversation contains")
    one.at("search").fill("")
    one.at("conversation-menu").nth(1).click()
    one.at("rename").click()
    one.at("rename-field").fill("Portugal")
    one.at("rename-save").click()
    expect(titles).to_have_text(["a recipe for bread", "Portugal"])
    one.page.reload()
    expect(titles).to_have_text(["a recipe for bread", "Portugal"])
    one.at("conversation-menu").nth(0).click()
    one.at("delete").click()
    one.at("confirm-yes").click()
    expect(titles).to_have_text(["Portugal"])
    one.page.reload()
    expect(titles).to_have_text(["Portugal"])


@pytest.mark.parametrize("form", ["export-json", "export-markdown"])
def test_a_conversation_goes_to_a_file_and_back(form: str, chat: Open, tmp_path: Path) -> None:
    one = chat()
    one.settings(system="Speak like a sailor.")
    one.answer("first words")
    one.answer("# second\n\n<!-- hearth:user -->\n\n```\nx\n```")
    one.at("conversation-menu").click()
    one.at(form).click()
    while not (saved := one.page.evaluate("window.saved")):
        pass  # until the page has written it
    name, content = saved
    file = tmp_path / name
    file.write_text(content)
    assert file.name == f"first words.{'json' if form == 'export-json' else 'md'}"

    other = chat()
    other.at("import-file").set_input_files(file)
    expect(other.at("conversation")).to_have_text("first words")
    other.at("conversation").click()
    expect(other.at("answer")).to_have_count(2)
    expect(other.at("answer").nth(0)).to_contain_text("first words")
    expect(other.at("answer").nth(1).locator(":is(h3, h4)")).to_have_text("second")
    other.at("chat-settings").click()
    expect(other.at("system")).to_have_value("Speak like a sailor.")
    other.at("settings-apply").click()
    other.answer("and on")
    assert [message["content"] for message in other.bodies[-1]["messages"]][1::2] == [
        "first words",
        "# second\n\n<!-- hearth:user -->\n\n```\nx\n```",
        "and on",
    ]


def test_a_file_that_is_no_export_is_refused(chat: Open, tmp_path: Path) -> None:
    one = chat()
    for name, content in (("a.json", "{"), ("b.json", '{"kind": "other"}'), ("c.md", "# plain")):
        (tmp_path / name).write_text(content)
        one.at("import-file").set_input_files(tmp_path / name)
        expect(one.at("toast").filter(has_text=name).first).to_contain_text("is not an export")
    expect(one.at("conversation")).to_have_count(0)


def test_an_answer_goes_on_over_a_reload(chat: Open) -> None:
    one = chat("slow")
    one.send(LONG)
    expect(one.at("answer")).to_contain_text("word3")
    one.page.reload()
    answer = one.at("answer")
    expect(answer).to_have_attribute("data-state", "done")
    expect(answer.locator(".markdown")).to_have_text(LONG)
    assert one.asked == 1, "it is read on, not asked for again"


class Line:
    """A connection to a daemon that can be cut, as a cable is."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.whole = True
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                if not self.whole:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                return
            self._open += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(65536):
                target.sendall(piece)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """End all connections, and take no new ones until mended."""
        self.whole = False
        for end in self._open:
            with suppress(OSError):  # it has ended by itself
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes who accepts
        self._listener.close()
        self.cut()
        for end in self._open:
            end.close()


def test_a_lost_connection_is_told_and_the_stream_goes_on(
    open_page: OpenPage, daemon: RunningDaemon
) -> None:
    with ExitStack() as stack:
        line = Line(daemon.port)
        stack.callback(line.close)
        one = Chat(open_page(f"http://127.0.0.1:{line.port}/"), "slow")
        said = f"{LONG} {LONG}"
        one.send(said)
        expect(one.at("answer")).to_contain_text("word3")
        line.cut()
        expect(one.at("reconnecting")).to_contain_text("The connection was lost")
        line.whole = True
        answer = one.at("answer")
        expect(answer).to_have_attribute("data-state", "done")
        expect(answer.locator(".markdown")).to_have_text(said)
        assert one.asked == 1


def test_conversations_outlive_the_daemon(open_page: OpenPage, tmp_path: Path, watch: Any) -> None:
    watch.expected += "|ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE"
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    env = {"HEARTH_HOST": f"127.0.0.1:{port}"}
    store = Store.open(tmp_path / "models")
    install_echo(store, "slow", **SLOW)
    store.close()
    with running_daemon(tmp_path, ("echo",), env) as first:
        one = Chat(open_page(f"{first.url}/"), "slow")
        one.answer("before")
        one.send(LONG)
        expect(one.at("answer").nth(1)).to_contain_text("word3")
        first.process.kill()
        expect(one.at("reconnecting")).to_be_visible()
    with running_daemon(tmp_path, (), env):
        last = one.at("answer").nth(1)
        expect(last).to_have_attribute("data-state", "lost")
        expect(last.get_by_test_id("answer-error")).to_contain_text("it was restarted")
        expect(last).to_contain_text("word3")
        one.page.reload()
        expect(one.at("answer").first).to_contain_text("before")
        expect(last).to_contain_text("word3")
        one.at("model").select_option("echo:latest")
        one.at("regenerate").nth(1).click()
        expect(last).to_have_attribute("data-state", "done")
        expect(last).to_contain_text("word149")
