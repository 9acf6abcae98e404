#!/bin/sh
# Installs hearth for one user: an isolated Python environment and a launcher. `--help` says how.
# Plain POSIX sh, because it is the first thing that runs on a machine nobody has prepared.
# Tests set HEARTH_INSTALL_SOURCED to the repository's path and source this file, so that they
# can call its functions one by one and replace those that download, compile or run a model.
set -u

usage() {
    cat <<'TEXT'
Usage: ./install.sh [options]

Installs hearth into its own environment, without root, and links the command to
~/.local/bin/hearth. Run it again to update; if nothing has changed, it does nothing.

  --prefix DIR      folder for the environment     [~/.local/share/hearth/venv, $HEARTH_PREFIX]
  --python PATH     the Python to use, 3.11 or newer
  --with-torch      also install PyTorch (the default on a machine with an NVIDIA GPU)
  --without-torch   no PyTorch, not even on a machine with an NVIDIA GPU
  --with-speech     also install speech recognition and synthesis (140 MB; Piper is GPL)
  --dev             for development: editable, with tools, in ./.venv, without a launcher
  --uninstall       remove hearth and its launcher, but keep the models
  --purge           with --uninstall: also remove models, logs, history and built wheels
  --help            show this text

CMAKE_ARGS, CFLAGS, CXXFLAGS, CC and CXX are passed on to the build of llama.cpp, for example
  CMAKE_ARGS="-DGGML_CUDA=on" ./install.sh
Wheels built here are kept in ~/.cache/hearth/wheels ($HEARTH_WHEELS) and reused.
HEARTH_WHEEL_INDEX names a folder, or a page with links, that has wheels of hearth and llama.cpp:
nothing is compiled then.
TEXT
}

say() { printf '%s\n' "$*"; }
fail() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }
now() { date +%s; }
finished() { say "  done in $(($(now) - $1)) s"; }

# watch LOG PID LIMIT_S: a line every 10 s, and the end of PID after LIMIT_S seconds.
watch() {
    watched=0
    while sleep 10 >/dev/null 2>&1; do
        watched=$((watched + 10))
        files=$(grep -o '\[[0-9]*/[0-9]*\]' "$1" 2>/dev/null | tail -n 1 | tr -d '[]')
        say "    $watched s${files:+, step $files}"
        [ "$watched" -lt "$3" ] || end_tree "$2"
    done
}

end_tree() {
    for below in $(ps -A -o pid= -o ppid= 2>/dev/null | awk -v parent="$1" '$2 == parent {print $1}'); do
        end_tree "$below"
    done
    kill -TERM "$1" 2>/dev/null
}

# logged LIMIT_S COMMAND...: runs it with its output in $log. Returns its status, 128 + n when
# signal n ended it.
logged() {
    limit_s=$1
    shift
    log=$logs/$(now).$$.log
    "$@" >"$log" 2>&1 </dev/null &
    child=$!
    watch "$log" "$child" "$limit_s" &
    watcher=$!
    status=0
    wait "$child" 2>/dev/null || status=$?
    kill "$watcher" 2>/dev/null
    wait "$watcher" 2>/dev/null
    child=
    return "$status"
}

show_log() {
    say "  the last lines of $log:" >&2
    tail -n 20 "$log" | sed 's/^/  | /' >&2
}

# step TEXT COMMAND...: prints what it does and the time it took; a failure ends the installation.
step() {
    say "- $1"
    shift
    started=$(now)
    if ! logged 7200 "$@"; then
        show_log
        fail "this step failed. Fix the cause and run ./install.sh again; it continues here"
    fi
    finished "$started"
}

interrupted() {
    [ -z "${child:-}" ] || end_tree "$child"
    [ -z "${watcher:-}" ] || kill "$watcher" 2>/dev/null
    fail "interrupted; run ./install.sh again to continue here"
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    chosen=no
    if [ -n "$python" ]; then
        chosen=yes
        new_enough "$python" || fail "$python is no Python 3.11 or newer"
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11 python3.14 python; do
        if new_enough "$candidate"; then
            python=$candidate
            return
        fi
    done
    fail "hearth needs Python 3.11 or newer and found none. Debian/Ubuntu: sudo apt install python3 python3-venv; Fedora: sudo dnf install python3; macOS: brew install python; or name one with --python PATH"
}

