package main

// The commands about tokens: "stepwell auth generate-token" and "validate-token".

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (c *authCLI) generateToken(args []string) error {
	f := newAuthFlags("generate-token")
	permissions := f.String("permissions", "", "the `permissions`, with commas between")
	roles := f.String("role", "", "role `patterns`, with commas between: "+strings.Join(roleNames(), ", "))
	subject := f.String("subject", "stepwell-cli", "who the token is for")
	keyPath := f.String("private-key", c.keyPath("STEPWELL_JWT_PRIVATE_KEY_PATH", privateKeyName),
		"the private key's `file`")
	hours := f.Int("expiry-hours", c.defaultHours(), "`hours` that the token is valid")
	issuer := f.String("issuer", c.setting("jwt_issuer", defaultIssuer), "the issuer that the service expects")
	audience := f.String("audience", c.setting("jwt_audience", defaultAudience), "the audience that the service expects")
	allowUnknown := f.Bool("allow-unknown", false, "put in permissions that this service does not know")
	if done, err := f.read(args, c.stdout); done || err != nil {
		return err
	}
	list, err := c.tokenPermissions(f, *permissions, *roles, *allowUnknown)
	if err != nil {
		return err
	}
	switch {
	case *hours < 1 || *hours > maxExpiryHours:
		return f.misuse("--expiry-hours must be 1 to %d", maxExpiryHours)
	case *issuer == "" || *audience == "" || *subject == "":
		return f.misuse("--issuer, --audience and --subject must not be empty")
	case *hours > 24:
		fmt.Fprintln(c.stderr, "warning: a token of more than 24 hours cannot be taken back but by a new key")
	}
	life := time.Duration(*hours) * time.Hour
	return c.printNewToken(f, *keyPath, tokenSpec{*subject, *issuer, *audience, list, c.now(), life})
}

// tokenPermissions is what the flags ask for, each string once, in order.
func (c *authCLI) tokenPermissions(f *authFlags, permissions, roles string, allowUnknown bool) ([]string, error) {
	var list []string
	for _, name := range authList(roles) {
		role, ok := rolePermissions(name)
		if !ok {
			return nil, f.misuse("unknown role %q; want one of %s", name, strings.Join(roleNames(), ", "))
		}
		list = append(list, role...)
	}
	list = append(list, authList(permissions)...)
	if len(list) == 0 {
		return nil, f.misuse("--permissions or --role is needed")
	}
	_, unknown := parsePermissions(list)
	if len(unknown) > 0 && !allowUnknown {
		return nil, f.misuse("unknown permissions: %s (see auth show-permissions, or --allow-unknown)",
			strings.Join(unknown, ", "))
	}
	if len(unknown) > 0 {
		fmt.Fprintf(c.stderr, "warning: unknown permissions: %s; strict validation refuses the token\n",
			strings.Join(unknown, ", "))
	}
	return authOnce(list), nil
}

func (c *authCLI) printNewToken(f *authFlags, keyPath string, spec tokenSpec) error {
	key, err := readPrivateKey(keyPath)
	if err != nil {
		return fmt.Errorf("auth generate-token: %w", err)
	}
	token, err := signToken(spec, key)
	if err != nil {
		return fmt.Errorf("auth generate-token: %w", err)
	}
	result := struct {
		Token       string   `json:"token"`
		Subject     string   `json:"subject"`
		ExpiresAt   string   `json:"expires_at"`
		Permissions []string `json:"permissions"`
	}{token, spec.subject, spec.issued.add(spec.life).zoned(), spec.permissions}
	return c.print(f, result, func(w io.Writer) { fmt.Fprintln(w, token) })
}

func (c *authCLI) validateToken(args []string) error {
	f := newAuthFlags("validate-token")
	token := f.String("token", "", "the `token`; without it STEPWELL_AUTH_TOKEN is read")
	keyPath := f.String("public-key", c.keyPath("STEPWELL_JWT_PUBLIC_KEY_PATH", publicKeyName),
		"the public key's `file`")
	issuer := f.String("issuer", c.setting("jwt_issuer", defaultIssuer), "the issuer to expect")
	audience := f.String("audience", c.setting("jwt_audience", defaultAudience), "the audience to expect")
	claim := f.String("permissions-claim", "permissions", "the `claim` with the permissions")
	allowUnknown := f.Bool("allow-unknown", false, "do not mind unknown permissions")
	if done, err := f.read(args, c.stdout); done || err != nil {
		return err
	}
	if *token == "" {
		*token = c.getenv("STEPWELL_AUTH_TOKEN")
	}
	if *token == "" || *issuer == "" || *audience == "" {
		return f.misuse("--token is needed; --issuer and --audience must not be empty")
	}
	rules := tokenRules{issuer: *issuer, audience: *audience, leeway: defaultLeeway, permissionsClaim: *claim}
	claims, err := c.verifiedClaims(*keyPath, strings.TrimSpace(*token), rules)
	if err != nil {
		return fmt.Errorf("auth validate-token: %w", err)
	}
	_, unknown := parsePermissions(claims.permissions)
	if len(unknown) > 0 && !*allowUnknown {
		return fmt.Errorf("auth validate-token: unknown permissions: %s; strict validation refuses the token",
			strings.Join(authPrintables(unknown), ", "))
	}
	return c.printClaims(f, claims)
}

