package main

// Profiles: services with a name, their addresses and credentials. They are read from the files of the distributed
// service's client (https://github.com/tasker-systems/tasker-core, docs of its client profiles), so that both programs
// know the same services.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// profile is a service in a file, as far as HTTP needs it.
type profile struct {
	Transport     string          `toml:"transport" json:"transport,omitempty"`
	Description   string          `toml:"description" json:"description,omitempty"`
	Orchestration profileEndpoint `toml:"orchestration" json:"orchestration"`
	Worker        profileEndpoint `toml:"worker" json:"worker"`
}

// profileEndpoint is a role of the service.
type profileEndpoint struct {
	URL     string       `toml:"base_url" json:"base_url"`
	Timeout int64        `toml:"timeout_ms" json:"timeout_ms,omitempty"` // of a request that does not wait; 0 for none
	Auth    *profileAuth `toml:"auth" json:"-"`
}

// profileAuth is a credential: BearerToken with a text, or ApiKey with a table.
type profileAuth struct {
	Method struct {
		Type  string `toml:"type"`
		Value any    `toml:"value"`
	} `toml:"method"`
}

// header returns the header that carries the credential.
func (a *profileAuth) header() (name, value string, err error) {
	switch v := a.Method.Value.(type) {
	case string:
		if a.Method.Type == "BearerToken" {
			return credentialHeader("BearerToken", "Authorization", "Bearer "+v)
		}
	case map[string]any:
		key, ok := v["key"].(string)
		if header, given := v["header_name"].(string); ok && a.Method.Type == "ApiKey" {
			header = pick(given, header, defaultAPIKeyHeader)
			if !isCredentialHeader(header) {
				return "", "", fmt.Errorf("%q cannot be the name of a header for API keys", header)
			}
			return credentialHeader("ApiKey", header, key)
		}
	}
	return "", "", errors.New(`auth.method must be {type = "BearerToken", value = TOKEN} or {type = "ApiKey", value = {key = KEY}}`)
}

// profileFiles returns the paths of the files that may have profiles. Tasker's client looks for them in this order, and
// reads the first one that exists.
func (p *process) profileFiles() []string {
	home, settings := p.getenv("HOME"), p.getenv("XDG_CONFIG_HOME")
	switch {
	case runtime.GOOS == "windows":
		home, settings = p.getenv("USERPROFILE"), p.getenv("APPDATA")
	case runtime.GOOS == "darwin" && home != "":
		settings = filepath.Join(home, "Library", "Application Support")
	case !filepath.IsAbs(settings) && home != "":
		settings = filepath.Join(home, ".config")
	}
	files := []string{".config/tasker.toml", ".config/tasker-client.toml", "tasker-client.toml"}
	if settings != "" {
		files = append(files, filepath.Join(settings, "tasker", "client.toml"))
	}
	if home != "" {
		files = append(files, filepath.Join(home, ".tasker", "client.toml"))
	}
	return files
}

// profiles holds the profiles of a file.
type profiles struct {
	file string // "" for none
	all  map[string]toml.Primitive
	meta toml.MetaData
}

// readProfiles reads the first file of profiles that exists, and warns if other users can read secrets in it.
func (p *process) readProfiles() (*profiles, error) {
	for _, name := range p.profileFiles() {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("profiles: %w", err)
		}
		v := &profiles{file: name}
		var content struct {
			Profile map[string]toml.Primitive `toml:"profile"`
		}
		if v.meta, err = toml.Decode(string(text), &content); err != nil {
			return nil, fmt.Errorf("profiles: %s: %s", name, tomlSyntaxProblem(err))
		}
		v.all = content.Profile
		secret := slices.ContainsFunc(v.meta.Keys(), func(k toml.Key) bool { return slices.Contains(k, "auth") })
		if secret && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
			fmt.Fprintf(p.stderr, "warning: %s has credentials, and others can read it: chmod 600 %[1]s\n", name)
		}
		return v, nil
	}
	return &profiles{}, nil
}

// names returns the names of the profiles, sorted.
func (v *profiles) names() []string { return slices.Sorted(maps.Keys(v.all)) }

