"""What writes the pages of docs/ and checks the built site. Its modules are imported by the tests,
so that a name that moved in the code fails here and nowhere else."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

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


def _record(folder: Path) -> None:
    """A run as `python -m tests.benchmarks` writes it."""
    from tests.benchmarks.comparison import RatioTarget, compare
    from tests.benchmarks.report import write

    facts: dict[str, Any] = {
        "machine": {"cpu": "x", "cores": 2, "memory_bytes": 24 << 30, "system": "Linux",
                    "python": "3.11", "hearth": "1", "llama_cpp_python": "0.3.36",
                    "date": "2026-11-29T00:12:00+00:00"},
        "processor": "a processor", "commit": "abc1234", "model": "Model-0.5B, Q8_0, 500 MB",
        "arguments": ["--model", "model", "--processor", "a processor"],
        "llama_server": "-fa on", "busy_percent": 0.4, "rounds": 3,
    }  # fmt: skip
    first = "1,000 tokens again: TTFT"
    results = [
        compare("decode, 1 client", "tok/s", [50.04], ("llama-server", [40.0]),
                RatioTarget("at least", 1.0)),
        compare("decode, 1 client: time per token", "ms", [19.98], ("llama-server", [25.0])),
        compare(first, "s", [0.04], ("first time", [2.0]), RatioTarget("at most", 0.1)),
        compare(first, "s", [0.04], ("llama-server", [0.05])),
    ]  # fmt: skip
    write(folder, facts, results)
    folder.joinpath("results.json").rename(folder / "one.json")


def test_run_with_published_weights_is_shown_with_what_it_was_measured_by(tmp_path: Path) -> None:
    from docs.generator.measurements import published
    from docs.generator.plots import pictures
    from docs.generator.runs import runs

    assert published(list(runs(tmp_path))) == "No run on an idle machine is recorded yet."
    _record(tmp_path)
    (run,) = runs(tmp_path)
    assert (run.ran, run.commit) == (date(2026, 11, 29), "abc1234")
    text = published([run])
    assert text.startswith("### Model-0.5B, a processor\n")
    assert "other programs took 0 % of the cores. Medians of 3 rounds" in text
    assert "`python -m tests.benchmarks --model model --processor 'a processor'`" in text
    row = "| decode, 1 client | 50.0 tok/s | llama-server: 40.0 tok/s | 1.25 | ≥ 1 | yes |"
    assert row in text.replace("\N{NO-BREAK SPACE}", " ")
    assert 'src="images/plot-run-one-light.svg"' in text
    light = pictures([run])["plot-run-one-light.svg"]
    assert "milliseconds, shorter is better" in light
    assert "tok/s, longer is better" in light


def test_readme_shows_a_run_in_place_of_an_older_row(tmp_path: Path) -> None:
    from docs.generator.measurements import Row, Table, readme_table
    from docs.generator.runs import runs

    _record(tmp_path)
    old = [Row("x", 1, "tok/s", readme="Decoding for 1 client, over HTTP"),
           Row("y", 2, "ms", readme="other")]  # fmt: skip
    shown = readme_table([*runs(tmp_path), Table("t", "T", "c", tuple(old))])
    rows = [line.split("|") for line in shown.splitlines()[2:5]]
    assert [row[1].strip() for row in rows] == [
        "Decoding for 1 client, over HTTP",
        "A repeated 1,000-token prompt: time to first token",
        "other",
    ]
    assert "first time" in rows[1][3]
    assert shown.endswith("cores: rows 1 to 2 on 2026-11-29 with Model-0.5B, row 3 earlier.")


def test_terminal_shows_what_was_written_last() -> None:
    pytest.importorskip("pexpect")
    from docs.generator.recorder import final_line

    assert final_line("\r⠋ \x1b[K\r⠙ \x1b[K\r\x1b[Kanswer") == "answer"
    assert final_line("long wo\x1b[2D\x1b[K") == "long"
    assert final_line("\x1b[?25l\r\x1b[2Kdone\x1b[?25h ") == "done"
