package main

// The command auth: making keys, key sets and tokens, validating tokens, and showing permissions.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

func authCommands() command {
	return command{name: "auth", help: "make keys and tokens; show permissions", commands: []command{
		{
			name: "generate-keys", help: "make an RSA key pair for tokens",
			examples: []string{"auth generate-keys", "auth generate-keys --output-dir /etc/stepwell/keys --key-size 4096"},
			define:   generateKeys,
		},
		{
			name: "jwks", operands: "FILE…", help: "print the key set of public keys, for jwks_url",
			more:     "The kid of a key is its thumbprint (RFC 7638), which generate-token writes into the tokens of that key.",
			examples: []string{"auth jwks keys/jwt-public-key.pem > jwks.json", "auth jwks keys/jwt-public-key.pem next/jwt-public-key.pem > jwks.json"},
			define:   printKeySet,
		},
		{
			name: "generate-token", help: "make a token",
			examples: []string{"auth generate-token --role task-submitter", "auth generate-token --permissions 'tasks:*,steps:read'"},
			define:   generateToken,
		},
		{
			name: "validate-token", help: "show the contents of a token, or why it is refused",
			examples: []string{"auth validate-token", "auth validate-token --token $TOKEN --public-key keys/jwt-public-key.pem"},
			define:   validateToken,
		},
		{
			name: "show-permissions", help: "list the permissions, the routes that require them, and sets of permissions",
			examples: []string{"auth show-permissions", "auth show-permissions -o json"}, define: showPermissions,
		},
	}}
}

// authSettings looks up a variable of the environment, or else of the configuration files that are named, so that tokens
// fit the service that reads the same files.
type authSettings func(name string) string

// authSettings reads the files. What they say about anything else is not checked.
func (p *process) authSettings(args configArgs) (authSettings, error) {
	l := newConfigLoader(readConfigFile)
	l.loadFiles(args, p.getenv)
	return func(name string) string {
		i := slices.IndexFunc(configKeys, func(k configKey) bool { return k.envName() == name })
		if v := p.getenv(name); v != "" || i < 0 {
			return v
		}
		return fmt.Sprint(configKeys[i].get(l.config))
	}, configError(l.problems)
}

// orSetting sets the value of a flag that is not given.
func (o *options) orSetting(name string, value *string, setting string) {
	if !o.has(name) {
		*value = setting
	}
}

func generateKeys(o *options) runner {
	o.withOutput()
	dir := o.String("output-dir", keysDir, "`DIR`: write to this directory, which is created if missing")
	bits := o.Int("key-size", minRSABits, "`BITS`: set the size of the RSA key, 2048 to 8192")
	force := o.Bool("force", false, "replace existing keys")
	return func(context.Context, []string) error {
		if *bits < minRSABits || *bits > maxRSABits || *bits%8 != 0 {
			return o.misuse("--key-size must be %d to %d, a multiple of 8", minRSABits, maxRSABits)
		}
		private, public := filepath.Join(*dir, privateKeyName), filepath.Join(*dir, publicKeyName)
		if err := writeNewKeys(private, public, *bits, *force); err != nil {
			return fmt.Errorf("auth generate-keys: %w", err)
		}
		result := map[string]string{"private_key": private, "public_key": public}
		return o.print(output{result, member("private_key"), func(t *table) {
			t.row("private key", printable(private), "keep it secret: anyone who has it can make tokens")
			t.row("public key", printable(public), "give it to the service as jwt_public_key_path")
		}})
	}
}

// writeNewKeys makes a pair and writes both files or neither.
func writeNewKeys(private, public string, bits int, force bool) error {
	for _, path := range []string{private, public} {
		// Before the key is made, which takes a while.
		if _, err := os.Lstat(path); err == nil && !force {
			return keyExistsError(path)
		}
	}
	privatePEM, publicPEM, err := newKeyPair(bits)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(private), 0o700); err != nil {
		return fmt.Errorf("making the directory: %w", err)
	}
	err = installKeyFiles([]keyFile{{private, privatePEM, 0o600}, {public, publicPEM, 0o644}}, force)
	// Somebody else made keys while this pair was generated.
	if errors.Is(err, fs.ErrExist) {
		return keyExistsError(filepath.Dir(private))
	}
	return err
}

func keyExistsError(path string) error {
	return fmt.Errorf("%s already contains a key; --force replaces it and invalidates its tokens", path)
}

func showPermissions(o *options) runner {
	o.withOutput()
	type shown struct {
		Permission string   `json:"permission"`
		Resource   string   `json:"resource"`
		Routes     []string `json:"routes"`
	}
	result := struct {
		Permissions []shown             `json:"permissions"`
		Wildcards   []string            `json:"wildcards"`
		Roles       map[string][]string `json:"roles"`
	}{Wildcards: allWildcards(), Roles: map[string][]string{}}
	var names []string
	for p, routes := range askedBy() {
		name, resource := permission(p).String(), permission(p).resource()
		names = append(names, name)
		result.Permissions = append(result.Permissions, shown{name, resource, append([]string{}, routes...)})
	}
	for _, r := range rolePatterns {
		result.Roles[r.name] = r.permissions
	}
	name := func(document) string { return strings.Join(names, "\n") }
	return func(context.Context, []string) error { return o.print(output{result, name, printPermissions}) }
}