series() { "$1" -c 'import sys; print(*sys.version_info[:2], sep=".")' 2>/dev/null; }

# An environment that works stays, unless --python asks for another series.
usable() {
    new_enough "$1/bin/python" || return 1
    [ "$chosen" = no ] || [ "$(series "$1/bin/python")" = "$(series "$python")" ]
}

# stage: $prefix is from here on a copy of what is installed, which is left alone until switch: an
# upgrade that fails, or is killed, leaves the former version as it was.
stage() {
    target=$prefix
    if [ "$dev" = yes ] || [ ! -f "$target/hearth-install.txt" ] || [ ! -w "$(dirname "$target")" ]; then
        return
    fi
    prefix=$target.new
    discard "$prefix"
    [ ! -e "$prefix" ] || fail "$prefix is in the way of the upgrade; move it or name another --prefix"
    ! usable "$target" ||
        step "copy of $target, which works on meanwhile" "$python" "$upgrade" clone "$target" "$prefix"
}

discard() { [ ! -f "$1/pyvenv.cfg" ] || rm -rf "$1"; }

# switch: the copy takes the place of what was installed, in one step.
switch() {
    [ "$prefix" != "$target" ] || return 0
    "$python" "$upgrade" switch "$prefix" "$target" || fail "cannot put $prefix in the place of $target"
    prefix=$target
    if [ -f "$target.new/hearth-changelog.md" ]; then
        say "- new since the previous version:"
        "$python" "$upgrade" changes "$target.new/hearth-changelog.md" CHANGELOG.md
    fi
}

# An installation that was killed may have left an environment without pip.
make_environment() {
    if usable "$prefix" && pip --version >/dev/null 2>&1; then
        return
    fi
    if [ -e "$prefix" ] && [ ! -f "$prefix/pyvenv.cfg" ] && [ -n "$(ls -A "$prefix")" ]; then
        fail "$prefix contains files of another program; choose another folder with --prefix DIR"
    fi
    "$python" -c 'import venv, ensurepip' >/dev/null 2>&1 ||
        fail "$python has no venv module. Debian/Ubuntu: sudo apt install python3-venv"
    step "environment in $prefix, by $(command -v "$python")" "$python" -m venv --clear "$prefix"
}

pip() { "$prefix/bin/python" -m pip "$@"; }

# pip would compile one file after the other (PIP_NO_COMPILE, which 0 switches on). Some packages have
# files that are of another Python. A fifth of the rest are tests of NumPy and lexers of Pygments: one that
# is used is compiled then.
byte_compile() {
    "$prefix/bin/python" -m compileall -q -j 0 -x '/tests/|/pygments/lexers/' "$prefix/lib" || :
}

compiler() {
    for cxx in "${CXX:-}" c++ g++ clang++; do
        [ -n "$cxx" ] || continue
        if printf '#include <vector>\nint main() {}\n' | $cxx -x c++ -fsyntax-only - >/dev/null 2>&1; then
            say "$cxx"
            return 0
        fi
    done
    return 1
}

# GCC up to 12 drops the stores that set up the AMX tiles; clang has its own __GNUC__ of 4.
old_gcc() {
    major=$($1 -dM -E -x c++ /dev/null 2>/dev/null |
        awk '/__clang__/ {exit} /define __GNUC__ / {print $3}')
    [ -n "$major" ] && [ "$major" -le 12 ]
}

has_amx() { grep -qw amx_tile "${HEARTH_INSTALL_CPUINFO:-/proc/cpuinfo}" 2>/dev/null; }

# The builds to try, fastest first. llama.cpp's own GGML_AMX_* options do nothing in a native
# build, where -march=native decides, so AMX is switched off by compiler flags.
rungs() {
    [ -n "${CMAKE_ARGS:-}${CXXFLAGS:-}${CFLAGS:-}" ] || printf 'prebuilt '
    if ! has_amx; then
        say "native portable"
    elif old_gcc "$(compiler)"; then
        say "gcc12-amx no-amx portable"
    else
        say "native no-amx portable"
    fi
}