// get returns a profile, with the settings of the profile default for what it leaves out.
func (v *profiles) get(name string) (*profile, error) {
	r := &profile{Transport: "rest",
		Orchestration: profileEndpoint{URL: "http://localhost:8080"}, Worker: profileEndpoint{URL: "http://localhost:8081"}}
	if _, ok := v.all[name]; !ok && name != "default" {
		where := pick(v.file == "", ": no file of profiles exists, such as .config/tasker.toml", " in "+v.file+suggestion(name, printables(v.names())))
		return nil, exitf(exitNotFound, "no profile %q%s", name, where)
	}
	for _, layer := range []string{"default", name} {
		auth := [2]*profileAuth{r.Orchestration.Auth, r.Worker.Auth}
		r.Orchestration.Auth, r.Worker.Auth = nil, nil // a credential is not mixed from two
		if given, ok := v.all[layer]; ok {
			if err := v.meta.PrimitiveDecode(given, r); err != nil {
				return nil, fmt.Errorf("profile %s of %s: %w", layer, v.file, err)
			}
		}
		if r.Orchestration.Auth == nil {
			r.Orchestration.Auth = auth[0]
		}
		if r.Worker.Auth == nil {
			r.Worker.Auth = auth[1]
		}
	}
	return r, nil
}

// profileClient returns the client of the service of a profile.
func (p *process) profileClient(name string) (*client, error) {
	v, err := p.readProfiles()
	if err != nil {
		return nil, err
	}
	r, err := v.get(name)
	if err != nil {
		return nil, err
	}
	if t := strings.ToLower(r.Transport); t != "rest" && t != "http" {
		return nil, exitf(exitFailed, "profile %s of %s has the transport %s: only rest is supported", name, v.file, r.Transport)
	}
	c, err := p.clientOf(r.Orchestration.URL, "")
	if err != nil {
		return nil, fmt.Errorf("profile %s of %s: %w", name, v.file, err)
	}
	c.patience = time.Duration(r.Orchestration.Timeout) * time.Millisecond
	if r.Orchestration.Auth != nil {
		header, value, err := r.Orchestration.Auth.header()
		if err != nil {
			return nil, fmt.Errorf("profile %s of %s: %w", name, v.file, err)
		}
		c.sent = map[string][]string{header: {value}}
	}
	return c, nil
}

func profileCommands() command {
	return command{name: "profile", help: "show the profiles that --profile can select", commands: []command{
		{
			name: "list", help: "list the profiles, and the file that has them",
			examples: []string{"profile list", "profile list -o name"},
			define: func(o *options) runner {
				o.withOutput()
				return func(context.Context, []string) error { return o.named(o.listProfiles()) }
			},
		},
		{
			name: "show", operands: "[NAME]", help: "show the address of a service, and which credential commands send to it, without secrets",
			more:     "Without NAME, show the service that other commands would use.",
			examples: []string{"profile show", "profile show staging"},
			define: func(o *options) runner {
				o.withClient().withOutput()
				return func(_ context.Context, operands []string) error { return o.named(o.showProfile(operands)) }
			},
		},
	}}
}

func (o *options) listProfiles() error {
	v, err := o.p.readProfiles()
	if err != nil {
		return err
	}
	var items []document
	for _, name := range v.names() {
		r, err := v.get(name)
		if err != nil {
			return err
		}
		items = append(items, asDocument(map[string]string{"name": name, "file": v.file, "transport": r.Transport, "description": r.Description,
			"orchestration": redactURL(r.Orchestration.URL), "worker": redactURL(r.Worker.URL)}))
	}
	return o.print(listOutput(items, "name", "no profile", []column{of("PROFILE", "name"), of("TRANSPORT", "transport"),
		of("ORCHESTRATION", "orchestration"), of("WORKER", "worker"), of("FILE", "file"), of("DESCRIPTION", "description")}))
}

// showProfile shows what a profile, or without one the flags and the environment, say.
func (o *options) showProfile(operands []string) error {
	if len(operands) > 0 {
		if *o.url != "" || *o.profile != "" {
			return usagef("give only one of NAME, --url and --profile")
		}
		*o.profile = operands[0]
	}
	c, err := o.client()
	if err != nil {
		return err
	}
	header, origin := http.Header{}, pick(c.sent == nil, "the environment", "the profile")
	if err := c.authenticate(header); err != nil {
		return err
	}
	credential := "none"
	for name := range header {
		credential = name + ", from " + origin
	}
	d := asDocument(map[string]string{"url": redactURL(c.url), "from": c.from, "credential": credential})
	return o.print(output{d, member("url"), func(t *table) {
		for _, name := range []string{"url", "from", "credential"} {
			t.row(name, d.text(name))
		}
	}})
}
