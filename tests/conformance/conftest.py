"""What the tests of OpenAI's routes share: the official SDK, strict with what it reads."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.conftest import RunningDaemon


@pytest.fixture
def daemon(shared_daemon: RunningDaemon) -> RunningDaemon:
    """The daemon that is asked; a file may have one of its own."""
    return shared_daemon


@pytest.fixture
def sdk(daemon: RunningDaemon) -> Iterator[openai.OpenAI]:
    """The SDK as a client of it."""
    with openai.OpenAI(
        base_url=f"{daemon.url}/v1",
        api_key="none",
        max_retries=0,
        _strict_response_validation=True,
    ) as client:
        yield client
