"""What writes the pages of docs/ and checks the built site. Its modules are imported by the tests,
so that a name that moved in the code fails here and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

LINKED = '<a href="other.html#there">x</a><img src="picture.svg">'


def _site(folder: Path, index: str) -> Path:
    (folder / "index.html").write_text(index)
    (folder / "other.html").write_text('<h2 id="there">There</h2>')
    (folder / "picture.svg").write_text("<svg/>")
    return folder


def test_site_whose_links_lead_somewhere_has_no_faults(tmp_path: Path) -> None:
    from docs.generator.site import faults

    site = _site(tmp_path, f'{LINKED}<a href="https://example.com/">elsewhere</a>')
    assert list(faults(site)) == []


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ('<a href="missing.html">x</a>', "index.html: missing.html leads nowhere"),
        ('<a href="other.html#nowhere">x</a>', "index.html: other.html#nowhere leads nowhere"),
        ('<a href="#nowhere">x</a>', "index.html: #nowhere leads nowhere"),
        ('<script src="https://cdn.example/a.js"></script>', "loads https://cdn.example/a.js"),
        ('<link rel="stylesheet" href="//fonts.example/a.css">', "loads //fonts.example/a.css"),
    ],
)
def test_site_checker_names_the_fault(tmp_path: Path, html: str, fault: str) -> None:
    from docs.generator.site import faults

    (found,) = faults(_site(tmp_path, html))
    assert found.endswith(fault)


def test_site_checker_reads_style_sheets(tmp_path: Path) -> None:
    from docs.generator.site import faults

    site = _site(tmp_path, LINKED)
    (site / "a.css").write_text('@import "https://fonts.example/b.css"; a { color: red }')
    assert list(faults(site)) == ["a.css: loads https://fonts.example/b.css"]


def test_part_of_a_page_is_replaced_between_its_comments(tmp_path: Path) -> None:
    from docs.generator.pages import replace

    page = tmp_path / "page.md"
    page.write_text("before\n<!-- generated: part -->\nold\n<!-- end -->\nafter\n")
    written = replace(page, {"part": "new"})
    assert written == "before\n<!-- generated: part -->\n\nnew\n\n<!-- end -->\nafter\n"
    page.write_text(written)
    assert replace(page, {"part": "new"}) == written
    with pytest.raises(ValueError, match="no place for the generated part 'other'"):
        replace(page, {"other": "new"})


def test_ratios_of_measurements_are_those_of_the_two_sides() -> None:
    from docs.generator.measurements import load

    rows = [row for table in load().tables for row in table.rows if row.other and row.value]
    assert len(rows) > 10
    for row in rows:
        assert row.ratio == pytest.approx(row.value / row.other, rel=0.1), row.what


def test_target_is_of_the_ratio_or_of_the_value_without_one() -> None:
    from docs.generator.measurements import Row

    assert Row("x", 10, "tok/s", "other", 20, 0.5, at_least=0.4).met is True
    assert Row("x", 10, "tok/s", "other", 20, 0.5, at_least=0.6).met is False
    assert Row("x", 10, "ms", at_most=20).met is True
    assert Row("x", 10, "ms").met is None
    assert Row("x", 10, "ms", at_most=20).target == "≤ 20 ms"


def test_terminal_shows_what_was_written_last() -> None:
    pytest.importorskip("pexpect")
    from docs.generator.recorder import final_line

    assert final_line("\r⠋ \x1b[K\r⠙ \x1b[K\r\x1b[Kanswer") == "answer"
    assert final_line("long wo\x1b[2D\x1b[K") == "long"
    assert final_line("\x1b[?25l\r\x1b[2Kdone\x1b[?25h ") == "done"
