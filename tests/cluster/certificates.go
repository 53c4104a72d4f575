package main

// Certificates for the connections between nodes, by an authority that each run makes for itself.

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority certifies nodes.
type Authority struct {
	folder      string
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

// newAuthority makes an authority, and writes its certificate to a folder.
func newAuthority(folder string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &Authority{folder: folder, key: key, certificate: template("authority")}
	a.certificate.IsCA, a.certificate.BasicConstraintsValid = true, true
	a.certificate.KeyUsage = x509.KeyUsageCertSign
	return a, a.certify("authority", a.certificate, key)
}

// template returns what certificates have in common. They are valid whatever the clocks of nodes are set to.
func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

// addNode makes a node's certificate and key. Other nodes know it by its address.
func (a *Authority) addNode(name, address string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	certificate := template(name)
	certificate.IPAddresses = []net.IP{net.ParseIP(address)}
	certificate.KeyUsage = x509.KeyUsageDigitalSignature
	certificate.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return a.certify(name, certificate, key)
}

// certify signs a certificate, and writes it and its key.
func (a *Authority) certify(name string, certificate *x509.Certificate, key *ecdsa.PrivateKey) error {
	signed, err := x509.CreateCertificate(rand.Reader, certificate, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	write := func(path, kind string, bytes []byte) error {
		return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600)
	}
	return errors.Join(write(a.path(name, "crt"), "CERTIFICATE", signed), write(a.path(name, "key"), "PRIVATE KEY", secret))
}

func (a *Authority) path(name, kind string) string { return filepath.Join(a.folder, name+"."+kind) }

// flags returns the parameters of a node that has a certificate.
func (a *Authority) flags(name string) []string {
	return []string{
		"--node-tls-cert-file", a.path(name, "crt"), "--node-tls-key-file", a.path(name, "key"),
		"--node-tls-ca-cert-file", a.path("authority", "crt"),
	}
}
