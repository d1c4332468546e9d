package main

import (
	"os"

	"github.com/pccrun/pccrun/test/internal/debian"
)

// A suite is somebody's tests. Its scripts run in a workspace of its own, with what [bench.values] has as
// variables.
type suite struct {
	name, about string
	needs       []debian.Need
	checkout    string // the variable by which the user names one, if the suite is in a checkout
	build       string // a script that fetches and builds, as the caller, once in a workspace
	version     string // a script that prints which it is

	server  bool // of the tests' own, outside
	profile string
	flags   []string // pccrun's, with $NAME of [bench.values]
	run     string   // prints the results; ALL is not empty where every test is asked for
	judge   judge
	read    func([]byte) (results, error)
}

// A judge says how a suite's results are compared.
type judge int

const (
	same    judge = iota // what passes outside passes inside
	alone                // it runs inside alone, and passes
	itself               // it starts pccrun itself, and passes
	attacks              // what it finds inside is a difference; outside it finds something
)

// python is Debian's, whose tests are a package of its version.
const python = "/usr/bin/python3"

// install builds a program of a Go module, which follows, into bin.
const install = `GOBIN="$PWD/bin" GOTOOLCHAIN=local go install `

// sources gives a script apt_source, which unpacks a source package into src, by lists of its own: of what this
// machine's apt is set up for, as sources.
const sources = `apt_source() (
mkdir -p apt/lists/partial apt/from
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
[ ! -f "$file" ] || sed 's/^deb /deb-src /; s/^Types:.*/Types: deb-src/' "$file" >"apt/from/${file##*/}"; done
get() { apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$PWD/apt/from" \
-o Dir::State::lists="$PWD/apt/lists" -o Dir::Cache="$PWD/apt" -o APT::Sandbox::User=root "$@"; }
get update || true # a repository that has no sources
get source --download-only "$1" && dpkg-source -x *.dsc src
)
`

