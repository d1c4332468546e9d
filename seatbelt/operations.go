package seatbelt

import "strings"

// A kind is what an operation is done to, and so which filters can speak of it.
type kind uint8

const (
	onFile kind = iota + 1
	onNetwork
	onSocket
	onProcess
	onService
	onSetting
	onDevice
	onMemory
	onNothing
)

// An operation is a name of Seatbelt's, and the names that stand for it and others.
type operation struct {
	kind   kind
	groups []string // from the nearest to the furthest; "default" is the last of each
}

// operations are those that the evaluator can be asked about. What they are part of goes
// by the tables of macOS 10.12 to 10.15 (docs/macos.md).
var operations = table(map[string]string{
	"file-read-data": "file-read* file*", "file-read-metadata": "file-read* file*", "file-read-xattr": "file-read* file*",
	"file-write-acl": "file-write* file*", "file-write-create": "file-write* file*", "file-write-data": "file-write* file*", "file-write-flags": "file-write* file*",
	"file-write-mode": "file-write* file*", "file-write-owner": "file-write* file*", "file-write-setugid": "file-write* file*", "file-write-times": "file-write* file*",
	"file-write-unlink": "file-write* file*", "file-write-xattr": "file-write* file*",
	"file-clone": "file*", "file-ioctl": "file*", "file-link": "file*", "file-map-executable": "file*", "file-mknod": "file*", "file-mount": "file*", "file-revoke": "file*",
	"file-test-existence": "file*",
	"process-exec":        "process-exec* process*",
	"network-bind":        "network*", "network-inbound": "network*", "network-outbound": "network*",
	"system-socket": "",
	"signal":        "", "process-info-listpids": "process-info* process*", "process-info-pidinfo": "process-info* process*", "process-info-setcontrol": "process-info* process*",
	"mach-lookup": "mach*", "mach-register": "mach*", "mach-priv-task-port": "mach-priv* mach*",
	"sysctl-read": "sysctl*", "sysctl-write": "sysctl*",
	"iokit-open":      "",
	"ipc-posix-sem":   "ipc-posix* ipc*",
	"ipc-posix-shm":   "ipc-posix* ipc*",
	"ipc-sysv-shm":    "ipc-sysv* ipc*",
	"process-fork":    "process*",
	"pseudo-tty":      "",
	"job-creation":    "",
	"appleevent-send": "",
})

func table(groups map[string]string) map[string]operation {
	all := map[string]operation{}
	for name, of := range groups {
		all[name] = operation{kindOf(name), append(strings.Fields(of), "default")}
	}
	return all
}

func kindOf(name string) kind {
	for _, k := range [...]struct {
		prefix string
		kind   kind
	}{
		{"file", onFile}, {"process-exec", onFile}, {"network", onNetwork}, {"system-socket", onSocket}, {"signal", onProcess}, {"process-info", onProcess},
		{"mach-priv", onProcess}, {"mach", onService}, {"sysctl", onSetting}, {"iokit", onDevice}, {"ipc-posix", onMemory},
	} {
		if strings.HasPrefix(name, k.prefix) {
			return k.kind
		}
	}
	return onNothing
}

// covers reports whether a name in a rule stands for an operation.
func covers(name, op string) bool {
	if name == op {
		return true
	}
	for _, group := range operations[op].groups {
		if name == group {
			return true
		}
	}
	return false
}

// isOperation reports whether a name stands for any.
func isOperation(name string) bool {
	for op := range operations {
		if covers(name, op) {
			return true
		}
	}
	return false
}

// filterKinds are the filters that are modelled, by what they speak of.
var filterKinds = map[string][]kind{
	"literal": {onFile, onNetwork}, "subpath": {onFile, onNetwork}, "prefix": {onFile, onNetwork}, "regex": {onFile, onNetwork}, "extension": {onFile},
	"remote": {onNetwork}, "local": {onNetwork}, "socket-domain": {onSocket}, "target": {onProcess},
	"global-name": {onService}, "sysctl-name": {onSetting}, "sysctl-name-prefix": {onSetting}, "iokit-registry-entry-class": {onDevice}, "ipc-posix-name": {onMemory},
}
