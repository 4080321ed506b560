package main

// Keys that hold lists of tables, such as API keys and subscribers: converting, checking,
// showing and writing them.

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
)

var subscriberName = compiled(`^[A-Za-z0-9_.:-]{1,100}$`)

func checkSubscriberName(s string) error {
	if !subscriberName().MatchString(s) {
		return errors.New(`is not a name: 1 to 100 letters, digits, "_", ".", ":" and "-"`)
	}
	return nil
}

func checkSubscriberURL(s string) error {
	if checkTargetValue(s) != nil || strings.HasPrefix(s, "builtin:") {
		return errors.New("is not a URL like https://example.com/events")
	}
	return nil
}

func checkEventPattern(s string) error {
	if s == "" || strings.Contains(strings.TrimSuffix(s, "*"), "*") {
		return errors.New("is not the name of an event, or the beginning of one and *")
	}
	return nil
}

// signingKey returns the key in a secret; nil if there is none.
func signingKey(secret string) []byte {
	text, marked := strings.CutPrefix(secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(text)
	if !marked || err != nil || len(key) < 24 || len(key) > 64 {
		return nil
	}
	return key
}

func checkSigningSecret(s string) error {
	if signingKey(s) == nil {
		return errors.New("is not whsec_ and 24 to 64 bytes in base64, as in: echo whsec_$(openssl rand -base64 32)")
	}
	return nil
}

// cloneSubscribers returns a deep copy.
func cloneSubscribers(list []subscriberConfig) []subscriberConfig {
	list = slices.Clone(list)
	for i := range list {
		list[i].Events = slices.Clone(list[i].Events)
	}
	return list
}

// redactSubscribers returns a copy without secrets.
func redactSubscribers(list []subscriberConfig) []subscriberConfig {
	list = cloneSubscribers(list)
	for i := range list {
		list[i].Secret, list[i].URL = redactedText, redactURL(list[i].URL)
	}
	return list
}

// subscribersLiteral returns a list of subscribers as TOML.
func subscribersLiteral(list []subscriberConfig) string {
	items := make([]string, len(list))
	for i, s := range list {
		items[i] = fmt.Sprintf("{name = %s, url = %s, events = %s, secret = %s, max_attempts = %d, timeout_seconds = %d}",
			quoteTOML(s.Name), quoteTOML(s.URL), tomlLiteral(s.Events), quoteTOML(s.Secret), s.MaxAttempts, s.TimeoutSeconds)
	}
	return "[" + strings.Join(items, ", ") + "]"
}
