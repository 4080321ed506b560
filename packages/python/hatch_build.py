"""Puts the program into a wheel for one platform, where .ci/release names both."""
from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Hook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if platform := os.environ.get("STEPWELL_WHEEL_PLATFORM"):
            name = "stepwell.exe" if platform.startswith("win") else "stepwell"
            build_data["shared_scripts"] = {os.environ["STEPWELL_WHEEL_PROGRAM"]: name}
            build_data["tag"] = f"py3-none-{platform}"
            build_data["pure_python"] = False
