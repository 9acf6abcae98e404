from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from modelfile.description import Description
from modelfile.errors import BuildError
from registry.errors import ModelMissing
from registry.names import Name
from registry.progress import Progress
from runner.errors import InvalidRequest, ModelNotFound, NetworkForbidden
from runner.leaf_errors import as_hearth_error
from runner.library.create import CreateSources, create_model
from runner.library.fsck import FsckTotals, check_store
from runner.library.library import Library
from runner.library.pull import pull_model
from runner.library.transfers import Reach
from runner.settings import load
from tests.adapter_files import write_adapter
from tests.echo_models import install_echo
from tests.gguf_files import llama_file


@pytest.fixture
async def library(tmp_path: Path) -> AsyncIterator[Library]:
    opened = Library.open(load({"HEARTH_HOME": str(tmp_path), "HEARTH_OFFLINE": "1"}), "test")
    install_echo(opened.store, "echo")
    yield opened
    await opened.close()


@pytest.fixture
def changed(library: Library) -> list[str]:
    names: list[str] = []

    async def note(name: str) -> None:
        names.append(name)

    library.on_change = note
    return names


async def unseen(progress: Progress) -> None:
    """Nobody watches."""


async def test_who_has_models_loaded_hears_of_every_name_that_changes(
    library: Library, changed: list[str]
) -> None:
    await library.copy("echo", "twin")
    assert changed == ["twin"]
    description = Description(Name.parse("made"), system="x")
    await create_model(library, description, CreateSources(from_model="echo"), Reach(), unseen)
    assert changed == ["twin", "made"]
    await library.delete("twin")
    assert changed == ["twin", "made", "twin", "twin"]
    assert sorted(model.name.short for model in library.models()) == ["echo", "made"]


async def test_an_adapter_of_dora_is_refused_where_llama_cpp_has_a_gpu(
    library: Library, tmp_path: Path
) -> None:
    async def yes() -> bool:
        return True

    def put(content: bytes) -> str:
        with library.store.blob_writer() as writer:
            writer.write(content)
            return str(writer.commit()[0])

    base, sources = Description(Name.parse("base")), CreateSources(files={"m": put(llama_file())})
    await create_model(library, base, sources, Reach(), unseen)
    a, b = np.ones((2, 64), np.float32), np.ones((64, 2), np.float32)
    gains = {"blk.0.attn_q.weight": np.zeros(64, np.float32)}
    file = write_adapter(tmp_path / "a.gguf", {"blk.0.attn_q.weight": (a, b)}, 2.0, gains=gains)
    library.uses_gpu = yes
    sources = CreateSources(from_model="base", adapters={"a.gguf": put(file.read_bytes())})
    dora = Description(Name.parse("dora"))
    with pytest.raises(BuildError, match=r"do not take part: llama\.cpp uses a GPU; add it to"):
        await create_model(library, dora, sources, Reach(), unseen)
    assert await library.without_kernels() == "llama.cpp uses a GPU"


async def test_a_name_that_is_not_installed_is_told_with_near_ones(library: Library) -> None:
    with pytest.raises(ModelNotFound) as error:
        library.find("ecko")
    assert error.value.details["suggestions"] == ["echo"]
    with pytest.raises(ModelMissing):
        await library.delete("ecko")
    with pytest.raises(ModelNotFound):
        await library.copy("ecko", "not a name")
    with pytest.raises(InvalidRequest):
        await library.copy("echo", "not a name")


async def test_offline_nothing_is_pulled_and_the_error_says_so(library: Library) -> None:
    with pytest.raises(Exception, match="pull a/b") as error:
        await pull_model(library, "a/b", unseen, reach=Reach())
    assert isinstance(as_hearth_error(error.value), NetworkForbidden)


@pytest.mark.parametrize(
    ("host", "username", "field"),
    [("no host", "a", "host"), ("example.com", "", "username"), ("example.com", "a:b", "username")],
)
async def test_a_login_that_cannot_be_is_refused_before_anybody_is_asked(
    library: Library, host: str, username: str, field: str
) -> None:
    with pytest.raises(InvalidRequest) as error:
        await library.login(host, username, "secret", reach=Reach(), insecure=False)
    assert error.value.details["param"] == field


async def test_a_check_ends_with_the_totals(library: Library) -> None:
    events = [event async for event in check_store(library, quick=False, repair=None)]
    assert isinstance(events[-1], FsckTotals)
    assert (events[-1].seen.models, events[-1].damage) == (1, [])
