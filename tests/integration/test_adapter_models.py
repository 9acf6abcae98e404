"""Many LoRA adapters of one model through a real daemon: added, in one batch, unloaded, refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import httpx
import numpy as np
import pytest

from kernels.native import library_path
from tests.adapter_files import Matrix, Sides
from tests.adapter_files import write_adapter as written
from tests.conformance.convert.weights import write_safetensors
from tests.conftest import RunningDaemon, StartDaemon, running_daemon
from tests.integration.cli_process import hearth, of_daemon
from tests.integration.test_adapters import RANK, WEIGHTS, create

write_adapter = partial(written, alpha=RANK)
TARGETS = ("attn_q", "attn_output", "ffn_down")
SEEDS = (1, 2, 3)


def sides(seed: int, names: Sequence[str] = TARGETS) -> Sides:
    """Random matrices for some of ember's, strong enough to be seen."""
    random, found = np.random.default_rng(seed), {}
    for tensor in gguf.GGUFReader(WEIGHTS).tensors:
        if any(tensor.name.endswith(f"{name}.weight") for name in names):
            columns, rows = (int(size) for size in tensor.shape)
            a = random.standard_normal((RANK, columns), np.float32) * np.float32(0.2)
            b = random.standard_normal((rows, RANK), np.float32) * np.float32(0.2)
            found[tensor.name] = a, b
    return found


def merging(of: Sides) -> Callable[[str, Matrix], Matrix]:
    """What makes the weights of a tensor those with an adapter in them."""

    def merged(name: str, values: Matrix) -> Matrix:
        if name not in of:
            return values
        a, b = of[name]
        return values + b @ a

    return merged


