"""`python -m tests.kernels.fuzz --minutes 60`: libFuzzer against the C++ kernels, under ASan and
UBSan, each target for every level of processor that this machine has.

What is kept of the inputs is in corpus/, and `--minutes 0` only runs that. Needs clang++ with its
runtime libraries and OpenMP (Debian: clang-19 libclang-rt-19-dev libomp-19-dev). Exit status 1:
something was found; its input lies in build/fuzz.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernels import native
from kernels.native import build

FOLDER = Path(__file__).parent
CORPUS = FOLDER / "corpus"
REPOSITORY = FOLDER.parents[2]
WORK = REPOSITORY / "build" / "fuzz"
COMPILERS = ("clang++", "clang++-21", "clang++-20", "clang++-19", "clang++-18")
TARGETS = {
    "matmul": ("matmul.cpp",),
    "attention": ("attention.cpp",),
    "linear": ("linear.cpp",),
    "decode": ("decode.cpp", "linear.cpp", "lora.cpp"),
    "lora": ("lora.cpp",),
    "backend": ("ggml_backend.cpp", "adapters.cpp", "lora.cpp", "matmul.cpp", "attention.cpp"),
}
# Without -fwrapv, unlike a user's build: where a number is meant to wrap around, the code says so.
_FLAGS = (
    *(
        "-std=c++17",
        "-O1",
        "-g",
        "-fopenmp",
        "-fno-omit-frame-pointer",
        "-fno-sanitize-recover=all",
    ),
    "-fsanitize=fuzzer,address,undefined,float-cast-overflow",
)
_RUN_FLAGS = ("-max_len=600", "-timeout=60", "-rss_limit_mb=3000", "-print_final_stats=1")
# Threads that wait sleep: there may be more of them than processors.
_ENVIRONMENT = {"KMP_BLOCKTIME": "0", "OMP_WAIT_POLICY": "passive"}
MAX_KEPT_BYTES = 220  # of an input that stays in corpus/; longer ones add little


@dataclass(frozen=True, slots=True)
class Fuzzer:
    """A target, compiled for a level of processor."""

    target: str
    level: str
    binary: Path

    def run(self, seconds: int) -> bool:
        """Whether nothing was found. seconds 0: the kept inputs only."""
        found, kept = WORK / "corpus" / self.target, CORPUS / self.target
        found.mkdir(parents=True, exist_ok=True)
        command = [str(self.binary), *_RUN_FLAGS, f"-artifact_prefix={WORK}/{self.target}-"]
        if seconds:
            command += [f"-max_total_time={seconds}", str(found), str(kept)]
        else:
            command += ["-runs=0", str(kept)]
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **_ENVIRONMENT}
        )
        runs = [line for line in done.stderr.splitlines() if "number_of_executed" in line]
        outcome = "nothing found" if not done.returncode else f"exit status {done.returncode}"
        print(f"{self.target} {self.level}: {' '.join(runs)}; {outcome}", flush=True)
        if done.returncode:
            print("\n".join(done.stderr.splitlines()[-60:]), flush=True)
        return done.returncode == 0


def find_compiler() -> str | None:
    """A clang++ that can link libFuzzer; None: there is none."""
    WORK.mkdir(parents=True, exist_ok=True)
    source = WORK / "empty.cpp"
    source.write_text(
        '#include <cstddef>\nextern "C" int LLVMFuzzerTestOneInput(const unsigned char *, size_t)'
        " { return 0; }\n"
    )
    for compiler in filter(shutil.which, COMPILERS):
        command = [compiler, *_FLAGS, str(source), "-o", str(WORK / "empty")]
        if subprocess.run(command, capture_output=True).returncode == 0:
            return compiler
    return None


def compile_target(compiler: str, target: str, level: str) -> Fuzzer:
    """Raises CalledProcessError where it does not compile; build.CompileError without llama.cpp."""
    sources = [FOLDER / f"{target}.cpp", *(build.SOURCES / name for name in TARGETS[target])]
    binary = WORK / f"{target}-{level}"
    command = [compiler, *_FLAGS, *native.LEVELS[level].compiler_flags, f"-I{REPOSITORY}"]
    if target == "backend":
        recipe = build.RECIPES["llamacpp"]()
        assert recipe is not None
        command += [f"-isystem{folder}" for folder in recipe.include]
        command += [f"-D{text}" for text in recipe.define]
        sources += recipe.link
        command += [f"-Wl,-rpath,{file.parent}" for file in recipe.link]
    subprocess.run([*command, *map(str, sources), "-o", str(binary)], check=True)
    return Fuzzer(target, level, binary)


def compiled(compiler: str, targets: list[str], of_levels: list[str]) -> Iterator[Fuzzer]:
    """Every target for every level."""
    for target in targets:
        for level in of_levels:
            yield compile_target(compiler, target, level)


def keep(fuzzers: list[Fuzzer]) -> None:
    """Put the smallest inputs that reach what all found inputs reach into corpus/."""
    for fuzzer in {fuzzer.target: fuzzer for fuzzer in fuzzers}.values():
        kept, found = CORPUS / fuzzer.target, WORK / "corpus" / fuzzer.target
        merged = WORK / "merged" / fuzzer.target
        shutil.rmtree(merged, ignore_errors=True)
        merged.mkdir(parents=True)
        command = [str(fuzzer.binary), "-set_cover_merge=1", f"-max_len={MAX_KEPT_BYTES}"]
        subprocess.run(
            [*command, str(merged), str(kept), str(found)],
            check=True,
            capture_output=True,
            env={**os.environ, **_ENVIRONMENT},
        )
        shutil.rmtree(kept)
        shutil.copytree(merged, kept)


def main() -> int:
    """Compile, run, and tell what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernels.fuzz")
    parser.add_argument("--minutes", type=float, default=60, help="of all targets together")
    parser.add_argument("--target", action="append", choices=TARGETS)
    parser.add_argument("--keep", action="store_true", help="renew corpus/ with what was found")
    given = parser.parse_args()
    compiler = find_compiler()
    if compiler is None:
        print("needs clang++ with libFuzzer and OpenMP", file=sys.stderr)
        return 2
    fuzzers = list(compiled(compiler, given.target or list(TARGETS), native.levels()))
    seconds = int(given.minutes * 60 / len(fuzzers))
    good = [fuzzer.run(seconds) for fuzzer in fuzzers]
    if given.keep:
        keep(fuzzers)
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
