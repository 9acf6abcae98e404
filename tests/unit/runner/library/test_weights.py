"""One GGUF from whatever a model is made of: which jobs run, in which order, and what is left."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from modelfile.build import build
from modelfile.description import Description
from modelfile.errors import BuildError
from registry.digest import Digest
from registry.errors import InvalidGguf, StoreFull
from registry.names import Name
from registry.store import Store
from runner.errors import InvalidRequest
from runner.library.progress import Progress, ReportProgress
from runner.library.quantizing import QuantizationRequest
from runner.library.weights import WeightsBuilder, WeightsInput
from tests.gguf_files import (
    all_llama_tensors,
    echo_file,
    gguf_file,
    llama_file,
    llama_metadata,
    text,
)

NAME = Name.parse("tiny")
QUANTIZED = gguf_file(llama_metadata() | {"general.name": text("quantized")}, all_llama_tensors())
CONVERTED = gguf_file(llama_metadata() | {"general.name": text("converted")}, all_llama_tensors())
SAFETENSORS = bytes(8) + b"{}"
Q4 = QuantizationRequest("Q4_K_M")


class Jobs:
    """Runs no process: notes each job and writes what it would make."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, Mapping[str, Any]]] = []
        self.results = {"convert": CONVERTED, "quantize": QUANTIZED, "merge": llama_file()}
        self.measured: list[str] = []
        self.texts: list[str] = []
        self.fault: Exception | None = None
        self.ended = 0

    async def run(
        self, name: str, job: Mapping[str, Any], report: ReportProgress, unit: str | None
    ) -> dict[str, Any]:
        self.ran.append((name, job))
        if name == "perplexity":
            return self._measure(job)
        if name == "calibrated":
            self._calibrate(job)
        try:
            self._write(job, ".begun", b"half")
            await report(Progress(name, 1, 2, unit))
            if self.fault is not None:
                raise self.fault
            self._write(job, ".gguf", self.results.get(name, b"matrix"))
            return {}
        finally:
            self.ended += 1

    def _measure(self, job: Mapping[str, Any]) -> dict[str, Any]:
        assert Path(job["model"]).is_file()
        self.measured.append(Path(job["text"]).read_text())
        return {"perplexity": 10.0 + len(self.measured), "tokens": 7}

    def _calibrate(self, job: Mapping[str, Any]) -> None:
        assert Path(job["folder"]).is_dir()
        self.texts.append(Path(job["text"]).read_text())

    @staticmethod
    def _write(job: Mapping[str, Any], suffix: str, content: bytes) -> None:
        Path(job["target"]).with_suffix(suffix).write_bytes(content)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.ran]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "models")
    yield opened
    opened.close()


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


def put(store: Store, content: bytes) -> Digest:
    with store.blob_writer() as writer:
        writer.write(content)
        return writer.commit()[0]


def checkpoint(store: Store) -> dict[str, Digest]:
    return {
        "model.safetensors": put(store, SAFETENSORS),
        "config.json": put(store, b"{}"),
        "tokenizer.json": put(store, b"[]"),
    }


def builder(store: Store, jobs: Jobs, given: WeightsInput) -> tuple[WeightsBuilder, list[Progress]]:
    steps: list[Progress] = []

    async def report(progress: Progress) -> None:
        steps.append(progress)

    return WeightsBuilder(store, given, report, jobs.run), steps


def is_clean(store: Store) -> bool:
    """Nothing is left but the mark of a result that nobody has used yet."""
    names = [path.name for path in (store.root / "tmp").iterdir()]
    return [name.partition("-")[0] for name in names] in ([], ["taken"])


async def test_one_gguf_is_taken_as_it_is(store: Store, jobs: Jobs) -> None:
    digest = put(store, llama_file())
    work, steps = builder(store, jobs, WeightsInput(files={"m.gguf": digest}))
    made = await work.build()
    assert (made.model, made.adapters, made.written) == (digest, None, ())
    assert (jobs.ran, steps) == ([], [])


async def test_an_installed_model_keeps_its_weights(store: Store, jobs: Jobs) -> None:
    list(build(store, Description(NAME, files={"m": put(store, llama_file())})))
    made = await builder(store, jobs, WeightsInput(from_model=NAME))[0].build()
    assert (made.model, made.written) == (None, ())


