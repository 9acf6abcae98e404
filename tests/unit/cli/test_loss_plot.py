"""The plots of a loss."""

from __future__ import annotations

from xml.etree import ElementTree

from cli.loss_plot import svg_plot, text_plot

FALL = [(step, 4.0 / (1 + step / 100)) for step in range(0, 2001, 20)]


def test_the_text_falls_from_the_first_column_to_the_last() -> None:
    lines = text_plot(FALL).splitlines()
    assert lines[0].startswith("   3.")
    assert "█" in lines[0][9:12]
    assert set(lines[0][12:]) <= {" ", "│", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}
    heights = [
        sum(line[10 + at : 11 + at].strip() != "" for line in lines[:10]) for at in range(50)
    ]
    assert heights == sorted(heights, reverse=True)
    assert lines[-1].split() == ["step", "0", "2000"]


def test_a_flat_loss_and_a_single_one_are_no_fault() -> None:
    assert text_plot([(20, 1.0), (40, 1.0)])
    assert text_plot([(20, 1.0)]) == ""


def test_the_svg_has_every_point_inside_its_edges() -> None:
    root = ElementTree.fromstring(svg_plot(FALL, "a < b & c"))
    (line,) = (each for each in root if each.tag.endswith("polyline"))
    points = [tuple(map(float, each.split(","))) for each in line.attrib["points"].split()]
    assert len(points) == len(FALL)
    assert all(48 <= x <= 672 and 48 <= y <= 272 for x, y in points)
    assert [y for _, y in points] == sorted(y for _, y in points)
    assert "a < b & c" in "".join(root.itertext())
