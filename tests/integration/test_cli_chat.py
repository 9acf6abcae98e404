"""The chat on a real pseudo-terminal."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest

from tests.conftest import RunningDaemon, StartDaemon
from tests.integration.cli_process import COMMAND, TIMEOUT_S, of_daemon

PROMPT = r">>> "
READY = r"Send a message"  # shown while nothing is typed; the prompt itself is drawn many times
SPINNER = r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] (?:loading \w+)?"
# What ends the reading of a line, and what may be drawn before its effect is shown.
SUBMITTED = rf"\x1b\[\?2004l(?:\x1b\[[0-9;?]*[A-Za-z]|\r|\n|{SPINNER})*"
SLOW_ANSWER = "<|slow|>" + "abc " * 200
Chat = pexpect.spawn

pytestmark = pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")


@pytest.fixture
def start(shared_daemon: RunningDaemon, tmp_path: Path) -> Iterator[Callable[..., Chat]]:
    """Starts a chat; it is ended afterwards."""
    chats: list[Chat] = []

    def spawn(
        *args: str, columns: int = 100, of: RunningDaemon = shared_daemon, **more: str
    ) -> Chat:
        env = of_daemon(of, **{"TERM": "xterm", **more}) | {"HEARTH_HOME": str(tmp_path)}
        chat = pexpect.spawn(
            sys.executable,
            [*COMMAND[1:], "run", *(args or ("tools",))],
            env=env,
            encoding="utf-8",
            timeout=TIMEOUT_S,
            dimensions=(40, columns),
        )
        chat.ptyproc.delayafterclose = chat.ptyproc.delayafterterminate = 0.01  # else 0.1 s each
        chats.append(chat)
        return chat

    yield spawn
    for chat in chats:
        chat.close(force=True)


def say(chat: Chat, text: str) -> None:
    """Type a line when the chat waits for one."""
    chat.expect(READY)
    chat.send(f"{text}\r")


def expect_line(chat: Chat, text: str) -> None:
    """Wait for text as the first that is shown after a line was typed."""
    chat.expect(SUBMITTED + re.escape(text))


def leave(chat: Chat) -> None:
    """End the chat with /bye."""
    say(chat, "/bye")
    chat.expect(pexpect.EOF)
    chat.wait()
    assert chat.exitstatus == 0


def test_messages_are_answered_until_bye(start: Callable[..., Chat]) -> None:
    chat = start()
    say(chat, "hello there")
    expect_line(chat, "hello there")
    say(chat, "and again")
    expect_line(chat, "and again")
    leave(chat)


def test_ctrl_c_stops_the_answer_and_keeps_question_and_half_answer(
    start: Callable[..., Chat],
) -> None:
    chat = start("tools", "--verbose")
    say(chat, "hi")
    chat.expect(r"prompt eval count: +(\d+) token")
    alone = int(chat.match.group(1))
    say(chat, "/clear")
    say(chat, SLOW_ANSWER)
    expect_line(chat, "abc abc")
    chat.sendintr()
    chat.expect("stopped; the question and this part of the answer stay")
    say(chat, "hi")
    chat.expect(r"prompt eval count: +(\d+) token")
    assert int(chat.match.group(1)) > alone + len(SLOW_ANSWER)
    leave(chat)


def test_ctrl_c_in_a_search_leaves_a_chat_that_hears(start: Callable[..., Chat]) -> None:
    chat = start()
    chat.expect(READY)
    chat.sendcontrol("r")
    chat.expect("reverse-i-search")
    chat.sendcontrol("c")
    chat.expect(READY)
    chat.send("hello\r")
    expect_line(chat, "hello")
    leave(chat)


def test_a_paste_during_an_answer_is_one_message_that_waits(start: Callable[..., Chat]) -> None:
    chat = start()
    for paste in ("\x1b[200~one\ntwo\nthree\x1b[201~", "one\rtwo\rthree\r"):
        say(chat, SLOW_ANSWER)
        expect_line(chat, "abc abc")
        chat.send(paste)
        chat.sendintr()
        chat.expect(r">>> .*one.*\.\.\. .*two.*\.\.\. .*three")
        assert "one\r\n" not in chat.before  # and not shown in the middle of the answer
        chat.send("\r")
        expect_line(chat, "one\r\ntwo\r\nthree")
    leave(chat)


def test_a_paste_longer_than_the_terminals_buffer_leaves_ctrl_c_working(
    start: Callable[..., Chat],
) -> None:
    chat = start()
    say(chat, SLOW_ANSWER)
    expect_line(chat, "abc abc")
    chat.send("\x1b[200~" + "line of a file\n" * 1000 + "the end\x1b[201~")
    chat.sendintr()
    chat.expect("stopped; the question")
    chat.expect("the end")
    chat.sendcontrol("c")
    leave(chat)


def test_an_answer_that_was_suspended_goes_on_without_an_echo(start: Callable[..., Chat]) -> None:
    chat = start()
    say(chat, SLOW_ANSWER)
    expect_line(chat, "abc abc")
    os.kill(chat.pid, signal.SIGSTOP)
    chat.setecho(True)  # as a shell leaves the terminal of a job that was stopped
    os.kill(chat.pid, signal.SIGCONT)
    assert chat.waitnoecho(TIMEOUT_S)
    chat.sendintr()
    leave(chat)


def test_the_terminal_is_left_as_it_was(start: Callable[..., Chat]) -> None:
    chat = start()
    assert chat.getecho()
    say(chat, "hello")
    expect_line(chat, "hello")
    assert not chat.getecho()
    leave(chat)
    assert chat.getecho()


def test_a_line_typed_during_an_answer_is_sent_after_it(start: Callable[..., Chat]) -> None:
    chat = start()
    say(chat, "<|slow|>" + "abc " * 10)
    expect_line(chat, "abc abc")
    chat.send("next one\r")
    expect_line(chat, "next one")
    leave(chat)


def test_what_is_typed_before_the_chat_is_ready_is_not_lost(start: Callable[..., Chat]) -> None:
    chat = start()
    chat.send("/set verbose\rearly\r")
    chat.expect("Set 'verbose' mode.")
    expect_line(chat, "early")
    leave(chat)


def test_a_message_in_quotes_comes_back_whole(start: Callable[..., Chat]) -> None:
    chat = start()
    say(chat, '"""first')
    chat.expect(r"\.\.\.")
    chat.send('second"""\r')
    expect_line(chat, "first\r\nsecond")
    chat.expect(READY)
    chat.send("\x1b[A\r")
    expect_line(chat, "first\r\nsecond")
    leave(chat)