async def test_parts_are_merged_and_the_result_is_a_blob(store: Store, jobs: Jobs) -> None:
    files = {"2": put(store, b"GGUF two"), "1": put(store, b"GGUF one")}
    made = await builder(store, jobs, WeightsInput(files=files))[0].build()
    assert made.model == Digest.of(llama_file())
    assert jobs.names == ["merge"]
    assert set(jobs.ran[0][1]["parts"]) == {str(store.blob_path(d)) for d in files.values()}
    assert is_clean(store)


async def test_safetensors_are_converted(store: Store, jobs: Jobs) -> None:
    files = checkpoint(store)
    work, steps = builder(store, jobs, WeightsInput(files=files))
    made = await work.build()
    assert made.model == Digest.of(CONVERTED)
    ((name, job),) = jobs.ran
    assert name == "convert"
    assert job["files"] == {key: str(store.blob_path(value)) for key, value in files.items()}
    assert (job["type"], job["adapter"], job["base"]) == ("auto", False, None)
    assert steps[0] == Progress("convert", 1, 2)
    assert steps[-1].completed == steps[-1].total == len(CONVERTED)
    assert is_clean(store)


@pytest.mark.parametrize("kind", ["F16", "BF16", "F32"])
async def test_a_plain_type_is_made_by_the_conversion_alone(
    store: Store, jobs: Jobs, kind: str
) -> None:
    given = WeightsInput(checkpoint(store), quantization=QuantizationRequest(kind))
    await builder(store, jobs, given)[0].build()
    assert [(name, job["type"]) for name, job in jobs.ran] == [("convert", kind)]


async def test_converted_weights_are_quantized_before_they_become_a_blob(
    store: Store, jobs: Jobs
) -> None:
    given = WeightsInput(checkpoint(store), quantization=Q4)
    made = await builder(store, jobs, given)[0].build()
    assert jobs.names == ["convert", "quantize"]
    assert jobs.ran[1][1]["source"] == jobs.ran[0][1]["target"]
    assert made.model == Digest.of(QUANTIZED)
    assert not store.has_blob(Digest.of(CONVERTED))
    assert is_clean(store)


async def test_an_installed_model_can_be_quantized_as_wished(store: Store, jobs: Jobs) -> None:
    list(build(store, Description(NAME, files={"m": put(store, llama_file())})))
    matrix = put(store, b"matrix")
    wished = QuantizationRequest(
        "Q4_K_M", (("attn_v", "Q8_0"),), imatrix=matrix, allow_requantize=True
    )
    made = await builder(store, jobs, WeightsInput(from_model=NAME, quantization=wished))[0].build()
    ((_, job),) = jobs.ran
    assert job["source"] == str(store.blob_path(Digest.of(llama_file())))
    assert job["overrides"] == [["attn_v", "Q8_0"]]
    assert job["imatrix"] == str(store.blob_path(matrix))
    assert (job["type"], job["allow_requantize"]) == ("Q4_K_M", True)
    assert made.model == Digest.of(QUANTIZED)


async def test_the_importance_matrix_is_made_from_the_plain_weights(
    store: Store, jobs: Jobs
) -> None:
    words = put(store, b"some words")
    given = WeightsInput(
        checkpoint(store), quantization=QuantizationRequest("IQ2_XS", calibration=words)
    )
    work, steps = builder(store, jobs, given)
    made = await work.build()
    assert jobs.names == ["convert", "perplexity", "imatrix", "quantize", "perplexity"]
    converted, before, calibrated, quantized, after = (job for _, job in jobs.ran)
    assert calibrated["model"] == converted["target"]
    assert calibrated["text"] == str(store.blob_path(words))
    assert quantized["imatrix"] == calibrated["target"]
    assert [step.unit for step in steps if step.unit] == ["chunks", "tensors"]
    assert (before["model"], after["model"]) == (converted["target"], quantized["target"])
    assert jobs.measured == ["some words", "some words"]
    assert made.perplexity == {
        "type": "IQ2_XS",
        "text": "the calibration text",
        "before": {"perplexity": 11.0, "tokens": 7},
        "after": {"perplexity": 12.0, "tokens": 7},
    }


