package egress

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/outgoing"
	"github.com/pccrun/pccrun/profiles"
)

// Where what is trusted stands inside.
const (
	authorityPath = "/run/pccrun/ca.pem"        // the session's authority alone
	bundlePath    = "/run/pccrun/ca-bundle.pem" // with the system's and the user's
	javaPath      = "/run/pccrun/ca-bundle.p12"
)

// trusted is where a file of these stands in this sandbox.
func (p *Plan) trusted(path string) string {
	if p.sandbox.Trust == "" {
		return path
	}
	return filepath.Join(p.sandbox.Trust, filepath.Base(path))
}

// trustVariables make programs trust the bundle that they name. Each stands
// for the whole of what a program trusts, but for node's, which adds.
var trustVariables = [...]string{
	"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "DENO_CERT",
	"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "NIX_SSL_CERT_FILE", "CODEX_CA_CERTIFICATE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "HTTPLIB2_CA_CERTS",
}

// Those of [profiles.CertificateFiles] that are not among them, and what else names authorities, name it too where they are set.

const nodeTrust = "NODE_EXTRA_CA_CERTS"

// Trusting returns the environment of a command that trusts what the process that reads
// requests issues: env itself where there is none.
func (p *Plan) Trusting(env []string) []string {
	if !p.Inspects() {
		return env
	}
	bundle := p.trusted(bundlePath)
	for _, name := range trustVariables {
		env = append(without(env, name), name+"="+bundle)
	}
	for _, name := range profiles.CertificateFiles {
		if name != nodeTrust && getenv(env, name) != "" {
			env = append(without(env, name), name+"="+bundle)
		}
	}
	for i, entry := range env {
		if name, value, _ := strings.Cut(entry, "="); profiles.NamesAuthorities(name, value) {
			env[i] = name + "=" + bundle
		}
	}
	extra := p.trusted(authorityPath)
	if len(p.reader.setup.Certificates) > 0 {
		extra = bundle
	}
	return append(without(env, nodeTrust), nodeTrust+"="+extra)
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

// trusts notes the certificates of a file or directory that counts, and says of what the environment names
// what becomes of it: of each once. Of the system's own directories there is a file.
func (p *Plan) trusts(in *reader, name, path string) {
	const most = 512
	real, err := filepath.EvalSymlinks(path)
	if err != nil || !filepath.IsAbs(path) || slices.Contains(in.judged, real) {
		return
	}
	in.judged = append(in.judged, real)
	info, err := os.Stat(real)
	if err != nil || !info.IsDir() && !info.Mode().IsRegular() {
		return
	}
	files, variable := []string{path}, "SSL_CERT_FILE="
	if info.IsDir() {
		if files, variable = nil, "SSL_CERT_DIR="; strings.HasPrefix(real, "/etc/") || strings.HasPrefix(real, "/usr/") {
			return
		}
		entries, _ := os.ReadDir(path)
		for _, e := range entries[:min(len(entries), most)] {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	switch {
	case !p.sends.Counts(path):
		p.Warnings = append(p.Warnings, name+"="+path+" does not count for what pccrun itself sends: "+variable+path+" in ~/"+outgoing.File+" makes it count")
		return
	case !slices.Contains(p.sends.Certificates, path) && !outgoing.Systems(path):
		p.Warnings = append(p.Warnings, name+"="+path+" counts for what pccrun itself sends")
	}
	for _, file := range files {
		real, err := filepath.EvalSymlinks(file)
		if err != nil || slices.Contains(in.setup.Certificates, real) {
			continue
		}
		if p.policy.Changes(file) || p.policy.Changes(real) {
			p.Warnings = append(p.Warnings, name+": "+file+": sandboxed commands can write it: its certificates are not trusted")
		} else if info, err := os.Stat(real); err == nil && info.Mode().IsRegular() {
			in.setup.Certificates = append(in.setup.Certificates, real)
		}
	}
}
