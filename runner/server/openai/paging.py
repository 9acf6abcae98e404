"""Long lists in parts, as OpenAI's routes have them: limit, order, after and before."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.errors import InvalidRequest
from runner.server.openai.answers import ListPage
from runner.server.query import query_params


@dataclass(frozen=True, slots=True)
class PageQuery:
    """Which page of a list: so many after one of them, or before one."""

    limit: int
    newest_first: bool = True
    after: str | None = None
    before: str | None = None

    def rows(
        self,
        database: sqlite3.Connection,
        table: str,
        columns: str,
        where: str,
        values: Sequence[Any],
    ) -> tuple[list[Any], bool]:
        """The rows of a table with the columns number and id that where takes, with its values; and
        whether there are more."""
        backwards = self.before is not None and self.after is None
        down = self.newest_first != backwards
        sign, order = ("<", "DESC") if down else (">", "ASC")
        edge = self.before if backwards else self.after
        if edge is not None:
            where += f" AND number {sign} (SELECT number FROM {table} WHERE {where} AND id = ?)"
            values = (*values, *values, edge)
        statement = f"SELECT {columns} FROM {table} WHERE {where} ORDER BY number {order} LIMIT ?"
        found = database.execute(statement, (*values, self.limit + 1)).fetchall()
        rows = found[: self.limit]
        return rows[::-1] if backwards else rows, len(found) > self.limit


def page_query(query_string: bytes, usual: int = 20, most: int = 100) -> PageQuery:
    """What the query of a request asks for. Raises InvalidRequest."""
    query = query_params(query_string)
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidRequest(f"order={order[:40]!r}: expected asc or desc", param="order")
    limit = page_limit(query, usual, most)
    return PageQuery(limit, order == "desc", query.get("after"), query.get("before"))


def page_limit(query: Mapping[str, str], usual: int, most: int) -> int:
    """limit of a query. Raises InvalidRequest."""
    text = query.get("limit", str(usual))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
        raise InvalidRequest(f"limit={text[:40]!r}: expected 1 to {most}", param="limit")
    return int(text)


def list_page(data: Sequence[Mapping[str, Any]], more: bool) -> ListPage:
    """What a page says of itself."""
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"object": "list", "has_more": more, "first_id": first, "last_id": last}
