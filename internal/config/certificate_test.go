package config

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// TestCertificatesEnd: Expires returns when the first certificate in the current file ends.
func TestCertificatesEnd(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	files := "ca_file: " + cert + ", cert_file: " + cert + ", key_file: " + key
	cfg, err := decode("c", []byte("redis: {tls: {enabled: true, "+files+"}}"), nil)
	check.OK(t, err)
	all, err := cfg.Certificates()
	if err != nil || len(all) != 1 || all[0].Use != "redis" || all[0].File != cert {
		t.Fatalf("got %+v, %v; want one file of redis", all, err)
	}
	end, err := firstEnd(cert)
	if err != nil || !all[0].Expires().Equal(end) {
		t.Errorf("got %v, want %v; %v", all[0].Expires(), end, err)
	}
	sooner := certificateUntil(t, end.Add(-time.Second))
	rewriteFile(t, cert, readFileOf(t, cert)+sooner)
	if got := all[0].Expires(); !got.Equal(end.Add(-time.Second)) {
		t.Errorf("with one that ends a second sooner: got %v, want %v", got, end.Add(-time.Second))
	}
	rewriteFile(t, cert, "")
	if got := all[0].Expires(); !got.Equal(end.Add(-time.Second)) {
		t.Errorf("while the file is empty: got %v, want %v", got, end.Add(-time.Second))
	}
}
