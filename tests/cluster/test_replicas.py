"""A model with replicas answers as one on this machine does."""

from __future__ import annotations

import subprocess

import openai

from tests.cluster.machines import Machines, Stream, wait_for


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


def test_different_prompts_are_spread_and_each_stream_is_whole(machines: Machines) -> None:
    streams = [
        Stream(machines, "ember", f"{letter * 300} tell a story", 200).start() for letter in "abcd"
    ]
    for stream in streams:
        stream.join()
        assert (stream.done, stream.error) == (True, None)
        assert stream.text
    assert len({each["node"] for each in machines.replicas("ember")}) == 2


def test_the_other_node_has_fetched_and_verified_the_bundle(machines: Machines) -> None:
    blobs = list((machines.nodes[1].home / "cluster-models" / "blobs").glob("sha256-*"))
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
