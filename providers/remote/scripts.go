package remote

// What is executed in a sandbox by the engine. Names and values are arguments, never a
// part of a script. GNU find and tar, coreutils and util-linux do it, as Debian has them.

const shell = "/bin/sh"

// prepare makes the directories, and prints the home. $1 is the copy's name, $2 that of
// the engine's own directory, $3 the variables' names that must not be empty.
const prepare = `
for p in tar gzip find sha256sum setsid env; do
	command -v "$p" >/dev/null || { echo "there is no $p" >&2; exit 71; }
done
find . -maxdepth 0 -printf '' || { echo "find is not GNU's" >&2; exit 71; }
env --default-signal=INT true || { echo "env is not that of coreutils 8.31" >&2; exit 71; }
mkdir -p -m 700 -- "$HOME/$2" && mkdir -p -- "$HOME/$1" || exit 72
[ -z "$(ls -A -- "$HOME/$1")" ] || { echo "$HOME/$1 is not empty" >&2; exit 73; }
printf '%s' "$HOME"
`

// unpack extracts an archive: $1 the file, $2 its SHA-256, $3 the directory.
const unpack = `
echo "$2  $1" | sha256sum -c --status 2>/dev/null || exit 65
tar -xzpf "$1" -C "$3" && rm -f -- "$1"
`

// pack makes an archive of the names on standard input: $1 the file, $2 the directory. It
// prints the archive's SHA-256.
const pack = `
set -e
rm -f -- "$1"
tar -C "$2" --format=posix --hard-dereference --null --no-recursion -T - -czf "$1"
chmod 644 "$1"
sha256sum < "$1"
`

// list prints what stands in a directory, $1, but what lies in a .git: kind, mode, size,
// inode, times, path and target of each.
const list = `
cd -- "$1" && find . -mindepth 1 -printf '%y %m %s %i %C@ %T@\0%P\0%l\0' -name .git -prune
`

// check says whether a command can be executed: $1 the directory, $2 the command.
const check = `
cd -- "$1" || exit 74
case $2 in
*/*) [ -e "$2" ] || exit 127
	[ -f "$2" ] && [ -x "$2" ] || exit 126 ;;
*) command -v -- "$2" >/dev/null || exit 127 ;;
esac
`

// execute runs the command in a session and a process group of its own, ends what of the
// group outlives it, and keeps the exit status for who was cut off: $1 the directory, $2
// the engine's own, then the command. The shell would have the command ignore SIGINT.
const execute = `
cd -- "$1" || exit 74
own=$2
shift 2
exec 3<&0
env --default-signal=INT,QUIT setsid -- "$@" <&3 3<&- &
c=$!
exec 3<&-
echo "$c" > "$own/group"
wait "$c" 2>/dev/null # dash says what ended it
s=$?
kill -s KILL -- "-$c" 2>/dev/null
echo "$s" > "$own/status.new" && mv -- "$own/status.new" "$own/status"
exit "$s"
`

// interact does the same on a terminal, whose session the shell leads: what is typed to end
// the command reaches the shell too, and is no matter to it.
const interact = `
cd -- "$1" || exit 74
own=$2
shift 2
trap : HUP INT QUIT TERM
echo "$$" > "$own/group"
"$@"
s=$?
echo "$s" > "$own/status.new" && mv -- "$own/status.new" "$own/status"
exit "$s"
`

// signal sends a signal to the command and all of its group, as soon as there is one: $1 the
// engine's own directory, $2 the number.
const signal = `
i=0
while [ "$i" -lt 50 ]; do
	c=$(cat "$1/group" 2>/dev/null)
	[ -n "$c" ] && kill -s "$2" -- "-$c" 2>/dev/null && exit 0
	[ -e "$1/status" ] && exit 0
	i=$((i+1))
	sleep 0.1
done
exit 75
`

// ended prints the exit status of a command that has ended: $1 the engine's own directory.
const ended = `cat "$1/status"`