func printPermissions(t *table) {
	resource := ""
	asked := askedBy()
	for p := range permissionCount {
		if p.resource() != resource {
			resource = p.resource()
			t.row(fmt.Sprintf("%s (all: %s:*)", resource, resource))
		}
		name := "  " + p.String()
		if len(asked[p]) == 0 {
			t.row(name, "no route requires it yet")
		}
		for _, route := range asked[p] {
			t.row(name, route)
			name = ""
		}
	}
	t.line("\npermission sets (auth generate-token --role …)")
	for _, r := range rolePatterns {
		t.row("  "+r.name, strings.Join(r.permissions, ", "))
	}
}

func generateToken(o *options) runner {
	o.withOutput()
	var args configArgs
	configFileFlag(o, &args)
	permissions := o.String("permissions", "", "`PERMISSIONS`: grant these permissions, separated by commas")
	roles := o.String("role", "", "`SETS`: grant the permissions in these sets, separated by commas: "+strings.Join(roleNames(), ", "))
	subject := o.String("subject", "stepwell-cli", "`SUBJECT`: set the subject of the token")
	keyPath := o.String("private-key", "",
		"`FILE`: read the private key from this file; by default $STEPWELL_JWT_PRIVATE_KEY_PATH, or keys/"+privateKeyName)
	hours := o.Int("expiry-hours", 0, "`HOURS`: set how long the token is valid; by default as configured, or 24")
	issuer := o.String("issuer", "", "`ISSUER`: set the issuer that the service expects; by default as configured")
	audience := o.String("audience", "", "`AUDIENCE`: set the audience that the service expects; by default as configured")
	allowUnknown := o.Bool("allow-unknown", false, "allow permissions that this service does not know")
	return func(context.Context, []string) error {
		list, err := namedPermissions(o, *permissions, *roles, *allowUnknown)
		if err != nil {
			return err
		}
		settings, err := o.p.authSettings(args)
		if err != nil {
			return o.named(err)
		}
		o.orSetting("private-key", keyPath, settings.keyPath("STEPWELL_JWT_PRIVATE_KEY_PATH", privateKeyName))
		o.orSetting("issuer", issuer, settings.setting("jwt_issuer", defaultIssuer))
		o.orSetting("audience", audience, settings.setting("jwt_audience", defaultAudience))
		if !o.has("expiry-hours") {
			configured, err := strconv.Atoi(settings.setting("jwt_token_expiry_hours", ""))
			*hours = pick(err == nil, configured, defaultExpiryHours)
		}
		switch {
		case *hours < 1 || *hours > maxExpiryHours:
			return o.misuse("--expiry-hours must be 1 to %d", maxExpiryHours)
		case *issuer == "" || *audience == "" || *subject == "":
			return o.misuse("--issuer, --audience and --subject must not be empty")
		case *hours > 24:
			fmt.Fprintln(o.p.stderr, "warning: a token for more than 24 hours can be revoked only by replacing the key")
		}
		life := time.Duration(*hours) * time.Hour
		return printNewToken(o, *keyPath, tokenSpec{*subject, *issuer, *audience, list, o.p.now(), life})
	}
}

func printKeySet(o *options) runner {
	return func(_ context.Context, files []string) error {
		keys := make([]map[string]string, len(files))
		for i, file := range files {
			key, err := readPublicKey(file)
			if err != nil {
				return o.named(err)
			}
			members, kid, err := keyID(key.public)
			if err != nil {
				return o.named(err)
			}
			members["kid"], members["use"] = kid, "sig"
			keys[i] = members
		}
		return o.p.printJSON(map[string]any{"keys": keys})
	}
}

// namedPermissions returns the permissions that the flags name, in order, without repeats.
func namedPermissions(o *options, permissions, roles string, allowUnknown bool) ([]string, error) {
	var named, list []string
	for _, name := range splitList(roles) {
		i := slices.Index(roleNames(), name)
		if i < 0 {
			return nil, o.misuse("unknown permission set %q; want one of %s", name, strings.Join(roleNames(), ", "))
		}
		named = append(named, rolePatterns[i].permissions...)
	}
	for _, p := range append(named, splitList(permissions)...) {
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return nil, o.misuse("give --permissions or --role")
	}
	_, unknown := parsePermissions(list)
	names := strings.Join(unknown, ", ")
	switch {
	case len(unknown) > 0 && !allowUnknown:
		return nil, o.misuse("unknown permissions: %s (see auth show-permissions, or --allow-unknown)", names)
	case len(unknown) > 0:
		fmt.Fprintf(o.p.stderr, "warning: unknown permissions: %s; strict validation refuses the token\n", names)
	}
	return list, nil
}

