package main

import "testing"

func TestListenAddresses(t *testing.T) {
	for _, s := range []string{
		":0", ":8080", "127.0.0.1:80", "0.0.0.0:65535", "[::]:1", "[::1]:1", "[fe80::1%eth0]:1", "localhost:1",
		"LOCALHOST:1", "my-host.example:1", "a:1",
	} {
		if err := checkListenValue(s); err != nil {
			t.Errorf("%q: got %v; want no error", s, err)
		}
	}
	for _, s := range []string{
		"", "8080", ":", "localhost", "localhost:", ":http", ":65536", ":-1", ":+1", "::1:80", "[::1:80", "::1]:80",
		"[127.0.0.1]:80", "[]:80", "[localhost]:80", "a b:80", "http://x:80", "-a:80", "a/b:80",
	} {
		if checkListenValue(s) == nil {
			t.Errorf("%q: got no error; want one", s)
		}
	}
}

func TestListenAddressesOverlap(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:80", "127.0.0.1:80", true},
		{"127.0.0.1:80", "127.0.0.1:81", false},
		{"127.0.0.1:0", "127.0.0.1:0", false},
		{"127.0.0.1:80", "127.0.0.2:80", false},
		{"localhost:80", "127.0.0.1:80", true},
		{"localhost:80", "LocalHost:80", true},
		{":80", "127.0.0.1:80", true},
		{"[::]:80", "127.0.0.1:80", true},
		{"0.0.0.0:80", "127.0.0.1:80", true},
		{"0.0.0.0:80", "[::1]:80", false},
		{"[::1]:80", "127.0.0.1:80", false},
		{"[::1]:80", "[0:0::1]:80", true},
		{"a.example:80", "b.example:80", false},
	} {
		a, errA := parseListen(tt.a)
		b, errB := parseListen(tt.b)
		if errA != nil || errB != nil {
			t.Fatalf("%s, %s: got %v, %v; want no errors", tt.a, tt.b, errA, errB)
		}
		if a.overlaps(b) != tt.want || b.overlaps(a) != tt.want {
			t.Errorf("%s, %s: got %v, %v; want %v both ways", tt.a, tt.b, a.overlaps(b), b.overlaps(a), tt.want)
		}
	}
}

func TestPortRange(t *testing.T) {
	for value, ok := range map[string]bool{
		"9000-9099": true, "1-65535": true, "80-80": true, "9099-9000": false, "0-1": false, "80": false, "80-": false,
		"1-65536": false, "a-b": false,
	} {
		if err := checkPortRange(value); (err == nil) != ok {
			t.Errorf("%q: got %v; want ok %v", value, err, ok)
		}
	}
}
