"""The head's server of bundles: the manifests and blobs of what is deployed, to who has the token.

Speaks as much of the OCI distribution API as pulling by digest takes. Ranges are Starlette's. Knows
no Ray.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from registry.digest import Digest
from registry.errors import RegistryError
from registry.manifest import MANIFEST_TYPE
from registry.store import Store


@dataclass(slots=True)
class BundleServer:
    """Serves what offer has been given, from the store, which it only reads."""

    store: Store
    token: str
    _manifests: dict[str, bytes] = field(default_factory=dict)  # by digest
    _blobs: set[str] = field(default_factory=set)

    def offer(self, digest: str) -> None:
        """Serve the model with this manifest from now on. Raises RegistryError when it is not in
        the store."""
        for stored in self.store.models():
            if str(stored.digest) == digest:
                self._manifests[digest] = self.store.manifest_bytes(stored.name)
                self._blobs |= {str(layer.digest) for layer in stored.manifest.blobs}

    def app(self) -> ASGIApp:
        """The ASGI application."""
        routes = [
            Route("/v2/{path:path}/manifests/{digest}", self._manifest),
            Route("/v2/{path:path}/blobs/{digest}", self._blob),
        ]
        return Starlette(routes=routes)

    def _refusal(self, request: Request) -> Response | None:
        given = request.headers.get("authorization", "")
        if hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
            return None
        return PlainTextResponse("the cluster's token is missing or wrong", 401)

    async def _manifest(self, request: Request) -> Response:
        if refusal := self._refusal(request):
            return refusal
        digest = request.path_params["digest"]
        content = self._manifests.get(digest)
        if content is None:
            return PlainTextResponse(f"{digest} is not deployed", 404)
        return Response(content, media_type=MANIFEST_TYPE)

    async def _blob(self, request: Request) -> Response:
        if refusal := self._refusal(request):
            return refusal
        digest = request.path_params["digest"]
        if digest not in self._blobs:
            return PlainTextResponse(f"{digest} belongs to nothing that is deployed", 404)
        try:
            path = self.store.blob_path(Digest.parse(digest))
        except RegistryError as error:
            return PlainTextResponse(error.message, 404)
        return FileResponse(path, media_type="application/octet-stream")