describe_rung() {
    case $1 in
    release) say "the wheel of HEARTH_WHEEL_INDEX" ;;
    prebuilt) say "the prebuilt wheel" ;;
    native) say "a native build" ;;
    gcc12-amx) say "a native build with AMX, compiled with -fno-tree-dse -fno-dse" ;;
    no-amx) say "a native build without AMX" ;;
    portable) say "a portable build (no native instructions)" ;;
    *) say "the build that was there" ;;
    esac
}

export_flags() {
    no_amx="-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
    case $1 in
    gcc12-amx) CXXFLAGS="${CXXFLAGS:-} -fno-tree-dse -fno-dse" ;;
    no-amx) CXXFLAGS="${CXXFLAGS:-} $no_amx" CFLAGS="${CFLAGS:-} $no_amx" ;;
    portable) CMAKE_ARGS="${CMAKE_ARGS:-} -DGGML_NATIVE=OFF" ;;
    esac
    export CXXFLAGS="${CXXFLAGS:-}" CFLAGS="${CFLAGS:-}" CMAKE_ARGS="${CMAKE_ARGS:-}"
    export CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-$(getconf _NPROCESSORS_ONLN)}"
}

# A wheel depends on the processor, the C library and the flags, none of which pip's own cache
# looks at: hence a folder for each combination, and --no-cache-dir.
machine_key() {
    {
        uname -sm
        grep -m 2 -E '^(model name|flags|Features)' "${HEARTH_INSTALL_CPUINFO:-/proc/cpuinfo}" 2>/dev/null ||
            sysctl -n machdep.cpu.brand_string 2>/dev/null
        say "${CMAKE_ARGS:-}|${CFLAGS:-}|${CXXFLAGS:-}|${CC:-}|${CXX:-}"
        "$python" -c 'import platform; print(platform.libc_ver())'
    } | "$python" -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest()[:16])'
}

# The hashes of requirements-engine.txt are those of the source; what an index has compiled of it
# is its own.
download_wheel() {
    case $2 in
    release) set -- "$1" --no-index --find-links "$HEARTH_WHEEL_INDEX" ;;
    *) set -- "$1" ;;
    esac
    folder=$1
    shift
    pip download --no-cache-dir --no-deps --only-binary :all: "$@" -d "$folder" "llama-cpp-python==$llama"
}

# The libraries are in the wheel a second time, where CMake puts those of a system.
build_wheel() (
    export_flags "$2"
    export CMAKE_ARGS="-DCMAKE_PROJECT_llama_cpp_INCLUDE='$repository/release/llama.cmake' $CMAKE_ARGS"
    export SKBUILD_WHEEL_EXCLUDE="lib/*;bin/*"
    pip wheel -v --no-cache-dir --no-deps --no-binary llama-cpp-python -w "$1" \
        --require-hashes -r requirements-engine.txt
)

