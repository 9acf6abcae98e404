"""Whether traces of requests are sent to a collector of OpenTelemetry (extra otel), and where to.

Nothing is sent unless OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from runner.authority import is_loopback

if TYPE_CHECKING:
    from runner.server.spans import Traces

log = logging.getLogger("hearth")


def open_traces(version: str, offline: bool) -> Traces | None:
    """What sends traces, as the environment says; None: nothing is sent. Says in the log where
    that is not what it says. offline: they may go to this machine only."""
    endpoint = _variable("ENDPOINT")
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if not endpoint or is_off or "otlp" not in os.environ.get("OTEL_TRACES_EXPORTER", "otlp"):
        return None
    shown = endpoint.rpartition("@")[2]  # without a password
    protocol = _variable("PROTOCOL") or "http/protobuf"
    if offline and not is_loopback(urlsplit(endpoint).hostname or ""):
        reason = "HEARTH_OFFLINE is set"
    elif protocol != "http/protobuf":
        reason = f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}, and only http/protobuf is spoken"
    else:
        try:
            from runner.server.spans import Traces, provider_of

            traces = Traces(provider_of(version, shown))
        except ImportError:
            reason = "the extra otel is not installed: pip install 'hearth[otel]'"
        except Exception as error:  # whatever the SDK makes of what its variables say
            reason = str(error)
        else:
            log.info("traces are sent to %s", shown)
            return traces
    log.warning("no traces are sent to %s: %s", shown, reason)
    return None


def _variable(name: str) -> str:
    of_traces = os.environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}", "").strip()
    return of_traces or os.environ.get(f"OTEL_EXPORTER_OTLP_{name}", "").strip()
