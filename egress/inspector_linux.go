package native

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/netproxy/secrets"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/state"
)

// Where what is trusted stands inside.
const (
	authorityPath = "/run/pccrun/ca.pem"        // the session's authority alone
	bundlePath    = "/run/pccrun/ca-bundle.pem" // with the system's and the user's
	javaPath      = "/run/pccrun/ca-bundle.p12"
)

// trustVariables make programs trust the bundle that they name. Each stands
// for the whole of what a program trusts, but for node's, which adds.
var trustVariables = [...]string{
	"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "DENO_CERT",
	"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "NIX_SSL_CERT_FILE", "CODEX_CA_CERTIFICATE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "HTTPLIB2_CA_CERTS",
}

// Those of [namespaces.CertificateFiles] that are not among them name it too where they are set.

const nodeTrust = "NODE_EXTRA_CA_CERTS"

// inspection is what has to be read on its way, and who reads it.
type inspection struct {
	setup   wire.Setup
	conn    *net.UnixConn
	process *os.Process

	mu      sync.Mutex
	next    uint64
	most    int // connections at once
	open    map[uint64]netproxy.Handover
	dead    bool
	drained chan struct{} // closed when the last report was read
}

// inspects plans what has to be inspected: hosts with rules for requests, and
// hosts that secrets go to. A secret's place inside is taken by a placeholder.
func (r *Run) inspects(host *Host) error {
	in := &inspection{most: maxInspected(), open: map[uint64]netproxy.Handover{}, drained: make(chan struct{})}
	in.setup.Rules = r.Rules.Texts()
	for _, inject := range r.Policy.Network.Inject {
		secret, err := r.secret(inject, host)
		if err != nil {
			hint := ""
			if shown := (*shownError)(nil); errors.As(err, &shown) {
				hint = "--hide " + shell.Quote(shown.path)
			} else if errors.As(err, new(valueError)) {
				hint = "want a value of at least 12 bytes in " + inject.Source()
			}
			return &profiles.Error{Origin: inject.Origin, Cause: fmt.Sprintf("inject %s: %v", inject.Env, err), Hint: hint}
		}
		hosts, err := r.secretHosts(inject)
		if err != nil {
			return err
		}
		secret.Hosts = hosts.Texts()
		r.Rules = r.Rules.Watch(hosts)
		in.setup.Secrets = append(in.setup.Secrets, secret)
		r.Plan.Command.Env = append(without(r.Plan.Command.Env, inject.Env), inject.Env+"="+secret.Placeholder)
	}
	if len(in.setup.Secrets) == 0 && len(r.Rules.Inspected()) == 0 {
		return nil
	}
	for _, env := range [...][]string{host.Environ, r.Plan.Command.Env} {
		for _, name := range namespaces.CertificateFiles {
			r.trustFile(in, name, getenv(env, name))
		}
		for _, name := range namespaces.CertificateDirs {
			for _, dir := range filepath.SplitList(getenv(env, name)) {
				r.trustDir(in, name, dir)
			}
		}
	}
	for _, path := range r.found.Certificates {
		r.trustFile(in, "http.sslCAInfo", path)
	}
	in.setup.HTTPProxy, in.setup.HTTPSProxy, in.setup.NoProxy, in.setup.ProxyPorts = r.proxies[0], r.proxies[1], r.proxies[2], r.proxyPorts
	r.inspection = in
	return nil
}

// trustFile notes a file of certificates that a variable names. What a project
// could have put there does not count.
func (r *Run) trustFile(in *inspection, name, path string) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil || !filepath.IsAbs(path) || slices.Contains(in.setup.Certificates, real) {
		return
	}
	if info, err := os.Stat(real); err != nil || !info.Mode().IsRegular() {
		return
	}
	if strings.HasPrefix(real, r.Policy.Workspace+"/") || strings.HasPrefix(path, r.Policy.Workspace+"/") {
		r.Warnings = append(r.Warnings, name+": "+path+" is in the workspace: its certificates are not trusted")
		return
	}
	in.setup.Certificates = append(in.setup.Certificates, real)
}

