"""A model with replicas answers as one on this machine does."""

from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path

import openai
import psutil
import pytest

from tests.cluster.machines import Machines, Stream, wait_for


@pytest.fixture(scope="module")
def spread(machines: Machines) -> Machines:
    """With a replica of ember on each node: those of a node that was killed are on the other."""
    machines.post("/api/cluster/undeploy", {"model": "ember"})
    machines.deploy("ember", 2)
    return machines


def test_an_answer_is_that_of_one_machine(machines: Machines) -> None:
    question = {"temperature": 0.0, "seed": 1, "max_tokens": 40}
    far = machines.chat("ember", "What is the capital of France?", **question).json()
    machines.post("/api/copy", {"source": "ember", "destination": "here"})  # not deployed
    near = machines.chat("here", "What is the capital of France?", **question).json()
    assert far["choices"][0]["message"] == near["choices"][0]["message"]


def test_the_openai_sdk_speaks_to_replicas(machines: Machines) -> None:
    client = openai.OpenAI(base_url=f"{machines.url}/v1", api_key=machines.token)
    stream = client.chat.completions.create(
        model="ember", messages=[{"role": "user", "content": "Hello"}], stream=True, max_tokens=8
    )
    chunks = list(stream)
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")
    client.close()


def test_different_prompts_are_spread_and_each_stream_is_whole(spread: Machines) -> None:
    streams = [
        Stream(spread, "ember", f"{letter * 300} tell a story", 200).start() for letter in "abcd"
    ]
    for stream in streams:
        stream.join()
        assert (stream.done, stream.error) == (True, None)
        assert stream.text
    assert len({each["node"] for each in spread.replicas("ember")}) == 2


def test_the_other_node_has_fetched_and_verified_the_bundle(spread: Machines) -> None:
    blobs = list((spread.nodes[1].home / "cluster-models" / "blobs").glob("sha256-*"))
    assert blobs
    for blob in blobs:
        told = subprocess.run(["sha256sum", blob], capture_output=True, text=True, check=True)
        assert told.stdout.split()[0] == blob.name.removeprefix("sha256-")


def test_embeddings_and_token_counts_come_from_replicas(machines: Machines) -> None:
    answer = machines.post("/tokenize", {"model": "ember", "content": "some words"})
    assert answer.json()["tokens"]


def test_a_client_that_leaves_ends_its_sequence(machines: Machines) -> None:
    with machines.client() as client:
        body = {"model": "ember", "messages": [{"role": "user", "content": "count"}],
                "stream": True, "max_tokens": 1900, "ignore_eos": True}  # fmt: skip
        with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            next(answer.iter_lines())
    wait_for(
        lambda: not sum(each["sequences"] for each in machines.replicas("ember")),
        "no sequence is left",
    )


@pytest.mark.parametrize("metadata", [(), (("authorization", "Bearer " + "a" * 43),)])
def test_a_call_without_the_token_is_not_unpickled(
    machines: Machines, tmp_path: Path, metadata: tuple[tuple[str, str], ...]
) -> None:
    import grpc

    trace = tmp_path / "unpickled"
    body = pickle.dumps(_Folder(str(trace)))
    pid = machines.replicas("ember")[0]["pid"]
    told = psutil.Process(pid).net_connections(kind="tcp")
    codes = []
    for port in {each.laddr.port for each in told if each.status == psutil.CONN_LISTEN}:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            method = "/ray.serve.ASGIService/HandleRequest"
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(method)(_message(body, body), metadata=metadata, timeout=10)
            codes.append(refused.value.code())
    assert grpc.StatusCode.UNAUTHENTICATED in codes, codes
    assert not trace.exists()


class _Folder:
    """Unpickled, it makes a folder."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.path,)


def _message(*fields: bytes) -> bytes:
    """Protobuf's form of the first fields of a message, which are bytes."""
    return b"".join(
        bytes([number << 3 | 2]) + _varint(len(field)) + field
        for number, field in enumerate(fields, 1)
    )


def _varint(number: int) -> bytes:
    low = bytes([number & 127 | (128 if number > 127 else 0)])
    return low + (_varint(number >> 7) if number > 127 else b"")
