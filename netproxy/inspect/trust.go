package inspect

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"

	"software.sslmate.com/src/go-pkcs12"
)

// systemBundles are where systems keep the certificates that they trust, in
// one file; the first that is there counts. (crypto/x509, root_linux.go)
var systemBundles = [...]string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem",
	"/etc/pki/tls/cacert.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// A trust is the certificates that hosts are checked against.
type trust struct {
	pool  *x509.CertPool
	certs []*x509.Certificate
}

// readTrust reads the system's bundle and further files. Of a file only the
// certificates count: it may hold a key too.
func readTrust(files []string) (*trust, error) {
	t := &trust{pool: x509.NewCertPool()}
	for _, path := range systemBundles {
		if text, err := os.ReadFile(path); err == nil {
			t.add(text)
			break
		}
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read certificates: %w", err)
		}
		t.add(text)
	}
	return t, nil
}

func (t *trust) add(text []byte) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue // as crypto/x509 does: old bundles hold some that nobody can read
		}
		t.pool.AddCert(cert)
		t.certs = append(t.certs, cert)
	}
}

// bundles returns what is trusted inside, the authority with it: in PEM, and
// as a trust store for Java.
func (t *trust) bundles(ca *authority) (text, java []byte, err error) {
	var b bytes.Buffer
	seen := map[string]bool{}
	certs := []*x509.Certificate{}
	for _, c := range append([]*x509.Certificate{ca.cert}, t.certs...) {
		if seen[string(c.Raw)] {
			continue
		}
		seen[string(c.Raw)] = true
		certs = append(certs, c)
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
	}
	var entries []pkcs12.TrustStoreEntry
	for i, c := range certs {
		if len(c.Subject.Names) > 0 { // without one, Java reads none of the store
			entries = append(entries, pkcs12.TrustStoreEntry{Cert: c, FriendlyName: fmt.Sprint(i)}) // by subject, some would hide others
		}
	}
	java, err = pkcs12.Passwordless.EncodeTrustStoreEntries(entries, "")
	return b.Bytes(), java, err
}
