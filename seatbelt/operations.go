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
var operations = table([]members{
	{"file-read* file*", "file-read-data file-read-metadata file-read-xattr"},
	{"file-write* file*", "file-write-acl file-write-create file-write-data file-write-flags file-write-mode"},
	{"file-write* file*", "file-write-owner file-write-setugid file-write-times file-write-unlink file-write-xattr"},
	{"file*", "file-clone file-ioctl file-link file-map-executable file-mknod file-mount file-revoke"},
	{"file*", "file-test-existence"},
	{"network*", "network-bind network-inbound network-outbound"},
	{"process-exec* process*", "process-exec"},
	{"process-info* process*", "process-info-listpids process-info-pidinfo process-info-setcontrol"},
	{"process*", "process-fork"},
	{"mach*", "mach-lookup mach-register"},
	{"mach-priv* mach*", "mach-priv-task-port"},
	{"sysctl*", "sysctl-read sysctl-write"},
	{"ipc-posix* ipc*", "ipc-posix-sem"},
	{"ipc-posix-shm ipc-posix-shm* ipc-posix* ipc*", "ipc-posix-shm-read-data ipc-posix-shm-write-create"},
	{"ipc-posix-shm ipc-posix-shm* ipc-posix* ipc*", "ipc-posix-shm-write-data ipc-posix-shm-write-unlink"},
	{"ipc-sysv* ipc*", "ipc-sysv-shm"},
	{"", "appleevent-send iokit-open job-creation pseudo-tty signal system-socket"},
	// What starts, changes or shows something outside: nothing allows these.
	{"", "authorization-right-obtain device-camera device-microphone distributed-notification-post hid-control"},
	{"", "iokit-set-properties lsopen nvram-set system-debug system-fsctl system-kext-load system-set-time"},
	{"", "file-issue-extension mach-issue-extension user-preference-read user-preference-write"},
})

// members are operations, and the groups in which they are.
type members struct{ groups, operations string }

func table(rows []members) map[string]operation {
	all := map[string]operation{}
	for _, row := range rows {
		for name := range strings.FieldsSeq(row.operations) {
			all[name] = operation{kindOf(name), append(strings.Fields(row.groups), "default")}
		}
	}
	return all
}

func kindOf(name string) kind {
	for _, k := range [...]struct {
		prefix string
		kind   kind
	}{
		{"file", onFile}, {"process-exec", onFile}, {"network", onNetwork}, {"system-socket", onSocket}, {"signal",
			onProcess}, {"process-info", onProcess},
		{"mach-priv", onProcess}, {"mach", onService}, {"sysctl", onSetting}, {"iokit-open", onDevice}, {"ipc-posix", onMemory},
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
	"literal": {onFile, onNetwork}, "subpath": {onFile, onNetwork}, "prefix": {onFile, onNetwork}, "regex": {onFile,
		onNetwork}, "extension": {onFile},
	"remote": {onNetwork}, "local": {onNetwork}, "socket-domain": {onSocket}, "target": {onProcess},
	"global-name": {onService}, "sysctl-name": {onSetting}, "sysctl-name-prefix": {onSetting},
	"iokit-registry-entry-class": {onDevice}, "ipc-posix-name": {onMemory}, "ipc-posix-name-regex": {onMemory},
}