def test_thinking_is_refused_at_once_by_a_model_without_it(start: Callable[..., Chat]) -> None:
    chat = start()
    say(chat, "/set think")
    expect_line(chat, "Error: tools does not support thinking")
    say(chat, "hello")
    expect_line(chat, "hello")
    leave(chat)


def test_help_keeps_its_words_whole(start: Callable[..., Chat]) -> None:
    chat = start(columns=40)
    say(chat, "/help")
    chat.expect(SUBMITTED + "(Available commands:.*vision model.)")
    lines = chat.match.group(1).split("\r\n")
    assert max(map(len, lines)) <= 40
    assert "  /load MODEL  Chat with another model" in lines
    leave(chat)


def test_a_conversation_is_saved_as_a_model(
    start: Callable[..., Chat], start_daemon: StartDaemon
) -> None:
    daemon = start_daemon(("tools",))
    chat = start(of=daemon)
    for line in ("/set system Be brief.", "/set parameter temperature 0.5", "remember this"):
        say(chat, line)
    say(chat, "/save mine")
    expect_line(chat, "Created new model 'mine'")
    say(chat, "/load mine")
    chat.expect("Now chatting with mine")
    chat.expect(">>> remember this\r\nremember this\r\n")
    leave(chat)
    with daemon.client() as http:
        shown = http.post("/api/show", json={"model": "mine"}).json()
    assert shown["system"] == "Be brief."
    assert re.search(r"temperature +0.5", shown["parameters"])
    assert [turn["content"] for turn in shown["messages"]] == ["remember this", "remember this"]


def test_an_answer_after_lost_messages_says_so(start: Callable[..., Chat]) -> None:
    chat = start("tools", "-p", "num_ctx=256")
    for _ in range(2):
        say(chat, "abcdefghij" * 8)
    chat.expect("oldest messages left out: 2")
    leave(chat)


