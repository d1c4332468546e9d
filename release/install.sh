#!/bin/sh
# Installs pccrun for this user: sh install.sh [VERSION]
# PREFIX is where it goes (default: ~/.local), PCCRUN_RELEASES where releases lie: a URL, or a directory of this machine.
set -eu

fail() {
	echo "install.sh: $1" >&2
	exit 1
}

version=${1:-latest}
releases=${PCCRUN_RELEASES:-https://github.com/pccrun/pccrun/releases}
prefix=${PREFIX:-$HOME/.local}

case $(uname -s) in
Linux) os=linux ;;
Darwin) os=darwin ;;
*) fail "there is no pccrun for $(uname -s): on Windows use WSL 2" ;;
esac
case $(uname -m) in
x86_64 | amd64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) fail "there is no pccrun for the processor $(uname -m)" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM HUP

get() {
	case $releases in
	/*) cp "$releases/$1" "$work/$1" ;;
	*)
		if [ "$version" = latest ]; then from=$releases/latest/download; else from=$releases/download/v$version; fi
		if command -v curl >/dev/null; then
			curl -fsSL --proto '=https' -o "$work/$1" "$from/$1"
		elif command -v wget >/dev/null; then
			wget -q --https-only -O "$work/$1" "$from/$1"
		else
			fail "needs curl or wget"
		fi
		;;
	esac || fail "cannot get $1 from $releases"
}

get SHA256SUMS
archive=$(awk '{print $2}' "$work/SHA256SUMS" | grep "^pccrun-.*-$os-$arch\.tar\.gz\$" | tail -n 1)
[ -n "$archive" ] || fail "the release has no archive for $os-$arch"
get "$archive"
if command -v sha256sum >/dev/null; then sum=$(sha256sum "$work/$archive"); else sum=$(shasum -a 256 "$work/$archive"); fi
grep -qxF "${sum%% *}  $archive" "$work/SHA256SUMS" || fail "the checksum of $archive is another than in SHA256SUMS: nothing was installed"

tar -xzf "$work/$archive" -C "$work"
from=$work/${archive%.tar.gz}
mkdir -p "$prefix/bin" "$prefix/share/man/man1"
# By rename: a pccrun that runs goes on with the old file.
cp "$from/pccrun" "$prefix/bin/.pccrun.new"
mv -f "$prefix/bin/.pccrun.new" "$prefix/bin/pccrun"
cp "$from/man/pccrun.1" "$prefix/share/man/man1/pccrun.1"
# For sandboxes in clouds whose processor is another.
mkdir -p "$prefix/lib/pccrun"
for program in "$from"/pccrun-linux-*; do
	[ ! -e "$program" ] || cp "$program" "$prefix/lib/pccrun/"
done
"$prefix/bin/pccrun" version
case :$PATH: in
*:"$prefix/bin":*) ;;
*) echo "$prefix/bin is not in PATH" ;;
esac