// verifiedClaims verifies a token by the key in a file, with any algorithm of
// the key's family.
func (c *authCLI) verifiedClaims(keyPath, token string, rules tokenRules) (*tokenClaims, error) {
	public, err := readPublicKey(keyPath)
	if err != nil {
		return nil, err
	}
	key, err := newStaticKey(public)
	if err != nil {
		return nil, err
	}
	rules.algorithms = key.algorithms
	claims, err := (&tokenVerifier{rules, key}).verify(context.Background(), token, c.now())
	if refused, ok := errors.AsType[*tokenError](err); ok {
		return nil, fmt.Errorf("the token is refused (%s): %w", refused.reason, err)
	}
	return claims, err
}

func (c *authCLI) printClaims(f *authFlags, claims *tokenClaims) error {
	at := func(i instant) string {
		if i == 0 {
			return ""
		}
		return i.zoned()
	}
	result := struct {
		Valid       bool     `json:"valid"`
		Subject     string   `json:"subject"`
		Issuer      string   `json:"issuer"`
		Audience    []string `json:"audience"`
		IssuedAt    string   `json:"issued_at,omitempty"`
		NotBefore   string   `json:"not_before,omitempty"`
		ExpiresAt   string   `json:"expires_at"`
		Permissions []string `json:"permissions"`
	}{
		true, claims.subject, claims.issuer, claims.audience,
		at(claims.issuedAt), at(claims.notBefore), at(claims.expiry), claims.permissions,
	}
	return c.print(f, result, func(w io.Writer) {
		for _, row := range [][2]string{
			{"subject", authPrintable(claims.subject)},
			{"issuer", authPrintable(claims.issuer)},
			{"audience", strings.Join(authPrintables(claims.audience), ", ")},
			{"issued at", result.IssuedAt},
			{"not before", result.NotBefore},
			{"expires at", result.ExpiresAt},
			{"permissions", strings.Join(authPrintables(claims.permissions), ", ")},
		} {
			if row[1] != "" {
				fmt.Fprintf(w, "%s\t%s\n", row[0], row[1])
			}
		}
	})
}

// setting is a key of the orchestration role's authentication, as the
// environment sets it.
func (c *authCLI) setting(key, fallback string) string {
	return authSetting(c.getenv, "orchestration", key, fallback)
}

// defaultHours is the configured validity of tokens.
func (c *authCLI) defaultHours() int {
	if n, err := strconv.Atoi(c.setting("jwt_token_expiry_hours", "")); err == nil {
		return n
	}
	return defaultExpiryHours
}

// authSetting is a key of a role's authentication as the environment sets it,
// for those who work without a configuration.
func authSetting(getenv func(string) string, role, key, fallback string) string {
	name := "STEPWELL_" + strings.ToUpper(role) + "__WEB__AUTH__" + strings.ToUpper(key)
	if v := getenv(name); v != "" {
		return v
	}
	return fallback
}

// keyPath is where a key is looked for without a flag.
func (c *authCLI) keyPath(variable, name string) string {
	if path := c.getenv(variable); path != "" {
		return path
	}
	return filepath.Join(keysDir, name)
}

func roleNames() []string {
	names := make([]string, len(rolePatterns))
	for i, r := range rolePatterns {
		names[i] = r.name
	}
	return names
}

// authList splits at commas; blanks around and empty places do not count.
func authList(s string) []string {
	var list []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

// authOnce drops repetitions.
func authOnce(list []string) []string {
	var once []string
	for _, s := range list {
		if !slices.Contains(once, s) {
			once = append(once, s)
		}
	}
	return once
}

// authPrintable quotes what would confuse a terminal or a reader.
func authPrintable(s string) string {
	if q := strconv.Quote(s); q != `"`+s+`"` {
		return q
	}
	return s
}

func authPrintables(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = authPrintable(s)
	}
	return out
}
