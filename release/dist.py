"""`python release/dist.py FOLDER`: everything that a release page carries, into FOLDER.

The source; wheels of hearth, a pure one and one with its kernels compiled for every level; a wheel
of llama.cpp with ggml's variants for every processor; get.sh; the list of what hearth runs on
(CycloneDX); SHA256SUMS. The wheels run where the C library is as new as this machine's, which
auditwheel puts into their names. Run by `make dist`, with the tools of .venv-dist.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
WORK = REPOSITORY / "build/dist"
TOOLS = Path(sys.executable).parent
ENGINE_FLAGS = ("-DGGML_NATIVE=OFF", "-DGGML_BACKEND_DL=ON", "-DGGML_CPU_ALL_VARIANTS=ON")
# Of the wheel of llama.cpp, beside which hearth's lies
OF_ENGINE = ("libggml-base.so.*", "libgomp.so.1")
OURS = ("hearth-*", "hearth.cdx.json", "llama_cpp_python-*", "get.sh", "SHA256SUMS")


def main(folder: Path) -> None:
    """Makes the release; what lies there of another one is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in OURS:
        for path in folder.glob(pattern):
            path.unlink()
    settle_environment()
    run(tool("python"), "-m", "build", "--outdir", folder, REPOSITORY)
    engine = build_engine()
    shutil.copy(engine, folder)
    add_kernels(engine, folder)
    shutil.copy(REPOSITORY / "release/get.sh", folder)
    list_components(folder, engine)
    (folder / "SHA256SUMS").write_text(sums(folder))
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size:>12,}  {path.name}")


def settle_environment() -> None:
    """Of two releases of one commit, the files are the same: no time, place or locale of the build
    goes into them, and what builds them is pinned."""
    if "SOURCE_DATE_EPOCH" not in os.environ:
        command = ["git", "-C", str(REPOSITORY), "log", "-1", "--format=%ct"]
        os.environ["SOURCE_DATE_EPOCH"] = subprocess.check_output(command, text=True).strip()
    os.environ["LC_ALL"] = "C"
    # llama.cpp writes down the commit of the repository that it finds around it
    os.environ["GIT_CEILING_DIRECTORIES"] = str(WORK)
    for name in ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT"):
        os.environ[name] = os.path.relpath(REPOSITORY / "constraints.txt")


def build_engine() -> Path:
    """The wheel of llama.cpp; built once for each source, set of flags and compiler."""
    source = fetch_engine()
    flags = f"{os.environ.get('CFLAGS', '')} -ffile-prefix-map={WORK}=."
    include = REPOSITORY / "release/llama.cmake"
    folder = WORK / f"engine-{key(source, include, *ENGINE_FLAGS)}"
    built = [*folder.glob("*.whl")]
    if built:
        return built[0]
    unpacked = WORK / "source"
    shutil.rmtree(unpacked, ignore_errors=True)
    with tarfile.open(source) as archive:
        archive.extractall(unpacked, filter="data")
        newest_s = max(member.mtime for member in archive)
    (root,) = unpacked.iterdir()
    environment = {
        "CFLAGS": flags,
        "CXXFLAGS": flags,
        "CMAKE_ARGS": f"-DCMAKE_PROJECT_llama_cpp_INCLUDE='{include}' {' '.join(ENGINE_FLAGS)}",
        "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count()),
        "SKBUILD_BUILD_DIR": str(WORK / "objects"),
        "SKBUILD_WHEEL_EXCLUDE": "lib/*;bin/*",
        "SOURCE_DATE_EPOCH": f"{newest_s:.0f}",
    }
    raw = WORK / "raw"
    shutil.rmtree(raw, ignore_errors=True)
    pip = (tool("python"), "-m", "pip", "wheel", "-v", "--no-cache-dir", "--no-deps", "-w", raw)
    log = WORK / "engine.log"
    print(f"compiling llama.cpp for every processor: {log}", flush=True)
    with log.open("w") as output:
        run(*pip, root, stdout=output, stderr=subprocess.STDOUT, env=os.environ | environment)
    unfinished = WORK / "engine"
    shutil.rmtree(unfinished, ignore_errors=True)
    name_platform(next(raw.glob("*.whl")), unfinished, environment)
    return next(unfinished.rename(folder).glob("*.whl"))


def fetch_engine() -> Path:
    """The source of llama-cpp-python, as requirements-engine.txt has its hash."""
    requirements = REPOSITORY / "requirements-engine.txt"
    text = requirements.read_text()
    pin = re.match(r"llama-cpp-python==(\S+)", text)
    assert pin is not None
    folder = WORK / "sdist"
    source = folder / f"llama_cpp_python-{pin[1]}.tar.gz"
    if not source.exists() or hashlib.sha256(source.read_bytes()).hexdigest() not in text:
        pip = (tool("python"), "-m", "pip", "download", "--quiet", "--no-deps")
        only = ("--no-binary", "llama-cpp-python", "--require-hashes")
        run(*pip, *only, "-d", folder, "-r", requirements)
    return source


