package hosts

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A folding is a file system whose server takes names for each other that differ
// in capitals, as that of a share of Windows or macOS does: the kernel has an
// entry of its own for each spelling, and a mount is on one of them.
//
// It speaks what it needs of fuse(4), protocol 7.31, as linux/fuse.h lays it out.
type folding struct {
	fd    int
	nodes []foldingNode // by number, from 1 on
}

type foldingNode struct {
	mode  uint32
	data  []byte
	names []string
	kids  []uint64 // by name
}

// add puts a file, or a directory, into a directory, and returns its number.
func (f *folding) add(dir uint64, name string, mode uint32, data string) uint64 {
	f.nodes = append(f.nodes, foldingNode{mode: mode, data: []byte(data)})
	n := uint64(len(f.nodes) - 1)
	f.nodes[dir].names, f.nodes[dir].kids = append(f.nodes[dir].names, name), append(f.nodes[dir].kids, n)
	return n
}

func newFolding(t *testing.T) *folding {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR, 0) // mount(8) gets it
	if err != nil {
		t.Skip("needs /dev/fuse:", err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	const dir, file = unix.S_IFDIR | 0o755, unix.S_IFREG | 0o644
	f := &folding{fd: fd, nodes: []foldingNode{{}, {mode: dir}}}
	ws := f.add(1, "ws", dir, "")
	f.add(ws, ".env", file, "canary\n")
	git := f.add(ws, ".git", dir, "")
	f.add(git, "HEAD", file, "ref: refs/heads/main\n")
	f.add(git, "config", file, "[core]\n\trepositoryformatversion = 0\n")
	for _, name := range []string{"hooks", "objects", "refs"} {
		f.add(git, name, dir, "")
	}
	return f
}

// serve answers until the file system is unmounted, or nobody will mount it.
func (f *folding) serve(over <-chan struct{}) {
	request := make([]byte, 256<<10)
	for {
		n, err := unix.Read(f.fd, request)
		if err == unix.EINTR || err == unix.ENOENT {
			continue
		}
		if err == unix.EPERM { // not mounted yet
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
				continue
			}
		}
		if err != nil || n < 40 {
			return
		}
		r := request[:n]
		answer, errno := f.answer(binary.LittleEndian.Uint32(r[4:]), binary.LittleEndian.Uint64(r[16:]), r[40:])
		if answer == nil && errno == 0 {
			continue // nobody waits
		}
		head := binary.LittleEndian.AppendUint32(nil, uint32(16+len(answer)))
		head = binary.LittleEndian.AppendUint32(head, uint32(-errno))
		_, _ = unix.Write(f.fd, append(append(head, r[8:16]...), answer...))
	}
}

