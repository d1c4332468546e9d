package remote

// What is executed in a sandbox by the engine. Names and values are arguments, never a
// part of a script. GNU find and tar and coreutils do it, as Debian has them.

const shell = "/bin/sh"

// prepare makes the directories, and prints home, path, user and machine. $1 is the copy's
// name, $2 that of the engine's own directory; $3 is not empty where the copy may stand.
const prepare = `
for p in tar gzip find sha256sum; do
	command -v "$p" >/dev/null || { echo "there is no $p" >&2; exit 71; }
done
find . -maxdepth 0 -printf '' || { echo "find is not GNU's" >&2; exit 71; }
mkdir -p -m 700 -- "$HOME/$2" && mkdir -p -- "$HOME/$1" || exit 72
[ -n "$3" ] || [ -z "$(ls -A -- "$HOME/$1")" ] || { echo "$HOME/$1 is not empty" >&2; exit 73; }
printf '%s\000%s\000%s\000%s' "$HOME" "$PATH" "$(id -un 2>/dev/null || id -u)" "$(uname -m)"
`

// unpack extracts an archive: $1 the file, $2 its SHA-256, $3 the directory, $4 where pccrun's
// program is, which decodes zstd; without it the archive is of gzip.
const unpack = `
echo "$2  $1" | sha256sum -c --status 2>/dev/null || exit 65
c=gzip
[ -z "$4" ] || { cd -- "$4" && c="./pccrun sync zstd"; } || exit
tar -xpf "$1" -C "$3" -I "$c" && rm -f -- "$1"
`

// standing prints what stands in a directory, $1, but what lies in a .git: kind, mode, size, links,
// path and target of each, then the SHA-256 of each file that could have come up, by pccrun's program in $2.
const standing = `
cd -- "$1" || exit
find . -mindepth 1 -printf '%y %m %s %n\0%P\0%l\0' -name .git -prune && printf '` + sums + `\0' || exit
find . -mindepth 1 -name .git -prune -o -type f -size -513M -print0 | "$2/pccrun" sync sums
`

const sums = "sums"

// clear removes the names on standard input, whose SHA-256 is $2, from a directory, $1: $3 is a file
// for them, since half a name is another. No link is followed: each was listed, and nobody else is
// at work.
const clear = `
cat > "$3" && echo "$2  $3" | sha256sum -c --status 2>/dev/null || exit 65
cd -- "$1" && xargs -0 -r rm -rf -- < "$3" && rm -f -- "$3"
`

// attach becomes pccrun's line to itself in a directory, $1, by what is in $2 and after. Where the command's user is
// pccrun's, the command can close that directory and the one around it to both.
const attach = `
d=$1
shift
chmod u+rwx "${d%/*}" "$d" "$d/own" "$d/own/line" "$d/pccrun" 2>/dev/null
exec "$d/pccrun" "$@" "$d/own"
`

// adopt gives pccrun's own program that an earlier run installed to another: $1 the directory that
// it is in, $2 a name, $3 what else goes. It prints the directory that it is in now.
const adopt = `
set -e
[ "$(id -u)" = 0 ] || exit 77
d=/opt/$2
mkdir -p -m 755 -- "$d/own"
[ -e "$d/pccrun" ] || mv -- "$1/pccrun" "$d/pccrun"
rm -rf -- "$1" "$3"
printf '%s' "$d"
`

// pack makes an archive of the names on standard input: $1 the file, $2 the directory, $3 where
// pccrun's program is, $4 is 1 where files may change or go meanwhile (tar's status is 1 then). It
// prints the archive's SHA-256 and size.
const pack = `
set -e
umask 022
rm -f -- "$1"
c="gzip -1"
[ -z "$3" ] || { cd -- "$3"; c="./pccrun sync zstd"; }
tar -C "$2" --format=posix --pax-option=delete=atime,delete=ctime --hard-dereference --null --no-recursion ${4:+--ignore-failed-read} -T - -I "$c" -cf "$1" || [ $? = "$4" ]
s=$(sha256sum < "$1") && echo "${s%% *}" "$(wc -c < "$1")"
`

// list prints what stands in a directory, $1, but what lies in a .git: kind, mode, size,
// inode, times, path and target of each. $2 is not empty where files may go meanwhile.
const list = `
cd -- "$1" && { find . -mindepth 1 -printf '%y %m %s %i %C@ %T@\0%P\0%l\0' -name .git -prune || [ -n "$2" ]; }
`

// install gives a place to pccrun's own program: $1 the directory that it came to, $2 a name,
// $3 its SHA-256. It prints the directory that it is in now: root's, where that can be had.
const install = `
set -e
d=$1/inside
[ "$(id -u)" != 0 ] || d=/opt/$2
mkdir -p -- "${d%/*}"
mkdir -m 755 -- "$d" 2>/dev/null || [ -d "$d/own" ] || exit 77
cp -- "$1/pccrun" "$d/pccrun.new" && chmod 755 "$d/pccrun.new"
echo "$3  $d/pccrun.new" | sha256sum -c --status 2>/dev/null || exit 65
mv -- "$d/pccrun.new" "$d/pccrun"
mkdir -p -m 755 -- "$d/own"
"$d/pccrun" --version >/dev/null || exit 76
printf '%s' "$d"
`
