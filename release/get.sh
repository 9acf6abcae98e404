#!/bin/sh
# Installs a release of hearth, whose files lie at HEARTH_RELEASE_URL:
#   curl -fsSL "$HEARTH_RELEASE_URL/get.sh" | sh
#   curl -fsSL "$HEARTH_RELEASE_URL/get.sh" | sh -s -- --without-torch
# Fetches the source and the wheels for this machine, compares each with SHA256SUMS, and runs the
# install.sh of the source, which takes the options. Nothing runs until this file has been read to
# its last line.
set -u

say() { printf '%s\n' "$*"; }
fail() { printf 'get.sh: %s\n' "$*" >&2; exit 1; }

# Plain HTTP is for this machine only: whoever stands between could change files and sums alike.
check_address() {
    [ -n "$url" ] ||
        fail "set HEARTH_RELEASE_URL to the address where a release's files lie; hearth has no public one yet"
    case $url in
    *@*) fail "HEARTH_RELEASE_URL must not hold a name or a password" ;;
    https://?*) protocols='=https' ;;
    http://127.0.0.1[:/]* | http://localhost[:/]* | http://\[::1\]*) protocols='=http' ;;
    *) fail "HEARTH_RELEASE_URL is $url and must begin with https://" ;;
    esac
}

check_tools() {
    for tool in curl tar gzip mktemp sed uname; do
        command -v "$tool" >/dev/null 2>&1 || fail "$tool is needed and was not found; install it first"
    done
    for hasher in sha256sum shasum python3; do
        ! command -v "$hasher" >/dev/null 2>&1 || return 0
    done
    fail "sha256sum, shasum or python3 is needed to verify the files, and none was found"
}

# fetch NAME: into $work. A redirect may lead to https only.
fetch() {
    curl --fail --silent --show-error --location --retry 2 --connect-timeout 30 \
        --proto "$protocols" --proto-redir =https --tlsv1.2 --output "$work/$1" "$url/$1" ||
        fail "$url/$1 could not be fetched (curl's status $?); nothing was installed"
}

sha256() {
    case $hasher in
    sha256sum) sha256sum "$1" ;;
    shasum) shasum -a 256 "$1" ;;
    python3) python3 -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$1" ;;
    esac | sed 's/^\\//; s/ .*//'
}

# The files of SHA256SUMS. A line of another form ends it: names become paths here.
list_files() {
    line='[0-9a-f]\{64\}  [A-Za-z0-9][A-Za-z0-9._+-]*'
    if [ ! -s "$work/SHA256SUMS" ] || [ -n "$(sed "/^$line\$/d" "$work/SHA256SUMS")" ]; then
        fail "$url/SHA256SUMS is not a list of SHA-256 sums; nothing was installed"
    fi
    sed 's/^[0-9a-f]*  //' "$work/SHA256SUMS"
}

# fetch_verified NAME
fetch_verified() {
    fetch "$1"
    expected=$(sed -n "s/^\([0-9a-f]*\)  $1\$/\1/p" "$work/SHA256SUMS")
    found=$(sha256 "$work/$1")
    [ "$found" = "$expected" ] ||
        fail "$1 has the SHA-256 ${found:-(none)}, not $expected as in SHA256SUMS; nothing was installed"
}

main() {
    url=${HEARTH_RELEASE_URL:-}
    url=${url%/}
    check_address
    check_tools
    work=$(mktemp -d "${TMPDIR:-/tmp}/hearth-get.XXXXXX") || fail "cannot write to ${TMPDIR:-/tmp}"
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' INT TERM HUP
    fetch SHA256SUMS
    names=$(list_files) || exit 1
    archive=
    for name in $names; do
        case $name in
        hearth-*.tar.gz)
            [ -z "$archive" ] || fail "SHA256SUMS lists $archive and $name; a release has one source"
            archive=$name
            ;;
        *linux*_"$(uname -m)".whl) [ "$(uname -s)" = Linux ] || continue ;;
        *) continue ;;
        esac
        say "- $name"
        fetch_verified "$name"
    done
    [ -n "$archive" ] || fail "$url/SHA256SUMS lists no source hearth-*.tar.gz"
    tar -xzf "$work/$archive" -C "$work" || fail "$archive could not be unpacked"
    HEARTH_WHEEL_INDEX=$work sh "$work/${archive%.tar.gz}/install.sh" "$@" </dev/null
}

# In braces: of a file that was cut off anywhere, even here, nothing runs
{ main "$@"; exit; }
