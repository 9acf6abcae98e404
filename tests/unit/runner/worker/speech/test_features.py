from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("faster_whisper")

from faster_whisper.feature_extractor import FeatureExtractor

from runner.worker.speech.features import BlockFeatures


@pytest.mark.parametrize("samples", [1, 150, 16_000, 61 * 16_000 + 7])
@pytest.mark.parametrize("channels", [80, 128])
def test_the_features_are_those_of_faster_whisper(samples: int, channels: int) -> None:
    sound = np.random.default_rng(samples).integers(-9000, 9000, samples).astype(np.int16)
    floats = sound.astype(np.float32) / 32768.0
    expected = FeatureExtractor(feature_size=channels)(floats)
    for given in (sound, floats):
        found = BlockFeatures(feature_size=channels)(given)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, atol=2e-5)
