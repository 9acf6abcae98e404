"""The client of the daemon's native routes: one typed, synchronous method for each.

Owns the connection, the reading of NDJSON streams and the turning of error bodies into
ClientError. Knows no terminal, starts no process and renders nothing.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from runner.http_transport import (
    CONNECT_TIMEOUT_S,
    AnswerTimeout,
    ConnectError,
    HttpTransport,
    Request,
    Response,
    TlsError,
    Transport,
    TransportError,
    multipart_form,
    translated,
)
from runner.ndjson import lines_of

if TYPE_CHECKING:
    from runner.replies import (
        JsonObject,
        OllamaModelEntry,
        ReplyChunk,
        RunningModelEntry,
        TaskProgress,
    )

USER_AGENT = "hearth"
ANSWER_TIMEOUT_S = 60.0
_CHUNK_BYTES = 1 << 16
_CUT = "the daemon stopped before the end; run the same command again to resume"


class ClientError(Exception):
    """The daemon refused a request or failed at it.

    message is the daemon's own; code its stable word ("model_not_found"), status the HTTP
    status (None: the error came inside a stream), details what else it said.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.details = dict(details or {})


class DaemonUnreachable(ClientError):
    """Nothing accepts connections at the address."""


class TlsFailed(ClientError):
    """A server is there, and HTTPS with it fails; the message says why and what to do."""


class ConnectionLost(ClientError):
    """The connection broke before the answer was complete."""


class NotHearth(ClientError):
    """Another program answers at the address."""


class ForeignServer(ClientError):
    """A program of another user of this machine answers at the address; nothing was sent to it."""


