"""Embeddings of tokens, and vectors in their places."""

from __future__ import annotations

import torch

from runner.backends.torch.layers.linear import TokenEmbedding


def test_vectors_stand_in_the_places_of_tokens_as_they_are() -> None:
    embedding = TokenEmbedding(torch.arange(10.0).view(5, 2), scale=3.0)
    vectors = torch.tensor([[0.5, -0.5], [7.0, 8.0]], dtype=torch.float64)
    found = embedding(torch.tensor([4, 0, 0, 1]), [(1, vectors)])
    assert found.tolist() == [[24.0, 27.0], [0.5, -0.5], [7.0, 8.0], [6.0, 9.0]]
    assert embedding.weight.tolist()[0] == [0.0, 1.0]
