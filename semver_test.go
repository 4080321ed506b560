package main

import "testing"

func TestParseSemver(t *testing.T) {
	good := []string{
		"0.0.0", "1.2.3", "10.20.30", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-0.3.7", "1.0.0-x.7.z.92",
		"1.0.0-x-y-z.--", "1.0.0+20130313144700", "1.0.0-beta+exp.sha.5114f85", "1.0.0+21AF26D3----117B344092BD",
		"1.0.0+001", "1.0.0-0a", "99999999999999999999999.999999999999999999.99999999999999999", "1.0.0-a+b-c",
	}
	for _, s := range good {
		if _, ok := parseSemver(s); !ok {
			t.Errorf("got %q refused; want it accepted", s)
		}
	}
	bad := []string{
		"", "1", "1.2", "1.2.3.4", "v1.2.3", "01.2.3", "1.02.3", "1.2.03", "1.2.3-", "1.2.3+", "1.2.3-+", "1.2.3-a..b",
		"1.2.3-01", "1.2.3+a..b", "1.2.3+a+b", "1.2.3-ä", "1.2.3 ", " 1.2.3", "1.2.-3", "-1.2.3", "1.2.x", "latest",
		"1.2.3-a_b", "1..3", "1.2.3\n", "１.2.3",
	}
	for _, s := range bad {
		if _, ok := parseSemver(s); ok {
			t.Errorf("got %q accepted; want it refused", s)
		}
	}
}

// TestSemverPrecedence compares each version with each; equal ones share a row.
func TestSemverPrecedence(t *testing.T) {
	ascending := [][]string{
		{"0.0.1"}, {"0.1.0"}, {"0.9.10"}, {"0.10.9"}, {"1.0.0-0"}, {"1.0.0-2"}, {"1.0.0-10", "1.0.0-10+a"},
		{"1.0.0--"}, {"1.0.0-alpha"}, {"1.0.0-alpha.1"}, {"1.0.0-alpha.beta"}, {"1.0.0-beta"}, {"1.0.0-beta.2"},
		{"1.0.0-beta.11"}, {"1.0.0-rc.1"}, {"1.0.0", "1.0.0+a", "1.0.0+b"}, {"1.0.1-a"}, {"1.0.1"}, {"2.0.0"},
		{"18446744073709551616.0.0"}, {"18446744073709551617.0.0"},
	}
	for i, row := range ascending {
		for j, other := range ascending {
			for _, a := range row {
				for _, b := range other {
					checkPrecedence(t, a, b, i-j)
				}
			}
		}
	}
}

func checkPrecedence(t *testing.T, a, b string, want int) {
	t.Helper()
	v, okA := parseSemver(a)
	w, okB := parseSemver(b)
	if !okA || !okB {
		t.Fatalf("got %s or %s refused; want both accepted", a, b)
	}
	if got := v.compare(w); got > 0 != (want > 0) || got < 0 != (want < 0) {
		t.Errorf("%s, %s: got %d; want the sign of %d", a, b, got, want)
	}
}