def test_the_conversation_is_remembered_and_clear_forgets_it(start: Callable[..., Chat]) -> None:
    chat = start("tools", "--verbose")
    counts = []
    for line in ("one", "two", "/clear", "one"):
        say(chat, line)
        if line != "/clear":
            chat.expect(r"prompt eval count: +(\d+) token")
            counts.append(int(chat.match.group(1)))
    assert counts[1] > counts[0] == counts[2]
    leave(chat)


def test_settings_are_changed_and_shown(start: Callable[..., Chat]) -> None:
    chat = start()
    say(chat, "/set parameter num_predict 3")
    expect_line(chat, "Set parameter 'num_predict' to '3'")
    say(chat, "abcdefg")
    expect_line(chat, "abc\r\n")
    say(chat, "/set system Be brief.")
    expect_line(chat, "Set system message.")
    say(chat, "/show system")
    expect_line(chat, "Be brief.")
    say(chat, "/show parameters")
    expect_line(chat, "User defined parameters:")
    chat.expect(r"num_predict +3")
    say(chat, "/set parameter num_predct 3")
    chat.expect("did you mean num_predict")
    say(chat, "/xyz")
    expect_line(chat, "Unknown command '/xyz'. Type /? for help")
    leave(chat)


def test_ctrl_c_on_an_empty_line_tells_how_to_leave_and_ctrl_d_leaves(
    start: Callable[..., Chat],
) -> None:
    chat = start()
    chat.expect(READY)
    chat.sendcontrol("c")
    expect_line(chat, "Use Ctrl + d or /bye to exit.")
    chat.expect(READY)
    chat.sendcontrol("d")
    chat.expect(pexpect.EOF)
    chat.wait()
    assert chat.exitstatus == 0


def test_history_is_kept_for_the_next_chat_unless_unwanted(
    start: Callable[..., Chat], tmp_path: Path
) -> None:
    chat = start()
    say(chat, "remember me")
    expect_line(chat, "remember me")
    leave(chat)
    history = tmp_path / "state" / "history"
    assert "+remember me" in history.read_text()
    chat = start("tools", HEARTH_NOHISTORY="1")
    say(chat, "forget me")
    expect_line(chat, "forget me")
    leave(chat)
    assert "forget me" not in history.read_text()


def test_another_model_is_loaded_or_the_old_one_kept(start: Callable[..., Chat]) -> None:
    chat = start()
    say(chat, "/load nowhere")
    expect_line(chat, "Error: ")
    say(chat, "/load other")
    expect_line(chat, "Now chatting with other")
    leave(chat)


def test_tab_completes_commands(start: Callable[..., Chat]) -> None:
    chat = start()
    chat.expect(READY)
    chat.send("/cle\t")
    chat.expect("/cle.*ar")
    chat.send("\r")
    expect_line(chat, "Cleared the conversation")
    leave(chat)


def test_no_color_is_honoured(start: Callable[..., Chat]) -> None:
    chat = start("tools", NO_COLOR="1")
    say(chat, "hello")
    said = chat.before + chat.after
    leave(chat)
    said += chat.before
    assert not re.search(r"\x1b\[[0-9;]*[39][0-7]m", said)


def test_a_dumb_terminal_gets_no_escape_codes(start: Callable[..., Chat]) -> None:
    chat = start("tools", TERM="dumb")
    chat.expect(PROMPT)
    chat.send("hello\r")
    chat.expect(PROMPT)
    said = chat.before
    assert "hello" in said
    chat.send("/bye\r")
    chat.expect(pexpect.EOF)
    assert "\x1b" not in said + chat.before


def test_an_unknown_model_ends_with_3_before_the_chat(start: Callable[..., Chat]) -> None:
    chat = start("ecko")
    chat.expect("did you mean echo")
    chat.expect(pexpect.EOF)
    chat.wait()
    assert chat.exitstatus == 3


def test_a_base_model_continues_each_message_alone(start: Callable[..., Chat]) -> None:
    chat = start("echo", "--verbose")  # without a template of its own
    chat.expect("echo is a base model")
    counts = []
    for _ in range(2):
        say(chat, "one")
        chat.expect(r"prompt eval count: +(\d+) token")
        counts.append(chat.match.group(1))
    assert counts[0] == counts[1]
    leave(chat)
