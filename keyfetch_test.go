package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestKeyFetch(t *testing.T) {
	set := webKeySet(rsaWebKey("a", &authKeys().rsa.PublicKey))
	mux := http.NewServeMux()
	answer := func(path string, status int, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		})
	}
	filled := func(length int) string { return set + strings.Repeat(" ", length-len(set)) }
	answer("/good", 200, set)
	answer("/full", 200, filled(maxKeySetBytes))
	answer("/huge", 200, filled(maxKeySetBytes+1))
	answer("/broken", 200, set[:50])
	answer("/html", 200, "<html>")
	answer("/empty", 200, "")
	answer("/absent", 404, set)
	answer("/failing", 500, set)
	answer("/created", 201, set)
	mux.Handle("/moved", http.RedirectHandler("/good", http.StatusFound))
	mux.Handle("/moved-for-good", http.RedirectHandler("/good", http.StatusPermanentRedirect))
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/dripping", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, set[:10])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(set)))
		fmt.Fprint(w, set[:50])
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	for path, want := range map[string]string{
		"/good": "", "/full": "",
		"/huge": "more than 1048576 bytes", "/broken": "no sound JSON", "/html": "no sound JSON", "/empty": "no sound JSON",
		"/absent": "answered 404", "/failing": "answered 500", "/created": "answered 201",
		"/moved": "answered 302", "/moved-for-good": "answered 308",
		"/slow": "exceeded", "/dripping": "exceeded", "/cut": "unexpected EOF",
	} {
		client := newKeyClient(true)
		if want == "exceeded" {
			client.Timeout = 50 * time.Millisecond
		}
		url := strings.Replace(s.URL, "http://", "http://user:hunter2@", 1) + path
		keys, err := (&keyFetcher{url, signingAlgorithms, client}).fetch(context.Background())
		if want == "" && (err != nil || len(keys) != 1) {
			t.Errorf("%s: got %d keys, %v; want one", path, len(keys), err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v; want an error with %q", path, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error holds the URL's password: %v", path, err)
		}
		client.CloseIdleConnections()
	}
	if got := newKeyClient(true).Timeout; got != 10*time.Second {
		t.Errorf("timeout: got %v; want 10s", got)
	}
}

func TestKeyFetchOverTLS(t *testing.T) {
	set := webKeySet(rsaWebKey("a", &authKeys().rsa.PublicKey))
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		fmt.Fprint(w, set)
	}))
	s.Config.ErrorLog = (&logLines{}).stdLogger()
	s.StartTLS()
	t.Cleanup(s.Close)
	client := newKeyClient(true)
	if _, err := (&keyFetcher{s.URL, signingAlgorithms, client}).fetch(context.Background()); err == nil {
		t.Error("a certificate of nobody: got success; want an error")
	}
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{
		RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs,
	}
	if keys, err := (&keyFetcher{s.URL, signingAlgorithms,
		client}).fetch(context.Background()); err != nil || len(keys) != 1 {
		t.Errorf("a trusted certificate: got %d keys, %v; want one", len(keys), err)
	}
	client.CloseIdleConnections()
}

func TestKeyFetchRefusesPrivateHosts(t *testing.T) {
	s := newKeyServer(t, webKeySet(rsaWebKey("a", &authKeys().rsa.PublicKey)))
	port := s.URL[strings.LastIndex(s.URL, ":"):]
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]"} {
		_, err := (&keyFetcher{"http://" + host + port, signingAlgorithms,
			newKeyClient(false)}).fetch(context.Background())
		if !errors.Is(err, errPrivateHost) {
			t.Errorf("%s: got %v; want errPrivateHost", host, err)
		}
	}
	s.wantFetches(t, "private hosts", 0)
}

func TestIsPrivateHost(t *testing.T) {
	for text, want := range map[string]bool{
		"127.0.0.1": true, "127.255.255.254": true, "::1": true, "0.0.0.0": true, "0.1.2.3": true, "::": true,
		"169.254.169.254": true, "169.254.0.1": true, "fe80::1": true, "fe80::1%eth0": true, "fd00:ec2::254": true,
		"100.100.100.200": true, "168.63.129.16": true, "255.255.255.255": true, "224.0.0.1": true, "ff02::1": true,
		"::ffff:127.0.0.1": true, "::ffff:169.254.169.254": true, "64:ff9b::7f00:1": true, "64:ff9b::a9fe:a9fe": true,
		"::127.0.0.1": true,
		"10.0.0.1":    false, "192.168.1.1": false, "172.16.0.1": false, "fd00::1": false, "100.64.0.1": false,
		"8.8.8.8": false, "2606:4700::1111": false, "::ffff:8.8.8.8": false, "64:ff9b::808:808": false, "128.0.0.1": false,
	} {
		if got := isPrivateHost(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: got %v; want %v", text, got, want)
		}
	}
}
