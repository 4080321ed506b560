package main

// The command line of authentication: "stepwell auth …".

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

const (
	defaultIssuer      = "stepwell"
	defaultAudience    = "stepwell-api"
	defaultLeeway      = 60 * time.Second
	defaultExpiryHours = 24
	maxExpiryHours     = 10 * 366 * 24

	privateKeyName = "jwt-private-key.pem"
	publicKeyName  = "jwt-public-key.pem"
	keysDir        = "keys" // where generate-keys writes and the others look
)

const authUsage = `usage: stepwell auth <command> [flags]

  generate-keys      make an RSA key pair for tokens
  generate-token     make a token
  validate-token     show what a token says, or why it is refused
  show-permissions   list the permissions, the routes that ask for them and the roles

"stepwell auth <command> --help" lists the flags of a command.
`

// authCLI is what the auth commands work with.
type authCLI struct {
	getenv         func(string) string
	now            func() instant
	stdout, stderr io.Writer
}

// authCommand runs "stepwell auth args…". A *usageError means that the command
// line was wrong, any other error that the command failed.
func authCommand(
	args []string, getenv func(string) string, now func() instant, stdout, stderr io.Writer,
) error {
	c := &authCLI{getenv, now, stdout, stderr}
	verb := ""
	if len(args) > 0 {
		verb, args = args[0], args[1:]
	}
	switch verb {
	case "generate-keys":
		return c.generateKeys(args)
	case "generate-token":
		return c.generateToken(args)
	case "validate-token":
		return c.validateToken(args)
	case "show-permissions":
		return c.showPermissions(args)
	case "help", "-h", "-help", "--help":
		_, err := io.WriteString(stdout, authUsage)
		return err
	case "":
		return &usageError{"auth: a command is missing\n" + authUsage}
	}
	return &usageError{fmt.Sprintf("auth: unknown command %q\n%s", verb, authUsage)}
}

// authSettings is the environment, and behind it the configuration files, so that
// tokens fit the service that reads the same files. They are read when a key is
// asked for that the environment does not set.
func (p *process) authSettings() func(name string) string {
	configured := sync.OnceValue(func() *Config {
		c, _, err := loadConfig(configArgs{}, p.getenv, p.environ, os.ReadFile)
		if err != nil {
			fmt.Fprintf(p.stderr, "warning: only the environment counts: %v\n", err)
		}
		return c
	})
	return func(name string) string {
		i := slices.IndexFunc(configKeys, func(k configKey) bool { return k.envName() == name })
		if v := p.getenv(name); v != "" || i < 0 || configured() == nil {
			return v
		}
		return fmt.Sprint(configKeys[i].get(configured()))
	}
}

// authFlags are the flags of one command.
type authFlags struct {
	*flag.FlagSet
	output string // -o
}

func newAuthFlags(command string) *authFlags {
	f := &authFlags{FlagSet: flag.NewFlagSet("auth "+command, flag.ContinueOnError)}
	f.SetOutput(io.Discard)
	f.StringVar(&f.output, "o", "table", "output: `table or json`")
	return f
}

// read parses args. done means that they asked for help, which was given.
func (f *authFlags) read(args []string, stdout io.Writer) (done bool, err error) {
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(stdout, "usage: stepwell %s [flags]\n\n", f.Name())
		f.SetOutput(stdout)
		f.PrintDefaults()
		return true, nil
	case err != nil:
		return false, f.misuse("%v", err)
	case f.NArg() > 0:
		return false, f.misuse("there are %d arguments too many", f.NArg())
	case f.output != "table" && f.output != "json":
		return false, f.misuse("-o takes table or json")
	}
	return false, nil
}

func (f *authFlags) misuse(format string, args ...any) error {
	return &usageError{f.Name() + ": " + fmt.Sprintf(format, args...)}
}

// print writes a result: as JSON, or as what table writes, columns aligned.
func (c *authCLI) print(f *authFlags, result any, table func(w io.Writer)) error {
	if f.output == "json" {
		e := json.NewEncoder(c.stdout)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(result)
	}
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	table(w)
	return w.Flush()
}

func (c *authCLI) generateKeys(args []string) error {
	f := newAuthFlags("generate-keys")
	dir := f.String("output-dir", keysDir, "the `directory` to write to; made when missing")
	bits := f.Int("key-size", minRSABits, "`bits` of the RSA key, 2048 to 8192")
	force := f.Bool("force", false, "replace keys that exist")
	if done, err := f.read(args, c.stdout); done || err != nil {
		return err
	}
	if *bits < minRSABits || *bits > maxRSABits || *bits%8 != 0 {
		return f.misuse("--key-size must be %d to %d, a multiple of 8", minRSABits, maxRSABits)
	}
	private, public := filepath.Join(*dir, privateKeyName), filepath.Join(*dir, publicKeyName)
	if err := writeNewKeys(private, public, *bits, *force); err != nil {
		return fmt.Errorf("auth generate-keys: %w", err)
	}
	result := map[string]string{"private_key": private, "public_key": public}
	return c.print(f, result, func(w io.Writer) {
		fmt.Fprintf(w, "private key\t%s\tkeep it secret: who has it can make any token\n", private)
		fmt.Fprintf(w, "public key\t%s\tgive it to the service as jwt_public_key_path\n", public)
	})
}

// writeNewKeys makes a pair and writes both files or none.
func writeNewKeys(private, public string, bits int, force bool) error {
	for _, path := range []string{private, public} {
		// Asked beforehand so that nobody waits for a key that cannot be kept.
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
	if errors.Is(err, fs.ErrExist) {
		return keyExistsError(filepath.Dir(private))
	}
	return err
}

func keyExistsError(path string) error {
	return fmt.Errorf("%s holds a key already; --force replaces it, and tokens of the old key end", path)
}

func (c *authCLI) showPermissions(args []string) error {
	f := newAuthFlags("show-permissions")
	if done, err := f.read(args, c.stdout); done || err != nil {
		return err
	}
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
	for p, routes := range askedBy() {
		name, resource := permission(p).String(), permission(p).resource()
		result.Permissions = append(result.Permissions, shown{name, resource, append([]string{}, routes...)})
	}
	for _, r := range rolePatterns {
		result.Roles[r.name] = r.permissions
	}
	return c.print(f, result, printPermissions)
}

// printPermissions is the table of show-permissions.
func printPermissions(w io.Writer) {
	resource := ""
	asked := askedBy()
	for p := range permissionCount {
		if p.resource() != resource {
			resource = p.resource()
			fmt.Fprintf(w, "%s (all: %s:*)\n", resource, resource)
		}
		name := p.String()
		if len(asked[p]) == 0 {
			fmt.Fprintf(w, "  %s\t%s\n", name, "no route asks for it yet")
		}
		for _, route := range asked[p] {
			fmt.Fprintf(w, "  %s\t%s\n", name, route)
			name = ""
		}
	}
	fmt.Fprintln(w, "\nroles (auth generate-token --role …)")
	for _, r := range rolePatterns {
		fmt.Fprintf(w, "  %s\t%s\n", r.name, strings.Join(r.permissions, ", "))
	}
}
