package main

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strconv"
	"testing"
)

func FuzzJSONText(f *testing.F) {
	for n := range uint64(20) {
		f.Add(newJSONMaker(n).text())
	}
	f.Add([]byte(jsonCreationBody))
	f.Fuzz(func(t *testing.T, text []byte) {
		if checkJSON(text) != nil {
			return
		}
		checkJSONMeaning(t, text)
		checkJSONWalk(t, text)
		if got, ok := jsonInt(text); jsonIntegerLiteral(text) && (!ok || got != decodedJSONInt(t, text)) ||
			ok && exactNumber(bytes.TrimSpace(text)).Cmp(new(big.Rat).SetInt64(got)) != 0 {
			t.Fatalf("%q: got %d, %v", text, got, ok)
		}
	})
}

func jsonIntegerLiteral(text []byte) bool {
	_, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return err == nil
}

func decodedJSONInt(t *testing.T, text []byte) int64 {
	n, err := decodeJSON(t, text).(json.Number).Int64()
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return n
}