# make_wheel RUNG: leaves the path of a wheel in $wheel; status 1 when this rung has none.
make_wheel() {
    wheel=$(ls "$wheels/$1"/*.whl 2>/dev/null)
    [ -z "$wheel" ] || [ "$1" = release ] || return 0
    making=$wheels/.$1.$$
    rm -rf "$making"
    mkdir -p "$making" || fail "cannot write to $wheels"
    case $1 in
    release | prebuilt)
        logged 1800 download_wheel "$making" "$1" || { rm -rf "$making"; return 1; }
        ;;
    *)
        compiler >/dev/null ||
            fail "no C++ compiler found, and the index has no prebuilt llama.cpp for this machine. Debian/Ubuntu: sudo apt install build-essential; Fedora: sudo dnf install gcc-c++; macOS: xcode-select --install; Windows: use WSL (wsl --install) and Debian's line"
        step "llama.cpp: compiling $(describe_rung "$1"), minutes on few cores" build_wheel "$making" "$1"
        ;;
    esac
    rm -rf "${wheels:?}/$1"
    mv "$making" "$wheels/$1"
    wheel=$(ls "$wheels/$1"/*.whl)
}

engine_version() {
    "$prefix/bin/python" -c 'from importlib.metadata import version; print(version("llama-cpp-python"))' 2>/dev/null
}

install_wheel() { pip install --no-deps --force-reinstall "$1"; }

# What hearth runs on is installed by its hashes; torch, whose build depends on the machine, is
# not, nor what speaks, nor a developer's tools. pip takes a folder with a name such as hearth-main
# for a release and would install the wheel that it kept of it, hence --no-cache-dir. PyPI has a
# hearth of others.
install_hearth() {
    if [ "$dev" = yes ]; then
        pip install -e ".$extras"
        return
    fi
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
    install_requirements || return
    byte_compile &
    hearth_from_index || pip install --no-cache-dir --no-deps --no-build-isolation . || return
    wait $!
    case $extras in *torch* | *speech*) pip install "hearth$extras==$version" ;; esac
}

# pip reads what the index says of one package after the other, on one core: two share the list.
# The end of the log, which is shown, is the message of one that failed.
install_requirements() {
    halves=$prefix/requirements
    awk -v out="$halves" '/^[^ #-]/ {n++} {print > (out "." n % 2)}' requirements.txt
    install_half 0 >"$halves.log" 2>&1 &
    status=0
    install_half 1 || status=$?
    wait $! || { status=$?; cat "$halves.log"; }
    rm -f "$halves.log" "$halves".[01]
    return "$status"
}

install_half() { pip install --require-hashes --no-deps --only-binary :all: -r "$halves.$1"; }

install_packages() {
    step "packages${extras:+ with $extras}" install_hearth
    step "bytecode" byte_compile
    hearth_done=yes
}

hearth_from_index() {
    [ -n "${HEARTH_WHEEL_INDEX:-}" ] || return
    pip install --no-cache-dir --no-deps --force-reinstall --no-index \
        --find-links "$HEARTH_WHEEL_INDEX" "hearth==$version"
}

# A few tokens from ember, away from the repository so that what was installed is what runs.
generate() (
    cd "$prefix" || exit 1
    ember=$(bin/python -P -c 'import registry.builtin.ember as e; print(*e.__path__)') || exit 1
    exec bin/python -P -m runner.worker --smoke "$ember/ember.gguf" --tokens 8
)

# try_ember: 0 when ember answers, 1 when this build of llama.cpp does not run here: it crashes
# (SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV; being killed is no fault of the build) or it is a
# prebuilt wheel that does not load. Else the end, except for developers: the tests tell them more.
try_ember() {
    say "- ember: a few tokens"
    started=$(now)
    status=0
    logged 300 generate || status=$?
    case $status in
    0) finished "$started" ;;
    132 | 134 | 135 | 136 | 138 | 139)
        say "  crashed by signal $((status - 128))"
        return 1
        ;;
    *)
        show_log
        case $engine in release | prebuilt) return 1 ;; esac
        [ "$dev" = yes ] || fail "ember did not answer (status $status)"
        say "  ember did not answer (status $status); run make test for details"
        ;;
    esac
}

# hearth's own kernels, against the llama.cpp that is installed. Everything works without them.
kernels() (
    cd "$prefix" || exit 1
    HEARTH_KERNELS_KEPT=$wheels/kernels exec bin/python -P -m kernels.native "$@"
)

build_kernels() {
    say "- hearth's kernels, for this processor"
    started=$(now)
    logged 900 kernels || :
    cat "$log"
    finished "$started"
}

# try_build: 0 when ember answers with this build of llama.cpp, with hearth's kernels or, when it
# crashes, without them.
try_build() {
    build_kernels
    try_ember && return
    [ -d "$prefix/lib/hearth" ] || [ -d "$(echo "$prefix"/lib/python*/site-packages/kernels/native/lib)" ] ||
        return 1
    say "- trying again without hearth's kernels"
    kernels --remove
    try_ember
}

