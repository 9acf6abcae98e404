"""hearth cluster: Run models on several machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cli.completion import installed_models
from cli.errors import USAGE, CliError

_NODES = ("NODE", "HEARTH", "CORES FREE", "GPUS FREE")
_MODELS = ("MODEL", "STATUS", "REPLICAS", "WANTED", "SEQUENCES")


def command(
    action: Annotated[
        Literal["start", "deploy", "apply", "status", "scale", "undeploy", "stop"],
        typer.Argument(help="What to do"),
    ],
    model: Annotated[
        str,
        typer.Argument(
            metavar="[MODEL|FILE]",
            autocompletion=installed_models,
            help="Of deploy, scale and undeploy; of apply a cluster.yaml",
        ),
    ] = "",
    head: Annotated[bool, typer.Option("--head", help="start: a new cluster")] = False,
    address: Annotated[
        str | None, typer.Option("--address", metavar="HOST:PORT", help="start: join this head")
    ] = None,
    ip: Annotated[
        str | None, typer.Option("--ip", help="start: address of this machine in the cluster")
    ] = None,
    port: Annotated[int, typer.Option("--port", help="start --head: its port")] = 6379,
    replicas: Annotated[
        str, typer.Option("--replicas", metavar="N|MIN..MAX", help="How many, or a range")
    ] = "1",
    cpus: Annotated[
        int | None, typer.Option("--cpus", help="Cores of each replica; start: of this machine")
    ] = None,
    gpus: Annotated[
        float | None, typer.Option("--gpus", help="GPUs of each replica; start: of this machine")
    ] = None,
    context_length: Annotated[
        int | None, typer.Option("--context-length", help="deploy: tokens of a sequence")
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="deploy: all nodes see the folder of the models")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Run models on several machines.

    hearth cluster start --head on one machine, start --address HEAD:6379 on the others, then deploy
    a model: the daemon of the head answers its requests by the replicas.
    """
    if action == "start":
        _start(head, address, ip, port, cpus, gpus)
    elif action == "stop":
        _run_node("stop")
    elif action == "status":
        _status(as_json)
    elif not model:
        raise CliError(f"hearth cluster {action} needs a model", USAGE)
    else:
        wanted = {"cpus": cpus, "gpus": gpus, "context_length": context_length, "shared": shared}
        _change(action, model, replicas, {k: v for k, v in wanted.items() if v is not None})


def _start(
    head: bool,
    address: str | None,
    ip: str | None,
    port: int,
    cpus: int | None,
    gpus: float | None,
) -> None:
    if head == (address is not None):
        raise CliError("hearth cluster start takes --head or --address HOST:PORT", USAGE)
    arguments = ["--head", "--port", str(port)] if head else ["--address", str(address)]
    for name, value in (("--ip", ip), ("--cpus", cpus), ("--gpus", gpus)):
        if value is not None:
            arguments += [name, str(int(value) if isinstance(value, float) else value)]
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


def _change(action: str, model: str, replicas: str, wanted: dict[str, Any]) -> None:
    from cli.connection import connect

    client = connect()
    if action == "undeploy":
        client.cluster("/undeploy", {"model": model})
        print(f"{model} is not deployed any more")
        return
    if action == "apply":
        for each in _models_of(Path(model)):
            _told(client.cluster("/deploy", each))
        return
    least, most = _range(replicas)
    counts = {"model": model, "min_replicas": least, "max_replicas": most}
    body = counts if action == "scale" else {**counts, **wanted}
    _told(client.cluster(f"/{action}", body))


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
    for each in models:
        if "replicas" in each:
            each["min_replicas"], each["max_replicas"] = _range(str(each.pop("replicas")))
    return models