// trustDir notes the files of a directory of certificates, but for the system's own, of which
// there is a file.
func (r *Run) trustDir(in *inspection, name, dir string) {
	const most = 512
	if real, err := filepath.EvalSymlinks(dir); err != nil || strings.HasPrefix(real, "/etc/") || strings.HasPrefix(real, "/usr/") {
		return
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries[:min(len(entries), most)] {
		r.trustFile(in, name, filepath.Join(dir, e.Name()))
	}
}

// secret reads the value of an injected variable and makes its placeholder.
func (r *Run) secret(inject profiles.Injection, host *Host) (wire.Secret, error) {
	value, err := host.Secrets.value(&inject, r.Policy, host)
	if err != nil {
		return wire.Secret{}, err
	}
	key, err := placeholderKey(host.StateDir, r.Policy.Workspace)
	if err != nil {
		return wire.Secret{}, err
	}
	placeholder, err := secrets.Placeholder(key, inject.Env+" "+strings.Join(inject.Hosts, " "), value)
	if err != nil {
		return wire.Secret{}, valueError{fmt.Errorf("its value %w", err)}
	}
	return wire.Secret{Placeholder: placeholder, Value: value}, nil
}

// secretHosts returns the connections that a secret goes out on: by TLS, and
// only to hosts that the policy allows anyway.
func (r *Run) secretHosts(inject profiles.Injection) (*rules.Set, error) {
	var list []rules.Rule
	for _, text := range inject.Hosts {
		name := text
		if !strings.Contains(text, "://") && !strings.ContainsAny(strings.TrimSuffix(text[strings.LastIndexByte(text, ']')+1:], ":"), ": /") {
			text = "https://" + text // port 443 alone
		}
		rule, err := rules.Parse(text)
		if err == nil && (rule.Inspects() || rule.Group() != "") {
			err = fmt.Errorf("%q: want the name of a host", name)
		}
		if err != nil {
			return nil, &profiles.Error{Origin: inject.Origin, Cause: fmt.Sprintf("inject %s: %v", inject.Env, err)}
		}
		if cause, hint := noWay(&r.Policy.Network, r.Rules, name); cause != "" {
			return nil, &profiles.Error{Origin: inject.Origin, Cause: "inject " + inject.Env + ": " + cause, Hint: hint}
		}
		list = append(list, rule)
	}
	return rules.New(list...)
}

// placeholderKey returns the key that this user's placeholders are made with,
// and makes it where there is none.
func placeholderKey(dir, workspace string) ([]byte, error) {
	const name, size = "placeholder.key", 32
	key := make([]byte, size)
	if dir == "" {
		_, err := rand.Read(key)
		return key, err
	}
	root, err := state.Open(dir, workspace)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for range 2 {
		kept, err := state.ReadFile(root, name, size)
		switch {
		case err == nil && len(kept) == size:
			return kept, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
		if _, err := rand.Read(key); err != nil {
			return nil, err
		}
		if err := state.WriteFile(root, name, key, state.Durable); err != nil {
			return nil, err
		}
	}
	return key, nil
}

func getenv(env []string, name string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// without returns env less a variable.
func without(env []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, name+"=") })
}

// Inspects reports whether [Run.StartInspector] starts anything.
func (r *Run) Inspects() bool { return r.inspection != nil }

