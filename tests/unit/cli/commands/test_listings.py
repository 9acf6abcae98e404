"""hearth list, ps and show."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cli.main import execute
from tests.unit.cli.conftest import FakeDaemon

HEX = "0123456789abcdef" * 4
NOW = datetime.now(UTC)
INSTALLED = {
    "name": "ember:latest",
    "model": "ember:latest",
    "modified_at": (NOW - timedelta(hours=2, minutes=1)).isoformat(),
    "size": 9_500_000,
    "digest": HEX,
}
OTHER = INSTALLED | {"name": "qwen3:0.6b", "size": 523}
LOADED = {
    "name": "ember:latest",
    "size": 20_000_000,
    "size_vram": 0,
    "digest": f"sha256:{HEX}",
    "context_length": 2048,
    "expires_at": (NOW + timedelta(hours=5, minutes=30)).isoformat(),
}
SHOWN: dict[str, Any] = {
    "license": "MIT\n\nline 2\nline 3",
    "modelfile": "FROM ember\n",
    "parameters": 'temperature    0.7\nstop    "<|im_end|>"',
    "template": "{{ messages }}",
    "system": "You are ember.",
    "details": {"parameter_size": "5.1M", "quantization_level": "Q8_0"},
    "model_info": {"general.architecture": "llama", "llama.context_length": 2048},
    "capabilities": ["completion", "tools"],
}


@pytest.fixture
def shelf(daemon: FakeDaemon) -> FakeDaemon:
    """A daemon with two models, one of them loaded."""
    daemon.reply("GET", "/api/tags", {"models": [INSTALLED, OTHER]})
    daemon.reply("GET", "/api/ps", {"models": [LOADED]})
    daemon.reply("POST", "/api/show", SHOWN)
    return daemon


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_list_shows_name_id_size_and_age(
    shelf: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["list"]) == 0
    assert lines(capsys) == [
        "NAME ID SIZE MODIFIED",
        "ember:latest 0123456789ab 9.5 MB 2 hours ago",
        "qwen3:0.6b 0123456789ab 523 B 2 hours ago",
    ]


@pytest.mark.parametrize("arguments", [["list", "QWEN"], ["ls", "qwen3:"]])
def test_list_filters_by_prefix(
    shelf: FakeDaemon, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    execute(arguments)
    assert [line.split()[0] for line in lines(capsys)] == ["NAME", "qwen3:0.6b"]


def test_ps_shows_where_a_model_is_and_until_when(
    shelf: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["ps"]) == 0
    assert lines(capsys) == [
        "NAME ID QUANTIZATION MEMORY PROCESSOR CONTEXT UNTIL",
        "ember:latest 0123456789ab - 20 MB 100% CPU 2048 5 hours from now",
    ]


def test_ps_shows_what_weights_became_while_they_were_loaded(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = {"details": {"quantization_level": "BF16"}}
    for more, shown in (({}, "BF16"), ({"quantize": "int8"}, "int8 of BF16")):
        daemon.reply("GET", "/api/ps", {"models": [LOADED | stored | more]})
        assert execute(["ps"]) == 0
        assert f"0123456789ab {shown} 20 MB" in lines(capsys)[1]


def test_ps_shows_what_of_the_context_the_cache_holds_so_far(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    for pool, context in ((512, "512 of 2048"), (2048, "2048"), (9000, "2048")):
        daemon.reply("GET", "/api/ps", {"models": [LOADED | {"pool_tokens": pool}]})
        assert execute(["ps"]) == 0
        assert f"100% CPU {context} 5 hours" in lines(capsys)[1]


def test_ps_shows_what_is_on_which_of_several_devices(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    first = {"name": "GPU0", "size": 12_000_000, "shared": False}
    second = {"name": "GPU1", "size": 8_000_000, "shared": False}
    both = "100% GPU: GPU0 12 MB, GPU1 8.0 MB 2048"
    for devices, shown in (([first], "100% GPU 2048"), ([first, second], both)):
        on_gpus = {"size_vram": LOADED["size"], "devices": devices}
        daemon.reply("GET", "/api/ps", {"models": [LOADED | on_gpus]})
        assert execute(["ps"]) == 0
        assert shown in lines(capsys)[1]


def test_ps_counts_shared_memory_once(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = {"size": 0, "size_vram": 0, "shares_memory_of": "ember:latest"}
    models = [LOADED, {**LOADED, "name": "poet:latest", **shared}]
    daemon.reply("GET", "/api/ps", {"models": models})
    assert execute(["ps"]) == 0
    assert lines(capsys)[2] == "poet:latest 0123456789ab - shared - 2048 5 hours from now"


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["list", "--json"], {"models": [INSTALLED, OTHER]}),
        (["list", "qwen", "--json"], {"models": [OTHER]}),
        (["ps", "--json"], {"models": [LOADED]}),
        (["show", "ember", "--json"], SHOWN),
    ],
)
def test_json_is_what_the_daemon_said(
    shelf: FakeDaemon, capsys: pytest.CaptureFixture[str], arguments: list[str], value: object
) -> None:
    assert execute(arguments) == 0
    assert json.loads(capsys.readouterr().out) == value


def test_show_has_a_section_for_everything_the_model_has(
    shelf: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["show", "ember"]) == 0
    assert [line for line in lines(capsys) if line] == [
        "Model",
        "architecture llama",
        "parameters 5.1M",
        "context length 2048",
        "quantization Q8_0",
        "Capabilities",
        "completion",
        "tools",
        "Parameters",
        "temperature 0.7",
        'stop "<|im_end|>"',
        "System",
        "You are ember.",
        "License",
        "MIT",
        "line 2",
        "...",
    ]


def test_show_tells_the_file_from_the_memory_that_the_loaded_model_takes(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = {
        "context_length": 4096,
        "weights_bytes": 491_000_000,
        "cache_bytes": 50_000_000,
        "compute_bytes": 529_000_000,
        "total_bytes": 1_070_000_000,
    }
    daemon.reply("POST", "/api/show", SHOWN | {"size": 491_000_000, "memory": memory})
    assert execute(["show", "ember"]) == 0
    assert lines(capsys)[5:10] == [
        "file size 491 MB",
        "memory when loaded 1.1 GB; several conversations take more cache",
        "weights 491 MB",
        "cache 50 MB for 4096 tokens",
        "buffers 529 MB",
    ]


@pytest.mark.parametrize("part", ["license", "modelfile", "parameters", "system", "template"])
def test_show_prints_one_part_alone(
    shelf: FakeDaemon, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    assert execute(["show", "ember", f"--{part}"]) == 0
    assert capsys.readouterr().out == SHOWN[part].rstrip("\n") + "\n"


def test_show_refuses_two_parts(shelf: FakeDaemon) -> None:
    assert execute(["show", "ember", "--system", "--template"]) == 2


def test_an_empty_shelf_is_a_header_alone(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.reply("GET", "/api/tags", {"models": []})
    assert execute(["list"]) == 0
    assert lines(capsys) == ["NAME ID SIZE MODIFIED"]


def test_a_damaged_model_is_listed_and_its_fault_told(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.reply("GET", "/api/tags", {"models": [INSTALLED | {"fault": "a blob is missing"}]})
    assert execute(["list"]) == 0
    shown = capsys.readouterr()
    assert "ember:latest" in shown.out
    assert shown.err == "ember:latest is unusable: a blob is missing\n"
