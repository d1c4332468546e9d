package sbpl

import "strings"

// A Kind is what an operation is done to, and so which filters can speak of it.
type Kind uint8

const (
	OnFile Kind = iota + 1
	OnNetwork
	OnSocket
	OnProcess
	OnService
	OnSetting
	OnDevice
	OnMemory
	OnNothing
)

// An operation is a name of Seatbelt's, and the names that stand for it and others.
type operation struct {
	kind   Kind
	groups []string // from the nearest to the furthest; "default" is the last of each
}

// operations are those that the evaluator can be asked about. What they are part of goes
// by the tables of macOS 10.12 to 10.15 (seatbelt/beliefs.md).
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
			all[name] = operation{KindOf(name), append(strings.Fields(row.groups), "default")}
		}
	}
	return all
}

// KindOf returns what an operation, or a group of them, is done to.
func KindOf(name string) Kind {
	for _, k := range [...]struct {
		prefix string
		kind   Kind
	}{
		{"file", OnFile}, {"process-exec", OnFile}, {"network", OnNetwork}, {"system-socket", OnSocket}, {"signal",
			OnProcess}, {"process-info", OnProcess},
		{"mach-priv", OnProcess}, {"mach", OnService}, {"sysctl", OnSetting}, {"iokit-open", OnDevice}, {"ipc-posix", OnMemory},
	} {
		if strings.HasPrefix(name, k.prefix) {
			return k.kind
		}
	}
	return OnNothing
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
var filterKinds = map[string][]Kind{
	"literal": {OnFile, OnNetwork}, "subpath": {OnFile, OnNetwork}, "prefix": {OnFile, OnNetwork}, "regex": {OnFile,
		OnNetwork}, "extension": {OnFile},
	"remote": {OnNetwork}, "local": {OnNetwork}, "socket-domain": {OnSocket}, "target": {OnProcess},
	"global-name": {OnService}, "sysctl-name": {OnSetting}, "sysctl-name-prefix": {OnSetting},
	"iokit-registry-entry-class": {OnDevice}, "ipc-posix-name": {OnMemory}, "ipc-posix-name-regex": {OnMemory},
}
