"""hearth cluster: Run models on several machines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from cli.completion import installed_models
from cli.errors import USAGE, CliError

_NODES = ("NODE", "HEARTH", "CORES FREE", "GPUS FREE")
_MODELS = ("MODEL", "STATUS", "REPLICAS", "WANTED", "SEQUENCES")
# What each action takes
_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "start": ("--head", "--address", "--ip", "--port", "--cpus", "--gpus"),
    "deploy": ("--replicas", "--cpus", "--gpus", "--context-length", "--shared"),
    "apply": (),
    "status": ("--json",),
    "scale": ("--replicas",),
    "undeploy": (),
    "stop": (),
}
_WITHOUT_MODEL: Final = ("start", "status", "stop")


_ActionArgument = Annotated[
    Literal["start", "deploy", "apply", "status", "scale", "undeploy", "stop"],
    typer.Argument(help="What to do"),
]
_ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="[MODEL|FILE]",
        autocompletion=installed_models,
        help="deploy, scale, undeploy: a model; apply: a cluster.yaml",
    ),
]
_HeadOption = Annotated[bool, typer.Option("--head", help="start: begin a new cluster")]
_AddressOption = Annotated[
    str | None, typer.Option("--address", metavar="HOST:PORT", help="start: join this head")
]
_IpOption = Annotated[
    str | None, typer.Option("--ip", help="start: address of this machine in the cluster")
]
_PortOption = Annotated[
    int | None, typer.Option("--port", help="start --head: port of the head; 6379 by default")
]
_ReplicasOption = Annotated[
    str | None,
    typer.Option("--replicas", metavar="N|MIN..MAX", help="deploy, scale: number of replicas"),
]
_CpusOption = Annotated[
    int | None, typer.Option("--cpus", help="Cores of each replica; start: cores of this machine")
]
_GpusOption = Annotated[
    float | None,
    typer.Option(
        "--gpus",
        help="GPUs of each replica, or a fraction of one; start: GPUs of this machine",
    ),
]
_ContextLengthOption = Annotated[
    int | None, typer.Option("--context-length", help="deploy: context length in tokens")
]
_SharedOption = Annotated[
    bool,
    typer.Option("--shared", help="deploy: all nodes have the models folder at the same path"),
]
_JsonOption = Annotated[bool, typer.Option("--json", help="status: print JSON")]


def command(
    action: _ActionArgument,
    model: _ModelArgument = "",
    head: _HeadOption = False,
    address: _AddressOption = None,
    ip: _IpOption = None,
    port: _PortOption = None,
    replicas: _ReplicasOption = None,
    cpus: _CpusOption = None,
    gpus: _GpusOption = None,
    context_length: _ContextLengthOption = None,
    shared: _SharedOption = False,
    as_json: _JsonOption = False,
) -> None:
    """Run models on several machines.

    Run hearth cluster start --head on one machine and start --address HEAD:6379 on the others, then
    deploy a model. The head's daemon passes requests on to the replicas.
    """
    given = {"--head": head, "--address": address, "--ip": ip, "--port": port,
             "--replicas": replicas, "--cpus": cpus, "--gpus": gpus,
             "--context-length": context_length, "--shared": shared, "--json": as_json}  # fmt: skip
    given = {name: value for name, value in given.items() if value not in (None, False)}
    _check(action, model, given)
    if action == "start":
        _start(given)
    elif action == "stop":
        _run_node("stop")
    elif action == "status":
        _status(as_json)
    else:
        _change(action, model, given)


def _check(action: str, model: str, given: Mapping[str, Any]) -> None:
    """Raises CliError for what the action does not take, and for what it lacks."""
    for name in given:
        if name not in _OPTIONS[action]:
            takers = ", ".join(each for each, names in _OPTIONS.items() if name in names)
            raise CliError(f"hearth cluster {action} takes no {name}; it is for {takers}", USAGE)
    if model and action in _WITHOUT_MODEL:
        raise CliError(f"hearth cluster {action} takes no model (got {model!r})", USAGE)
    if not model and action not in _WITHOUT_MODEL:
        what = "the path of a cluster.yaml" if action == "apply" else "a model"
        raise CliError(f"hearth cluster {action} needs {what}", USAGE)


def _start(given: Mapping[str, Any]) -> None:
    if ("--head" in given) == ("--address" in given):
        raise CliError("hearth cluster start needs --head or --address HOST:PORT", USAGE)
    if "--port" in given and "--head" not in given:
        raise CliError("--port needs --head; give the head's port in --address", USAGE)
    arguments: list[str] = []
    for name, value in given.items():
        if isinstance(value, float):
            if not value.is_integer():
                raise CliError(
                    f"--gpus {value:g}: use a whole number; fractions are for deploy",
                    USAGE,
                )
            value = int(value)
        if name in ("--cpus", "--gpus") and value < 0:
            raise CliError(f"{name} {value}: give 0 or more", USAGE)
        arguments += [name] if value is True else [name, str(value)]
    _run_node("start", *arguments)


def _run_node(*arguments: str) -> None:
    """Run the process that knows Ray."""
    import subprocess
    import sys

    code = subprocess.call([sys.executable, "-P", "-m", "runner.cluster.node", *arguments])
    if code:
        raise typer.Exit(code)


def _status(as_json: bool) -> None:
    from cli.connection import connect
    from cli.render import print_json, print_table

    status = connect().cluster("")
    if as_json:
        print_json(status)
        return
    nodes = [
        (f"{each['address']}{' (head)' if each['is_head'] else ''}", each["version"] or "-",
         f"{each['free_cpus']:g} of {each['cpus']:g}", f"{each['free_gpus']:g} of {each['gpus']:g}")
        for each in status["nodes"]
    ]  # fmt: skip
    print_table(_NODES, nodes)
    print()
    print_table(_MODELS, [_row(name, each) for name, each in status["deployments"].items()])


def _row(name: str, deployment: dict[str, Any]) -> tuple[str, ...]:
    spec, told = deployment["spec"]["deployment"], deployment["replicas"]
    least, most = spec["min_replicas"], spec["max_replicas"]
    return (
        name,
        str(deployment["status"]).lower(),
        str(len(told)),
        str(least) if least == most else f"{least}..{most}",
        str(sum(each["sequences"] for each in told)),
    )


def _change(action: str, model: str, given: Mapping[str, Any]) -> None:
    from cli.connection import connect

    if action == "scale" and "--replicas" not in given:
        raise CliError(
            f"hearth cluster scale {model} needs --replicas, a number or a range such as 2..8",
            USAGE,
        )
    body = {"model": model} | {
        name.removeprefix("--").replace("-", "_"): value for name, value in given.items()
    }
    bodies = _models_of(Path(model)) if action == "apply" else [_counted(body)]
    client = connect()
    if action == "undeploy":
        client.cluster("/undeploy", body)
        print(f"{model} is not deployed any more")
        return
    for each in bodies:
        _told(client.cluster("/scale" if action == "scale" else "/deploy", each))


def _counted(body: dict[str, Any]) -> dict[str, Any]:
    """With replicas as the two numbers that it means, where it is given."""
    if "replicas" in body:
        body["min_replicas"], body["max_replicas"] = _range(str(body.pop("replicas")))
    return body


def _told(deployed: dict[str, Any]) -> None:
    count = deployed["replicas"]
    print(f"{deployed['model']} is deployed with {count} replica{'' if count == 1 else 's'}")


def _range(text: str) -> tuple[int, int]:
    first, dots, last = text.partition("..")
    try:
        return int(first), int(last if dots else first)
    except ValueError:
        raise CliError(f"--replicas {text!r}: write a number, or two as in 2..8", USAGE) from None


def _models_of(path: Path) -> list[dict[str, Any]]:
    """The deployments of a cluster.yaml."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise CliError(f"{path} cannot be read: {error}", USAGE) from None
    models = content.get("models") if isinstance(content, dict) else None
    if not isinstance(models, list) or not all(isinstance(each, dict) for each in models):
        raise CliError(f'{path} has no list "models"', USAGE)
    return [_counted(each) for each in models]
