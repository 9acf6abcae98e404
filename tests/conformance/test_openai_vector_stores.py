"""Vector stores through the official SDK. echo's vectors are of the exact text, so that only the
same text is near."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.conftest import StartDaemon

TEA, COFFEE, PAGE = "Tea is made of leaves.", "Coffee is made of beans.", "A page & more"
HTML = f"<title>x</title><script>var a = 1</script><body><p>{PAGE.replace('&', '&amp;')}</p>"


def uploaded(sdk: openai.OpenAI, name: str, data: bytes | str) -> str:
    content = data.encode() if isinstance(data, str) else data
    return sdk.files.create(file=(name, content), purpose="assistants").id


def until_read(sdk: openai.OpenAI, store: str) -> Any:
    for _ in range(3000):
        found = sdk.vector_stores.retrieve(store)
        if found.status == "completed":
            return found
    raise AssertionError(found)


@pytest.fixture
def drinks(sdk: openai.OpenAI) -> Iterator[str]:
    """A store with a file of tea and one of coffee, which have attributes."""
    store = sdk.vector_stores.create(name="drinks", extra_body={"embedding_model": "echo"})
    for name, text, cups in (("tea.md", TEA, 3), ("coffee.txt", COFFEE, 5)):
        file = uploaded(sdk, name, text)
        sdk.vector_stores.files.create(
            file_id=file, vector_store_id=store.id, attributes={"name": name, "cups": cups}
        )
    until_read(sdk, store.id)
    yield store.id
    sdk.vector_stores.delete(store.id)


def test_a_store_is_made_listed_changed_and_deleted(sdk: openai.OpenAI) -> None:
    made = sdk.vector_stores.create(
        name="a", metadata={"k": "v"}, expires_after={"anchor": "last_active_at", "days": 2}
    )
    assert (made.status, made.file_counts.total, made.usage_bytes) == ("completed", 0, 0)
    assert made.expires_at == made.last_active_at + 2 * 86400
    assert made.id in {store.id for store in sdk.vector_stores.list()}
    changed = sdk.vector_stores.update(made.id, name="b", expires_after=None)
    assert (changed.name, changed.expires_at, changed.metadata) == ("b", None, {"k": "v"})
    assert sdk.vector_stores.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError, match="no such vector store"):
        sdk.vector_stores.retrieve(made.id)


def test_the_nearest_text_is_found_first(sdk: openai.OpenAI, drinks: str) -> None:
    found = sdk.vector_stores.search(drinks, query=COFFEE).data
    assert [result.filename for result in found] == ["coffee.txt", "tea.md"]
    assert found[0].score == pytest.approx(1.0, abs=1e-4)
    assert found[0].content[0].text == COFFEE
    assert found[0].attributes == {"name": "coffee.txt", "cups": 5}
    only = sdk.vector_stores.search(
        drinks, query=[TEA, "else"], ranking_options={"score_threshold": 0.99}
    )
    assert [result.filename for result in only.data] == ["tea.md"]
    assert sdk.vector_stores.retrieve(drinks).usage_bytes > len(TEA) + len(COFFEE)


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"type": "eq", "key": "cups", "value": 3}, ["tea.md"]),
        ({"type": "gt", "key": "cups", "value": 3}, ["coffee.txt"]),
        ({"type": "lt", "key": "name", "value": 3}, []),
        ({"type": "ne", "key": "other", "value": 1}, ["coffee.txt", "tea.md"]),
        ({"type": "in", "key": "name", "value": ["tea.md"]}, ["tea.md"]),
        ({"type": "or", "filters": [{"type": "lte", "key": "cups", "value": 3},
                                    {"type": "eq", "key": "name", "value": "coffee.txt"}]},
         ["coffee.txt", "tea.md"]),
        ({"type": "and", "filters": [{"type": "gte", "key": "cups", "value": 3},
                                     {"type": "nin", "key": "name", "value": ["tea.md"]}]},
         ["coffee.txt"]),
    ],
)  # fmt: skip
def test_filters_choose_files(
    sdk: openai.OpenAI, drinks: str, filters: Any, names: list[str]
) -> None:
    found = sdk.vector_stores.search(drinks, query="x", filters=filters).data
    assert sorted(result.filename for result in found) == names


def test_files_are_cut_read_again_and_taken_out(sdk: openai.OpenAI, drinks: str) -> None:
    text = "".join(f"Paragraph {number} says something.\n\n" for number in range(60))
    file = uploaded(sdk, "long.txt", text)
    static = {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 20}
    sdk.vector_stores.files.create(
        file_id=file,
        vector_store_id=drinks,
        chunking_strategy={"type": "static", "static": static},
    )
    until_read(sdk, drinks)
    chunks = [part.text for part in sdk.vector_stores.files.content(file, vector_store_id=drinks)]
    assert len(chunks) > 3
    assert all(len(chunk) <= 400 and chunk.endswith(".") for chunk in chunks)
    assert set(re.findall(r"Paragraph \d+ ", "".join(chunks))) == set(
        re.findall(r"Paragraph \d+ ", text)
    )
    assert sdk.vector_stores.search(drinks, query=chunks[2]).data[0].content[0].text == chunks[2]
    listed = sdk.vector_stores.files.list(drinks, filter="completed")
    assert len(listed.data) == 3
    changed = sdk.vector_stores.files.update(file, vector_store_id=drinks, attributes={"a": "b"})
    assert changed.attributes == {"a": "b"}
    assert sdk.vector_stores.files.delete(file, vector_store_id=drinks).deleted
    assert sdk.vector_stores.search(drinks, query=chunks[2]).data[0].filename != "long.txt"
    assert sdk.files.retrieve(file).id == file


def test_a_batch_tells_what_became_of_each_file(sdk: openai.OpenAI, drinks: str) -> None:
    files = {
        "page.html": HTML,
        "a.json": '{"a": 1}',
        "b.pdf": "%PDF-1.7 x",
        "c.bin": b"\xff\xfe\x00",
    }
    ids = {uploaded(sdk, name, data): name for name, data in files.items()}
    batch = sdk.vector_stores.file_batches.create(drinks, file_ids=list(ids))
    until_read(sdk, drinks)
    done = sdk.vector_stores.file_batches.retrieve(batch.id, vector_store_id=drinks)
    assert (done.status, done.file_counts.completed, done.file_counts.failed) == ("completed", 2, 2)
    listed = sdk.vector_stores.file_batches.list_files(batch.id, vector_store_id=drinks)
    ends = {ids[file.id]: (file.last_error.code, file.last_error.message)
            for file in listed if file.status == "failed"}  # fmt: skip
    assert ends["b.pdf"][0] == "unsupported_file"
    assert "PDF files are not read" in ends["b.pdf"][1]
    assert ends["c.bin"][0] == "invalid_file"
    assert "not text in UTF-8" in ends["c.bin"][1]
    found = sdk.vector_stores.search(drinks, query=f"x\n{PAGE}").data[0]
    assert found.content[0].text == f"x\n{PAGE}"


def test_what_is_wrong_is_refused_by_name(sdk: openai.OpenAI, drinks: str) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"query": "x", "filters": {"type": "like", "key": "a", "value": 1}}, "'like'"),
        ({"query": "x", "filters": {"type": "and", "filters": []}}, "list of filters"),
        ({"query": "  "}, "query is empty"),
        ({"query": "x", "rewrite_query": True}, "rewrite_query"),
        ({"query": "x", "max_num_results": 51}, "max_num_results"),
    ]
    for fields, reason in wrong:
        with pytest.raises(openai.BadRequestError, match=reason):
            sdk.vector_stores.search(drinks, **fields)
    with pytest.raises(openai.BadRequestError, match="no such file"):
        sdk.vector_stores.files.create(drinks, file_id="file-none")
    with pytest.raises(openai.BadRequestError, match="more than half"):
        sdk.vector_stores.create(
            chunking_strategy={
                "type": "static",
                "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 51},
            }
        )


def test_without_an_embedding_model_it_says_what_to_do(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(names=())
    with (
        openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as sdk,
        pytest.raises(openai.BadRequestError, match="hearth pull all-minilm"),
    ):
        sdk.vector_stores.create(name="x")
