package egress

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/pccrun/pccrun/internal/outgoing"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/profiles"
)

// A reader is who reads HTTP, and what he is told before: the egress process, which starts
// when something has to be inspected, or when the first client speaks HTTP.
type reader struct {
	setup    wire.Setup
	spending *netproxy.Spending // nil: nothing is counted

	judged []string // files and directories of certificates

	program  func() (*os.File, error) // the whole of this program, open
	starting sync.Mutex
	started  bool
	failed   error // of the start

	serving
}

// start starts the reader, once. A start that failed is not tried again for a client.
func (in *reader) start(again bool) (files []string, err error) {
	in.starting.Lock()
	defer in.starting.Unlock()
	if in.started || in.failed != nil && !again {
		return nil, in.failed
	}
	files, in.failed = in.run()
	in.started = in.failed == nil
	return files, in.failed
}

// take hands a client over. It is a [netproxy.Config]'s HTTP.
func (in *reader) take(h *netproxy.Handover) error {
	if _, err := in.start(false); err != nil {
		return err
	}
	return in.hand(h)
}

// inspects plans what has to be inspected: hosts with rules for requests, and
// hosts that secrets go to. A secret's place inside is taken by a placeholder.
func (p *Plan) inspects(host *Host) error {
	in := &reader{program: func() (*os.File, error) { return os.Open("/proc/self/exe") }}
	p.reader = in
	for _, inject := range p.policy.Network.Inject {
		secret, err := p.secret(inject, host)
		if err != nil {
			hint := ""
			if shown := (*shownError)(nil); errors.As(err, &shown) {
				hint = "--hide " + shell.Quote(shown.path)
			} else if errors.As(err, new(valueError)) {
				hint = "want a value of at least 12 bytes in " + inject.Source()
			}
			return &profiles.Error{Origin: inject.Origin, Cause: fmt.Sprintf("inject %s: %v", inject.Env, err), Hint: hint}
		}
		hosts, err := p.secretHosts(inject)
		if err != nil {
			return err
		}
		secret.Hosts = hosts.Texts()
		if inject.Repository != "" {
			secret.Caseless, secret.Field = true, "Authorization"
			p.gitRepository(inject.Repository, secret.Placeholder)
		}
		p.Rules = p.Rules.Watch(hosts)
		in.setup.Secrets = append(in.setup.Secrets, secret)
		p.Environ = append(without(p.Environ, inject.Env), inject.Env+"="+secret.Placeholder)
	}
	if err := p.gitCredentials(in, host); err != nil {
		return err
	}
	if err := p.meters(in, host); err != nil {
		return err
	}
	if len(in.setup.Secrets) == 0 && len(p.Rules.Inspected()) == 0 && in.spending == nil {
		return nil
	}
	in.setup.Inspects = true
	for _, path := range p.sends.Certificates {
		p.trusts(in, "~/"+outgoing.File, path)
	}
	for _, env := range [...][]string{host.Environ, p.Environ} {
		for _, name := range profiles.CertificateFiles {
			p.trusts(in, name, getenv(env, name))
		}
		for _, name := range profiles.CertificateDirs {
			for _, dir := range filepath.SplitList(getenv(env, name)) {
				p.trusts(in, name, dir)
			}
		}
		for _, entry := range env {
			if name, value, _ := strings.Cut(entry, "="); profiles.NamesAuthorities(name, value) {
				p.trusts(in, name, value)
			}
		}
	}
	for _, path := range host.Certificates {
		p.trusts(in, "http.sslCAInfo", path)
	}
	return nil
}

// A File is one that the sandbox shows at its path, read-only.
type File struct{ Path, Text, Why string }

// Inspects reports whether requests are inspected, or secrets injected.
func (p *Plan) Inspects() bool { return p.reader != nil && p.reader.setup.Inspects }

// StartInspector starts the egress process where the policy has it inspect, and returns the
// files by which what it issues is trusted inside. Else the process starts with the first
// client that speaks HTTP, and there are none. program returns the whole of this program,
// open; uid and gid are whom the process becomes, 0 for who it is.
// What fails here ends the launch.
func (p *Plan) StartInspector(program func() (*os.File, error), uid, gid int) ([]File, error) {
	in := p.reader
	if in == nil {
		return nil, nil
	}
	in.program, in.setup.UID, in.setup.GID = program, uid, gid
	if !in.setup.Inspects {
		return nil, nil
	}
	files, err := in.start(true)
	if err != nil {
		return nil, fmt.Errorf("inspection: %w", err)
	}
	list := []File{
		{p.trusted(authorityPath), files[0], "the authority that inspected hosts are certified by"},
		{p.trusted(bundlePath), files[1], "what is trusted inside"},
		{p.trusted(javaPath), files[2], "what is trusted inside, for Java"},
	}
	if p.sandbox.Trust != "" { // nothing covers the system's own there
		return list, nil
	}
	for _, target := range trustTargets() {
		text := files[1]
		if strings.HasSuffix(target, "cacerts") {
			text = files[2]
		}
		list = append(list, File{target, text, "what is trusted inside"})
	}
	return list, nil
}

// Abandon ends what StartInspector began, for a run that will not be started.
func (p *Plan) Abandon() {
	p.reader.close()
	if p.reader != nil {
		p.reader.started = false
	}
}
