"""runner.server.openapi.handlers: the page runs its own code only."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources

from runner.server.openapi.handlers import content_policy

PAGE = resources.files("runner.server.ui").joinpath("docs.html").read_bytes()


def test_the_policy_names_the_hashes_of_script_and_style_and_allows_nothing_else() -> None:
    policy = content_policy(b"<style>a</style><script>b</script>")
    for source in (b"a", b"b"):
        digest = base64.b64encode(hashlib.sha256(source).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy


def test_the_page_has_one_script_one_style_and_nothing_from_elsewhere() -> None:
    assert content_policy(PAGE).count("'sha256-") == 2
    assert re.findall(rb"https?://|//\w+\.\w+", PAGE) == []
    assert re.findall(rb"\s(?:src|style|on\w+)=", PAGE) == []


def test_the_page_puts_text_in_as_text() -> None:
    assert re.findall(rb"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", PAGE) == []