func printNewToken(o *options, keyPath string, spec tokenSpec) error {
	var token string
	key, err := readPrivateKey(keyPath)
	if err == nil {
		token, err = signToken(spec, key)
	}
	if err != nil {
		return fmt.Errorf("auth generate-token: %w", err)
	}
	result := struct {
		Token       string   `json:"token"`
		Subject     string   `json:"subject"`
		ExpiresAt   string   `json:"expires_at"`
		Permissions []string `json:"permissions"`
	}{token, spec.subject, spec.issued.add(spec.life).zoned(), spec.permissions}
	return o.print(output{result, member("token"), func(t *table) { t.row(token) }})
}

func validateToken(o *options) runner {
	o.withOutput()
	var args configArgs
	configFileFlag(o, &args)
	token := o.String("token", "", "`TOKEN`: check this token; by default $STEPWELL_AUTH_TOKEN")
	keyPath := o.String("public-key", "", "`FILE`: read the public key from this file; by default as configured, or keys/"+publicKeyName)
	issuer := o.String("issuer", "", "`ISSUER`: expect this issuer; by default as configured")
	audience := o.String("audience", "", "`AUDIENCE`: expect this audience; by default as configured")
	claim := o.String("permissions-claim", "permissions", "`CLAIM`: read the permissions from this claim")
	allowUnknown := o.Bool("allow-unknown", false, "accept permissions that this service does not know")
	return func(context.Context, []string) error {
		settings, err := o.p.authSettings(args)
		if err != nil {
			return o.named(err)
		}
		o.orSetting("public-key", keyPath, settings.keyPath("STEPWELL_JWT_PUBLIC_KEY_PATH", publicKeyName))
		o.orSetting("issuer", issuer, settings.setting("jwt_issuer", defaultIssuer))
		o.orSetting("audience", audience, settings.setting("jwt_audience", defaultAudience))
		if *token == "" {
			*token = o.p.getenv("STEPWELL_AUTH_TOKEN")
		}
		if *token == "" || *issuer == "" || *audience == "" {
			return o.misuse("give --token; --issuer and --audience must not be empty")
		}
		rules := &authConfig{JWTIssuer: *issuer, JWTAudience: *audience, JWTLeewaySeconds: defaultLeeway, PermissionsClaim: *claim}
		claims, err := verifiedClaims(*keyPath, strings.TrimSpace(*token), rules, o.p.now())
		if err != nil {
			return fmt.Errorf("auth validate-token: %w", err)
		}
		_, unknown := parsePermissions(claims.permissions)
		if len(unknown) > 0 && !*allowUnknown {
			return fmt.Errorf("auth validate-token: unknown permissions: %s; strict validation refuses the token",
				printable(strings.Join(unknown, ", ")))
		}
		return printClaims(o, claims)
	}
}

// verifiedClaims verifies a token by the key in a file, with any algorithm of the key's family.
func verifiedClaims(keyPath, token string, rules *authConfig, now instant) (*tokenClaims, error) {
	key, err := readPublicKey(keyPath)
	if err != nil {
		return nil, err
	}
	rules.JWTAllowedAlgorithms = key.algorithms
	claims, f := (&tokenVerifier{rules, key}).verify(context.Background(), token, now)
	if f != nil {
		return nil, fmt.Errorf("the token is refused (%s): %s", f.refusal.reason, f.refusal.detail)
	}
	return claims, nil
}

func printClaims(o *options, claims *tokenClaims) error {
	result := struct {
		Valid       bool      `json:"valid"`
		Subject     string    `json:"subject"`
		Issuer      string    `json:"issuer"`
		Audience    []string  `json:"audience"`
		IssuedAt    zonedTime `json:"issued_at,omitzero"`
		NotBefore   zonedTime `json:"not_before,omitzero"`
		ExpiresAt   zonedTime `json:"expires_at"`
		Permissions []string  `json:"permissions"`
	}{
		true, claims.subject, claims.issuer, claims.audience,
		zonedTime(claims.issuedAt), zonedTime(claims.notBefore), zonedTime(claims.expiry), claims.permissions,
	}
	return o.print(output{result, member("subject"), func(t *table) {
		text, _ := json.Marshal(result) // which cannot fail
		t.fields(document{text}, []column{
			of("subject", "subject"), of("issuer", "issuer"), listColumn("audience", "audience"),
			of("issued at", "issued_at"), of("not before", "not_before"), of("expires at", "expires_at"),
			listColumn("permissions", "permissions"),
		})
	}})
}

// setting returns a key of the orchestration role's authentication.
func (s authSettings) setting(key, fallback string) string {
	return authSetting(s, "orchestration", key, fallback)
}

// keyPath returns the default file of a key.
func (s authSettings) keyPath(variable, name string) string {
	return cmp.Or(s(variable), filepath.Join(keysDir, name))
}

func roleNames() []string {
	names := make([]string, len(rolePatterns))
	for i, r := range rolePatterns {
		names[i] = r.name
	}
	return names
}
