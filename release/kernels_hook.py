"""A build hook of hatchling: kernels that were compiled for every level go into the wheel.

Does nothing unless HEARTH_WHEEL_KERNELS names the folder with the libraries; release/dist.py does.
"""

from __future__ import annotations

import os
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelsHook(BuildHookInterface[Any]):
    """The wheel becomes one for this platform; dist.py names the oldest that it runs on."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = os.environ.get("HEARTH_WHEEL_KERNELS")
        if folder is None or version == "editable":
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["force_include"][folder] = "kernels/native/lib"