async def test_weights_are_measured_on_the_text_that_was_given_for_it(
    store: Store, jobs: Jobs
) -> None:
    wanted = QuantizationRequest("Q4_K_M", evaluation=put(store, b"other words"))
    work, _ = builder(store, jobs, WeightsInput(checkpoint(store), quantization=wanted))
    made = await work.build()
    assert jobs.names == ["convert", "perplexity", "quantize", "perplexity"]
    assert jobs.measured == ["other words", "other words"]
    assert made.perplexity is not None
    assert made.perplexity["text"] == "the text given for it"


@pytest.mark.parametrize(
    ("calibration", "evaluation", "by", "on"),
    [
        (b"abcdefgh", None, "abcdef", "gh"),
        (b"abcdefgh", b"xyz", "abcdefgh", "xyz"),
        (None, b"xyz", None, "xyz"),
        (None, None, None, None),
    ],
)
async def test_four_bits_by_a_text_are_measured_on_what_they_were_not_fitted_to(
    store: Store,
    jobs: Jobs,
    calibration: bytes | None,
    evaluation: bytes | None,
    by: str | None,
    on: str | None,
) -> None:
    jobs.results["calibrated"] = QUANTIZED
    texts = [None if each is None else put(store, each) for each in (calibration, evaluation)]
    wanted = QuantizationRequest("GPTQ-INT4", calibration=texts[0], evaluation=texts[1])
    files = {**checkpoint(store), "config.json": put(store, b"{}")}
    work, _ = builder(store, jobs, WeightsInput(files, quantization=wanted))
    made = await work.build()
    assert jobs.names == ["convert", "perplexity", "calibrated", "perplexity"]
    _, before, job, after = (job for _, job in jobs.ran)
    assert (job["method"], job["config"]) == ("gptq", str(store.blob_path(files["config.json"])))
    assert before["backend"] == after["backend"] == "torch"
    assert (before["model"], after["model"]) == (job["source"], job["target"])
    assert jobs.measured[0] == jobs.measured[1]
    assert on is None or jobs.measured[0] == on
    assert by is None or jobs.texts == [by]
    if calibration is None:
        assert len(jobs.texts[0]) > 100_000
        assert jobs.texts[0].count(" the ") > 500
        assert jobs.measured[0] not in jobs.texts[0]
    assert made.model == Digest.of(QUANTIZED)
    assert is_clean(store)


async def test_a_text_that_is_none_is_refused_before_the_work(store: Store, jobs: Jobs) -> None:
    wanted = QuantizationRequest("AWQ-INT4", calibration=put(store, b"\xff\xfe"))
    work, _ = builder(store, jobs, WeightsInput(checkpoint(store), quantization=wanted))
    with pytest.raises(InvalidRequest, match="not UTF-8: invalid byte at position 0"):
        await work.build()
    assert jobs.names == ["convert"]
    assert is_clean(store)


async def test_four_bits_are_made_of_floats_unless_others_are_allowed(
    store: Store, jobs: Jobs
) -> None:
    jobs.results["calibrated"] = QUANTIZED
    files = {"m.gguf": put(store, llama_file())}
    given = WeightsInput(files, quantization=QuantizationRequest("GPTQ-INT4"))
    with pytest.raises(BuildError, match=r"already quantized \(Q8_0\); make GPTQ-INT4 from floats"):
        await builder(store, jobs, given)[0].build()
    assert jobs.names == []
    allowed = replace(given, quantization=QuantizationRequest("GPTQ-INT4", allow_requantize=True))
    await builder(store, jobs, allowed)[0].build()
    assert jobs.names == ["perplexity", "calibrated", "perplexity"]


async def test_an_adapter_of_safetensors_is_converted_for_its_base(
    store: Store, jobs: Jobs
) -> None:
    base = put(store, llama_file())
    files = {"adapter_model.safetensors": put(store, SAFETENSORS)}
    made = await builder(store, jobs, WeightsInput({"m.gguf": base}, files))[0].build()
    ((_, job),) = jobs.ran
    assert (job["adapter"], job["base"]) == (True, str(store.blob_path(base)))
    assert (made.model, made.adapters) == (base, (Digest.of(CONVERTED),))


