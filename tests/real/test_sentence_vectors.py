"""all-MiniLM-L6-v2 beside sentence-transformers: 1,000 sentences, alone and in batches."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from random import Random

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import RunningDaemon
from tests.integration.cli_process import COMMAND, of_daemon
from tests.real.conftest import AskOracle, require
from tests.real.sentences import PAIRS, sentences

Vectors = NDArray[np.float64]

SENTENCES = sentences()
VARIANTS = {
    "minilm-f32": ("F32", "llamacpp"),
    "minilm-f16": ("F16", "llamacpp"),
    "minilm-q8_0": ("Q8_0", "llamacpp"),
    "minilm-torch-f32": ("F32", "torch"),
    "minilm-torch-q8_0": ("Q8_0", "torch"),
}
F32 = [name for name, (kind, _) in VARIANTS.items() if kind == "F32"]
# The least cosines. Rounding the weights alone leaves the vector of "." with 0.999459.
LEAST = {"minilm-q8_0": 0.9994, "minilm-torch-q8_0": 0.9994}
SAME_ORDER = 0.01  # cosines that are nearer to each other may change places when quantized

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wanted(ask_oracle: AskOracle) -> Vectors:
    return np.array(ask_oracle("vectors", folder=str(require("minilm")), sentences=SENTENCES))


@pytest.fixture(scope="module", params=VARIANTS)
def model(
    request: pytest.FixtureRequest, daemon: RunningDaemon, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """One of VARIANTS, made by hearth create from the repository's folder."""
    folder, (kind, backend) = require("minilm"), VARIANTS[request.param]
    if backend == "torch" and find_spec("torch") is None:
        pytest.skip("torch is not installed")
    modelfile = tmp_path_factory.mktemp("minilm") / "Modelfile"
    modelfile.write_text(f"FROM {folder}\nPARAMETER backend {backend}\n")
    create = [*COMMAND, "create", request.param, "-f", str(modelfile), "-q", kind]
    ran = subprocess.run(create, env=of_daemon(daemon), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return str(request.param)


@pytest.fixture(scope="module")
def found(http: httpx.Client, model: str) -> Vectors:
    """Of all sentences, in requests of 100."""
    return np.concatenate(
        [embed(http, model, SENTENCES[at : at + 100]) for at in range(0, len(SENTENCES), 100)]
    )


def embed(http: httpx.Client, model: str, texts: list[str]) -> Vectors:
    answer = http.post("/api/embed", json={"model": model, "input": texts, "truncate": False})
    assert answer.status_code == 200, answer.text
    return np.array(answer.json()["embeddings"])


def test_vectors_are_those_of_sentence_transformers(
    model: str, found: Vectors, wanted: Vectors
) -> None:
    apart, cosines = np.abs(found - wanted).max(axis=1), (found * wanted).sum(axis=1)
    print(
        f"{model}: values within {apart.max():.2e} (half of the sentences {np.median(apart):.2e}),"
        f" cosines from {cosines.min():.6f} for {SENTENCES[cosines.argmin()][:60]!r}, half of them"
        f" from {np.median(cosines):.6f}, {np.mean(cosines < 0.9995):.1%} below 0.9995"
    )
    assert found.shape == wanted.shape == (len(SENTENCES), 384)
    assert np.isfinite(found).all()
    assert np.linalg.norm(found, axis=1) == pytest.approx(1.0, abs=1e-5)
    if model in F32:
        assert apart.max() < 1e-4
    assert cosines.min() >= LEAST.get(model, 0.9995)
    assert np.median(cosines) >= 0.9995


def test_a_vector_is_the_same_alone_and_in_any_batch(
    http: httpx.Client, model: str, found: Vectors
) -> None:
    rng, apart = Random("batches 1"), []
    for place in rng.sample(range(len(SENTENCES)), 100):
        apart.append(np.abs(embed(http, model, [SENTENCES[place]])[0] - found[place]).max())
    order = rng.sample(range(len(SENTENCES)), 400)
    while order:
        batch, order = order[: (size := rng.randint(1, 60))], order[size:]
        got = embed(http, model, [SENTENCES[place] for place in batch])
        apart += np.abs(got - found[batch]).max(axis=1).tolist()
    print(f"{model}: {np.mean(np.array(apart) == 0):.1%} the same bits, within {max(apart):.1e}")
    assert max(apart) < 1e-6


def test_pairs_keep_their_order_of_likeness(model: str, found: Vectors, wanted: Vectors) -> None:
    """And so do the nearest sentences of each one."""
    pairs = 2 * np.arange(len(PAIRS))
    ours = (found[pairs] * found[pairs + 1]).sum(axis=1)
    theirs = (wanted[pairs] * wanted[pairs + 1]).sum(axis=1)
    moved = swapped(ours, theirs)
    nearest = [swapped(found @ found[row], wanted @ wanted[row]) for row in range(2 * len(PAIRS))]
    print(f"{model}: of cosines that change places, {max(moved, *nearest):.2e} lie between at most")
    assert max(moved, *nearest) < (1e-6 if model in F32 else SAME_ORDER)


def swapped(ours: Vectors, theirs: Vectors) -> float:
    """How far two of their values, of which ours have the other order, are apart at most."""
    order = theirs.argsort()
    ranked, values = ours[order], theirs[order]
    first = np.searchsorted(np.maximum.accumulate(ranked), ranked, side="right")  # that is larger
    return float((values - values[np.minimum(first, np.arange(len(values)))]).max())