class Client:
    """The daemon at base_url. Every method may raise ClientError."""

    def __init__(
        self,
        base_url: str,
        transport: Transport | None = None,
        *,
        key: str | None = None,
        certificate: Path | None = None,
        source: str = "",
    ) -> None:
        """key: an API key, sent with every request. certificate: the daemon's own, a PEM file,
        trusted besides those that the system trusts. source: what messages say after base_url."""
        self.base_url = base_url.rstrip("/")
        self._where = self.base_url + source
        self._send = transport or HttpTransport(self.base_url, certificate)
        self._headers = {"User-Agent": USER_AGENT}
        self.warning = ""  # that the last answer came with: options without effect
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def version(self) -> str:
        """The daemon's version. Raises NotHearth when another program answers."""
        return str(self.about()["hearth"])

    def about(self) -> JsonObject:
        """What the daemon says of itself: hearth (its version), pid, store, uptime_s, log,
        drain_timeout_s. Raises NotHearth when another program answers."""
        with self._request("GET", "/api/version", timeout_s=CONNECT_TIMEOUT_S) as response:
            body = _object(_text(response))
        if body is not None and body.get("code") in ("invalid_api_key", "insufficient_scope"):
            raise ClientError(
                f"{self.base_url}: {body.get('error')}. Set HEARTH_API_KEY to a valid key",
                status=response.status,
                code=str(body["code"]),
            )
        if response.status != 200 or body is None or body.get("name") != "hearth":
            raise NotHearth(
                f"{self._other_server(response, body)} answers at {self._where}, not hearth. "
                "Set HEARTH_HOST to another address, such as 127.0.0.1:4328"
            )
        return body

    def is_ready(self) -> bool:
        """Whether it takes requests now."""
        with self._request("GET", "/ready", timeout_s=CONNECT_TIMEOUT_S) as response:
            return response.status == 200

    def keys(self) -> list[JsonObject]:
        """The API keys: name, scopes, created_at."""
        return list(self._call("GET", "/api/keys").get("keys") or [])

    def add_key(self, name: str, scopes: Iterable[str]) -> JsonObject:
        """Make an API key; "key" is its text."""
        return self._call("POST", "/api/keys", {"name": name, "scopes": list(scopes)})

    def remove_key(self, name: str) -> None:
        """Take an API key away."""
        self._call("DELETE", f"/api/keys/{quote(name, safe='')}")

    def mcp_servers(self) -> JsonObject:
        """The MCP servers of mcp.json: "servers", and the file's "path"."""
        return self._call("GET", "/api/mcp")

    def mcp_tools(self, servers: Iterable[str]) -> JsonObject:
        """What MCP servers offer: "tools", and "problems" with some of them. Starts them."""
        return self._call("POST", "/api/mcp/tools", {"servers": list(servers)}, None)

    def mcp_call(self, server: str, tool: str, arguments: Mapping[str, Any]) -> JsonObject:
        """Call a tool of an MCP server: its "text", and whether it is_error."""
        body = {"tool": tool, "arguments": dict(arguments)}
        return self._call("POST", f"/api/mcp/{quote(server, safe='')}/call", body, None)

    def tags(self) -> list[OllamaModelEntry]:
        """The models of the store."""
        models: list[OllamaModelEntry] = self._call("GET", "/api/tags").get("models") or []
        return models

    def ps(self) -> list[RunningModelEntry]:
        """The models in memory."""
        models: list[RunningModelEntry] = self._call("GET", "/api/ps").get("models") or []
        return models

    def show(self, model: str) -> JsonObject:
        """Everything about one model."""
        return self._call("POST", "/api/show", {"model": model})

    def copy(self, source: str, destination: str) -> None:
        """Give a model a second name."""
        self._call("POST", "/api/copy", {"source": source, "destination": destination})

    def delete(self, model: str) -> None:
        """Remove a name, and the blobs that no other model uses."""
        self._call("DELETE", "/api/delete", {"model": model})

    def load(
        self,
        model: str,
        keep_alive: str | float | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> ReplyChunk:
        """Bring a model into memory and wait until it is there."""
        return self._generate_once(model, keep_alive, options)

    def unload(self, model: str) -> None:
        """Take a model out of memory."""
        self._generate_once(model, 0)

    def generate(self, body: Mapping[str, Any]) -> Generator[ReplyChunk, None, None]:
        """The answer to one prompt. Closing the iterator cancels the request."""
        return self._answer("/api/generate", body)

    def chat(self, body: Mapping[str, Any]) -> Generator[ReplyChunk, None, None]:
        """The answer to a conversation. Closing the iterator cancels the request."""
        return self._answer("/api/chat", body)

    def embed(self, body: Mapping[str, Any]) -> JsonObject:
        """The vectors of texts, in "embeddings"."""
        return self._call("POST", "/api/embed", body, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Generator[bytes, None, None]:
        """The bytes of the answer to body as they arrive, for who measures them."""
        headers, content = _content(body)
        with self._request("POST", path, headers, content, timeout_s=None) as response:
            _raise_for_status(response)
            self.warning = response.getheader("x-hearth-warning") or ""
            yield from _chunks(response)

    def post_form(
        self, path: str, fields: Mapping[str, str], file: Path
    ) -> Generator[bytes, None, None]:
        """The bytes of the answer to a form with fields and a file, as they arrive. Raises OSError
        for the file."""
        headers, parts = multipart_form(fields, file.name, file.read_bytes())
        with self._request("POST", path, headers, parts, timeout_s=None) as response:
            _raise_for_status(response)
            yield from _chunks(response)

    def apply_template(self, body: Mapping[str, Any]) -> str:
        """The prompt that the model of body["model"] gets for body["messages"]."""
        return str(self._call("POST", "/apply-template", body, None)["prompt"])

    def create(self, body: Mapping[str, Any]) -> Generator[TaskProgress, None, None]:
        """Build a model from a description; yields what is being done until "success". Closing
        the iterator ends the work, of which nothing is left."""
        lost = "the daemon stopped before the model was complete; try again"
        return self._until_success("/api/create", body, lost)

    def pull(
        self, model: str, insecure: bool = False, name: str | None = None
    ) -> Generator[TaskProgress, None, None]:
        """Bring a model into the store, to be called name; yields what is being done until
        "success", whose line has the model's name there. Closing the iterator cancels it, unless
        others wait."""
        body = {"model": model, "insecure": insecure, "destination": name}
        return self._until_success("/api/pull", body, _CUT)

    def push(self, model: str, insecure: bool = False) -> Generator[TaskProgress, None, None]:
        """Send a model to its registry; see pull."""
        return self._until_success("/api/push", {"model": model, "insecure": insecure}, _CUT)

    def fsck(self, quick: bool = False, repair: bool = False) -> Generator[JsonObject, None, None]:
        """Check the store; yields the daemon's lines, the sums last. Closing the iterator ends
        the check."""
        body = {"quick": quick, "repair": repair}
        return self._until_success("/api/fsck", body, _CUT)

    def gc(self, body: Mapping[str, Any]) -> JsonObject:
        """Remove what nothing in the store needs."""
        return self._call("POST", "/api/gc", body, None)

    def evaluate(self, body: Mapping[str, Any]) -> Generator[JsonObject, None, None]:
        """Measure a model's perplexity on a text; yields the daemon's lines, the result last.
        Closing the iterator ends it."""
        lost = "the daemon stopped before the end; try again"
        return self._until_success("/api/eval", body, lost)

    def distill(self, body: Mapping[str, Any]) -> Generator[JsonObject, None, None]:
        """Train a student of a model; yields the daemon's lines, the result last. Closing the
        iterator ends it."""
        lost = "the daemon stopped before the end; run the same command again to resume"
        return self._until_success("/api/distill", body, lost)

    def detect_watermark(self, body: Mapping[str, Any]) -> JsonObject:
        """Whether a text was sampled with a watermark."""
        return self._call("POST", "/v1/watermark/detect", body, None)

    def cluster(self, action: str, body: Mapping[str, Any] | None = None) -> JsonObject:
        """What /api/cluster, or an action below it, answers."""
        return self._call("POST" if action else "GET", f"/api/cluster{action}", body, None)

    def du(self) -> JsonObject:
        """What the store and its models take on the disk."""
        return self._call("GET", "/api/du", None, None)

    def cache(self) -> JsonObject:
        """The prompts that are saved on the disk."""
        return self._call("GET", "/api/cache", None, None)

    def clear_cache(self, model: str | None) -> JsonObject:
        """Remove saved prompts; model None: all."""
        return self._call("POST", "/api/cache/clear", {"model": model}, None)

    def import_models(self, body: Mapping[str, Any]) -> Generator[JsonObject, None, None]:
        """Take models of another program into the store; yields the daemon's lines, the sums
        last. Closing the iterator ends it."""
        return self._until_success("/api/import", body, _CUT)

    def login(self, host: str, username: str, password: str, insecure: bool = False) -> None:
        """Have the daemon check credentials with a registry and keep them."""
        body = {"host": host, "username": username, "password": password, "insecure": insecure}
        self._call("POST", "/api/login", body)

    def logout(self, host: str) -> bool:
        """Have the daemon forget the credentials for a registry; False when it had none."""
        return bool(self._call("POST", "/api/logout", {"host": host}).get("removed"))

    def has_blob(self, digest: str) -> bool:
        """Whether the store already has this content."""
        with self._request("HEAD", f"/api/blobs/{digest}") as response:
            status = response.status
        if status not in (200, 404):
            raise ClientError(f"the daemon answered {status} for {digest}", status=status)
        return status == 200

    def take_blob(self, name: str) -> Generator[TaskProgress, None, None]:
        """Have the daemon make a file that lies in its store's folder for incoming files a blob;
        the last line has the digest. Closing the iterator ends it."""
        lost = "the daemon stopped before the file was read; try again"
        return self._until_success("/api/blobs", {"file": name}, lost)

    def upload_blob(self, digest: str, content: Iterable[bytes], size_bytes: int) -> None:
        """Send a blob of size_bytes; the daemon refuses it if its digest is another one."""
        headers = {"Content-Length": str(size_bytes)}
        path = f"/api/blobs/{digest}"
        with self._request("POST", path, headers, content, timeout_s=None) as response:
            _raise_for_status(response)

    def _until_success(
        self, path: str, body: Mapping[str, Any], lost: str
    ) -> Generator[Any, None, None]:
        """The lines of a task. Raises ConnectionLost with the text lost when it does not end in
        success."""
        status = None
        with closing(self._stream(path, body)) as lines:
            for line in lines:
                status = line.get("status")
                yield line
        if status != "success":
            raise ConnectionLost(lost)

    def _generate_once(
        self,
        model: str,
        keep_alive: str | float | None,
        options: Mapping[str, Any] | None = None,
    ) -> ReplyChunk:
        body: JsonObject = {"model": model, "prompt": "", "stream": False}
        if keep_alive is not None:
            body["keep_alive"] = keep_alive
        if options:
            body["options"] = options
        return cast("ReplyChunk", self._call("POST", "/api/generate", body, None))

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        timeout_s: float | None = ANSWER_TIMEOUT_S,
    ) -> JsonObject:
        headers, content = _content(body)
        with self._request(method, path, headers, content, timeout_s) as response:
            _raise_for_status(response)
            return _object(_text(response)) or {}

    def _answer(self, path: str, body: Mapping[str, Any]) -> Generator[ReplyChunk, None, None]:
        done = False
        with closing(self._stream(path, body)) as lines:
            for line in lines:
                done = bool(line.get("done"))
                yield cast("ReplyChunk", line)
        if not done:
            raise ConnectionLost("the answer ended before it was complete; try again")

    def _stream(self, path: str, body: Mapping[str, Any]) -> Generator[JsonObject, None, None]:
        for line in lines_of(self.post(path, {**body, "stream": True})):
            yield _line(line)

    @contextmanager
    def _request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        content: Iterable[bytes] = (),
        timeout_s: float | None = ANSWER_TIMEOUT_S,
    ) -> Iterator[Response]:
        request = Request(method, path, {**self._headers, **(headers or {})}, content, timeout_s)
        try:
            with self._send(request) as response:
                yield response
        except ConnectError as error:
            raise DaemonUnreachable(
                f"no hearth daemon answers at {self._where}{error}; start it with: hearth serve"
            ) from None
        except TlsError as error:
            raise TlsFailed(f"{self._where}: {error}") from None
        except AnswerTimeout:
            raise ConnectionLost(f"{self._where} did not respond in time; try again") from None
        except TransportError as error:
            raise ConnectionLost(
                f"the connection to {self._where} was lost: {error}. Try again"
            ) from None

    def _other_server(self, response: Response, body: JsonObject | None) -> str:
        with self._request("GET", "/", timeout_s=CONNECT_TIMEOUT_S) as root:
            greeting = _text(root).strip()
        if greeting == "Ollama is running":
            version = (body or {}).get("version")
            return f"Ollama {version}" if version else "Ollama"
        server = response.getheader("server")
        return f'a server that calls itself "{server}"' if server else "another program"