# The rungs, beginning with the one that was kept on this machine before; a user's index is first.
ordered_rungs() {
    [ -z "${HEARTH_WHEEL_INDEX:-}" ] || printf 'release '
    kept=$(cat "$wheels/kept" 2>/dev/null)
    all=$(rungs)
    case " $all " in
    *" ${kept:-none} "*) say "$kept${all#*"$kept"}" ;;
    *) say "$all" ;;
    esac
}

# install_engine: llama.cpp and hearth, with the first build that does not crash; its name is
# left in $engine.
install_engine() {
    hearth_done=no
    if [ "$(engine_version)" = "$llama" ] && [ "$(recorded machine)" = "$machine" ]; then
        install_packages
        try_build && return
    fi
    for engine in $(ordered_rungs); do
        make_wheel "$engine" || { say "- llama.cpp: $(describe_rung "$engine") is not there for this machine"; continue; }
        step "llama.cpp: $(describe_rung "$engine")" install_wheel "$wheel"
        [ "$hearth_done" = yes ] || install_packages
        try_build || continue
        [ "$status" = 0 ] || return 0
        [ "$engine" = release ] || say "$engine" >"$wheels/kept"
        say "  kept: $(describe_rung "$engine")"
        return
    done
    fail "every build of llama.cpp crashes on this machine; please report the processor and the compiler"
}

# The state of the sources, the pins and the choices: equal means that nothing needs installing.
fingerprint() {
    "$python" - "$machine $extras $dev" <<'TEXT'
import hashlib, pathlib, sys

digest = hashlib.sha256(sys.argv[1].encode())
editable = sys.argv[1].endswith("yes")
folders = [] if editable else ["runner", "modelfile", "registry", "kernels", "cli"]
files = [p for f in folders for p in pathlib.Path(f).rglob("*")]
pins = ["pyproject.toml", "constraints.txt", "requirements.txt", "requirements-engine.txt"]
for path in sorted(files) + [pathlib.Path(name) for name in pins]:
    if path.is_file() and "__pycache__" not in path.parts:
        digest.update(f"{path}\0{path.stat().st_size}\0".encode() + path.read_bytes())
print(digest.hexdigest())
TEXT
}

recorded() { sed -n "s/^$1=//p" "$prefix/hearth-install.txt" 2>/dev/null; }

# Neither file is written into: of an upgrade's copy, they are the former version's as well.
record() {
    rm -f "$prefix/hearth-install.txt" "$prefix/hearth-changelog.md"
    cp CHANGELOG.md "$prefix/hearth-changelog.md"
    {
        say "engine=$engine"
        say "llama_cpp_python=$llama"
        say "machine=$machine"
        say "fingerprint=$print"
        say "repository=$repository"
    } >"$prefix/hearth-install.txt"
}

choose_extras() {
    if [ "$torch" = auto ] && nvidia-smi -L >/dev/null 2>&1; then
        torch=yes
        say "- found an NVIDIA GPU: installing PyTorch as well (several GB)"
    fi
    extras=vision,websockets,mcp
    [ "$torch" != yes ] || extras=$extras,torch
    [ "${speech:-no}" != yes ] || extras=$extras,speech
    [ "$dev" != yes ] || extras=dev,$extras
    extras="[$extras]"
}

# link: the launcher, never in the place of a file that is not ours. Leaves the path in $command.
link() {
    command=$prefix/bin/hearth
    if [ -e "$launcher" ] && [ ! -L "$launcher" ]; then
        say "- $launcher was not made by install.sh and stays as it is"
        return
    fi
    if ! mkdir -p "$(dirname "$launcher")" || ! ln -sf "$command" "$launcher"; then
        fail "cannot write $launcher; hearth itself is installed: $command"
    fi
    command=$launcher
}

# Completion for the shells that have a folder for it, and the manual pages.
link_help() {
    "$prefix/bin/hearth" completion --everywhere >/dev/null 2>&1 || :
    [ -f "$prefix/share/man/man1/hearth.1" ] || return 0
    mkdir -p "$man" && ln -sf "$prefix/share/man/man1"/hearth*.1 "$man/"
}

remove_help() {
    rm -f "$man"/hearth.1 "$man"/hearth-*.1
    remove "${XDG_DATA_HOME:-$HOME/.local/share}/bash-completion/completions/hearth"
    remove "$HOME/.zfunc/_hearth"
    remove "${XDG_CONFIG_HOME:-$HOME/.config}/fish/completions/hearth.fish"
}

