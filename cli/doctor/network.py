"""What pulls need: proxies, and the registries behind them. Only with --network."""

from __future__ import annotations

import os
import re
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

from cli.doctor.finding import Finding, ok, problem
from runner.settings import Settings

_TIMEOUT_S = 8.0
_ERRNO = re.compile(r"\[Errno -?\d+\] ")
_REGISTRY = "https://registry.ollama.ai"
_HUB = "https://huggingface.co"


def check_network(settings: Settings) -> Iterator[Finding]:
    """Whether the registries answer, by the proxies of this shell."""
    if settings.offline:
        yield ok("network", "not tried: HEARTH_OFFLINE is set")
        return
    import httpx

    proxies = {kind: _bare(url) for kind, url in urllib.request.getproxies().items()}
    proxies.pop("no", None)
    yield ok("proxy", ", ".join(f"{k}: {v}" for k, v in sorted(proxies.items())) or "none")
    for url in (_REGISTRY, os.environ.get("HF_ENDPOINT") or _HUB):
        name = _bare(url)
        try:
            with httpx.Client(timeout=_TIMEOUT_S) as client:
                status = client.head(url).status_code
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            proxy = proxies.get(urlsplit(url).scheme)
            way = f" through the proxy {proxy}" if proxy else ""
            mend = f"curl -I {name}; HTTPS_PROXY names a proxy, SSL_CERT_FILE its certificates"
            if proxy:
                variables = "HTTPS_PROXY and ALL_PROXY, in capital or small letters"
                mend = f"correct the proxy, or unset it ({variables}); {mend.partition(';')[0]}"
            reason = _ERRNO.sub("", str(error)).replace(url, name) or type(error).__name__
            yield problem("network", f"{name} cannot be reached{way}: {reason}", mend)
        else:
            yield ok("network", f"{name} answers ({status})")


def _bare(url: str) -> str:
    """A URL without the user's name and password."""
    scheme, _, rest = url.rpartition("://")
    return f"{scheme or 'http'}://{rest.rpartition('@')[2]}"
