"""The desktop entry."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cli.service import desktop
from tests.properties import examples

_STRING_ESCAPES = {"\\\\": "\\", "\\n": "\n", "\\t": "\t", "\\r": "\r"}


def words_of(text: str) -> list[str]:
    """What a desktop runs: the string of the file, then field codes, then quotes, which are the
    shell's."""
    parser = configparser.RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    line = re.sub(r"\\.", lambda m: _STRING_ESCAPES[m[0]], parser["Desktop Entry"]["Exec"])
    assert not re.search(r"%[^%]", line.replace("%%", ""))
    script = f"printf '%s\\0' {line.replace('%%', '%')}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, timeout=60, check=True)
    return done.stdout.decode().split("\0")[:-1]


@examples(13)
@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp")), min_size=1))
@example("a b\"c\\d%e$f`g'%%f\\\\")
def test_every_value_arrives_as_it_was(value: str) -> None:
    for verb, entry in (("open", desktop.entry), ("tray", desktop.tray_entry)):
        words = words_of(entry({"HEARTH_HOME": value, "HEARTH_HOST": "127.0.0.1:1"}))
        assert words[:3] == ["env", f"HEARTH_HOME={value}", "HEARTH_HOST=127.0.0.1:1"]
        assert words[3:] == [sys.executable, "-P", "-m", "cli.main", verb]


@pytest.mark.skipif(
    shutil.which("desktop-file-validate") is None, reason="needs desktop-file-validate"
)
def test_the_entries_are_valid_and_their_icon_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    desktop.install_entry({"HEARTH_HOME": 'a b"c\\d%e$f`'})
    desktop.install_tray({"HEARTH_HOME": 'a b"c\\d%e$f`'})
    words = ["desktop-file-validate", "--warn-kde"]
    words += [str(desktop.entry_path()), str(desktop.tray_path())]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
    icon = tmp_path / "icons" / "hicolor" / "scalable" / "apps" / "hearth.svg"
    assert ElementTree.parse(icon).getroot().tag == "{http://www.w3.org/2000/svg}svg"
