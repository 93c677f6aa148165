#!/bin/sh
# Installs rope-cpu @VERSION@ into ~/.local/bin, on Linux and macOS.
#
#   curl -fsSL @URL@/install.sh | sh
#
# ROPE_CPU_RELEASES   the folder with the archives and SHA256SUMS
# ROPE_CPU_BIN        the folder for the program
set -eu

releases=${ROPE_CPU_RELEASES:-@URL@}
version=@VERSION@

die() { echo "install.sh: $*" >&2; exit 1; }

folder=${ROPE_CPU_BIN:-${HOME:+$HOME/.local/bin}}
[ -n "$folder" ] || die "HOME is not set: set ROPE_CPU_BIN to the folder for the program"

if command -v curl >/dev/null; then
    fetch() { curl -fsSL --retry 3 -o "$2" "$1"; }
elif command -v wget >/dev/null; then
    fetch() { wget -q -O "$2" "$1"; }
else
    die "needs curl or wget"
fi
if command -v sha256sum >/dev/null; then
    checksum() { sha256sum "$1"; }
else
    checksum() { shasum -a 256 "$1"; }
fi

# In functions, so that a download cut short runs nothing.
target() {
    system=$(uname -s) processor=$(uname -m)
    # A shell under Rosetta reports x86_64.
    if [ "$system" = Darwin ] && [ "$(sysctl -n hw.optional.arm64 2>/dev/null)" = 1 ]; then processor=arm64; fi
    case $system-$processor in
        Linux-x86_64 | Linux-amd64) echo x86_64-unknown-linux-musl ;;
        Linux-aarch64 | Linux-arm64) echo aarch64-unknown-linux-musl ;;
        Darwin-arm64) echo aarch64-apple-darwin ;;
        Darwin-x86_64) echo x86_64-apple-darwin ;;
        *) die "there is no program for $system on $processor; build it: cargo install --git @REPOSITORY@" ;;
    esac
}

install() {
    target=$(target)
    name=rope-cpu-$version-$target
    tmp=$(mktemp -d)
    trap 'rm -rf "$tmp"' EXIT
    for file in "$name.tar.gz" SHA256SUMS; do
        fetch "$releases/$file" "$tmp/$file" || die "cannot download $releases/$file"
    done
    expected=$(awk -v name="$name.tar.gz" '$2 == name { print $1 }' "$tmp/SHA256SUMS")
    [ -n "$expected" ] || die "SHA256SUMS does not name $name.tar.gz"
    actual=$(checksum "$tmp/$name.tar.gz" | cut -d ' ' -f 1)
    [ "$actual" = "$expected" ] || die "$name.tar.gz has the checksum $actual instead of $expected; nothing is installed"
    tar -xzf "$tmp/$name.tar.gz" -C "$tmp"
    mkdir -p "$folder"
    # Replaced in one step, since the old program may be running.
    cp "$tmp/$name/rope-cpu" "$folder/.rope-cpu.new"
    mv -f "$folder/.rope-cpu.new" "$folder/rope-cpu"
    echo "installed $("$folder/rope-cpu" --version) as $folder/rope-cpu"
    case ":$PATH:" in
        *":$folder:"*) ;;
        *) echo "$folder is not in PATH; add this line to your shell's profile: export PATH=\"$folder:\$PATH\"" ;;
    esac
}

install
