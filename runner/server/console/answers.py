"""What these routes answer. Sizes in bytes."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from runner.replies import DeviceEntry


class PullEntry(TypedDict):
    """A pull in the background. completed and total: bytes of the current file; name: the model's,
    once it is installed."""

    number: int
    model: str
    phase: Literal["running", "paused", "done", "failed"]
    status: str
    completed: int | None
    total: int | None
    name: str | None
    error: str | None


class PullList(TypedDict):
    """All pulls that the key may see."""

    pulls: list[PullEntry]


class PlanResponse(TypedDict):
    """What a load takes, or would. fits: it is loaded, fits now, once idle models have left, or
    never; message says why then. needed: in the machine's memory; swap: what copies of finished
    requests may grow to besides; free: what a load may use now. devices: what of gpu lies on each;
    cpu_moe_layers: whose experts stay in the machine's memory."""

    model: str
    fits: Literal["loaded", "now", "after_unloading", "never"]
    message: str | None
    needed: int
    free: int
    weights: int
    cache: int
    compute: int
    gpu: int
    swap: int
    context_length: int | None
    backend: str | None
    quantize: str | None
    gpu_layers: int
    cpu_moe_layers: int
    devices: list[DeviceEntry]


class Finding(TypedDict):
    """What is said of a place in a Modelfile; lines and columns count from 1."""

    message: str
    line: int | None
    column: int | None


class ModelfileResponse(TypedDict):
    """What POST /api/create would refuse, and what it would ignore or pull. request: the fields to
    send there, without the model's name; null where there are errors."""

    errors: list[Finding]
    notes: list[Finding]
    request: dict[str, Any] | None


class UploadedBlob(TypedDict):
    """A file of the store, for /api/create."""

    digest: str
    size: int


class RequestEntry(TypedDict):
    """A request in progress. client: the name of its key, else its user of this machine
    or its address."""

    number: int
    method: str
    path: str
    model: str | None
    client: str
    address: str
    age_s: float


class RequestList(TypedDict):
    """The requests, the oldest first."""

    requests: list[RequestEntry]


class LogLine(TypedDict):
    """A record of the log. level: debug, info, warning or error."""

    number: int
    time: str
    level: str
    logger: str
    message: str


class LogResponse(TypedDict):
    """The newest records, oldest first. file: where the whole log is."""

    entries: list[LogLine]
    file: str | None


class SettingEntry(TypedDict):
    """A setting. source: the variable or the line of config.toml that it comes from; null: it has
    its default. overrides: the sources that it takes precedence over."""

    name: str
    variable: str
    value: str
    source: str | None
    overrides: list[str]
    doc: str


class SettingsResponse(TypedDict):
    """What the daemon was started with. file: where config.toml is looked for."""

    settings: list[SettingEntry]
    folders: dict[str, str]
    file: str
    url: str
    public: bool