async def test_an_adapter_in_gguf_is_taken_as_it_is(store: Store, jobs: Jobs) -> None:
    base, adapter = put(store, llama_file()), put(store, b"GGUF adapter")
    given = WeightsInput({"m.gguf": base}, {"a.gguf": adapter})
    assert (await builder(store, jobs, given)[0].build()).adapters == (adapter,)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"pytorch_model.bin": b"PK\x03\x04"}, "'pytorch_model.bin' is a pickle"),
        ({"model.pt": b"x"}, "'model.pt' is a pickle"),
        ({"weights.gguf": b"\x80\x02}q"}, "'weights.gguf' is a pickle"),
        ({"m.safetensors": SAFETENSORS, "model.pth": b"x"}, "'model.pth' is a pickle"),
        (
            {"a.gguf": llama_file(), "config.json": b"{}"},
            "'a.gguf' is a GGUF file and 'config.json'",
        ),
        ({"config.json": b"{}", "tokenizer.json": b"[]"}, "no weights found: none of config.json"),
    ],
)
async def test_files_that_make_no_model_are_refused(
    store: Store, jobs: Jobs, files: dict[str, bytes], message: str
) -> None:
    digests = {name: put(store, content) for name, content in files.items()}
    with pytest.raises(BuildError, match=message):
        await builder(store, jobs, WeightsInput(digests))[0].build()
    assert jobs.ran == []
    assert is_clean(store)


async def test_a_file_that_is_no_gguf_is_refused(store: Store, jobs: Jobs) -> None:
    with pytest.raises(InvalidGguf, match="not a GGUF file"):
        await builder(store, jobs, WeightsInput({"m": put(store, b"what?")}))[0].build()


async def test_a_model_without_weights_is_not_quantized(store: Store, jobs: Jobs) -> None:
    given = WeightsInput({"e.gguf": put(store, echo_file())}, quantization=Q4)
    with pytest.raises(BuildError, match="no weights to quantize"):
        await builder(store, jobs, given)[0].build()
    assert is_clean(store)


async def test_too_little_space_is_told_before_the_work(
    store: Store, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("registry.atomic.free_bytes", lambda directory: 5)
    with pytest.raises(StoreFull, match="5 B is free"):
        await builder(store, jobs, WeightsInput(checkpoint(store)))[0].build()
    assert jobs.ran == []


async def test_a_job_that_fails_leaves_nothing(store: Store, jobs: Jobs) -> None:
    jobs.fault = InvalidRequest("the shapes contradict each other")
    files = checkpoint(store)
    before = set((store.root / "blobs").iterdir())
    with pytest.raises(InvalidRequest, match="the shapes"):
        await builder(store, jobs, WeightsInput(files))[0].build()
    assert is_clean(store)
    assert set((store.root / "blobs").iterdir()) == before


async def test_a_result_that_cannot_be_used_is_removed_again(store: Store, jobs: Jobs) -> None:
    files = {"adapter_model.safetensors": put(store, SAFETENSORS)}
    parts = {"1": put(store, b"GGUF one"), "2": put(store, b"GGUF two")}
    work = builder(store, jobs, WeightsInput(parts, files))[0]

    async def run(name: str, *arguments: Any) -> dict[str, Any]:
        if name == "convert":
            raise InvalidRequest("the adapter is of another model")
        return await jobs.run(name, *arguments)

    work._run = run
    with pytest.raises(InvalidRequest, match="another model"):
        await work.build()
    assert not store.has_blob(Digest.of(llama_file()))
    assert is_clean(store)


async def test_a_cancelled_work_ends_its_job_and_leaves_nothing(store: Store, jobs: Jobs) -> None:
    started = asyncio.Event()

    async def report(progress: Progress) -> None:
        started.set()
        await asyncio.Event().wait()

    work = WeightsBuilder(store, WeightsInput(checkpoint(store)), report, jobs.run)
    task = asyncio.create_task(work.build())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert jobs.ended == 1
    assert is_clean(store)


@pytest.mark.parametrize("length", [0x0280, 0x04034B50])
async def test_a_header_whose_length_looks_like_a_pickle_is_safetensors(
    store: Store, jobs: Jobs, length: int
) -> None:
    content = struct.pack("<Q", length) + b"{" + b" " * 20
    files = {"model.safetensors": put(store, content)}
    await builder(store, jobs, WeightsInput(files))[0].build()
    assert jobs.names == ["convert"]
