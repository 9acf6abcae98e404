"""What a lease is asked for, and what it gives.

Knows nothing of which models are loaded.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from registry.bundle import Bundle
from runner.models.capabilities import (
    ModelCapabilities,
    model_capabilities,
    own_template,
    template_of,
)
from runner.models.load_notes import load_notes
from runner.models.load_request import LoadRequest, load_request
from runner.models.memory_plan import context_length
from runner.models.model_files import ModelFiles, model_files
from runner.models.model_shape import ModelShape, model_shape
from runner.models.options import check_options
from runner.models.resident import Resident
from runner.models.worker import Worker
from runner.settings import Settings
from runner.types import LoadPlan


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to use a loaded model while the lease lasts. load_s: how long this lease
    waited for the model, 0.0 when it was there. context_length: the most tokens of a sequence, as
    the request or the Modelfile has it, up to the model's maximum; clamped_context: the same where
    they ask for more than that, else None. adapter_scales: as set for all requests; None: they are
    as the Modelfile has them."""

    resident: Resident
    worker: Worker
    load_s: float
    context_length: int
    clamped_context: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    adapter_scales: Mapping[int, float] | None = None

    @property
    def bundle(self) -> Bundle:
        """The model's bundle."""
        return self.resident.bundle

    @property
    def plan(self) -> LoadPlan:
        """How it was loaded."""
        return self.resident.load.plan.load_plan

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The Modelfile's parameters, checked."""
        return self.resident.parameters

    @property
    def notes(self) -> tuple[str, ...]:
        """What to tell of options without effect, or with another than was asked for."""
        given = {**self.parameters, **self.options}
        return load_notes(given, self.resident.load.plan, self.clamped_context)

    @property
    def capabilities(self) -> ModelCapabilities:
        """What it can be asked for."""
        return model_capabilities(self.bundle)

    @property
    def template(self) -> str | None:
        """Its chat template."""
        return template_of(self.bundle)

    @property
    def own_template(self) -> str | None:
        """The same where it is not the model file's, which the worker knows."""
        return own_template(self.bundle)


@dataclass(frozen=True, slots=True)
class AskedModel:
    """A model that a lease is wanted of. default: its load request without the options of the one
    who asks."""

    bundle: Bundle
    parameters: Mapping[str, Any]
    files: ModelFiles
    shape: ModelShape
    default: LoadRequest
    request: LoadRequest

    @classmethod
    def of(
        cls,
        bundle: Bundle,
        options: Mapping[str, Any],
        settings: Settings,
        *,
        adapters: bool = False,
    ) -> AskedModel:
        """The model with the checked options of the one who asks. adapters: they are there from
        the start. Raises ParameterError, ModelInvalid."""
        parameters = check_options(bundle.parameters)
        quantize = {"quantize": options["quantize"]} if "quantize" in options else {}
        default = load_request(parameters, quantize, settings)  # other weights: another load
        files = model_files(bundle, default.backend, default.quantize, with_adapters=adapters)
        loaded = bundle if files.adapters else replace(bundle, adapters=())
        return cls(
            bundle=bundle,
            parameters=parameters,
            files=files,
            shape=model_shape(loaded, default.backend, default.quantize),
            default=default,
            request=load_request(parameters, options, settings),
        )

    @property
    def digest(self) -> str:
        """The manifest's."""
        return str(self.bundle.digest)

    @property
    def context_length(self) -> int:
        """The most tokens of a sequence of the one who asks."""
        return context_length(self.shape, self.request)

    @property
    def key(self) -> Hashable:
        """Equal for models that one worker can serve: the same files, loaded in the same way. A
        longer context serves a shorter one too, and files say what the backend is."""
        alike = replace(self.default, num_ctx=None, backend=None)
        return self.files, alike if self.files.adapters else replace(alike, lora_scale=1.0)
