package profiles

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
)

// CertificateFiles are the variables that name a file of certificate authorities, and
// CertificateDirs those that name a directory, or several with colons between.
var (
	CertificateFiles = [...]string{
		"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE",
		"GIT_PROXY_SSL_CAINFO", "CARGO_HTTP_CAINFO", "DENO_CERT", "NIX_SSL_CERT_FILE", "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "CODEX_CA_CERTIFICATE",
		"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "HTTPLIB2_CA_CERTS", "npm_config_cafile", "NPM_CONFIG_CAFILE", "YARN_HTTPS_CA_FILE_PATH", "YARN_CAFILE", "HEX_CACERTS_PATH", "COMPOSER_CAFILE",
		"BUNDLE_SSL_CA_CERT", "PERL_LWP_SSL_CA_FILE", "HTTPS_CA_FILE", "CONDA_SSL_VERIFY", "UV_SSL_CERT_FILE", "PGSSLROOTCERT", "VAULT_CACERT", "CONSUL_CACERT", "NOMAD_CACERT", "ELIXIR_CACERTS", "STRIPE_CA_BUNDLE",
		"JULIA_SSL_CA_ROOTS_PATH", "ETCDCTL_CACERT", "CONAN_CACERT_PATH", "WEBSOCKET_CLIENT_CA_BUNDLE",
	}
	CertificateDirs = [...]string{"SSL_CERT_DIR", "GIT_SSL_CAPATH", "PERL_LWP_SSL_CA_PATH", "HTTPS_CA_DIR", "VAULT_CAPATH"}
)

// certificateSwitches are variables that name no file, and have a client trust what the system does,
// which is inside: with them a company's authority is one of the system's.
var certificateSwitches = [...]string{"CLAUDE_CODE_CERT_STORE", "NODE_USE_SYSTEM_CA", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "DENO_TLS_CA_STORE"}

// NamesCertificates reports whether a variable that is in neither list may name a file of certificate
// authorities: whether it does, the file says.
func NamesCertificates(name, value string) bool {
	upper := strings.ToUpper(name)
	return strings.HasPrefix(value, "/") && slices.ContainsFunc([]string{"CERT", "CAFILE", "CAINFO", "CAPATH", "CA_", "_CA", "SSL", "TLS"}, func(part string) bool { return strings.Contains(upper, part) }) &&
		!slices.Contains(CertificateFiles[:], name) && !slices.Contains(CertificateDirs[:], name)
}

// NamesAuthorities reports whether a variable that is in neither list names a file of certificates alone
// whose first is an authority's (RFC 5280, 4.2.1.9), as that by which a client is known is not.
func NamesAuthorities(name, value string) bool {
	if !NamesCertificates(name, value) {
		return false
	}
	text, err := ReadFile(value)
	_, rest, _ := bytes.Cut(text, []byte("-----BEGIN CERTIFICATE-----"))
	body, _, _ := bytes.Cut(rest, []byte("-----END CERTIFICATE-----"))
	der, bad := base64.StdEncoding.DecodeString(string(body))
	_, constraints, _ := bytes.Cut(der, []byte("\x06\x03\x55\x1d\x13"))
	constraints = bytes.TrimPrefix(constraints, []byte("\x01\x01\xff")) // critical
	return err == nil && bad == nil && !bytes.Contains(text, []byte("PRIVATE KEY")) && len(constraints) > 4 &&
		bytes.HasPrefix(constraints[4:], []byte("\x01\x01\xff")) // after the heads of a string and a sequence
}

// CertificateSwitch reports whether a variable says no more than that. Node's options are a
// variable of more than one use: all of them have to be such.
func CertificateSwitch(name, value string) bool {
	if name == "NODE_OPTIONS" {
		words := strings.Fields(value)
		return len(words) > 0 && !slices.ContainsFunc(words, func(w string) bool {
			return w != "--use-system-ca" && w != "--use-openssl-ca" && w != "--use-bundled-ca"
		})
	}
	return slices.Contains(certificateSwitches[:], name) && value != "" && !strings.Contains(value, "/")
}
