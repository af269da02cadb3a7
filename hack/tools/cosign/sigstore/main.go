// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sigstore stands in for Sigstore's services in a rehearsal of a release, so that cosign signs and verifies without a network and
// without a key: a certificate authority as Fulcio, a certificate transparency log, and a transparency log as Rekor. What it issues is
// what the real ones issue, but its keys live as long as the process, and it trusts whoever asks.
//
//	sigstore --dir DIR --identity URL --issuer URL
//
// It writes into DIR: url, where both are served; token, what cosign hands in as its identity; and what verifies, both as trusted_root.json
// and as the three files that cosign 2 wants for signatures in a registry: authority.pem, certificates.pub and entries.pub.
package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"flag"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-openapi/runtime"
	ct "github.com/google/certificate-transparency-go"
	"github.com/google/certificate-transparency-go/tls"
	"github.com/google/certificate-transparency-go/x509util"
	"github.com/sigstore/fulcio/pkg/api"
	"github.com/sigstore/rekor/pkg/generated/models"
	"github.com/sigstore/rekor/pkg/types"
	_ "github.com/sigstore/rekor/pkg/types/dsse/v0.0.1"
	_ "github.com/sigstore/rekor/pkg/types/hashedrekord/v0.0.1"
	_ "github.com/sigstore/rekor/pkg/types/intoto/v0.0.1"
	"github.com/sigstore/rekor/pkg/util"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
)

var (
	oidIssuerV1 = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 1}
	oidIssuer   = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 8}
	oidSCTs     = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11129, 2, 4, 2}
)

func main() {
	dir := flag.String("dir", "", "the folder that url, token and trusted_root.json are written into")
	identity := flag.String("identity", "", "whom each certificate names: the URL of a workflow")
	issuer := flag.String("issuer", "", "who has proved that, as each certificate says")
	flag.Parse()
	log.SetFlags(0)
	if *dir == "" || *identity == "" || *issuer == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*dir, *identity, *issuer); err != nil {
		log.Fatal(err)
	}
}

func run(dir, identity, issuer string) error {
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return err
	}
	address := "http://" + listener.Addr().String()
	s, err := newServices(identity, issuer)
	if err != nil {
		return err
	}
	trusted, err := s.trustedRoot(address)
	if err != nil {
		return err
	}
	// Last the address: who reads it finds the others.
	for _, file := range []struct{ name, content string }{
		{"trusted_root.json", string(trusted)}, {"authority.pem", block("CERTIFICATE", s.authorityCertificate.Raw)},
		{"certificates.pub", publicKey(s.certificates)}, {"entries.pub", publicKey(s.entries)}, {"token", token(issuer)}, {"url", address},
	} {
		temporary := filepath.Join(dir, "."+file.name)
		if err := os.WriteFile(temporary, []byte(file.content), 0o600); err != nil {
			return err
		}
		if err := os.Rename(temporary, filepath.Join(dir, file.name)); err != nil {
			return err
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/signingCert", s.issue)
	mux.HandleFunc("POST /api/v1/log/entries", s.append)
	return (&http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}).Serve(listener)
}

// token returns a JSON Web Token that nobody has signed: cosign reads the subject of it, and the services read nothing.
func token(issuer string) string {
	part := func(v map[string]any) string {
		data, _ := json.Marshal(v) // Strings and numbers alone.
		return base64.RawURLEncoding.EncodeToString(data)
	}
	expires := time.Now().Add(time.Hour).Unix()
	return part(map[string]any{"alg": "ES256"}) + "." +
		part(map[string]any{"iss": issuer, "aud": "sigstore", "sub": "rehearsal", "exp": expires}) + "." + base64.RawURLEncoding.EncodeToString([]byte("none"))
}

type services struct {
	identity *url.URL
	issuer   string
	// authority signs certificates, certificates is the log of these, entries is the log of signatures.
	authority, certificates, entries *ecdsa.PrivateKey
	authorityCertificate             *x509.Certificate
	serial                           atomic.Int64
}

func newServices(identity, issuer string) (*services, error) {
	s := &services{issuer: issuer}
	var err error
	if s.identity, err = url.Parse(identity); err != nil {
		return nil, err
	}
	for _, key := range []**ecdsa.PrivateKey{&s.authority, &s.certificates, &s.entries} {
		if *key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, err
		}
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "rehearsal"}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, s.authority.Public(), s.authority)
	if err != nil {
		return nil, err
	}
	s.authorityCertificate, err = x509.ParseCertificate(der)
	return s, err
}

// trustedRoot returns what Sigstore publishes of itself, in the format of its own.
func (s *services) trustedRoot(address string) ([]byte, error) {
	from, until := time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	logOf := func(key *ecdsa.PrivateKey) map[string]*root.TransparencyLog {
		id := logID(key)
		return map[string]*root.TransparencyLog{hex.EncodeToString(id[:]): {
			BaseURL: address, ID: id[:], ValidityPeriodStart: from, ValidityPeriodEnd: until,
			HashFunc: crypto.SHA256, PublicKey: key.Public(), SignatureHashFunc: crypto.SHA256,
		}}
	}
	trusted, err := root.NewTrustedRoot(root.TrustedRootMediaType01, []root.CertificateAuthority{&root.FulcioCertificateAuthority{
		Root: s.authorityCertificate, ValidityPeriodStart: from, ValidityPeriodEnd: until, URI: address,
	}}, logOf(s.certificates), nil, logOf(s.entries))
	if err != nil {
		return nil, err
	}
	return trusted.MarshalJSON()
}

