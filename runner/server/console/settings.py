"""GET /api/settings: what the daemon was started with, and where each value came from."""

from __future__ import annotations

from runner.server.console.answers import SettingEntry, SettingsResponse
from runner.server.http_request import HttpRequest
from runner.server.ollama.progress import printable
from runner.server.routes import route
from runner.settings import Explained, config_path


@route("GET", "/api/settings")
async def show_settings(http: HttpRequest) -> SettingsResponse:
    """List every setting with its value and source. Secrets are not shown."""
    services = http.services
    settings = services.settings
    return {
        "settings": [_entry(row) for row in services.explained],
        "folders": {
            "models": printable(str(settings.models_dir)),
            "state": printable(str(settings.state_dir)),
            "config": printable(str(settings.config_dir)),
        },
        "file": printable(str(config_path())),
        "url": services.address.reachable.url,
        "public": services.is_public,
    }


def _entry(row: Explained) -> SettingEntry:
    return {
        "name": row.name,
        "variable": row.variable,
        "value": printable(row.value),
        "source": None if row.source == "default" else printable(row.source),
        "overrides": [printable(source) for source, _ in row.overrides],
        "doc": row.description,
    }
