//go:build linux || darwin

package etcd_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/certstest"
	"github.com/gatehousehq/gatehouse/internal/etcd"
	"github.com/gatehousehq/gatehouse/internal/etcdtest"
	"github.com/gatehousehq/gatehouse/internal/freeport"
)

// startSecure starts an etcd that speaks TLS and wants certificates of clients, and returns its address.
func startSecure(t *testing.T, ca *certstest.Authority) string {
	t.Helper()
	program, err := etcdtest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	var at [2]string
	for i := range at {
		at[i], err = freeport.Next()
		if err != nil {
			t.Fatal(err)
		}
	}
	pair := ca.Server()
	cmd := exec.CommandContext(t.Context(), program, "--name=one", "--data-dir="+t.TempDir(),
		"--listen-client-urls=https://"+at[0], "--advertise-client-urls=https://"+at[0],
		"--listen-peer-urls=http://"+at[1], "--initial-advertise-peer-urls=http://"+at[1],
		"--initial-cluster=one=http://"+at[1], "--unsafe-no-fsync", "--client-cert-auth",
		"--cert-file="+pair.Cert, "--key-file="+pair.Key, "--trusted-ca-file="+ca.File)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return at[0]
}

// ask writes the key of an address and reads it back.
func ask(t *testing.T, address string) error {
	t.Helper()
	client, key, query, err := etcd.Open(address)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	if len(query) != 1 || query.Get("ttl") != "10s" {
		t.Errorf("the query of %s is %v, want ttl alone", address, query)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := client.Put(ctx, key, "value"); err != nil {
		return err
	}
	got, err := client.Get(ctx, key)
	if err == nil && string(got.Kvs[0].Value) != "value" {
		t.Errorf("the key has %q, want value", got.Kvs[0].Value)
	}
	return err
}

// A real etcd is reached with the right certificates, and with no others.
func TestTLS(t *testing.T) {
	ca, stranger := certstest.New(t), certstest.New(t)
	at := startSecure(t, ca)
	mine, theirs := ca.Issue("server", time.Hour), stranger.Issue("server", time.Hour)
	pair := func(p certstest.Pair) string { return "&cert=" + p.Cert + "&key=" + p.Key }
	address := "etcd://" + at + "/key?ttl=10s&ca="
	good := address + ca.File + pair(mine)
	await.True(t, "etcd answers with the right certificates", func() bool { return ask(t, good) == nil })
	for fact, bad := range map[string]string{
		"no certificate":       address + ca.File,
		"one of a stranger":    address + ca.File + pair(theirs),
		"an unknown authority": address + stranger.File + pair(mine),
		"the system's":         address + "system" + pair(mine),
		"no TLS":               "etcd://" + at + "/key?ttl=10s",
	} {
		if err := ask(t, bad); err == nil {
			t.Errorf("with %s etcd answers, want an error", fact)
		}
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	stranger.CopyTo(file)
	wantReplaced(t, address+file+pair(mine), func() { ca.CopyTo(file) })
	for bad, want := range map[string]string{
		address + "/none":                        "ca: stat /none",
		address + ca.File + "&cert=" + mine.Cert: "one of cert and key",
		address + ca.File + "&ca=" + ca.File:     "want one file",
	} {
		if err := ask(t, bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
}

// wantReplaced replaces the authority that a client trusts: it reaches etcd with the right one, without a
// restart.
func wantReplaced(t *testing.T, address string, replace func()) {
	t.Helper()
	client, key, _, err := etcd.Open(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	get := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		_, err := client.Get(ctx, key)
		return err
	}
	if err := get(); err == nil {
		t.Error("etcd is reached by an authority that did not sign its certificate")
	}
	replace()
	await.True(t, "etcd is reached by the new authority", func() bool { return get() == nil })
}
