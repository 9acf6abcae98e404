"""Runs all checks in parallel, each with a time limit. An exception in one is a finding too."""

from __future__ import annotations

import os
import re
import threading
import time

from cli.doctor import daemon, engine, files, machine, network, store
from cli.doctor.finding import Check, Finding, problem
from runner.settings import Settings, SettingsError, load

LIMIT_S = 60.0
CHECKS: tuple[Check, ...] = (
    machine.check_processor,
    engine.check_engine,
    engine.check_torch,
    machine.check_gpu,
    machine.check_memory,
    store.check_disk,
    store.check_store,
    store.check_prompts,
    files.check_folders,
    files.check_files,
    files.check_locks,
    daemon.check_daemon,
    daemon.check_exposure,
    daemon.check_service,
    machine.check_clock,
)
_VARIABLE = re.compile(r"[A-Z_]+(?==)")
_REPORT = "hearth doctor --bundle FILE, and report it"


def examine(
    settings: Settings, with_network: bool = False, limit_s: float = LIMIT_S
) -> list[Finding]:
    """What all checks find, in their order. One that is not done within limit_s is left behind."""
    checks = (*CHECKS, network.check_network) if with_network else CHECKS
    answers: dict[Check, list[Finding]] = {}
    threads = [
        threading.Thread(target=_run, args=(check, settings, answers), daemon=True)
        for check in checks
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = f"this check did not finish within {limit_s:g} s"
    return [
        finding
        for check in checks
        for finding in answers.get(check) or [problem(_area(check), late, _REPORT)]
    ]


def _run(check: Check, settings: Settings, answers: dict[Check, list[Finding]]) -> None:
    found: list[Finding] = []
    try:
        found.extend(check(settings))
    except OSError as error:
        text = f"{error.filename or 'a file'}: {error.strerror or error}"
        found.append(problem(_area(check), text, f"ls -ld {error.filename or settings.data_dir}"))
    except Exception as error:
        text = f"this check failed ({type(error).__name__}: {error})"
        found.append(problem(_area(check), text, _REPORT))
    answers[check] = found


def _area(check: Check) -> str:
    return check.__name__.removeprefix("check_")


def usable_settings() -> tuple[Settings, list[Finding]]:
    """The settings of this shell, and a finding for each fault in them. What is wrong is left out
    of this process's environment, so that the checks find out the rest by all that is right."""
    found: list[Finding] = []
    while True:
        try:
            return load(), found
        except SettingsError as error:
            text = str(error)
        named = _VARIABLE.match(text)
        if named and os.environ.pop(named[0], None) is not None:
            left_out, mend = f"the checks below ignore {named[0]}", f"unset {named[0]}"
        elif os.environ.get("HEARTH_CONFIG") != os.devnull:
            os.environ["HEARTH_CONFIG"] = os.devnull
            text = text.partition(". HEARTH_CONFIG=")[0]
            left_out = "the checks below ignore the file"
            mend = f"correct the file, or: export HEARTH_CONFIG={os.devnull}"
        else:
            raise SettingsError(text)
        found.append(problem("settings", f"{text}; {left_out}", mend))