// logID returns the hash of the public key, by which a log is known.
func logID(key *ecdsa.PrivateKey) [sha256.Size]byte { return sha256.Sum256(der(key)) }

func publicKey(key *ecdsa.PrivateKey) string { return block("PUBLIC KEY", der(key)) }

func block(kind string, content []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
}

func der(key *ecdsa.PrivateKey) []byte {
	encoded, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		panic(err) // Impossible: the key is of a standard curve.
	}
	return encoded
}

// issue answers as Fulcio: with a certificate for the key that was sent.
func (s *services) issue(w http.ResponseWriter, r *http.Request) {
	var request api.CertificateRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	key, err := cryptoutils.UnmarshalPEMToPublicKey(request.PublicKey.Content)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	certificate, err := s.certificate(key)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write([]byte(block("CERTIFICATE", certificate) + block("CERTIFICATE", s.authorityCertificate.Raw))) // The client notices.
}

// certificate returns one that lasts ten minutes and carries the promise of the log of certificates.
func (s *services) certificate(key crypto.PublicKey) ([]byte, error) {
	issuer, err := asn1.MarshalWithParams(s.issuer, "utf8")
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1 + s.serial.Add(1)), URIs: []*url.URL{s.identity}, NotBefore: time.Now(), NotAfter: time.Now().Add(10 * time.Minute),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		ExtraExtensions: []pkix.Extension{{Id: oidIssuerV1, Value: []byte(s.issuer)}, {Id: oidIssuer, Value: issuer}},
	}
	// The log signs the certificate without its promise, which stands last in the real one.
	der, err := x509.CreateCertificate(rand.Reader, template, s.authorityCertificate, key, s.authority)
	if err != nil {
		return nil, err
	}
	bare, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	promise := ct.SignedCertificateTimestamp{SCTVersion: ct.V1, LogID: ct.LogID{KeyID: logID(s.certificates)}, Timestamp: uint64(time.Now().UnixMilli())}
	input, err := ct.SerializeSCTSignatureInput(promise, ct.LogEntry{Leaf: ct.MerkleTreeLeaf{TimestampedEntry: &ct.TimestampedEntry{
		EntryType: ct.PrecertLogEntryType, Timestamp: promise.Timestamp,
		PrecertEntry: &ct.PreCert{IssuerKeyHash: sha256.Sum256(s.authorityCertificate.RawSubjectPublicKeyInfo), TBSCertificate: bare.RawTBSCertificate},
	}}})
	if err != nil {
		return nil, err
	}
	signed, err := tls.CreateSignature(*s.certificates, tls.SHA256, input)
	if err != nil {
		return nil, err
	}
	promise.Signature = ct.DigitallySigned(signed)
	list, err := x509util.MarshalSCTsIntoSCTList([]*ct.SignedCertificateTimestamp{&promise})
	if err != nil {
		return nil, err
	}
	encoded, err := tls.Marshal(*list)
	if err != nil {
		return nil, err
	}
	value, err := asn1.Marshal(encoded)
	if err != nil {
		return nil, err
	}
	template.ExtraExtensions = append(template.ExtraExtensions, pkix.Extension{Id: oidSCTs, Value: value})
	return x509.CreateCertificate(rand.Reader, template, s.authorityCertificate, key, s.authority)
}

// append answers as Rekor, once the signature in the entry is right. Each entry is the only leaf of a tree of its own.
func (s *services) append(w http.ResponseWriter, r *http.Request) {
	proposed, err := models.UnmarshalProposedEntry(r.Body, runtime.JSONConsumer())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	entry, err := types.CreateVersionedEntry(proposed)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	body, err := types.CanonicalizeEntry(r.Context(), entry)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	leaf := sha256.Sum256(append([]byte{0}, body...))
	answer, err := s.logged(r.Context(), body, leaf)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	uuid := hex.EncodeToString(leaf[:])
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/api/v1/log/entries/"+uuid)
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{uuid: answer}) // The client notices.
}

func (s *services) logged(ctx context.Context, body []byte, leaf [sha256.Size]byte) (*models.LogEntryAnon, error) {
	id := logID(s.entries)
	name, now, index := hex.EncodeToString(id[:]), time.Now().Unix(), s.serial.Add(1)
	signer, err := signature.LoadECDSASigner(s.entries, crypto.SHA256)
	if err != nil {
		return nil, err
	}
	checkpoint, err := util.CreateAndSignCheckpoint(ctx, "rehearsal", 1, 1, leaf[:], signer)
	if err != nil {
		return nil, err
	}
	encoded := base64.StdEncoding.EncodeToString(body)
	// Its fields stand in the order of canonical JSON.
	payload, err := json.Marshal(struct {
		Body           string `json:"body"`
		IntegratedTime int64  `json:"integratedTime"`
		LogID          string `json:"logID"`
		LogIndex       int64  `json:"logIndex"`
	}{encoded, now, name, index})
	if err != nil {
		return nil, err
	}
	promise, err := signer.SignMessage(bytes.NewReader(payload))
	if err != nil {
		return nil, err
	}
	rootHash, text := hex.EncodeToString(leaf[:]), string(checkpoint)
	return &models.LogEntryAnon{
		Body: encoded, IntegratedTime: &now, LogID: &name, LogIndex: &index,
		Verification: &models.LogEntryAnonVerification{
			SignedEntryTimestamp: promise,
			InclusionProof: &models.InclusionProof{
				Checkpoint: &text, Hashes: []string{}, LogIndex: new(int64), RootHash: &rootHash, TreeSize: new(int64(1)),
			},
		},
	}, nil
}
