package main

// Which credential a client of the service sends.

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	defaultAPIKeyHeader = "X-API-Key"

	// onDemandLife is how long a token is good that a client makes for itself: less
	// than any jwt_token_expiry_hours, which bounds it.
	onDemandLife = 15 * time.Minute
)

// clientCredential is the header to send to a role (orchestration, worker, or
// mount, which is orchestration's), by the first credential that the environment
// has; header is "" when it has none. A token made on demand is good for some
// minutes: ask again for a later request. The error names the variable at fault,
// never its value.
func clientCredential(
	role string, getenv func(string) string, now func() instant,
) (header, value string, err error) {
	if role == "mount" {
		role = "orchestration"
	}
	for _, name := range []string{"STEPWELL_" + strings.ToUpper(role) + "_AUTH_TOKEN", "STEPWELL_AUTH_TOKEN"} {
		if token := strings.TrimSpace(getenv(name)); token != "" {
			return credentialHeader(name, "Authorization", "Bearer "+token)
		}
	}
	if key := strings.TrimSpace(getenv("STEPWELL_API_KEY")); key != "" {
		header := cmp.Or(getenv("STEPWELL_API_KEY_HEADER"), defaultAPIKeyHeader)
		if !isCredentialHeader(header) {
			return "", "", errors.New("STEPWELL_API_KEY_HEADER is no name of a header for keys")
		}
		return credentialHeader("STEPWELL_API_KEY", header, key)
	}
	if path := getenv("STEPWELL_JWT_PRIVATE_KEY_PATH"); path != "" {
		token, err := onDemandToken(path, role, getenv, now())
		if err != nil {
			return "", "", fmt.Errorf("STEPWELL_JWT_PRIVATE_KEY_PATH: %w", err)
		}
		return "Authorization", "Bearer " + token, nil
	}
	return "", "", nil
}

func credentialHeader(variable, header, value string) (string, string, error) {
	if !isHeaderText(value) {
		return "", "", fmt.Errorf("%s holds characters that no header can carry", variable)
	}
	return header, value, nil
}

// onDemandToken makes a token that may do everything: who has the key may.
func onDemandToken(path, role string, getenv func(string) string, now instant) (string, error) {
	key, err := readPrivateKey(path)
	if err != nil {
		return "", err
	}
	return signToken(tokenSpec{
		subject:     "stepwell-client",
		issuer:      authSetting(getenv, role, "jwt_issuer", defaultIssuer),
		audience:    authSetting(getenv, role, "jwt_audience", defaultAudience),
		permissions: allWildcards(),
		issued:      now,
		life:        onDemandLife,
	}, key)
}
