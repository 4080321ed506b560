package main

import "testing"

func TestAcceptWeight(t *testing.T) {
	for _, tt := range []struct {
		header string
		want   float64
	}{
		{"", -1}, {"gzip", 1}, {"GZIP", 1}, {"deflate, gzip;q=0.5", 0.5}, {"gzip;q=0", 0}, {"gzip ; Q=0.25", 0.25},
		{"gzip;q=x", 1}, {"br", -1}, {"gzipped", -1}, {"gzip;q=0.1, gzip;q=0.7", 0.7}, {"gzip;q=-1", 0}, {"gzip;q=7", 1},
	} {
		if got := acceptWeight([]string{tt.header}, "gzip"); got != tt.want {
			t.Errorf("%q: got %v; want %v", tt.header, got, tt.want)
		}
	}
}
