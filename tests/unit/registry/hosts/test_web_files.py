from __future__ import annotations

import httpx
import pytest

from registry.errors import RemoteRefused
from registry.hosts.web_files import part_urls


@pytest.mark.parametrize(
    "url",
    ["https://h.example/a/m.gguf", "https://h.example/m.gguf?x=m-00001-of-00002.gguf"],
)
def test_a_whole_file_is_the_only_one(url: str) -> None:
    assert part_urls(httpx.URL(url)) == [httpx.URL(url)]


def test_any_part_names_all_of_them_with_the_rest_of_the_address_as_it_is() -> None:
    found = part_urls(httpx.URL("https://h.example/a%2Fb/m%20x-00002-of-00003.GGUF?key=%2F"))
    assert [str(url) for url in found] == [
        f"https://h.example/a%2Fb/m%20x-0000{n}-of-00003.GGUF?key=%2F" for n in (1, 2, 3)
    ]


@pytest.mark.parametrize("numbers", ["00000-of-00002", "00003-of-00002", "00001-of-99999"])
def test_a_part_that_cannot_be_is_refused(numbers: str) -> None:
    with pytest.raises(RemoteRefused, match="is invalid"):
        part_urls(httpx.URL(f"https://h.example/m-{numbers}.gguf"))
