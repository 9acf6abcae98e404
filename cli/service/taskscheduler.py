"""A task of Windows' Task Scheduler (Task Scheduler 2.0 schema). It has never run on Windows.

A task has no variables of its own and says nothing of its process, so it starts
cli.service.launched with a file of what to run, and the process that has this file is the service.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import platformdirs
import psutil

from cli.errors import CliError
from cli.service.manager import (
    Service,
    ServiceManager,
    ServiceState,
    run,
    run_checked,
    write_private,
)
from runner.stop_signals import ask_to_stop

TASK = r"\hearth"
_LAUNCHER = "cli.service.launched"
_STOP_S = 120.0  # stopping lets the daemon finish its streams
_XML_ENCODING = "utf-16"  # what schtasks reads
_NAMESPACE = "http://schemas.microsoft.com/windows/2004/02/mit/task"
# Batteries and days of running end no daemon; one that ends with a fault is started again.
_SETTINGS = {
    "MultipleInstancesPolicy": "IgnoreNew",
    "DisallowStartIfOnBatteries": "false",
    "StopIfGoingOnBatteries": "false",
    "ExecutionTimeLimit": "PT0S",
    "RestartOnFailure": {"Interval": "PT1M", "Count": "5"},
}


class TaskScheduler(ServiceManager):
    """The Task Scheduler of Windows."""

    name = "Task Scheduler"
    journal: tuple[str, ...] = ()

    def __init__(self) -> None:
        folder = platformdirs.user_config_path("hearth", appauthor=False)
        self.path = folder / "service-task.xml"
        self._launch = self.path.with_suffix(".json")

    def describe(self, service: Service) -> str:
        return f"{self._task(service)}\n\n{_launch_text(service)}"

    def check(self, service: Service) -> None:
        self._task(service)

    def install(self, service: Service) -> None:
        write_private(self._launch, _launch_text(service))
        declared = f'<?xml version="1.0" encoding="{_XML_ENCODING}"?>\n'
        write_private(self.path, declared + self._task(service), _XML_ENCODING)
        run_checked(("schtasks", "/create", "/tn", TASK, "/xml", str(self.path), "/f"))

    def start(self) -> None:
        self._stop()
        run_checked(("schtasks", "/run", "/tn", TASK))

    def uninstall(self) -> None:
        try:
            self._stop()
            run_checked(("schtasks", "/delete", "/tn", TASK, "/f"))
        finally:
            self._launch.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)

    def state(self) -> ServiceState:
        process = self._process()
        return ServiceState(self.path.exists(), process.pid if process else None)

    def _stop(self) -> None:
        """Ask the daemon to end; what stays is ended by the scheduler."""
        process = self._process()
        if process is None:
            return
        try:
            ask_to_stop(process)
            process.wait(_STOP_S)
        except (OSError, psutil.Error):
            run(("schtasks", "/end", "/tn", TASK))

    def _process(self) -> psutil.Process | None:
        """The newest with this command: a virtual environment's Python starts another one."""
        words = ["-m", _LAUNCHER, str(self._launch)]
        found = [
            process
            for process in psutil.process_iter(["cmdline", "create_time"])
            if (process.info["cmdline"] or [])[-3:] == words
        ]
        return max(found, key=lambda process: process.info["create_time"], default=None)

    def _task(self, service: Service) -> str:
        user = psutil.Process().username()
        python = Path(service.command[0])
        windowless = python.with_name("pythonw.exe")
        arguments = ["-P", "-m", _LAUNCHER, str(self._launch)]
        task = {
            "RegistrationInfo": {"Description": "hearth, the local model runner"},
            "Triggers": {"LogonTrigger": {"UserId": user}},
            "Principals": {"Principal": {"UserId": user, "LogonType": "InteractiveToken"}},
            "Settings": _SETTINGS,
            "Actions": {
                "Exec": {
                    "Command": str(windowless if windowless.exists() else python),
                    "Arguments": subprocess.list2cmdline(arguments),
                }
            },
        }
        root = ElementTree.Element("Task", version="1.2", xmlns=_NAMESPACE)
        _fill(root, task)
        ElementTree.indent(root)
        text = ElementTree.tostring(root, encoding="unicode")
        if not all(char.isprintable() or char == "\n" for char in text):
            raise CliError(f"{text!r} cannot be written into a task")
        return text


def _fill(element: ElementTree.Element, content: dict[str, object]) -> None:
    for name, value in content.items():
        child = ElementTree.SubElement(element, name)
        if isinstance(value, dict):
            _fill(child, value)
        else:
            child.text = str(value)


def _launch_text(service: Service) -> str:
    told = {
        "module": service.command[-1],
        "environment": dict(sorted(service.environment.items())),
        "log": str(service.log),
    }
    return json.dumps(told, indent=2) + "\n"