path_hint() {
    folder=$(dirname "$launcher")
    case ":$PATH:" in
    *":$folder:"*) return ;;
    esac
    [ "$command" = "$launcher" ] || return
    say "$folder is not on your PATH. To type just 'hearth', in this shell and in new ones:"
    line="export PATH=\"$folder:\$PATH\""
    case ${SHELL:-sh} in
    */fish) say "  fish_add_path $folder" ;;
    */zsh) say "  $line && echo '$line' >> ~/.zshrc" ;;
    */bash) say "  $line && echo '$line' >> ~/.bashrc" ;;
    *) say "  $line && echo '$line' >> ~/.profile" ;;
    esac
}

install() {
    begun=$(now) engine=$(recorded engine)
    find_python
    choose_extras
    machine=$(machine_key)
    wheels=$wheels/llama_cpp_python-$llama/$machine
    mkdir -p "$wheels" || fail "cannot write to $wheels"
    print=$(fingerprint)
    if usable "$prefix" && [ "$(recorded fingerprint)" = "$print" ] && try_ember; then
        say "- nothing has changed since the last installation"
    else
        stage
        make_environment
        say "- $("$prefix/bin/python" -V) in $prefix"
        install_engine
        record
        switch
    fi
    [ "$dev" = yes ] || renew_daemon
    discard "$prefix.new"
    [ "$dev" = no ] || { say "hearth's tools are ready in $prefix ($(($(now) - begun)) s)"; return; }
    link
    [ "$command" != "$launcher" ] || link_help
    say "hearth is ready after $(($(now) - begun)) s: $command"
    path_hint
}

daemons() {
    ps -A -ww -o pid= -o args= 2>/dev/null |
        folder=$prefix/bin/ awk 'index($0, ENVIRON["folder"]) && /-m runner[.]server/ {print $1}'
}

stop_daemon() {
    for pid in $(daemons); do
        kill -TERM "$pid" 2>/dev/null && say "- stopped the daemon that was running (process $pid)"
    done
}

# A daemon of the former version cannot start workers of the new one: it lets its answers finish, and
# its successor starts. One that is younger than the installation is left alone.
renew_daemon() {
    for pid in $(daemons); do
        (cd "$prefix" && exec bin/python -P -m cli.restart "$pid") || :
    done
}

remove() {
    [ -e "$1" ] || [ -L "$1" ] || return 0
    rm -rf "$1" && say "removed $1"
    removed=yes
}