// answer returns what the server says to a request about a node.
func (f *folding) answer(op uint32, node uint64, body []byte) ([]byte, int32) {
	const valid = 60 // seconds that the kernel need not ask again
	le := binary.LittleEndian
	word := func(at int) uint64 { return le.Uint64(body[at:]) }
	attr := func(b []byte, n uint64) []byte {
		at := &f.nodes[n]
		for _, v := range []uint64{n, uint64(len(at.data)), 1, 0, 0, 0} {
			b = le.AppendUint64(b, v)
		}
		for _, v := range []uint32{0, 0, 0, at.mode, 1, 65534, 65534, 0, 4096, 0} { // times, mode, links, owner, device, block
			b = le.AppendUint32(b, v)
		}
		return b
	}
	entry := func(n uint64) []byte {
		b := le.AppendUint64(le.AppendUint64(nil, n), 0)
		b = le.AppendUint64(le.AppendUint64(b, valid), valid)
		return attr(le.AppendUint64(b, 0), n)
	}
	text := func(at int) string { return string(bytes.TrimRight(body[at:], "\x00")) }
	switch at := &f.nodes[node]; op {
	case 1: // LOOKUP
		if i := slices.IndexFunc(at.names, func(name string) bool { return strings.EqualFold(name, text(0)) }); i >= 0 {
			return entry(at.kids[i]), 0
		}
		return nil, int32(unix.ENOENT)
	case 2, 42: // FORGET
		return nil, 0
	case 3, 4: // GETATTR, SETATTR
		return attr(le.AppendUint64(le.AppendUint64(nil, valid), 0), node), 0
	case 9: // MKDIR
		return entry(f.add(node, text(8), unix.S_IFDIR|0o755, "")), 0
	case 14, 27: // OPEN, OPENDIR
		return make([]byte, 16), 0
	case 15: // READ
		from := min(word(8), uint64(len(at.data)))
		return append([]byte{}, at.data[from:min(from+uint64(le.Uint32(body[16:])), uint64(len(at.data)))]...), 0
	case 16: // WRITE, of the tests at an end
		size := le.Uint32(body[16:])
		at.data = append(at.data[:word(8)], body[40:40+size]...)
		return le.AppendUint64(nil, uint64(size)), 0
	case 17: // STATFS
		out := make([]byte, 80)
		le.PutUint32(out[40:], 4096) // of a block
		le.PutUint32(out[44:], 255)  // of a name
		return out, 0
	case 18, 25, 29: // RELEASE, FLUSH, RELEASEDIR
		return []byte{}, 0
	case 26: // INIT
		out := make([]byte, 64)
		le.PutUint32(out, 7)
		le.PutUint32(out[4:], 31)
		le.PutUint32(out[20:], 128<<10) // at most in a write
		return out, 0
	case 28: // READDIR
		out := []byte{}
		for i := word(8); i < uint64(len(at.names)); i++ {
			out = le.AppendUint64(le.AppendUint64(out, at.kids[i]), i+1)
			out = le.AppendUint32(le.AppendUint32(out, uint32(len(at.names[i]))), f.nodes[at.kids[i]].mode>>12)
			out = append(out, at.names[i]...)
			out = append(out, make([]byte, -len(out)&7)...)
		}
		return out, 0
	}
	return nil, int32(unix.ENOSYS)
}

// Rules go by the spelling of names: where another one leads to the same file,
// that is said, and nothing starts.
func TestFolding(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount file systems")
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Skip("needs setpriv")
	}
	f := newFolding(t)
	over, served := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(served)
		f.serve(over)
	}()
	const script = `
mkdir "$D/mnt" "$D/home"; chown 65534 "$D/home"
mount -i -t fuse -o fd="$FUSE",rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions folding "$D/mnt"
eval "exec $FUSE>&-"
cd "$D/mnt/ws"
as() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
try='cat .ENV; echo "# changed" >> .git/CONFIG; mkdir .VSCODE; echo ran'
as "$PCCRUN" -q -- sh -c "$try" || echo refused $?
as "$PCCRUN" -q --allow-missing fs.hide -- sh -c "$try" || echo refused $?
echo control
as "$PCCRUN" -q --allow-missing fs.hide --allow-missing fs.protect -- sh -c "$try"
tail -n 1 .git/config; ls -d .vscode
as "$PCCRUN" doctor >"$D/home/doctor" && echo fine; grep -c "ignores upper and lower case" "$D/home/doctor"
cd "$D/home" && as "$PCCRUN" doctor >/dev/null && echo elsewhere fine
umount -l "$D/mnt"
`
	d := place(t)
	out, errs, _ := bash(t, script, "D="+d, "HOME="+d+"/home", "FUSE="+strconv.Itoa(f.fd))
	close(over)
	<-served
	require.Equal(t, "refused 125\nrefused 125\ncontrol\ncanary\nran\n# changed\n.vscode\n1\nelsewhere fine\n", out, errs)
	require.Contains(t, errs, "guarantee fs.hide: missing: "+d+"/mnt/ws ignores upper and lower case")
	require.Contains(t, errs, "guarantee fs.protect: missing: ")
}
