"""The sides for Windows of runner's modules of the platform, by fakes of what only Windows has."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psutil
import pytest

from registry import ownership
from runner import job_object
from runner.worker.prefix_channel import receive, send
from tests.unit.windows import Kernel, Winapi, as_windows


def test_a_job_ends_with_its_process_and_its_children_with_it() -> None:
    kernel = Kernel(CreateJobObjectW=7, GetCurrentProcess=8)
    with as_windows("runner.job_object", kernel) as module:
        module.join_job()
        module.join_job(memory_bytes=1 << 20)
    sets = [given for name, given in kernel.calls if name == "SetInformationJobObject"]
    assert job_object.LIMITS.size == 144  # sizeof in C, for 64 bits
    forever, bounded = (job_object.LIMITS.unpack(given[2]) for given in sets)
    assert forever[2] == 0x2000  # JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
    assert bounded[2] == 0x100 | 0x1000  # of a process's memory; children leave the job
    assert (forever[-4], bounded[-4]) == (0, 1 << 20)
    assert "CloseHandle" not in dict(kernel.calls)


@pytest.mark.parametrize("step", ["CreateJobObjectW", "SetInformationJobObject",
                                  "AssignProcessToJobObject"])  # fmt: skip
def test_a_job_that_cannot_be_had_is_an_error(step: str) -> None:
    with (
        as_windows("runner.job_object", Kernel(**{step: 0})) as module,
        pytest.raises(OSError, match="it failed"),
    ):
        module.join_job()


def test_a_limit_of_memory_is_a_job_and_others_are_left_out() -> None:
    jobs = ModuleType("runner.job_object")
    asked: list[int] = []
    jobs.__dict__["join_job"] = lambda memory_bytes: asked.append(memory_bytes)
    with as_windows("runner.process_limits", **{"runner.job_object": jobs}) as module:
        module.set_limits("AS", 5, 5)
        module.set_limits("AS", None, None)
        module.set_limits("CORE", 1, 1)
        assert module.limits_of("NOFILE") == (None, None)
    assert asked == [5]


async def test_a_daemon_in_the_background_is_asked_to_end_by_an_event() -> None:
    """Set by one process, waited for by the other: here the same one."""
    event, told = threading.Event(), asyncio.Queue[int]()
    names: list[str] = []
    ended = False

    def named(*given: object) -> int:
        names.append(str(given[-1]))
        return 5

    def wait(*_: object) -> int:
        event.wait(10)
        event.clear()
        return 1 if ended else 0

    winapi = Winapi()
    winapi.__dict__["WaitForSingleObject"] = wait
    kernel = Kernel(CreateEventW=named, OpenEventW=named, SetEvent=lambda _: event.set() or 1)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGUSR2)
    try:
        with as_windows("runner.stop_signals", kernel, _winapi=winapi) as module:
            module.on_stop(asyncio.get_running_loop(), told.put_nowait)
            module.ask_to_stop(psutil.Process())
            assert await asyncio.wait_for(told.get(), 10) == signal.SIGTERM
            os.kill(os.getpid(), signal.SIGINT)
            assert await asyncio.wait_for(told.get(), 10) == signal.SIGINT
            ended = True
            event.set()
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGUSR2), before, strict=True):
            signal.signal(number, handler)
    assert names == [rf"Local\hearth-stop-{os.getpid()}"] * 2


def test_a_daemon_that_is_another_users_cannot_be_asked() -> None:
    with (
        as_windows("runner.stop_signals", Kernel(OpenEventW=None)) as module,
        pytest.raises(OSError, match="it failed"),
    ):
        module.ask_to_stop(psutil.Process())


def test_a_pipe_is_asked_again_until_something_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    winapi = Winapi()
    counts = iter([0, 0, 5])
    winapi.__dict__["PeekNamedPipe"] = lambda handle, size: (next(counts), 0)
    with as_windows("runner.pipes", _winapi=winapi) as module, open(os.devnull, "rb") as pipe:
        monkeypatch.setattr(module, "_POLL_S", 0)
        assert module.is_readable(pipe, 10)

        def ended(handle: int, size: int) -> tuple[int, int]:
            raise BrokenPipeError

        winapi.__dict__["PeekNamedPipe"] = ended
        assert module.is_readable(pipe, 10)
        winapi.__dict__["PeekNamedPipe"] = lambda handle, size: (0, 0)
        assert not module.is_readable(pipe, 0)


def test_another_program_in_this_ones_place_gives_its_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("CREATE_NEW_PROCESS_GROUP", "CREATE_NO_WINDOW", "DETACHED_PROCESS"):
        monkeypatch.setattr(subprocess, name, 1, raising=False)
    jobs = ModuleType("runner.job_object")
    jobs.__dict__["join_job"] = lambda: None
    with as_windows("runner.programs", **{"runner.job_object": jobs}) as module:
        with pytest.raises(SystemExit) as ended:
            module.become([sys.executable, "-c", "raise SystemExit(3)"])
        module.end_children_with_this()
    assert ended.value.code == 3


def test_a_saved_file_goes_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "part"
    path.write_bytes(b"state")
    files = ModuleType("runner.file_system")
    files.__dict__["open_file"] = os.open
    with as_windows("runner.worker.passed_files", **{"runner.file_system": files}) as module:
        monkeypatch.setattr("runner.worker.prefix_channel.send_with_file", module.send_with_file)
        monkeypatch.setattr(
            "runner.worker.prefix_channel.receive_with_file", module.receive_with_file
        )
        ours, theirs = socket.socketpair()
        with ours, theirs, path.open("rb") as file:
            send(ours, {"found": True} | module.named(path), file=file.fileno())
            received = receive(theirs)
        assert received is not None
        assert received[1] is None
        with open(module.opened(*received), "rb") as file:
            assert file.read() == b"state"
        assert module.opened({"found": False}, None) is None
        path.unlink()
        assert module.opened(*received) is None


def test_no_modes_are_read_where_they_say_nothing() -> None:
    anyones = SimpleNamespace(st_mode=0o100666, st_uid=0)
    with as_windows("registry.ownership") as module:
        assert module.permissions(anyones) == 0o600
        assert module.own_uid() == anyones.st_uid
    assert ownership.permissions(anyones) == 0o666  # type: ignore[arg-type]


def test_the_log_is_shown_by_powershell_whatever_its_name() -> None:
    with as_windows("cli.log_viewer") as module:
        words = module.log_viewer(Path("C:/it's $HOME.log"), 5, follow=True)
    assert words[-1] == (
        "Get-Content -LiteralPath 'C:/it''s $HOME.log' -Encoding UTF8 -Tail 5 -Wait"
    )


def test_a_notification_gets_its_words_by_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    from runner import notification

    ran: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(notification.sys, "platform", "win32")
    monkeypatch.setattr(notification.shutil, "which", lambda name: name)
    monkeypatch.setattr(
        notification.subprocess, "run", lambda words, env, **_: ran.append((words, env))
    )
    notification.notify("hearth", "'; Remove-Item x")
    ((words, env),) = ran
    assert "Remove-Item" not in " ".join(words)
    assert env["HEARTH_TEXT"] == "'; Remove-Item x"
