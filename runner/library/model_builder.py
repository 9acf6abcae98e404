"""Models of files that were pulled: one GGUF as it is, its parts merged, safetensors converted; an
adapter on the model that it is for.

Owns the early look at the configs and the last steps. runner.library.weights does the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec

from modelfile.build import build
from modelfile.description import Description
from modelfile.errors import BuildError, ConvertError, ModelfileError
from modelfile.projectors import check_projector
from registry.bundle import MAX_TEXT_BYTES, model_header
from registry.digest import Digest
from registry.errors import InvalidGguf, InvalidSafetensors
from registry.hosts.host import RemoteFile, RemoteModel, Role
from registry.hosts.selection.adapters import CONFIG as ADAPTER_CONFIG
from registry.hosts.selection.adapters import base_in_config, base_in_header
from registry.manifest import ADAPTER_TYPE
from registry.names import Name
from registry.pull import ModelBuilder, PullState
from registry.store import Store
from runner.errors import RequestError
from runner.library.progress import Progress
from runner.library.weight_files import check_names
from runner.library.weights import BuiltWeights, WeightsBuilder, WeightsInput

FindBase = Callable[[Name, str | None, PullState], Awaitable[Name]]
WithoutKernels = Callable[[], Awaitable[str | None]]

_CONFIG = "config.json"
_UNBUILDABLE = (ModelfileError, InvalidGguf, InvalidSafetensors, RequestError)


async def kernels_take_part() -> str | None:
    """Nothing else is known."""
    return None


def model_builder(
    store: Store,
    find_base: FindBase | None = None,
    without_kernels: WithoutKernels = kernels_take_part,
) -> ModelBuilder:
    """How models are made in this store, as by a Modelfile with nothing but FROM, and ADAPTER for
    an adapter. find_base: see BaseModels.find; without it adapters are refused. without_kernels:
    see Library."""

    async def make(remote: RemoteModel, digests: dict[str, Digest], state: PullState) -> None:
        await _Build(store, remote, digests, state, find_base, without_kernels).make()

    async def check(file: RemoteFile, digest: Digest) -> None:
        if file.role == "weights" and file.title == _CONFIG:
            await asyncio.to_thread(_check_architecture, store, digest)
        if file.role == "adapter" and file.title == ADAPTER_CONFIG:
            await asyncio.to_thread(_base_of, store, digest)

    return ModelBuilder(make, check, _UNBUILDABLE)


@dataclass(frozen=True, slots=True)
class _Build:
    """The build of one model."""

    store: Store
    remote: RemoteModel
    digests: dict[str, Digest]
    state: PullState
    find_base: FindBase | None
    without_kernels: WithoutKernels

    async def make(self) -> None:
        """Raises what WeightsBuilder.build and modelfile.build raise; nothing is left then."""
        weights, adapter = self._of_role("weights"), self._of_role("adapter")
        check_names({**weights, **adapter})
        if await asyncio.to_thread(_is_adapter, self.store, weights):
            weights, adapter = {}, weights
        base = await self._base(adapter) if adapter else None
        inputs = WeightsInput(weights, adapter, base, keep_quantized=True)
        built = await WeightsBuilder(self.store, inputs, self._report).build()
        try:
            with self.store.holding(built.written):
                description = await self._description(built, base)
                alone = await self.without_kernels() if description.adapters else None
                self.state.steps.append("writing manifest")
                await asyncio.to_thread(lambda: list(build(self.store, description, alone)))
        finally:
            await asyncio.to_thread(self.store.discard, built.written)

    def _of_role(self, role: Role) -> dict[str, Digest]:
        files = (file for file in self.remote.files if file.role == role)
        return {file.title: self.digests[file.title] for file in files}

    async def _base(self, adapter: dict[str, Digest]) -> Name:
        """The model that the adapter is for."""
        name = self.remote.name
        self.state.made_type = ADAPTER_TYPE
        if self.find_base is None:
            raise BuildError(f"{name.short} is an adapter itself")
        if ADAPTER_CONFIG in adapter:
            named = await asyncio.to_thread(_base_of, self.store, adapter[ADAPTER_CONFIG])
        else:
            (digest,) = adapter.values()
            header = await asyncio.to_thread(model_header, self.store.blob_path(digest))
            named = base_in_header(header.metadata)
        return await self.find_base(name, named or self.remote.base, self.state)

    async def _description(self, built: BuiltWeights, base: Name | None) -> Description:
        texts = await asyncio.to_thread(_texts, self.store, self.remote, self.digests)
        description = Description(
            self.remote.name,
            from_model=base,
            template=next(iter(texts["template"]), None),
            licenses=tuple(texts["license"]),
            adapters=built.adapters,
        )
        if built.model is None:
            return description
        projector = await asyncio.to_thread(self._projector, built.model)
        return replace(description, files={"model.gguf": built.model}, projector=projector)

    def _projector(self, model: Digest) -> Digest | None:
        """The projector that came along; None, which is said, for one that the model cannot use:
        it answers without. Blocks on the disk."""
        for title, digest in self._of_role("projector").items():
            fault = projector_fault(self.store, digest, model)
            if fault is None:
                return digest
            self.state.steps.append(f"{title} was skipped: {fault}")
        return None

    async def _report(self, progress: Progress) -> None:
        self.state.report(progress)


def projector_fault(store: Store, projector: Digest, model: Digest) -> str | None:
    """Why a model cannot use a projector; both are blobs. Blocks on the disk."""
    try:
        header = model_header(store.blob_path(projector))
        check_projector(header, model_header(store.blob_path(model)))
    except (BuildError, InvalidGguf) as error:
        return error.message
    return None


def _texts(store: Store, remote: RemoteModel, digests: dict[str, Digest]) -> dict[Role, list[str]]:
    """The files that become layers of text. Raises BlobTooLarge, DigestMismatch."""
    found: dict[Role, list[str]] = {"license": [], "template": []}
    for file in remote.files:
        if file.role in found:
            content = store.read_blob(digests[file.title], MAX_TEXT_BYTES)
            found[file.role].append(content.decode("utf-8", "replace"))
    return found


def _check_architecture(store: Store, digest: Digest) -> None:
    """Raises ConvertError for a config that says that the checkpoint cannot be converted."""
    from modelfile.convert.architectures import plan_for  # 10 ms that most daemons can do without
    from modelfile.convert.config import read_config
    from modelfile.convert.quantized import check_prequantized, is_quantized

    config = read_config({_CONFIG: store.blob_path(digest)})
    if "alignment_heads" in config.values and "model_type" not in config.values:
        return  # Whisper's as CTranslate2 writes it, which is checked with its weights
    if is_quantized(config):
        check_prequantized(config)
        _check_torch()
    else:
        plan_for(config)


def _check_torch() -> None:
    if find_spec("torch") is None:
        raise ConvertError(
            "the checkpoint's weights are quantized, which PyTorch runs; it is not installed:"
            " install hearth with ./install.sh --with-torch, or pull another one"
        )


def _base_of(store: Store, digest: Digest) -> str | None:
    """The repository that adapter_config.json names. Raises ConvertError for an adapter that is not
    supported."""
    from modelfile.convert.adapter_config import read_adapter_config

    config = read_adapter_config({ADAPTER_CONFIG: store.blob_path(digest)})
    return base_in_config(config.values)


def _is_adapter(store: Store, files: Mapping[str, Digest]) -> bool:
    """Whether the one file is a GGUF that holds an adapter. Raises InvalidGguf."""
    if len(files) != 1:
        return False
    (digest,) = files.values()
    return model_header(store.blob_path(digest)).metadata.get("general.type") == "adapter"