def key(*depends: Path | str) -> str:
    """The name of what is compiled of these files and texts, with this compiler and its flags."""
    digest = hashlib.sha256()
    for one in depends:
        digest.update(one.read_bytes() if isinstance(one, Path) else one.encode())
    for name in ("CFLAGS", "CC", "CXX"):
        digest.update(f"{name}={os.environ.get(name, '')}\0".encode())
    compiler = os.environ.get("CXX", "c++").split()
    digest.update(subprocess.check_output([*compiler, "--version"]))
    return digest.hexdigest()[:16]


def add_kernels(engine: Path, folder: Path) -> None:
    """The wheel of hearth with the kernels of every level."""
    raw = WORK / "raw"
    shutil.rmtree(raw, ignore_errors=True)
    build = (tool("python"), "-m", "build", "--wheel", "--outdir", raw, REPOSITORY)
    run(*build, env=os.environ | {"HEARTH_WHEEL_KERNELS": str(compile_kernels(engine))})
    name_platform(next(raw.glob("*.whl")), folder)


def compile_kernels(engine: Path) -> Path:
    """The folder with the kernels of every level, compiled against the engine's wheel; once for
    each state of their sources."""
    sources = [path for path in (REPOSITORY / "kernels/native").iterdir() if path.is_file()]
    kernels = WORK / f"kernels-{key(engine, *sorted(sources))}"
    if kernels.is_dir():
        return kernels
    unpacked, unfinished = WORK / "unpacked", WORK / "kernels"
    for path in (unpacked, unfinished):
        shutil.rmtree(path, ignore_errors=True)
    shutil.unpack_archive(engine, unpacked, "zip")
    unfinished.mkdir(parents=True)
    packages = os.pathsep.join(map(str, (REPOSITORY, unpacked)))
    levels = (tool("python"), "-P", "-m", "kernels.native", "--levels", unfinished)
    run(*levels, env=os.environ | {"PYTHONPATH": packages})
    return unfinished.rename(kernels)


def name_platform(wheel: Path, folder: Path, environment: Mapping[str, str] = {}) -> None:
    """Puts the wheel into the folder, named after the oldest platform that has the symbols that it
    needs. Ends the release where it needs a library that is neither the system's nor in it."""
    exclude = [f"--exclude={name}" for name in OF_ENGINE if wheel.name.startswith("hearth-")]
    path = os.pathsep.join((str(TOOLS), os.environ["PATH"]))
    options = ("--plat", "auto", *exclude, "--wheel-dir", str(folder))
    run(
        tool("auditwheel"),
        "repair",
        *options,
        wheel,
        env={**os.environ, **environment, "PATH": path},
    )
    if not [*folder.glob(f"{wheel.name.rpartition('-')[0]}-manylinux*.whl")]:
        raise SystemExit(f"{wheel.name} is for no manylinux platform: see auditwheel show {wheel}")


def list_components(folder: Path, engine: Path) -> None:
    """hearth.cdx.json: the locked requirements, and GCC's OpenMP, which the engine's wheel has."""
    names = ("requirements.txt", "requirements-engine.txt")
    requirements = "".join((REPOSITORY / name).read_text() for name in names)
    listed = folder / "hearth.cdx.json"
    project = ("requirements", "--pyproject", REPOSITORY / "pyproject.toml")
    options = ("--output-reproducible", "--output-file", listed, "-")
    run(tool("cyclonedx-py"), *project, *options, input=requirements, text=True)
    document = json.loads(listed.read_text())
    compiler = os.environ.get("CC", "cc").split()
    version = subprocess.check_output([*compiler, "-dumpfullversion"], text=True).strip()
    document["components"].append(
        {
            "bom-ref": "libgomp",
            "type": "library",
            "name": "libgomp",
            "version": version,
            "description": f"GCC's OpenMP, in {engine.name}",
            "licenses": [{"expression": "GPL-3.0-or-later WITH GCC-exception-3.1"}],
        }
    )
    listed.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")


def sums(folder: Path) -> str:
    """The lines of SHA256SUMS, for the files of the release."""
    paths = {path for pattern in OURS for path in folder.glob(pattern)}
    names = sorted(path.name for path in paths if path.name != "SHA256SUMS")
    hashes = (hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names)
    return "".join(f"{one}  {name}\n" for one, name in zip(hashes, names, strict=True))


def tool(name: str) -> Path:
    """A program of the environment that runs this."""
    return TOOLS / name


def run(*command: str | Path, **options: object) -> None:
    """Runs it; its failure ends the release."""
    done = subprocess.run([str(word) for word in command], check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise SystemExit(f"{Path(command[0]).name} failed with status {done.returncode}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