# What `hearth service install` of this prefix has written.
remove_service() {
    unit=${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user/hearth.service
    agent=$HOME/Library/LaunchAgents/local.hearth.daemon.plist
    if grep -qsF "$prefix/" "$unit"; then
        systemctl --user disable --now hearth.socket hearth.service >/dev/null 2>&1 || :
        remove "$unit"
        remove "${unit%.service}.socket"
    fi
    shown=${XDG_DATA_HOME:-$HOME/.local/share}
    if grep -qsF "$prefix/" "$shown/applications/hearth.desktop"; then
        remove "$shown/applications/hearth.desktop"
        remove "$shown/icons/hicolor/scalable/apps/hearth.svg"
    fi
    tray=${XDG_CONFIG_HOME:-$HOME/.config}/autostart/hearth-tray.desktop
    ! grep -qsF "$prefix/" "$tray" || remove "$tray"
    if grep -qsF "$prefix/" "$agent"; then
        launchctl bootout "gui/$(id -u)/local.hearth.daemon" >/dev/null 2>&1 || :
        remove "$agent"
    fi
}

# The folders of runner.settings, found without Python: the environment may be broken.
user_folders() {
    data=${XDG_DATA_HOME:-$HOME/.local/share}/hearth state=${XDG_STATE_HOME:-$HOME/.local/state}/hearth
    [ "$(uname -s)" != Darwin ] || data="$HOME/Library/Application Support/hearth" state=$data
    if [ -n "${HEARTH_HOME:-}" ]; then
        data=$HEARTH_HOME state=$HEARTH_HOME/state
    fi
}

uninstall() {
    removed=no
    user_folders
    if [ -f "$prefix/hearth-install.txt" ]; then
        remove_service
        stop_daemon
        remove "$prefix"
    elif [ -e "$prefix" ]; then
        say "$prefix was not made by install.sh and stays"
    fi
    case $(readlink "$launcher" 2>/dev/null) in
    "$prefix"/*)
        remove "$launcher"
        remove_help
        ;;
    esac
    if [ "$purge" = yes ]; then
        remove "$data/models"
        remove "$state"
        remove "$wheels"
    fi
    rmdir "$data" "$(dirname "$prefix")" 2>/dev/null
    [ "$removed" = yes ] || say "nothing of hearth was found in $prefix"
    [ ! -d "$data/models" ] || say "kept the models in $data/models; --uninstall --purge removes them"
    [ -z "${HEARTH_MODELS:-}" ] || say "kept $HEARTH_MODELS, which HEARTH_MODELS names"
}

parse() {
    action=install dev=no torch=auto speech=no purge=no python='' prefix=${HEARTH_PREFIX:-}
    while [ $# -gt 0 ]; do
        case $1 in
        --prefix | --python)
            [ $# -ge 2 ] || fail "$1 needs a value"
            if [ "$1" = --prefix ]; then prefix=$2; else python=$2; fi
            shift
            ;;
        --with-torch) torch=yes ;;
        --without-torch) torch=no ;;
        --with-speech) speech=yes ;;
        --dev) dev=yes ;;
        --uninstall) action=uninstall ;;
        --purge) purge=yes ;;
        -h | --help) action=usage ;;
        *) fail "unknown option $1; ./install.sh --help lists them" ;;
        esac
        shift
    done
    [ "$purge" = no ] || [ "$action" != install ] || fail "--purge belongs to --uninstall"
}

settle_paths() {
    default=${XDG_DATA_HOME:-$HOME/.local/share}/hearth/venv
    [ "$dev" = no ] || default=$repository/.venv
    prefix=${prefix:-$default}
    case $prefix in
    /*) ;;
    *) prefix=$called_from/$prefix ;;
    esac
    prefix=${prefix%/}
    launcher=$HOME/.local/bin/hearth man=$HOME/.local/share/man/man1
    wheels=${HEARTH_WHEELS:-${XDG_CACHE_HOME:-$HOME/.cache}/hearth/wheels}
    case ${HEARTH_WHEEL_INDEX:-/} in
    /* | *:*) ;;
    *) HEARTH_WHEEL_INDEX=$called_from/$HEARTH_WHEEL_INDEX ;;
    esac
}

# A user's pip settings must not lead the installation out of its environment. The constraints
# reach the build environments through the variables (the second for pip 25.3 and newer); they
# are a relative path because pip splits the first variable at blanks.
settle_pip() {
    unset PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX
    export PIP_USER=0 PIP_NO_INPUT=1 PIP_NO_COMPILE=0 PIP_DISABLE_PIP_VERSION_CHECK=1
    export PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt
}

main() {
    parse "$@"
    [ "$action" != usage ] || { usage; return; }
    called_from=$(pwd)
    repository=${HEARTH_INSTALL_SOURCED:-$(cd "$(dirname "$0")" && pwd)}
    cd "$repository" || fail "cannot enter $repository"
    [ -n "${HOME:-}" ] || fail "HOME is not set"
    settle_paths
    upgrade=$repository/release/upgrade.py
    settle_pip
    llama=$(sed -n 's/^llama[-_]cpp[-_]python==\([^ ;#]*\).*/\1/p' constraints.txt)
    logs=$(mktemp -d "${TMPDIR:-/tmp}/hearth-install.XXXXXX") || fail "cannot write to ${TMPDIR:-/tmp}"
    trap interrupted INT TERM HUP
    "$action" && rm -rf "$logs"
}

# Read whole before it runs, as the file may change meanwhile
[ -n "${HEARTH_INSTALL_SOURCED:-}" ] || { main "$@"; exit; }