def write_base(
    path: Path, change: Callable[[str, Matrix], Matrix] = lambda _name, values: values
) -> Path:
    """ember in float32, its weights changed."""
    reader = gguf.GGUFReader(WEIGHTS)
    writer = gguf.GGUFWriter(path, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, change(tensor.name, values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def run(daemon: RunningDaemon, *arguments: str, fails: bool = False) -> str:
    """What a command prints, or why it fails."""
    ran = hearth(of_daemon(daemon), *arguments)
    assert (ran.returncode != 0) is fails, ran.stderr
    return ran.stderr if fails else ran.stdout


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    write_base(folder / "base.gguf")
    for seed in SEEDS:
        write_adapter(folder / f"{seed}.gguf", sides(seed))
    write_base(folder / "merged.gguf", merging(sides(1)))
    return folder


def text(client: httpx.Client, model: str) -> str:
    """24 tokens of an answer that goes on."""
    body = {"model": model, "prompt": "The fire is", "max_tokens": 24, "temperature": 0}
    response = client.post("/v1/completions", json={**body, "ignore_eos": True})
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


def add_all(daemon: RunningDaemon, files: Path) -> None:
    """base, and base:a1 to base:a3 with an adapter each."""
    create(daemon, files, "base", base="./base.gguf")
    for seed in SEEDS:
        said = run(daemon, "adapter", "add", "base", f"a{seed}", str(files / f"{seed}.gguf"))
        assert said == f"added 'base:a{seed}'\n"


@pytest.mark.parametrize("kernels", ["1", "0"], ids=["one batch", "by adapter"])
def test_requests_side_by_side_have_the_texts_of_each_alone(
    start_daemon: StartDaemon, files: Path, kernels: str
) -> None:
    daemon = start_daemon(names=(), env={"HEARTH_NATIVE_KERNELS": kernels})
    add_all(daemon, files)
    create(daemon, files, "merged", base="./merged.gguf")
    names = ["base", *(f"base:a{seed}" for seed in SEEDS)]
    with daemon.client() as client:
        alone = {name: text(client, name) for name in names}
        assert alone["base:a1"] == text(client, "merged")
        assert len(set(alone.values())) == len(names)
        with ThreadPoolExecutor(8) as threads:
            asked = [*names, *names]
            said = list(threads.map(lambda name: text(client, name), asked))
        assert said == [alone[name] for name in asked]
        running = {each["name"]: each for each in client.get("/api/ps").json()["models"]}
        served = [each for name, each in running.items() if name.startswith("base")]
        assert len(served) == len(names)
        assert sum("shares_memory_of" not in each for each in served) == 1
        check_listings(daemon, client)
        check_caches(client)


def check_listings(daemon: RunningDaemon, client: httpx.Client) -> None:
    cards = {card["id"]: card for card in client.get("/v1/models").json()["data"]}
    assert cards["base:a1"]["parent"] == "base"
    assert cards["base"]["parent"] is None
    shown = client.post("/api/show", json={"model": "base"}).json()
    assert shown["adapters"] == ["base:a1", "base:a2", "base:a3"]
    listed = json.loads(run(daemon, "adapter", "list", "base", "--json"))["adapters"]
    assert sorted(each["name"] for each in listed) == shown["adapters"]
    assert "adds adapters to" in run(daemon, "show", "base:a2")


def check_caches(client: httpx.Client) -> None:
    """A prompt that was computed with one adapter is of no use to another."""

    def cached(model: str) -> int:
        body = {"model": model, "prompt": "Once there was a fire in a hearth", "n_predict": 1}
        return int(client.post("/completion", json=body).json()["timings"]["cache_n"])

    assert [cached(f"base:a{seed}") for seed in SEEDS] == [0, 0, 0]
    assert cached("base") == 0
    assert cached("base:a1") > 0


@pytest.fixture(scope="module")
def dora(files: Path) -> Path:
    """A folder of PEFT's with DoRA; beside it dora.gguf, ember with it in its weights."""
    of, random = sides(4, ("attn_output", "ffn_down")), np.random.default_rng(4)
    tensors: dict[str, Matrix] = {}

    def merged(name: str, values: Matrix) -> Matrix:
        if name not in of:
            return values
        (_, layer, kind, _), (a, b) = name.split("."), of[name]
        module = {"attn_output": "self_attn.o_proj", "ffn_down": "mlp.down_proj"}[kind]
        stem = f"base_model.model.model.layers.{layer}.{module}.lora_"
        magnitudes = np.linalg.norm(values, axis=1) * random.uniform(0.5, 2, len(values))
        tensors[f"{stem}A.weight"], tensors[f"{stem}B.weight"] = a, b
        tensors[f"{stem}magnitude_vector"] = magnitudes.astype(np.float32)
        changed = values + b @ a
        return changed * (magnitudes / np.linalg.norm(changed, axis=1)).astype(np.float32)[:, None]

    write_base(files / "dora.gguf", merged)
    (folder := files / "dora").mkdir()
    write_safetensors(folder / "adapter_model.safetensors", tensors, "F32")
    config = {"peft_type": "LORA", "use_dora": True, "r": RANK, "lora_alpha": RANK}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.skipif(library_path("llamacpp") is None, reason="the kernels were not compiled")
def test_dora_answers_as_its_merged_weights_alone_and_beside_others(
    start_daemon: StartDaemon, files: Path, dora: Path
) -> None:
    daemon = start_daemon(names=())
    add_all(daemon, files)
    assert run(daemon, "adapter", "add", "base", "dora", str(dora)) == "added 'base:dora'\n"
    create(daemon, files, "merged", base="./dora.gguf")
    names = ["base", "base:dora", "base:a1"]
    with daemon.client() as client:
        alone = {name: text(client, name) for name in names}
        assert alone["base:dora"] == text(client, "merged")
        assert len(set(alone.values())) == len(names)
        with ThreadPoolExecutor(6) as threads:
            said = list(threads.map(lambda name: text(client, name), names * 2))
        assert said == [alone[name] for name in names * 2]


def test_dora_without_the_kernels_is_refused_with_the_reason(
    start_daemon: StartDaemon, files: Path, dora: Path, tmp_path: Path
) -> None:
    with running_daemon(tmp_path, ()) as daemon:
        create(daemon, files, "base", base="./base.gguf")
        run(daemon, "adapter", "add", "base", "dora", str(dora))
    daemon = start_daemon(names=(), env={"HEARTH_NATIVE_KERNELS": "0"}, home=tmp_path)
    refused = run(daemon, "adapter", "add", "base", "again", str(dora), fails=True)
    assert "do not take part: HEARTH_NATIVE_KERNELS switches them off; add it to a" in refused
    with daemon.client() as client:
        refused = client.post("/v1/completions", json={"model": "base:dora", "prompt": "x"})
        assert refused.status_code >= 400
        assert "is one of DoRA" in refused.json()["error"]["message"]
        assert text(client, "base")


def test_an_adapter_in_use_leaves_after_its_last_request(
    start_daemon: StartDaemon, files: Path
) -> None:
    daemon = start_daemon(names=())
    add_all(daemon, files)
    body: dict[str, Any] = {"model": "base:a1", "prompt": "The fire", "max_tokens": 120}
    body |= {"temperature": 0, "stream": True, "ignore_eos": True}
    with daemon.client() as client:
        text(client, "base")
        with client.stream("POST", "/v1/completions", json=body) as stream:
            lines = stream.iter_lines()
            next(lines)
            left = client.post("/v1/unload_lora_adapter", json={"lora_name": "base:a1"})
            assert left.status_code == 200, left.text
            rest = [line for line in lines if line.startswith("data: {")]
        last = json.loads(rest[-1].removeprefix("data: "))
        assert last["choices"][0]["finish_reason"] == "length"
        assert "base:a1" not in {each["name"] for each in client.get("/api/ps").json()["models"]}
        again = client.post("/v1/unload_lora_adapter", json={"lora_name": "base:a1"})
        assert again.status_code == 409
        loaded = client.post("/v1/load_lora_adapter", json={"lora_name": "base:a1"})
        assert loaded.status_code == 200, loaded.text
        assert "base:a1" in {each["name"] for each in client.get("/api/ps").json()["models"]}
        refused = client.post("/v1/load_lora_adapter", json={"lora_name": "base"})
        assert "without LoRA adapters" in refused.text
    assert run(daemon, "adapter", "remove", "base", "a1") == "removed 'base:a1'\n"
    assert "is another model" in run(
        daemon, "adapter", "remove", "base:a2", "base:latest", fails=True
    )


def test_adapters_of_a_folder_are_installed_by_name(
    start_daemon: StartDaemon, files: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "served"
    folder.mkdir()
    write_adapter(folder / "one.gguf", sides(1))
    write_adapter(tmp_path / "outside.gguf", sides(2))
    daemon = start_daemon(names=(), env={"HEARTH_ADAPTER_PATH": str(folder)})
    create(daemon, files, "base", base="./base.gguf")
    with daemon.client() as client:

        def load(**body: Any) -> httpx.Response:
            return client.post("/v1/load_lora_adapter", json={"lora_name": "poet", **body})

        given = {"lora_path": "one.gguf", "base_model_name": "base"}
        assert load(**given).status_code == 200
        assert text(client, "poet") != text(client, "base")
        assert load(**given).status_code == 409
        assert load(**given, load_inplace=True).status_code == 200
        for elsewhere in ("../outside.gguf", str(tmp_path / "outside.gguf"), "none"):
            refused = load(lora_path=elsewhere, base_model_name="base", load_inplace=True)
            assert refused.status_code == 400
            assert "no adapter at" in refused.text
        assert load(lora_path="one.gguf", base_model_name="none").status_code == 404


def test_adapters_leave_for_others_within_the_memory_for_them(
    start_daemon: StartDaemon, files: Path, tmp_path: Path
) -> None:
    weights = sum(a.size + b.size for a, b in sides(1).values())
    env = {"HEARTH_ADAPTER_MEMORY": str(int(4 * weights * 1.5))}
    daemon = start_daemon(names=(), env=env)
    add_all(daemon, files)
    names = [f"base:a{seed}" for seed in SEEDS]
    with daemon.client() as client:
        alone = {name: text(client, name) for name in names}
        with ThreadPoolExecutor(6) as threads:
            asked = [*names, *names]
            said = list(threads.map(lambda name: text(client, name), asked))
        assert said == [alone[name] for name in asked]
        large = {
            name: tuple(np.repeat(side, 2, axis) for side, axis in zip(pair, (0, 1), strict=True))
            for name, pair in sides(4).items()
        }
        write_adapter(tmp_path / "large.gguf", large)  # type: ignore[arg-type]
        run(daemon, "adapter", "add", "base", "large", str(tmp_path / "large.gguf"))
        body = {"model": "base:large", "prompt": "x", "stream": False}
        refused = client.post("/api/generate", json=body)
        assert refused.status_code == 503
        assert "HEARTH_ADAPTER_MEMORY" in refused.text


def spoiled(folder: Path) -> Mapping[str, tuple[Path, str]]:
    """Files that are no adapter for ember, and what is said of each."""
    good = sides(1, ("ffn_down",))
    name, (a, b) = next(iter(good.items()))
    nan = b.copy()
    nan[3, 1] = np.nan
    whole = write_adapter(folder / "whole.gguf", good).read_bytes()
    (folder / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    return {
        "other": (
            write_adapter(folder / "other.gguf", good, architecture="qwen2"),
            "its architecture is qwen2",
        ),
        "wide": (
            write_adapter(folder / "wide.gguf", {name: (a[:, :-32], b)}),
            "made for another model: its matrices for",
        ),
        "layer": (
            write_adapter(folder / "layer.gguf", {"blk.99.ffn_down.weight": (a, b)}),
            "which the model does not have",
        ),
        "rank": (write_adapter(folder / "rank.gguf", {name: (a[:-1], b)}), "its matrices for"),
        "nan": (write_adapter(folder / "nan.gguf", {name: (a, nan)}), "NaN or infinite"),
        "cut": (folder / "cut.gguf", "invalid GGUF"),
        "model": (WEIGHTS, "name that of a LoRA adapter"),
        "none": (folder / "none.gguf", "does not exist"),
    }


def test_what_is_no_adapter_for_the_model_is_refused_before_anything_is_loaded(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    daemon = start_daemon(names=())
    create(daemon, tmp_path, "plain")
    for name, (path, reason) in spoiled(tmp_path).items():
        said = run(daemon, "adapter", "add", "plain", name, str(path), fails=True)
        assert reason in said, name
    good = str(write_adapter(tmp_path / "good.gguf", sides(1)))
    for name in ("../x", "a b", "x" * 200, ""):
        assert run(daemon, "adapter", "add", "plain", name, good, fails=True)
    run(daemon, "adapter", "add", "plain", "one", good)
    assert "add this one to plain" in run(
        daemon, "adapter", "add", "plain:one", "two", good, fails=True
    )
    create(daemon, tmp_path, "busy", "SYSTEM x")  # the same weights, and no adapter
    assert "is another model" in run(
        daemon, "adapter", "add", "plain", "busy:latest", good, fails=True
    )
    with daemon.client() as client:
        assert client.get("/api/ps").json()["models"] == []
        names = {each["name"] for each in client.get("/api/tags").json()["models"]}
        assert names == {"plain:latest", "plain:one", "busy:latest", "ember:latest"}
        assert client.post("/api/fsck", json={}).status_code == 200
        assert text(client, "plain:one") != text(client, "plain")
