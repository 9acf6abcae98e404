from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.setting_values import DEFAULT_PORT, Address, parse_address, parse_duration, parse_size
from runner.settings import (
    HIDDEN,
    Settings,
    SettingsError,
    describe,
    explain,
    host_source,
    load,
    source,
    variable,
)
from runner.settings import (
    given as given_in,
)
from tests.properties import examples


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", Address("127.0.0.1", DEFAULT_PORT)),
        ("example.com", Address("example.com", DEFAULT_PORT)),
        ("0.0.0.0", Address("0.0.0.0", DEFAULT_PORT)),
        (":5000", Address("127.0.0.1", 5000)),
        ("localhost:5000", Address("localhost", 5000)),
        ("localhost:0", Address("localhost", 0)),
        (" '10.0.0.1:80' ", Address("10.0.0.1", 80)),
        ("http://host", Address("host", 80)),
        ("https://host", Address("host", 443, "https")),
        ("https://host:8443/path", Address("host", 8443, "https")),
        ("::1", Address("::1", DEFAULT_PORT)),
        ("[::1]:99", Address("::1", 99)),
    ],
)
def test_addresses_are_read_in_all_their_forms(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["ftp://host", "host:port", "host:70000", "[::1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_address(text)


def test_an_address_knows_its_url() -> None:
    assert Address("::1", 80).url == "http://[::1]:80"
    assert Address("host", 443, "https").url == "https://host:443"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("300", 300.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("250ms", 0.25),
        ("1m30s", 90.0),
        ("-1", None),
        ("-5m", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "-", "5 minutes", "m5", "1h30", "nan", "inf", "5d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1000", 1000),
        ("1k", 1024),
        ("8GiB", 8 * 1024**3),
        ("8G", 8 * 1024**3),
        ("500MB", 500_000_000),
        ("1.5 KiB", 1536),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1G", "1 potato", "1e9"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


def test_nothing_set_gives_the_defaults() -> None:
    assert load({}) == Settings()
    assert load({"HEARTH_NUM_PARALLEL": "  "}) == Settings()


def test_each_field_is_read_from_its_variable() -> None:
    given = load(
        {
            "HEARTH_HOST": ":99",
            "HEARTH_HOME": "~/x",
            "HEARTH_KEEP_ALIVE": "-1",
            "HEARTH_CONTEXT_LENGTH": "0",
            "HEARTH_KV_CACHE_TYPE": "Q8_0",
            "HEARTH_FLASH_ATTENTION": "auto",
            "HEARTH_ORIGINS": "http://a, ,http://b",
            "HEARTH_NO_AUTOSTART": "yes",
            "HEARTH_MEMORY_LIMIT": "1GiB",
        }
    )
    assert given.host.port == 99
    assert given.home == Path("~/x").expanduser()
    assert given.keep_alive is None
    assert given.context_length is None
    assert given.kv_cache_type == "q8_0"
    assert given.flash_attention is None
    assert given.origins == ("http://a", "http://b")
    assert given.no_autostart is True
    assert given.memory_limit == 1024**3


def test_the_variable_of_hearth_wins_over_the_one_of_ollama() -> None:
    both = {"OLLAMA_KEEP_ALIVE": "1m", "HEARTH_KEEP_ALIVE": "2m"}
    assert load(both).keep_alive == 120
    assert load({"OLLAMA_KEEP_ALIVE": "1m"}).keep_alive == 60


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("HEARTH_NUM_PARALLEL", "many"),
        ("HEARTH_NUM_PARALLEL", "-1"),
        ("HEARTH_MAX_QUEUE", "1.5"),
        ("HEARTH_KV_CACHE_TYPE", "q9"),
        ("HEARTH_NO_AUTOSTART", "maybe"),
        ("HEARTH_HOST", "host:port"),
        ("OLLAMA_KEEP_ALIVE", "soon"),
        ("HEARTH_MEMORY_LIMIT", "lots"),
        ("HEARTH_LOG_LEVEL", "loud"),
        ("HEARTH_ORIGINS", "https://a.example, b.example"),
        ("OLLAMA_ORIGINS", "https://*.*"),
        ("HEARTH_HOSTS", "*.lan"),
    ],
)
def test_a_bad_value_names_its_variable_and_itself(name: str, text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load({name: text})
    assert str(caught.value).startswith(f"{name}={text!r} is invalid: ")


@given(st.sampled_from([item.name for item in fields(Settings)]), st.text(max_size=12))
@examples(100)
def test_any_value_is_read_or_refused_by_name(name: str, text: str) -> None:
    message = variable(name)
    try:
        load({variable(name): text})
    except SettingsError as error:
        message = str(error)
    assert variable(name) in message


def test_the_folders_follow_home_and_models() -> None:
    given = Settings(home=Path("/h"))
    assert (given.data_dir, given.state_dir) == (Path("/h"), Path("/h/state"))
    assert given.models_dir == Path("/h/models")
    assert Settings(home=Path("/h"), models=Path("/m")).models_dir == Path("/m")
    assert Settings().models_dir.is_absolute()


def test_every_setting_is_described() -> None:
    rows = describe()
    assert len(rows) == len(fields(Settings))
    assert all(name.startswith("HEARTH_") and doc for name, doc, _ in rows)
    assert ("HEARTH_NUM_PARALLEL", "maximum number of concurrent requests of a model", "16") in rows


def test_the_variable_that_counts_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"OLLAMA_HOST": "a", "HEARTH_KEEP_ALIVE": "1", "OLLAMA_KEEP_ALIVE": "2",
               "HEARTH_MODELS": " "}  # fmt: skip
    found = {
        name: [(way.source, way.text) for way in ways] for name, ways in given_in(environ).items()
    }
    assert found == {
        "host": [("OLLAMA_HOST", "a")],
        "keep_alive": [("HEARTH_KEEP_ALIVE", "1"), ("OLLAMA_KEEP_ALIVE", "2")],
    }
    for name in ("HEARTH_HOST", "OLLAMA_HOST", "OLLAMA_ORIGINS", "HEARTH_ORIGINS"):
        monkeypatch.delenv(name, raising=False)
    assert (host_source(), source("origins")) == ("", "HEARTH_ORIGINS")
    monkeypatch.setenv("OLLAMA_HOST", "b")
    monkeypatch.setenv("OLLAMA_ORIGINS", "c")
    assert (host_source(), source("origins")) == (" (OLLAMA_HOST)", "OLLAMA_ORIGINS")


def test_a_line_of_the_file_counts_after_the_variables_and_before_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.toml"
    file.touch(0o600)
    file.write_text("# a comment\nkeep_alive = '10m'\nnum_parallel = 3\nmax_queue = 4\n")
    environ = {"HEARTH_HOME": str(tmp_path), "OLLAMA_KEEP_ALIVE": "2", "HEARTH_NUM_PARALLEL": "5",
               "OLLAMA_NUM_PARALLEL": "6"}  # fmt: skip
    loaded = load(environ)
    assert (loaded.keep_alive, loaded.num_parallel, loaded.max_queue) == (2, 5, 4)
    rows = {row.name: row for row in explain(environ)}
    assert list(rows) == [item.name for item in fields(Settings)]
    assert rows["num_parallel"].overrides == (
        ("OLLAMA_NUM_PARALLEL", "6"), (f"{file}, line 3", "3"), ("default", "16"),
    )  # fmt: skip
    queue = rows["max_queue"]
    assert (queue.value, queue.source, queue.default) == ("4", f"{file}, line 4", "512")
    assert (queue.variable, queue.overrides) == ("HEARTH_MAX_QUEUE", (("default", "512"),))
    assert (rows["offline"].value, rows["offline"].source) == ("0", "default")
    monkeypatch.setenv("HEARTH_HOME", str(tmp_path))
    assert source("max_queue") == "config.toml: max_queue"  # clients are told no folder


def test_a_secret_is_explained_without_its_text(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.touch(0o600)
    file.write_text("api_key = 'canary-1'\n")
    environ = {"HEARTH_CONFIG": str(file), "HEARTH_API_KEY": "canary-2"}
    assert load(environ).api_key == "canary-2"
    assert "canary" not in repr(explain(environ))
    (key,) = (row for row in explain(environ) if row.name == "api_key")
    assert (key.value, key.overrides[0]) == (HIDDEN, (f"{file}, line 1", HIDDEN))


def test_private_registries_are_hosts_with_or_without_a_port() -> None:
    text = "registry.lan:5000, 10.0.0.5,[fd00::1]:5000"
    hosts = load({"HEARTH_PRIVATE_REGISTRIES": text}).private_registries
    assert hosts == ("registry.lan:5000", "10.0.0.5", "[fd00::1]:5000")


@pytest.mark.parametrize(
    "text", ["http://x:5000", "x/y", "u@x", "x:0", "x:99999", "x:", ":5000", "[::1", "x:port"]
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="HEARTH_PRIVATE_REGISTRIES"):
        load({"HEARTH_PRIVATE_REGISTRIES": text})