// StartInspector starts the process that reads requests, if the policy needs
// one, and has what it issues trusted inside. program returns the whole of
// this program, open. What fails here ends the launch.
func (r *Run) StartInspector(program func() (*os.File, error)) error {
	in := r.inspection
	if in == nil {
		return nil
	}
	if id := r.Plan.Identity; id.Root {
		in.setup.UID, in.setup.GID = id.HostUID, id.HostGID
	}
	files, err := in.start(program)
	if err != nil {
		return fmt.Errorf("inspection: %w", err)
	}
	r.Plan.AddText(authorityPath, files[0], "the authority that inspected hosts are certified by")
	r.Plan.AddText(bundlePath, files[1], "what is trusted inside")
	r.Plan.AddText(javaPath, files[2], "what is trusted inside, for Java")
	for _, target := range trustTargets() {
		text := files[1]
		if strings.HasSuffix(target, "cacerts") {
			text = files[2]
		}
		r.Plan.AddText(target, text, "what is trusted inside")
	}
	env := r.Plan.Command.Env
	for _, name := range trustVariables {
		env = append(without(env, name), name+"="+bundlePath)
	}
	for _, name := range namespaces.CertificateFiles {
		if name != nodeTrust && getenv(env, name) != "" {
			env = append(without(env, name), name+"="+bundlePath)
		}
	}
	extra := authorityPath
	if len(in.setup.Certificates) > 0 {
		extra = bundlePath
	}
	r.Plan.Command.Env = append(without(env, nodeTrust), nodeTrust+"="+extra)
	return nil
}

// trustTargets are the files of the system by which programs trust that look
// at no variable: bundles, and the stores of Java.
func trustTargets() (list []string) {
	patterns := []string{
		"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/pki/tls/cacert.pem",
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
		"/etc/ssl/certs/java/cacerts", "/usr/lib/jvm/*/lib/security/cacerts", "/usr/lib/jvm/*/jre/lib/security/cacerts",
	}
	for _, pattern := range patterns {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			real, err := filepath.EvalSymlinks(path)
			if err != nil || slices.Contains(list, real) {
				continue
			}
			if info, err := os.Stat(real); err == nil && info.Mode().IsRegular() {
				list = append(list, real)
			}
		}
	}
	return list
}

// start runs the process and returns the contents of the files that it made.
func (in *inspection) start(program func() (*os.File, error)) (files []string, err error) {
	text, err := json.Marshal(in.setup)
	if err != nil {
		return nil, err
	}
	exe, err := program()
	if err != nil {
		return nil, err
	}
	defer exe.Close()
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control")
	defer ours.Close()
	defer theirs.Close()
	setup, pipe, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer setup.Close()
	defer pipe.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	in.conn = conn.(*net.UnixConn)
	in.process, err = os.StartProcess(fmt.Sprintf("/proc/self/fd/%d", wire.ProgramFD), []string{"pccrun", wire.Verb}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{null, null, null, theirs, setup, exe},
		Sys: &unix.SysProcAttr{Setpgid: true}, // Ctrl-C is for the command
	})
	if err != nil {
		conn.Close()
		return nil, err
	}
	theirs.Close()
	setup.Close()
	if files, err = in.begin(pipe, text); err != nil {
		_ = in.process.Kill()
		_, _ = in.process.Wait()
		in.process = nil
		in.conn.Close()
		return nil, err
	}
	go in.read()
	go in.beat()
	return files, nil
}

// startTimeout is how long the process has to say that it serves.
const startTimeout = 10 * time.Second

// begin tells the process what it needs to know, and waits for its answer.
func (in *inspection) begin(pipe *os.File, setup []byte) (files []string, err error) {
	_ = pipe.SetWriteDeadline(time.Now().Add(startTimeout))
	if _, err := pipe.Write(setup); err != nil {
		return nil, err
	}
	pipe.Close()
	_ = in.conn.SetReadDeadline(time.Now().Add(startTimeout))
	buf, oob := make([]byte, wire.MaxMessage), make([]byte, unix.CmsgSpace(3*4))
	n, oobn, _, _, err := in.conn.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, fmt.Errorf("the process did not begin: %w", err)
	}
	var ready wire.Ready
	if err := json.Unmarshal(buf[:n], &ready); err != nil || ready.Error != "" {
		return nil, errors.Join(err, errors.New(ready.Error))
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return nil, errors.New("the process passed no files")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "trust")
		content, e := io.ReadAll(io.NewSectionReader(f, 0, 8<<20))
		f.Close()
		err = errors.Join(err, e)
		files = append(files, string(content))
	}
	if err == nil && len(files) != 3 {
		err = errors.New("the process passed no files")
	}
	return files, errors.Join(err, in.conn.SetReadDeadline(time.Time{}))
}