def _text(response: Response) -> str:
    with translated():
        return response.read().decode("utf-8", "replace")


def _chunks(response: Response) -> Iterator[bytes]:
    """The body as it arrives."""
    while True:
        with translated():
            chunk = response.read1(_CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


def _content(body: Mapping[str, Any] | None) -> tuple[dict[str, str], list[bytes]]:
    """The headers and the bytes of a body."""
    if body is None:
        return {}, []
    try:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        content = text.encode()
    except UnicodeEncodeError as error:
        raise ClientError(f"the text is not valid UTF-8: {error.object[error.start]!r}") from None
    except ValueError as error:
        raise ClientError(f"the request cannot be encoded as JSON: {error}") from None
    headers = {"Content-Type": "application/json", "Content-Length": str(len(content))}
    return headers, [content]


def _object(text: str) -> JsonObject | None:
    try:
        body = json.loads(text)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _raise_for_status(response: Response) -> None:
    if response.status < 400:
        return
    text = _text(response)
    body = _object(text)
    if body is None or "error" not in body:
        raise ClientError(
            f"the daemon answered {response.status} {response.reason}: "
            f"{' '.join(text.split())[:200]}",
            status=response.status,
        )
    raise _error(body, response.status)


def _error(body: Mapping[str, Any], status: int | None) -> ClientError:
    given = body["error"]
    fields = dict(given) if isinstance(given, dict) else {**body, "message": given}
    code = fields.get("code")
    return ClientError(
        str(fields.get("message")),
        status=status,
        code=str(code) if code else None,
        details={k: v for k, v in fields.items() if k not in ("error", "message", "code")},
    )


def _line(text: bytes) -> JsonObject:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ClientError(f"the daemon sent a line that is not a JSON object: {text[:200]!r}")
    if "error" in value:
        raise _error(value, None)
    return value
