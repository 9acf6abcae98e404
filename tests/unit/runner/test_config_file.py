"""config.toml: what it may hold, and what is said of one that is not sound."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.config_file import _read
from runner.settings import Settings, SettingsError, load, variable
from tests.properties import examples

CANARY = "canary-of-a-value"
_WORDS = ("127.0.0.1:99", "a.example", "https://a.example", "5m", "8GiB", "3", "1", "f16", "debug",
          "json", "auto", "/a/b", "")  # fmt: skip


def read(folder: Path, text: str | bytes) -> Settings:
    """The settings of a folder whose config.toml holds text."""
    (folder / "config.toml").touch(0o600)
    (folder / "config.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    _read.cache_clear()
    return load({"HEARTH_HOME": str(folder)})


def refusal(folder: Path, text: str | bytes) -> str:
    """What is said of a file with text, after its name."""
    with pytest.raises(SettingsError) as caught:
        read(folder, text)
    message = str(caught.value)
    assert CANARY not in message
    assert message.endswith(f". HEARTH_CONFIG={os.devnull} leaves the file out") or " = " in message
    start, _, rest = message.partition("config.toml")
    assert start == f"{folder}/"
    return rest


def test_every_kind_of_value_is_read(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        b"\xef\xbb\xbf"  # as some editors begin a file
        b"""host = ":99"
listen = ["[::1]:4327", "10.0.0.5"]
keep_alive = -1
load_timeout = 1.5
step_timeout = "2m"
max_file_size = 1000
memory_limit = "1GiB"
offline = true
insecure_local = 1
flash_attention = false
autoload = "off"
origins = "https://a.example, https://b.example"
context_length = 0
default_model = ""
models = "beside"
tls_cert = "~/cert.pem"
cache_dir = "/elsewhere"
""",
    )
    assert [address.url for address in (found.host, *found.listen)] == [
        "http://127.0.0.1:99", "http://[::1]:4327", "http://10.0.0.5:4327",
    ]  # fmt: skip
    assert (found.keep_alive, found.load_timeout, found.step_timeout) == (None, 1.5, 120)
    assert (found.max_file_size, found.memory_limit) == (1000, 1 << 30)
    assert (found.offline, found.insecure_local) == (True, True)
    assert (found.flash_attention, found.autoload) == (False, False)
    assert found.origins == ("https://a.example", "https://b.example")
    assert (found.context_length, found.default_model) == (None, None)
    assert (found.models, found.cache_dir) == (tmp_path / "beside", Path("/elsewhere"))
    assert found.tls_cert == Path("~/cert.pem").expanduser()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n[server]\nhost = 'a'", ", line 2: there is no setting 'server'"),
        ("offline = 1\nkeepalive = 5", ", line 2: there is no setting 'keepalive'; the nearest"),
        ("HEARTH_OFFLINE = 1", ", line 1: there is no setting 'HEARTH_OFFLINE'; the nearest"),
        ("config = '/x'", ", line 1: there is no setting 'config'"),
        (f"zzz = '{CANARY}'", ", line 1: there is no setting 'zzz'; `hearth env --explain`"),
        ("\nkeep_alive = true", ", line 2: keep_alive has true or false; write a string or a whol"),
        ("num_parallel = 1.5", ", line 1: num_parallel has a number; write a string or a whole n"),
        ("offline = 'maybe'", ", line 1: offline = 'maybe' is invalid: use 1 or 0"),
        ("max_queue = -1", ", line 1: max_queue = '-1' is invalid: use a whole number of at"),
        ("origins = [1]", ", line 1: origins has a whole number; write a string"),
        ("home = ['a']", ", line 1: home has a list of strings; write a string"),
        ("host = 2026-01-01", ", line 1: host has a date or a time; write a string"),
        ("'models' = \"a\\u0000b\"", ", line 1: models has a NUL character; remove it"),
        (f"api_key = ['{CANARY}']", ", line 1: api_key has a list of strings; write a string"),
        (f"offline = 1\napi_key = {CANARY}", " is not TOML: Invalid value (at line 2, column 11"),
        (f"api_key = '{CANARY}'\napi_key = 'b'\n\n", " is not TOML: Cannot overwrite a value"),
        ("host = " + "[" * 10_000, " is not TOML: "),
        (b"offline = 1\nhome = '\xff'", ", line 2: this is not UTF-8"),
        (b"\x00\x01", " is not TOML: "),
        ("#" * (1 << 20) + "#", " is larger than 1048576 bytes"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_sound_is_refused_with_its_place(
    tmp_path: Path, text: str | bytes, said: str
) -> None:
    assert refusal(tmp_path, text).startswith(said)


def test_what_others_may_write_or_a_secret_that_they_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.touch()
    for mode in (0o620, 0o602):
        file.chmod(mode)
        said = f" may be written by other users; run `chmod 600 {file}`"
        assert refusal(tmp_path, "offline = 1").startswith(said)
    file.chmod(0o644)
    assert read(tmp_path, "offline = 1").offline
    said = f" holds api_key, and other users may read it; run `chmod 600 {file}`"
    assert refusal(tmp_path, f"api_key = '{CANARY}'").startswith(said)
    file.chmod(0o600)
    assert read(tmp_path, f"api_key = '{CANARY}'").api_key == CANARY


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.toml"
    file.touch(0o600)
    other = file.stat().st_uid + 1
    monkeypatch.setattr(os, "getuid", lambda: other)
    if file.stat().st_uid:
        assert refusal(tmp_path, "offline = 1").startswith(" may be written by other users")
    else:
        assert read(tmp_path, "offline = 1").offline  # root may write every file anyway


def test_another_file_may_be_named_or_none(tmp_path: Path) -> None:
    for number, name in enumerate(("config.toml", "other"), 1):
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_text(f"max_queue = {number}")
    home = {"HEARTH_HOME": str(tmp_path)}
    assert load(home).max_queue == 1
    assert load(home | {"HEARTH_CONFIG": str(tmp_path / "other")}).max_queue == 2
    assert load(home | {"HEARTH_CONFIG": os.devnull}).max_queue == 512
    with pytest.raises(SettingsError, match=r"HEARTH_CONFIG=.*missing: there is no such file"):
        load({"HEARTH_CONFIG": str(tmp_path / "missing")})
    (tmp_path / "folder" / "config.toml").mkdir(parents=True)
    with pytest.raises(SettingsError, match=r"config\.toml cannot be read: Is a directory"):
        load({"HEARTH_HOME": str(tmp_path / "folder")})
    assert load({"HEARTH_HOME": str(tmp_path / "nowhere")}).max_queue == 512


@given(
    st.sampled_from(
        [item.name for item in fields(Settings) if item.name not in ("home", "config")]
    ),
    st.sampled_from(_WORDS),
)
@examples(50)
def test_a_text_means_in_the_file_what_it_means_in_its_variable(
    tmp_path_factory: pytest.TempPathFactory, name: str, text: str
) -> None:
    folder = tmp_path_factory.mktemp("config")
    try:
        expected = getattr(load({variable(name): text, "HEARTH_CONFIG": os.devnull}), name)
    except SettingsError as error:
        advice = str(error).partition(" is invalid: ")[2]
        assert refusal(folder, f'{name} = "{text}"').endswith(advice)
    else:
        beside = folder / expected if isinstance(expected, Path) else expected
        assert getattr(read(folder, f'{name} = "{text}"'), name) == beside
