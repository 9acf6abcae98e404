"""hearth create."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from cli.main import execute
from tests.unit.cli.conftest import FakeDaemon

WEIGHTS = b"GGUF" + bytes(range(256))
DIGEST = f"sha256:{hashlib.sha256(WEIGHTS).hexdigest()}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a model file in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.gguf").write_bytes(WEIGHTS)
    return tmp_path


@pytest.fixture
def builder(daemon: FakeDaemon) -> FakeDaemon:
    """A daemon without blobs that builds whatever it is asked for."""
    daemon.stream("/api/create", {"status": "writing manifest"}, {"status": "success"})
    daemon.reply("HEAD", f"/api/blobs/{DIGEST}", None, 404)
    daemon.reply("POST", f"/api/blobs/{DIGEST}", None, 201)
    return daemon


def test_everything_of_a_modelfile_is_sent(
    builder: FakeDaemon, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("Modelfile").write_text(
        'FROM ember\nPARAMETER temperature 0.5\nPARAMETER stop a\nPARAMETER stop "b c"\n'
        'SYSTEM """You are\nbrief."""\nTEMPLATE {{ x }}\nLICENSE MIT\nMESSAGE user hi\n'
    )
    assert execute(["create", "mine"]) == 0
    assert builder.asked("/api/create") == [
        {
            "model": "mine",
            "from": "ember",
            "parameters": {"temperature": 0.5, "stop": ["a", "b c"]},
            "system": "You are\nbrief.",
            "template": "{{ x }}",
            "license": ["MIT"],
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
        }
    ]
    assert capsys.readouterr() == ("created 'mine'\n", "writing manifest\nsuccess\n")


def test_a_parameter_without_effect_is_left_out_and_said(
    builder: FakeDaemon, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("Modelfile").write_text("FROM ember\nPARAMETER tfs_z 1\n")
    assert execute(["create", "mine"]) == 0
    assert "parameters" not in builder.asked("/api/create")[0]
    assert "line 2, column 1: parameter tfs_z is deprecated" in capsys.readouterr().err


@pytest.mark.parametrize("source", ["./model.gguf", "model.gguf"])
def test_a_file_is_uploaded_and_named_by_its_digest(
    builder: FakeDaemon, folder: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "Modelfile").write_text(f"FROM {source}\n")
    monkeypatch.chdir("/")
    assert execute(["create", "mine", "-f", str(folder / "Modelfile")]) == 0
    assert builder.asked(f"/api/blobs/{DIGEST}") == [b"", WEIGHTS]
    assert builder.asked("/api/create") == [
        {"model": "mine", "files": {"model.gguf": DIGEST}, "stream": True}
    ]


def test_a_file_that_the_store_has_is_not_sent_again(builder: FakeDaemon, folder: Path) -> None:
    builder.reply("HEAD", f"/api/blobs/{DIGEST}", None, 200)
    Path("Modelfile").write_text("FROM ./model.gguf\n")
    assert execute(["create", "mine"]) == 0
    assert ("POST", f"/api/blobs/{DIGEST}", WEIGHTS) not in builder.requests


def test_an_impossible_name_is_refused_before_anything_is_sent(
    builder: FakeDaemon, folder: Path
) -> None:
    body = {"error": "'a b' is not a model name", "code": "invalid_value"}
    builder.reply("POST", "/api/show", body, 400)
    Path("Modelfile").write_text("FROM ./model.gguf\n")
    assert execute(["create", "a b"]) == 1
    assert not builder.asked(f"/api/blobs/{DIGEST}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROM ember\nPARAMTER x 1\n", "Modelfile: line 2, column 1"),
        ("FROM ember\nPARAMETER temprature 1\n", "Modelfile: line 2, column 1: unknown parameter"),
        ("FROM ember\nPARAMETER temperature hot\n", "Modelfile: line 2, column 1"),
        ("SYSTEM x\n", "no FROM line"),
        ("FROM ember\nDRAFT ./a.gguf\n", "a.gguf, named by DRAFT, does not exist"),
        ("FROM ember\nADAPTER ./a.gguf\n", "a.gguf, named by ADAPTER, does not exist"),
        ("FROM ember\nADAPTER ./x\nADAPTER ./y\n", "line 3, column 1: only one ADAPTER"),
        ("FROM ember\nFROM ./b.gguf\n", "b.gguf, named by FROM, does not exist"),
        ("FROM ember\nFROM other\n", "FROM names two models (ember, other)"),
        ("FROM a\nFROM b\nFROM c\n", "line 3, column 1: at most two FROM lines are allowed"),
        ("FROM ./missing.gguf\n", "missing.gguf, named by FROM, does not exist"),
        ("FROM ./empty\n", "empty contains no model"),
        ("FROM /dev/null\n", "is a device"),
        ("FROM ./Modelfile\n", "is not a GGUF file"),
    ],
)
def test_a_bad_modelfile_is_refused_before_the_daemon_is_asked(
    daemon: FakeDaemon,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    message: str,
) -> None:
    Path("Modelfile").write_text(text)
    Path("empty").mkdir()
    assert execute(["create", "mine"]) == 1
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.startswith("Error: ")
    assert daemon.requests == []


def test_a_modelfile_that_is_not_text_names_the_line(
    daemon: FakeDaemon, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("Modelfile").write_bytes(b"FROM ember\nSYSTEM caf\xe9\n")
    assert execute(["create", "mine"]) == 1
    assert "line 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "message"),
    [("nowhere", "nowhere does not exist"), ("/", "folder"), ("/dev/zero", "device")],
)
def test_a_modelfile_that_cannot_be_read_is_named(
    daemon: FakeDaemon, folder: Path, capsys: pytest.CaptureFixture[str], file: str, message: str
) -> None:
    assert execute(["create", "mine", "-f", file]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("verb", [["create", "mine", "-f"], ["check"]])
@pytest.mark.parametrize(
    ("file", "model"),
    [
        ("model.gguf", "./model.gguf"),
        ("noend", "./noend"),
        (".", "."),
        ("hf", "./hf"),
        ("hf/model.safetensors", "./hf"),
        ("../{folder}/model.gguf", "../{folder}/model.gguf"),
    ],
)
def test_a_model_in_the_place_of_a_modelfile_is_told_how_to_run(
    folder: Path, capsys: pytest.CaptureFixture[str], verb: list[str], file: str, model: str
) -> None:
    Path("noend").write_bytes((folder / "model.gguf").read_bytes())
    Path("hf").mkdir()
    Path("hf/model.safetensors").write_bytes(bytes(8) + b"{}")
    file, model = file.format(folder=folder.name), model.format(folder=folder.name)
    assert execute([*verb, file]) == 1
    said = capsys.readouterr().err
    assert f"{file} is a model and not a Modelfile. To run it, type: hearth run {model}\n" in said
    assert said.endswith(f"begins with: FROM {model}\n")


def test_an_error_while_building_is_shown(
    builder: FakeDaemon, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder.stream("/api/create", {"status": "reading"}, {"error": "the disk is full"})
    Path("Modelfile").write_text("FROM ember\n")
    assert execute(["create", "mine"]) == 1
    assert capsys.readouterr() == ("", "reading\nError: the disk is full\n")


def test_without_a_modelfile_the_model_of_the_folder_is_taken(
    builder: FakeDaemon, folder: Path
) -> None:
    assert execute(["create", "mine"]) == 0
    assert builder.asked("/api/create")[0]["files"] == {"model.gguf": DIGEST}


def test_without_a_modelfile_and_a_model_the_first_is_asked_for(
    daemon: FakeDaemon, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "model.gguf").unlink()
    assert execute(["create", "mine"]) == 1
    assert "give the path of a Modelfile with -f" in capsys.readouterr().err


def test_how_to_quantize_is_sent(builder: FakeDaemon, folder: Path) -> None:
    Path("Modelfile").write_text("FROM ember\n")
    options = ("--tensor-type", "attn_v=Q8_0", "--tensor-type", "a=b=F16", "--allow-requantize")
    assert execute(["create", "mine", "-q", "Q4_K_M", *options]) == 0
    (body,) = builder.asked("/api/create")
    assert body["quantize"] == "Q4_K_M"
    assert body["tensor_types"] == {"attn_v": "Q8_0", "a=b": "F16"}
    assert body["allow_requantize"] is True


def test_the_files_for_the_importance_matrix_are_brought(builder: FakeDaemon, folder: Path) -> None:
    Path("Modelfile").write_text("FROM ember\n")
    for option in ("imatrix", "calibrate"):
        assert execute(["create", "mine", "-q", "Q4_K_M", f"--{option}", "model.gguf"]) == 0
        assert builder.asked("/api/create")[-1][option] == DIGEST


def test_texts_to_quantize_by_and_to_measure_on_are_brought(
    builder: FakeDaemon, folder: Path
) -> None:
    Path("Modelfile").write_text("FROM ember\n")
    texts = ["--calibration", "model.gguf", "--eval", "model.gguf"]
    assert execute(["create", "mine", "-q", "gptq-int4", *texts]) == 0
    sent = builder.asked("/api/create")[-1]
    assert (sent["quantize"], sent["calibrate"], sent["evaluate"]) == ("gptq-int4", DIGEST, DIGEST)


def test_sparse_weights_are_a_type(builder: FakeDaemon, folder: Path) -> None:
    Path("Modelfile").write_text("FROM ember\n")
    assert execute(["create", "mine", "--sparsify", "2:4", "--calibration", "model.gguf"]) == 0
    sent = builder.asked("/api/create")[-1]
    assert (sent["quantize"], sent["calibrate"]) == ("sparse-2:4", DIGEST)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--imatrix", "model.gguf"), "need --quantize"),
        (("--eval", "model.gguf"), "need --quantize"),
        (("--sparsify", "4:8"), "--sparsify 4:8 is not supported, only 2:4"),
        (("--sparsify", "2:4", "-q", "Q4_0"), "use --sparsify or --quantize, not both"),
        (("--allow-requantize",), "need --quantize"),
        (("-q", "Q4_0", "--calibrate", "nowhere.txt"), "nowhere.txt does not exist"),
        (("-q", "Q4_0", "--tensor-type", "attn"), "use REGEX=TYPE"),
    ],
)
def test_options_that_cannot_be_used_are_refused_before_the_daemon_is_asked(
    daemon: FakeDaemon,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    message: str,
) -> None:
    Path("Modelfile").write_text("FROM ember\n")
    assert execute(["create", "mine", *options]) != 0
    assert message in capsys.readouterr().err
    assert daemon.requests == []


def test_the_events_are_printed_as_json_when_wanted(
    builder: FakeDaemon, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("Modelfile").write_text("FROM ember\n")
    assert execute(["create", "mine", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"status": "writing manifest"}, {"status": "success"}]
