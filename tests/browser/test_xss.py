"""Texts of others stay texts: a corpus of what could be taken for markup through every field that
shows what a model, a file, a registry or a daemon has said.

That no script ran, nothing was asked of another host and no policy was broken is checked at the end
of each test (tests/browser/conftest.py); that nothing became an element, by `elements`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from registry.store import Store
from runner.server.console import answers
from tests.browser import hostile_daemon as hostile
from tests.browser.conftest import OpenPage, playwright
from tests.browser.test_chat import Chat
from tests.browser.xss import STRINGS
from tests.clients.daemon import THINKING_TEMPLATE
from tests.conftest import RunningDaemon, running_daemon
from tests.echo_models import install_echo
from tests.integration.conftest import TELLER
from tests.mcp_servers import entry
from tests.registry_server import Handler, fake_registry

pytestmark = pytest.mark.slow
expect = playwright.expect
CONTEXT = 1 << 16
CALLS = 40  # in an answer
MAX_FINDINGS = 50  # of a Modelfile, that are told

# Everything on a page that its own code does not make.
_ELEMENTS = """() => {
  const fetching = "img, iframe, frame, object, embed, video, audio, source, track, base, style,"
    + "form[action], applet, marquee, template, foreignObject, use, image, animate, set, mglyph,"
    + "maction, body script, body link, body meta, svg:not(.icon, .flame)";
  const found = [...document.querySelectorAll(fetching)].map((each) => each.outerHTML);
  for (const each of document.querySelectorAll("*")) {
    for (const {name, value} of each.attributes) {
      const bad = /^on|^srcdoc$|^formaction$|^xlink|^ping$|^background$/i.test(name)
        || (name === "style" && /url|expression|@import/i.test(value))
        || (name === "href" && each.localName !== "a" && each.localName !== "link")
        || (name === "id" && value === "app" && each.parentElement !== document.body);
      if (bad) found.push(`${each.localName} ${name}=${value}`);
    }
  }
  for (const each of document.querySelectorAll("a")) {
    const to = each.getAttribute("href") ?? "";
    const safe = /^(https?|mailto):/.test(to) && each.target === "_blank"
      && each.rel.split(" ").includes("noopener");
    if (each.closest(".markdown") ? !safe : !to.startsWith("#/")) found.push(each.outerHTML);
  }
  return found.map((each) => each.slice(0, 200));
}"""


def elements(page: Any) -> list[str]:
    """What is on the page that a text must have put there."""
    found: list[str] = page.evaluate(_ELEMENTS)
    return found


def missing(where: Any, texts: tuple[str, ...] = STRINGS) -> list[str]:
    """The texts that an element does not show. Blanks count as one."""
    shown = " ".join(where.evaluate("each => each.textContent").split())
    return [text for text in texts if " ".join(text.split()) not in shown]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, engine: str) -> Iterator[RunningDaemon]:
    """A daemon whose models say what they are told: thinker of the last message, and teller, which
    calls the tools that it is told to."""
    home = tmp_path_factory.mktemp(f"hostile-{engine}")
    servers = {"sayer": entry("sayer", autoApprove=["say"])}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (home / "mcp.json").chmod(0o600)
    large: dict[str, Any] = {"context_length": CONTEXT, "parameters": {"num_ctx": CONTEXT}}
    store = Store.open(home / "models")
    install_echo(store, "thinker", template=THINKING_TEMPLATE, **large)
    install_echo(store, "teller", template=TELLER, **large)
    store.close()
    with running_daemon(home, ("echo",), {"HEARTH_OFFLINE": "0"}) as running:
        yield running


@pytest.fixture(scope="module")
def liar() -> Iterator[str]:
    """The address of a daemon that lies."""
    with hostile.hostile_daemon() as url:
        yield url


def test_the_corpus_is_large_and_the_liar_has_the_fields_of_a_daemon() -> None:
    assert len(set(STRINGS)) == len(STRINGS) >= 100
    for made, real in (
        (hostile.plan(), answers.PlanResponse),
        (hostile.pull(1, ""), answers.PullEntry),
        (hostile.request(1, ""), answers.RequestEntry),
        (hostile.line(1, ""), answers.LogLine),
        (hostile.setting(""), answers.SettingEntry),
        (hostile.finding(""), answers.Finding),
        (hostile.ANSWERS["GET /api/settings"](), answers.SettingsResponse),
    ):
        assert set(made) == set(real.__annotations__)


@pytest.mark.parametrize("half", [0, 1])
def test_what_a_user_and_a_model_say(half: int, open_page: OpenPage, daemon: RunningDaemon) -> None:
    chat = Chat(open_page(f"{daemon.url}/"), "thinker")
    texts = STRINGS[half::2]
    for text in texts:
        said = f"<think>\n{text}\n</think>\n\n{text}"
        answer = chat.answer(said)
        assert missing(chat.at("user-turn").last, (said,)) == []
        reasoning = answer.get_by_test_id("reasoning")
        reasoning.evaluate("each => each.open = true")
        assert elements(chat.page) == [], text
    assert chat.asked == len(texts)


def test_what_a_model_says_is_not_fetched_or_run_when_it_is_used(
    open_page: OpenPage, daemon: RunningDaemon
) -> None:
    chat = Chat(open_page(f"{daemon.url}/"), "thinker")
    picture = chat.answer("![a <b>cat</b>](https://evil.example/cat.png 'title')")
    link = picture.get_by_role("link")
    expect(link).to_contain_text("a <b>cat</b>")
    assert link.get_attribute("rel") == "noopener noreferrer nofollow"
    for text in ("[a](javascript:hit(1))", "[a](data:text/html,<script>hit(1)</script>)"):
        answer = chat.answer(text)
        expect(answer.locator(".markdown a")).to_have_count(0)
        answer.get_by_text("a", exact=True).click()
    formula = chat.answer(r"$\href{javascript:hit(1)}{x}$ and $\frac12$")
    expect(formula.locator("math").last).to_be_visible()
    assert elements(chat.page) == []


def test_the_calls_that_a_model_makes_and_what_they_give(
    open_page: OpenPage, daemon: RunningDaemon
) -> None:
    chat = Chat(open_page(f"{daemon.url}/"), "teller")
    for start in range(0, len(STRINGS), CALLS):
        texts = STRINGS[start : start + CALLS]
        chat.begin()
        chat.at("chat-settings").click()
        chat.at("mcp-sayer").check()
        chat.at("settings-apply").click()
        calls = [{"name": "say", "arguments": {"text": text}} for text in texts]
        chat.send("\n".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls))
        expect(chat.at("answer")).to_have_attribute("data-state", "done")
        assert chat.at("tool-result").all_text_contents() == list(texts)
        expect(chat.at("tool-arguments")).to_have_count(len(texts))
        assert elements(chat.page) == []


def imported(texts: tuple[str, ...]) -> str:
    """An export of a conversation for each text, which is all that it says."""
    call = {"id": "1", "state": "done"}
    conversations = []
    for number, text in enumerate(texts):
        calls = [call | dict.fromkeys(("name", "arguments", "result"), text)]
        made = {"text": text, "reasoning": text, "reasoningMs": 1, "calls": calls}
        answer = {"model": text, "rounds": [made], "state": "done", "tokens": 1, "reason": text}
        settings = dict.fromkeys(("model", "second", "system", "reasoning", "schema"), text)
        pictures = [text, "https://evil.example/p.png", f"data:image/svg+xml,{text}"]
        turns = [
            {"id": "u", "parent": None, "at": 1, "role": "user", "text": text, "images": pictures},
            {"id": "a", "parent": "u", "at": 2, "role": "assistant", "answers": [answer, answer]},
        ]
        head = {"id": text, "title": text, "settings": settings, "created": number, "chosen": {}}
        head["chosen"] = {text: text, "__proto__": "a"}
        conversations.append({"conversation": head, "turns": turns})
    kind = {"kind": "hearth.conversations", "version": 1}
    return json.dumps({**kind, "conversations": conversations})


def test_conversations_of_a_file(open_page: OpenPage, daemon: RunningDaemon) -> None:
    chat = Chat(open_page(f"{daemon.url}/"))
    file = {"name": "a.json", "mimeType": "application/json", "buffer": imported(STRINGS).encode()}
    chat.at("import-file").set_input_files(file)
    expect(chat.at("conversation")).to_have_count(len(STRINGS))
    stripped = (text.strip("\ufeff \n") for text in STRINGS)
    first_lines = tuple(text.split("\n")[0].strip()[:80] for text in stripped)
    assert missing(chat.at("conversations"), first_lines) == []
    assert elements(chat.page) == []
    for number, title in enumerate(first_lines):
        chat.at("conversation").nth(number).evaluate("link => link.click()")
        expect(chat.page.get_by_role("heading", level=1)).to_have_text(
            chat.at("conversation").nth(number).text_content() or ""
        )
        for fold in chat.page.locator("details").all():
            fold.evaluate("each => each.open = true")
        expect(chat.at("answer")).to_have_count(2)
        assert elements(chat.page) == [], title
    chat.at("chat-settings").click()
    assert elements(chat.page) == []
    chat.page.keyboard.press("Escape")
    chat.at("conversation-menu").first.click()
    chat.at("delete").click()
    assert elements(chat.page) == []


def test_conversations_of_a_file_of_markdown(open_page: OpenPage, daemon: RunningDaemon) -> None:
    chat = Chat(open_page(f"{daemon.url}/"))
    said = [
        f"# {text}\n\n<!-- hearth:system -->\n\n{text}\n\n<!-- hearth:user -->\n\n{text}\n\n"
        f"<!-- hearth:assistant {text} -->\n\n{text}\n"
        for text in STRINGS
    ]
    files = [
        {"name": f"{at}.md", "mimeType": "text/markdown", "buffer": text.encode()}
        for at, text in enumerate(said)
    ]
    for start in range(0, len(files), 50):
        chat.at("import-file").set_input_files(files[start : start + 50])
        expect(chat.at("conversation")).to_have_count(min(len(files), start + 50))
    for number in range(len(files)):
        chat.at("conversation").nth(number).evaluate("link => link.click()")
        expect(chat.page.get_by_role("heading", level=1)).to_have_text(
            chat.at("conversation").nth(number).text_content() or ""
        )
        assert elements(chat.page) == []


def test_the_name_of_a_file_and_what_a_daemon_says_of_a_name(
    open_page: OpenPage, daemon: RunningDaemon
) -> None:
    chat = Chat(open_page(f"{daemon.url}/"))
    for text in STRINGS[::9]:
        name = text.replace("\x00", "").replace("/", "|")
        file = {"name": f"{name}.json", "mimeType": "application/json", "buffer": b"{"}
        chat.at("import-file").set_input_files(file)
    expect(chat.at("toast").last).to_contain_text("is not an export")
    picture = {"name": '"><img src=x onerror=hit(1)>', "mimeType": "image/svg+xml", "buffer": b"<"}
    chat.at("image-file").set_input_files(picture)
    expect(chat.at("toast").last).to_contain_text("<img src=x onerror=hit(1)> is not a picture")
    unknown = '<img src=x onerror=hit(1)>"'
    file = {
        "name": "a.json",
        "mimeType": "application/json",
        "buffer": imported((unknown,)).replace(json.dumps("second"), '"other"').encode(),
    }
    chat.at("import-file").set_input_files(file)
    chat.at("conversation").click()
    chat.at("chat-settings").click()
    chat.at("settings-reset").click()
    chat.at("settings-apply").click()
    chat.at("regenerate").click()
    expect(chat.at("answer-error").first).to_contain_text("<img")
    assert elements(chat.page) == []


def test_what_a_model_has_with_it(open_page: OpenPage, daemon: RunningDaemon) -> None:
    plain = tuple(text for text in STRINGS if not re.search(r"\{[{%#]|\x00", text))
    with daemon.client() as client:
        made = {
            "model": "laden",
            "from": "echo",
            "system": "\n".join(plain),
            "template": "\n".join(plain) + "{{ .Prompt }}",
            "license": list(STRINGS),
            "parameters": {"stop": plain[:64]},
            "stream": False,
        }
        client.post("/api/create", json=made).raise_for_status()
    page = open_page(f"{daemon.url}/#/models/laden:latest")
    page.get_by_test_id("details-licence").wait_for()
    for name in ("system", "template", "licence", "modelfile", "parameters"):
        fold = page.get_by_test_id(f"details-{name}")
        fold.locator("summary").click()
        if name in ("system", "template"):
            assert missing(fold, plain) == []
        assert elements(page) == []
    page.goto(f"{daemon.url}/#/chat")
    chat = Chat(page, "laden")
    chat.at("chat-settings").click()
    assert missing(chat.at("settings-dialog"), plain) == []
    assert elements(page) == []


def test_what_is_said_of_a_modelfile_and_of_files(
    open_page: OpenPage, daemon: RunningDaemon
) -> None:
    for number, text in enumerate(STRINGS):
        name = re.sub(r"[/\x00]", "|", text).encode()[:200].decode(errors="ignore")
        (daemon.home / "models" / "blobs" / f"{number} {name}").write_bytes(b"x")
    page = open_page(f"{daemon.url}/#/models")
    page.get_by_test_id("upkeep-open").click()
    page.get_by_test_id("fsck-start").click()
    expect(page.get_by_test_id("fsck-result")).to_contain_text("findings")
    expect(page.get_by_test_id("fsck-findings").locator("tbody tr")).to_have_count(len(STRINGS))
    page.get_by_test_id("gc-look").click()
    expect(page.get_by_test_id("gc-result")).not_to_be_empty()
    assert elements(page) == []
    page.keyboard.press("Escape")
    page.get_by_test_id("create-open").click()
    found = page.get_by_test_id("finding-error")
    lines = [f"PARAMETER temperature x{' '.join(text.split())}" for text in STRINGS]
    for start in range(0, len(lines), MAX_FINDINGS):
        some = lines[start : start + MAX_FINDINGS]
        page.get_by_test_id("create-modelfile").fill("\n".join(["FROM echo", *some]))
        expect(found).to_have_count(len(some))
        expect(found.filter(has_text="hit(1)")).not_to_have_count(0)
        assert elements(page) == []


def test_what_a_registry_says(open_page: OpenPage, daemon: RunningDaemon) -> None:
    with fake_registry() as registry, daemon.client() as client:

        def refuse(handler: Handler) -> None:
            text = STRINGS[int(handler.path.split("/t/m")[1].split("/")[0])]
            errors = [{"code": "DENIED", "message": text, "detail": text}]
            handler.reply(403, json.dumps({"errors": errors}).encode())

        names = [f"{registry.address}/t/m{at}" for at in range(len(STRINGS))]
        for at, name in enumerate(names):
            registry.special[f"/v2/t/m{at}/manifests/latest"] = refuse
            asked = {"model": name, "insecure": True}
            client.post("/api/pulls", json=asked).raise_for_status()
            if at % 8 == 7 or name == names[-1]:  # so many run at once
                page = open_page(f"{daemon.url}/#/models")
                card = page.locator(f'[data-testid=pull][data-model="{name}"]')
                expect(card).to_have_attribute("data-phase", "failed")
                expect(card).to_contain_text("403")
                assert elements(page) == []
                page.context.close()
                for pull in client.get("/api/pulls").json()["pulls"]:
                    client.delete(f"/api/pulls/{pull['number']}").raise_for_status()


@pytest.mark.parametrize("view", ["models", "activity", "settings", "chat"])
def test_a_daemon_that_lies(view: str, liar: str, open_page: OpenPage, watch: Any) -> None:
    watch.expected += "|status of 400"
    page = open_page(f"{liar}/#/{view}")
    VIEWS[view](page)
    assert elements(page) == []


def _models(page: Any) -> None:
    expect(page.get_by_test_id("model")).to_have_count(len(STRINGS) + 1)
    expect(page.get_by_test_id("model-plan").last).to_contain_text("needs")
    expect(page.get_by_test_id("pull")).to_have_count(len(STRINGS))
    assert missing(page.get_by_test_id("models")) == missing(page.get_by_test_id("pulls")) == []
    page.get_by_test_id("model-load").first.click()
    expect(page.get_by_test_id("toast").last).to_contain_text("<script>hit(1)</script>")
    page.get_by_test_id("toast").last.get_by_role("button").click()
    page.get_by_test_id("model-delete").first.click()
    assert missing(page.get_by_test_id("delete-dialog")) == []
    assert elements(page) == []
    page.keyboard.press("Escape")
    page.get_by_test_id("upkeep-open").click()
    page.get_by_test_id("fsck-start").click()
    expect(page.get_by_test_id("fsck-findings").locator("tbody tr")).to_have_count(len(STRINGS))
    page.get_by_test_id("gc-look").click()
    assert missing(page.get_by_test_id("gc-result")) == []
    assert missing(page.get_by_test_id("fsck-findings")) == []
    assert elements(page) == []
    page.keyboard.press("Escape")
    page.get_by_test_id("create-open").click()
    expect(page.get_by_test_id("finding-error")).to_have_count(len(STRINGS))
    expect(page.get_by_test_id("finding-note")).to_have_count(len(STRINGS))
    assert missing(page.get_by_test_id("findings")) == []
    assert elements(page) == []
    page.keyboard.press("Escape")
    page.get_by_test_id("model-details").first.click()
    dialog = page.get_by_test_id("details-dialog")
    expect(dialog.get_by_test_id("details-licence")).to_be_visible()
    assert missing(dialog) == []


def _activity(page: Any) -> None:
    expect(page.get_by_test_id("request")).to_have_count(len(STRINGS))
    expect(page.get_by_test_id("log").locator("li")).to_have_count(len(STRINGS))
    for name in ("requests", "log", "loaded-models"):
        texts = STRINGS[::2] if name == "loaded-models" else STRINGS
        assert missing(page.get_by_test_id(name), texts) == []
    assert missing(page.get_by_test_id("log-errors"), STRINGS[-20:]) == []
    assert missing(page.get_by_test_id("view-activity").locator("> header")) == []
    page.get_by_test_id("request-cancel").first.click()
    expect(page.get_by_test_id("toast")).to_contain_text("<script>hit(1)</script>")
    expect(page.get_by_test_id("graph-memory")).to_be_visible()


def _settings(page: Any) -> None:
    expect(page.get_by_test_id("key-delete")).to_have_count(len(STRINGS))
    expect(page.get_by_test_id("setting")).to_have_count(len(STRINGS))
    for name in ("keys", "settings", "view-settings"):
        assert missing(page.get_by_test_id(name)) == []
    programs = page.get_by_test_id("connect-program")
    for value in programs.locator("option").evaluate_all("all => all.map(each => each.value)"):
        programs.select_option(value)
        assert elements(page) == []
    page.get_by_test_id("key-delete").first.click()
    expect(page.get_by_test_id("key-delete-dialog")).to_contain_text(STRINGS[0])
    assert elements(page) == []
    page.keyboard.press("Escape")
    page.get_by_test_id("key-name").fill("x")
    page.get_by_test_id("key-make").click()
    assert missing(page.get_by_test_id("key-made")) == []


def _chat(page: Any) -> None:
    chat = Chat.__new__(Chat)
    chat.page = page
    expect(chat.at("model").locator("option")).to_have_count(len(STRINGS) + 1)
    assert missing(chat.at("model")) == []
    chat.at("chat-settings").click()
    assert missing(chat.at("mcp-servers")) == missing(chat.at("settings-dialog")) == []
    assert elements(page) == []
    chat.at("settings-apply").click()
    chat.send("hello")
    expect(chat.at("answer-error")).to_contain_text("<script>hit(1)</script>")
    assert missing(chat.at("answer-error")) == []


VIEWS = {"models": _models, "activity": _activity, "settings": _settings, "chat": _chat}
