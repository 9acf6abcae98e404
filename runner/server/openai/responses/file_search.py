"""The tool file_search: the model sends queries and gets numbered passages of the user's files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from runner.server.openai.responses.citations import Source
from runner.server.openai.responses.result_room import ResultRoom
from runner.server.openai.responses.server_tool import ServerCall, ServerTool
from runner.server.openai.responses.wire import FILE_SEARCH, SEARCH_FUNCTION, ResponsesRequest
from runner.server.openai.vector_stores.handlers import find_store, search, shown
from runner.server.openai.vector_stores.search import Filter
from runner.server.openai.vector_stores.vector_database import VectorStore
from runner.server.openai.vector_stores.wire import SearchRequest
from runner.server.request_body import validate
from runner.server.services import Services

DEFAULT_RESULTS: Final = 10
MAX_QUERIES: Final = 4
_RESULTS: Final = "file_search_call.results"


class FileSearch(ServerTool):
    """The search of one response. sources: of the passages found, in the order of their numbers."""

    begins = "searching"
    functions: Sequence[dict[str, Any]] = (SEARCH_FUNCTION,)

    def __init__(self, services: Services, body: ResponsesRequest, sources: list[Source]) -> None:
        assert body.file_search is not None
        self._services = services
        self._tool = body.file_search
        self._shows = _RESULTS in (body.include or ())
        self._sources = sources
        self._stores: list[VectorStore] = []

    async def open(self) -> None:
        """Find the stores. Raises HttpError 404, InvalidRequest."""
        self._asked(["x"])
        for ident in self._tool.vector_store_ids or ():
            self._stores.append(await find_store(self._services, ident))

    def item(self, function: str) -> dict[str, Any]:
        return {"type": f"{FILE_SEARCH}_call", "queries": [], "results": None}

    async def run(self, call: ServerCall, room: ResultRoom) -> str:
        item, queries = call.item, _queries(call)
        item.update(queries=queries, status="completed", results=[] if self._shows else None)
        if not queries:
            return 'No query was given: call it with {"queries": ["..."]}.'
        texts: list[str] = []
        for each in await search(self._services, self._stores, self._asked(queries)):
            text = f"[{len(self._sources) + 1}] {each.file.filename}\n{each.text}"
            if await room.take(text) != text:
                break
            self._sources.append(Source(each.file.id, each.file.filename))
            texts.append(text)
            if self._shows:
                item["results"].append({**shown(each), "text": each.text})
        return "\n\n".join(texts) or "Nothing was found."

    def _asked(self, queries: list[str]) -> SearchRequest:
        """Raises InvalidRequest for what the tool says of filters and ranking."""
        fields: dict[str, Any] = {
            "query": queries,
            "filters": self._tool.filters,
            "max_num_results": self._tool.max_num_results or DEFAULT_RESULTS,
            "ranking_options": self._tool.ranking_options,
        }
        asked = validate(fields, SearchRequest)
        Filter(asked.filters)
        return asked


def _queries(call: ServerCall) -> list[str]:
    """What to look for; none when the arguments say nothing."""
    given = (call.given or {}).get("queries")
    given = [given] if isinstance(given, str) else given
    texts = given if isinstance(given, list) else []
    return [text for text in texts if isinstance(text, str) and text.strip()][:MAX_QUERIES]