var suites = []suite{
	{
		name: "git", about: "git's own tests",
		needs:   []debian.Need{{Program: "gcc", Package: "gcc"}, {Program: "make", Package: "make"}, {File: "/usr/include/zlib.h", Package: "zlib1g-dev"}, {Program: "dpkg-source", Package: "dpkg-dev"}, {Program: "perl", Package: "perl"}, {Program: "curl-config", Package: "libcurl4-openssl-dev"}, {Program: "apache2", Package: "apache2-bin"}},
		build:   sources + `apt_source git && make -s -C src -j"$(nproc)" CFLAGS=-O0 NO_EXPAT=1 NO_GETTEXT=1 NO_OPENSSL=1 NO_PYTHON=1 NO_TCLTK=1 all`,
		version: `src/git version`,
		run: `cd src/t
list="t0000 t0001 t0021 t0033 t0034 t0035 t0050 t0060 t0061 t03 t0410 t13 t1400 t1416 t1450 t1500 t1501 t1509 t1510 t1700 t1800 t208 t24 t3200 t3404 t3903 \
t4013 t4020 t4030 t5304 t540 t541 t5505 t5510 t5516 t5520 t5526 t5531 t5534 t5541 t5542 t5543 t5544 t5545 t5547 t5550 t5551 t557 t56 t57 t58 t6030 t6500 \
t7006 t7063 t7102 t7300 t74 t7502 t7503 t7504 t7505 t7519 t7520 t7600 t7606 t7700 t7900 t9300"
case $ALL in 1) list=t;; ?*) list=$ALL;; esac
for kind in $list; do for t in "$kind"[0-9-]*.sh; do echo "# file ${t%.sh}"; sh "$t" --no-color </dev/null; done; done`,
		read: tap,
	},
	{
		name: "go", about: "Go's os, net, os/exec and syscall",
		needs:   []debian.Need{{Program: "go", Package: "golang-go"}},
		version: `go version`,
		run: `short=-short; [ -z "$ALL" ] || short=
GOTOOLCHAIN=local GOFLAGS= GOCACHE=$PWD/cache go test -json -count=1 $short os os/exec net syscall`,
		read: testJSON,
	},
	{
		name: "python", about: "Python's test package",
		build:   python + ` -c 'import test.test_os' || apt-get install -qq -y --no-install-recommends libpython$(` + python + ` -c 'import sys; print("%d.%d" % sys.version_info[:2])')-testsuite`,
		version: python + ` --version`,
		// Where UDP-Lite is refused its tests end their module's report.
		run: `list="test_os test_posix test_subprocess test_socket test_signal test_tempfile test_shutil test_pathlib test_mmap test_fcntl test_select test_pty test_resource test_ssl test_threading test_multiprocessing_fork"
[ -z "$ALL" ] || list=
` + python + ` -m test -i '*UDPLITE*' --junit-xml results.xml $list >&2; cat results.xml`,
		read: jUnit,
	},
	{
		name: "stress-ng", about: "stress-ng's enosys, sysinval and sysbadaddr: system calls that do not exist, wrong arguments, wrong addresses",
		needs:   []debian.Need{{Program: "stress-ng", Package: "stress-ng"}},
		version: `stress-ng --version`,
		run: `for s in enosys sysinval sysbadaddr; do
if [ "$s$ALL" = sysinval ]; then echo "ok - $s # SKIP stress-ng says that it may hang a machine: ALL=1 runs it"; continue; fi
if stress-ng --$s 1 --pathological --timeout 20s --temp-path . >&2; then echo "ok - $s"; else echo "not ok - $s"; fi; done`,
		judge: alone, read: tap,
	},
	{
		name: "kernel", about: "the kernel's selftests of Landlock and seccomp",
		checkout: "LINUX",
		needs:    []debian.Need{{Program: "gcc", Package: "gcc"}, {Program: "make", Package: "make"}, {File: "/usr/include/sys/capability.h", Package: "libcap-dev"}},
		build:    `cp -a --reflink=auto "$LINUX/." . && make -s headers && make -s -C tools/testing/selftests TARGETS="landlock seccomp"`,
		version:  `make -s kernelversion`,
		run:      `for t in tools/testing/selftests/landlock/*_test tools/testing/selftests/seccomp/seccomp_bpf; do echo "# file ${t##*/}"; "$t"; done`,
		read:     tap,
	},
	{
		name: "bundle", about: "pccrun spec: runtime-tools' validation, and the bundle under runc and crun",
		// It has no go.mod, and does not build with the newest types.
		build: `go mod init others && GOFLAGS=-mod=mod go get github.com/opencontainers/runtime-tools/cmd/oci-runtime-tool@v0.9.0 github.com/opencontainers/runtime-spec@v1.1.0 &&
go build -o bin/oci-runtime-tool github.com/opencontainers/runtime-tools/cmd/oci-runtime-tool &&
cp -r "$(go list -m -f '{{.Dir}}' github.com/opencontainers/runtime-spec)/schema" . && cat >schema.go <<'END' && go build -o bin/schema schema.go
package main

import ("fmt"; "os"; "github.com/xeipuuv/gojsonschema")

func main() {
	of := func(name string) gojsonschema.JSONLoader { return gojsonschema.NewReferenceLoader("file://" + name) }
	r, err := gojsonschema.Validate(of(os.Args[1]), of(os.Args[2]))
	fmt.Println(r.Errors(), err)
}
END
`,
		needs:   []debian.Need{{Program: "runc", Package: "runc"}, {Program: "crun", Package: "crun"}},
		version: `echo runtime-tools 0.9.0; runc --version | head -1; crun --version | head -1`,
		run: `mkdir -p ws && echo secret >ws/.env && rm -rf b
(cd ws && exec "$PCCRUN" spec --profile build --workspace . --bundle ../b -- sh -c 'cat .env; touch /etc/others; unshare -U true && echo unshared; echo works') || exit
check() { if [ "$2" = "$3" ]; then echo "ok - $1"; else echo "not ok - $1"; echo "$1: $2" >&2; fi; }
# The tool asks the network for the schema, which is of the specification's module.
said=$(bin/oci-runtime-tool validate --path b 2>&1)
case $said in *'msg="1 error occurred'*'Get '*schema*) said="Bundle validation succeeded.";; esac
check validated "$said" "Bundle validation succeeded."
check schema "$(bin/schema "$PWD/schema/config-schema.json" "$PWD/b/config.json")" "[] <nil>"
crun() { # which runs nothing where control groups are hybrid: root can hide that
if [ "$(id -u)" = 0 ]; then unshare -m sh -c 'mount -t cgroup2 none /sys/fs/cgroup && exec crun --cgroup-manager=disabled "$@"' - "$@"; else command crun "$@"; fi; }
for r in runc crun; do
said=$($r --root "$PWD/state-$r" run --bundle b others-$$ 2>refusals)
if grep -q "hybrid mode not supported" refusals; then echo "ok - $r # SKIP it runs nothing on this machine"; else check "$r" "$said" works; fi; done`,
		judge: itself, read: tap,
	},
	{
		name: "h2spec", about: "h2spec, of HTTP/2 and HPACK, against the inspector",
		build:   install + `github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible`,
		version: `bin/h2spec --version 2>&1 | head -1`,
		server:  true, flags: []string{"--allow", "GET,HEAD,POST,OPTIONS https://$HOST:$READ/**"},
		run:  `bin/h2spec -h "$HOST" -p "$READ" -t -k -j results.xml >&2; cat results.xml`,
		read: jUnit,
	},
	{
		name: "slowhttptest", about: "slowhttptest's slow headers, bodies and reads against proxy and inspector: who comes meanwhile is served",
		needs:   []debian.Need{{Program: "slowhttptest", Package: "slowhttptest"}, {Program: "curl", Package: "curl"}},
		version: `slowhttptest -h 2>&1 | grep -o 'slowhttptest.*version[^,]*' | head -1; dpkg-query -W slowhttptest`,
		server:  true, flags: []string{"--allow", "$HOST:$PASSED", "--allow", "GET,HEAD,POST https://$HOST:$READ/**"},
		run: `for port in "$PASSED" "$READ"; do for attack in H B X; do
slowhttptest -$attack -c 200 -r 50 -i 5 -l 20 -p 10 -u "https://$HOST:$port/" >&2 & attacker=$!
sleep 10; name="proxy -$attack"; [ "$port" = "$PASSED" ] || name="inspector -$attack"
if curl -ksS --max-time 10 "https://$HOST:$port/" | grep -q hello; then echo "ok - $name"; else echo "not ok - $name"; fi
wait $attacker; done; done`,
		read: tap,
	},
	{
		name: "sandbox-probe", about: "what control-plane's sandbox-probe finds that it can do",
		checkout: "SANDBOX_PROBE", build: `cp -a "$SANDBOX_PROBE/." . && CGO_ENABLED=0 go build -o bin/sandbox-probe .`, profile: "default",
		version: `bin/sandbox-probe version | head -1`,
		run:     `bin/sandbox-probe scan --tasksets baseline --output_path report.json >&2; cat report.json`,
		judge:   attacks, read: probeReport,
	},
	{
		name: "deepce", about: "deepce's checks of a container",
		checkout: "DEEPCE", build: `cp -a "$DEEPCE/." .`, profile: "default",
		version: `grep -m1 ^VERSION= deepce.sh`,
		run:     `sh deepce.sh --no-colors --no-network </dev/null`,
		judge:   attacks, read: found(`^\[\+\] (.+?) \.{2,} *(.*)$`, `No|None|Not Found|Not readable|No permissions|Unknown|sudo not found|Could not .*|0|`),
	},
	{
		name: "cdk", about: "CDK's evaluation of a container",
		checkout: "CDK", build: `cp -a "$CDK/." . && CGO_ENABLED=0 go build -o bin/cdk ./cmd/cdk`, profile: "default",
		version: `git -c safe.directory='*' describe --tags --always 2>/dev/null || echo CDK`,
		// It asks addresses of clouds: outside without a network.
		run:   `! unshare -rn true 2>&- || cut="unshare -rn"; $cut bin/cdk evaluate --full 2>&1 | sed "s/$(printf '\033')\[[0-9;]*m//g"`,
		judge: attacks, read: found(`(?:\[[!+]\]|Critical -|^\t[./]\S* -) +(.*)$`, ``),
	},
}

// had reports whether what the suite needs of the user is there.
func (s suite) had() bool { return s.checkout == "" || os.Getenv(s.checkout) != "" }