// writeTimeout is how long the process may take to take a message.
const writeTimeout = 5 * time.Second

// maxInspected is how many connections can be inspected at once, where the
// descriptors that a process may have are enough: each takes two there, and the
// client decides how long it stays.
func maxInspected() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 64
	}
	return int(min(limit.Max/4, 2048))
}

var errInspectorGone = errors.New("the process that reads requests is gone")

// take hands a connection over. It is a [netproxy.Config]'s Inspect.
func (in *inspection) take(h netproxy.Handover) error {
	tcp, ok := h.Conn.(*net.TCPConn)
	if !ok {
		return errors.New("not a TCP connection")
	}
	file, err := tcp.File()
	if err != nil {
		return err
	}
	defer file.Close()
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.dead {
		return errInspectorGone
	}
	if len(in.open) >= in.most {
		return errors.New("too many inspected connections at once")
	}
	in.next++
	text, err := json.Marshal(wire.Connection{ID: in.next, Early: h.Early, Verdict: h.Verdict})
	if err != nil {
		return err
	}
	_ = in.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, _, err := in.conn.WriteMsgUnix(text, unix.UnixRights(int(file.Fd())), nil); err != nil {
		return errInspectorGone
	}
	in.open[in.next] = h
	return nil
}

// beat says that the launcher runs, until the process is gone.
func (in *inspection) beat() {
	text, err := json.Marshal(wire.Connection{})
	ticker := time.NewTicker(wire.Beat)
	defer ticker.Stop()
	for err == nil {
		select {
		case <-in.drained:
			return
		case <-ticker.C:
			in.mu.Lock()
			_ = in.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
			_, err = in.conn.Write(text)
			in.mu.Unlock()
		}
	}
}

// read passes on what the process reports, until it is gone. What it had then
// is over.
func (in *inspection) read() {
	defer close(in.drained)
	buf := make([]byte, wire.MaxMessage)
	for {
		n, err := in.conn.Read(buf)
		if err != nil || n == 0 {
			break
		}
		var r wire.Report
		if json.Unmarshal(buf[:n], &r) != nil {
			break
		}
		in.mu.Lock()
		h, ok := in.open[r.ID]
		if ok && r.Closed {
			delete(in.open, r.ID)
		}
		in.mu.Unlock()
		switch {
		case !ok:
		case r.Closed:
			h.Closed(r.Up, r.Down)
		case r.Error != "":
			h.Decided(r.Verdict, r.Request, errors.New(r.Error))
		default:
			h.Decided(r.Verdict, r.Request, nil)
		}
	}
	in.mu.Lock()
	in.dead = true
	left := in.open
	in.open = nil
	in.mu.Unlock()
	for _, h := range left {
		h.Closed(0, 0)
	}
}

// Abandon ends what StartInspector began, for a run that will not be started.
func (r *Run) Abandon() { r.inspection.close() }

// close ends the process, which has a moment to report what it had open.
func (in *inspection) close() {
	if in == nil || in.process == nil {
		return
	}
	_ = in.conn.CloseWrite()
	ended := make(chan struct{})
	go func() {
		_, _ = in.process.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(3 * time.Second):
		_ = in.process.Kill()
		<-ended
	}
	_ = in.conn.SetReadDeadline(time.Now().Add(time.Second))
	select {
	case <-in.drained:
	case <-time.After(2 * time.Second):
	}
	in.conn.Close()
}
