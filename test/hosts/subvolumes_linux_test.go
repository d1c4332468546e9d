package hosts

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// A workspace may be a subvolume of btrfs that belongs to its user. A snapshot
// of it holds what the mounts cover, and a subvolume that was made read-only
// cannot be cleared of what it holds.
func TestSubvolumes(t *testing.T) {
	for _, program := range []string{"mkfs.btrfs", "btrfs", "setpriv"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs", program)
		}
	}
	if who()["root"] == "" {
		t.Skip("needs root to mount file systems")
	}
	const script = `
mkdir "$D/mnt" "$D/home"; truncate -s 600M "$D/disk"; mkfs.btrfs -q "$D/disk" >/dev/null; mount -o loop "$D/disk" "$D/mnt"
chmod 755 "$D/mnt"; btrfs subvolume create "$D/mnt/ws" >/dev/null
cd "$D/mnt/ws"; git init -q .; echo canary > .env; chown -R "$ID:${GID:-$ID}" . "$D/home"
as() { if [ "$ID" = 0 ]; then "$@"; else setpriv --reuid "$ID" --regid "$ID" --clear-groups "$@"; fi; }
try='cat .env; btrfs subvolume snapshot . again >/dev/null; cat again/.env
btrfs subvolume create new >/dev/null && mkdir -p new/.git/hooks new/.git/objects new/.git/refs && cp .git/HEAD new/.git/ && echo true > new/.git/hooks/pre-commit && btrfs property set new ro true'
as "$PCCRUN" -q -- sh -c "$try" 2>/dev/null || true
test ! -e new/.git/hooks/pre-commit || echo executable
echo control
as "$PCCRUN" -q --without seccomp --without floor -- sh -c "$try" 2>/dev/null || true
test ! -e new/.git/hooks/pre-commit || echo executable
`
	for name, id := range who() {
		t.Run(name, func(t *testing.T) {
			d := place(t)
			out, errs, _ := bash(t, script, "D="+d, "ID="+id, "HOME="+d+"/home")
			require.Equal(t, "control\ncanary\nexecutable\n", out, errs)
		})
	}
}
