package main

// Loading the configuration: defaults, files, their overlays, variables and flags.
// Each source is checked alone and then overrides the ones before it.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

const (
	configEnvPrefix   = "STEPWELL_"
	defaultConfigFile = "stepwell.toml"
	maxConfigFile     = 1 << 20
)

// configArgs are the flags that concern the configuration.
type configArgs struct {
	files []string          // --config, in order
	flags map[string]string // values of the flags of keys, by path
	quiet bool

	// here lets stepwell.toml in the working directory count if nothing names a file. That is for serve, which is
	// started where its configuration is. Whoever only passes through a directory takes no orders from it.
	here bool
}

// configSourceKind is a layer of the configuration; later ones win.
type configSourceKind uint8

const (
	fromDefault configSourceKind = iota
	fromFile
	fromEnv
	fromFlag
)

// configSource is the origin of a value.
type configSource struct {
	kind configSourceKind
	name string // of the file, the variable or the flag
	line int    // in the file, from 1; 0 if unknown
}

func (s configSource) String() string {
	switch {
	case s.kind == fromEnv:
		return "env " + s.name
	case s.kind == fromFlag:
		return "flag --" + s.name
	case s.kind == fromDefault:
		return "default"
	case s.line == 0:
		return s.name
	}
	return fmt.Sprintf("%s:%d", s.name, s.line)
}

// provenance records the source of each value of a Config.
type provenance struct {
	files    []string                // read, in order
	sources  map[string]configSource // by path of a key or table entry
	warnings []string                // about keys that were removed
}

// of returns the source of the key or table entry at a path.
func (p *provenance) of(path string) configSource { return p.sources[path] }

// loadConfig loads the configuration. The error, as configError returns it, lists every problem of every source,
// without secrets.
func loadConfig(
	args configArgs, getenv func(string) string, environ []string, readFile func(string) ([]byte, error),
) (*Config, *provenance, error) {
	l := newConfigLoader(readFile)
	l.loadFiles(args, getenv)
	l.loadVariables(getenv, environ)
	l.loadPublicKeys(getenv)
	l.loadFlags(args.flags)
	l.config.Log.Quiet = args.quiet
	l.inherit()
	// Before applyFixture, since the rules are about what somebody has set, not about what follows from fixture mode.
	l.checkTogether()
	l.applyFixture()
	l.checkAuth()
	if err := configError(l.problems); err != nil {
		return nil, nil, err
	}
	return l.config, l.origin, nil
}

// configuredAddress returns the address that the configuration here has for a role, and what says so. Nothing else of
// the configuration need be right.
func configuredAddress(role string, getenv func(string) string, environ []string) (string, configSource) {
	l := newConfigLoader(readConfigFile)
	l.loadFiles(configArgs{here: true}, getenv)
	l.loadVariables(getenv, environ)
	path := role + ".web.listen"
	return fmt.Sprint(configKeyAt(path).get(l.config)), l.origin.of(path)
}

// readConfigFile reads a configuration file. That may be a link, but must lead to a regular file: a pipe never ends,
// and neither does a device.
func readConfigFile(name string) ([]byte, error) {
	f, err := openRegular(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfigFile+1))
	if err == nil && len(text) > maxConfigFile {
		err = fmt.Errorf("it has more than %d MiB", maxConfigFile>>20)
	}
	return text, err
}

// configLoader applies one source after the other to a configuration.
type configLoader struct {
	readFile func(string) ([]byte, error)
	config   *Config
	origin   *provenance
	problems inputProblems
}

func (l *configLoader) report(source configSource, path, message string) {
	l.problems = append(l.problems, inputProblem{Source: source.String(), Field: path, Message: message})
}

func newConfigLoader(readFile func(string) ([]byte, error)) *configLoader {
	return &configLoader{readFile: readFile, config: defaultConfig(), origin: &provenance{sources: make(map[string]configSource)}}
}

// loadFiles reads the files that the command line names, or else the variable STEPWELL_CONFIG, or else, if args allow
// that, the file in the working directory, which may be missing. Then it reads their overlays.
func (l *configLoader) loadFiles(args configArgs, getenv func(string) string) {
	named := args.named(getenv)
	for _, name := range named {
		l.loadFile(name, false)
	}
	if len(named) == 0 && args.here {
		l.loadFile(defaultConfigFile, true)
		named = slices.Clone(l.origin.files)
	}
	// Only a flag or the variable selects overlays. The key in a file would be read too late for that.
	for _, name := range named {
		l.loadOverlay(name, cmp.Or(args.flags["environment"], getenv("STEPWELL_ENV")))
	}
}

// named returns the files that flags or the variable name.
func (a *configArgs) named(getenv func(string) string) []string {
	if name := getenv("STEPWELL_CONFIG"); len(a.files) == 0 && name != "" {
		return []string{name}
	}
	return a.files
}

// loadOverlay reads <name>.<environment>.toml, which may be missing.
func (l *configLoader) loadOverlay(name, environment string) {
	if environment == "" || checkEnvironmentValue(environment) != nil {
		return // loadVariables or loadFlags reports it
	}
	l.loadFile(strings.TrimSuffix(name, ".toml")+"."+environment+".toml", true)
}

func (l *configLoader) loadFile(name string, mayMiss bool) {
	source := configSource{kind: fromFile, name: name}
	data, err := l.readFile(name)
	if mayMiss && errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		err = withoutPath(err) // the source names the file
		l.report(source, "", fmt.Sprintf("reading the file: %v", err))
		l.problems[len(l.problems)-1].cause = err
		return
	}
	l.origin.files = append(l.origin.files, name)
	// Before it is decoded, since the decoder recurses.
	keys, at := findTOMLKeys(string(data), maxJSONDepth, joinConfigPath)
	if at >= 0 {
		source.line = strings.Count(string(data[:at]), "\n") + 1
		l.report(source, "", fmt.Sprintf("not TOML: deeper than %d levels", maxJSONDepth))
		return
	}
	// Into a map, not a Config: the decoder stops at the first value of a wrong type, and does not know the lines of
	// keys.
	var table map[string]any
	if _, err := toml.Decode(string(data), &table); err != nil {
		if e, ok := errors.AsType[toml.ParseError](err); ok {
			source.line = e.Position.Line
		}
		l.report(source, "", tomlSyntaxProblem(err))
		return
	}
	before := len(l.problems)
	of := func(path string) configSource { return configSource{fromFile, name, nearest(keys, path).line} }
	l.loadTable(of, "", table)
	// Tables were walked by name; people fix a file from top to bottom.
	slices.SortStableFunc(l.problems[before:], func(a, b inputProblem) int {
		return of(a.Field).line - of(b.Field).line
	})
}

// nearest returns the value of a path, or of the innermost thing around it that has one.
func nearest[V any](of map[string]V, path string) (none V) {
	for ; path != ""; path = path[:max(strings.LastIndexAny(path, ".["), 0)] {
		if v, ok := of[path]; ok {
			return v
		}
	}
	return none
}

// loadTable checks the table at a path against the table of keys. at returns the source of a path, here and below.
func (l *configLoader) loadTable(at func(path string) configSource, path string, table map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(table)) {
		inner, value := joinConfigPath(path, name), table[name]
		if k := configKeyAt(inner); k != nil {
			l.loadValue(at, k, value)
		} else if i := slices.IndexFunc(removedKeys, func(k removedKey) bool { return k.path == inner }); i >= 0 {
			l.origin.warnings = append(l.origin.warnings, removedKeys[i].warning(at(inner)))
		} else if known := configPaths(); !slices.Contains(known, inner) && !hadKeys(inner) {
			l.report(at(inner), inner, unknownConfigName("key", inner, known))
		} else if section, ok := value.(map[string]any); ok {
			l.loadTable(at, inner, section)
		} else {
			l.report(at(inner), inner, "want a table, got "+tomlTypeName(value))
		}
	}
}

// loadValue converts a value and stores it, or reports its problems.
func (l *configLoader) loadValue(at func(path string) configSource, k *configKey, raw any) {
	value, faults := k.convert(raw)
	for _, fault := range faults {
		l.report(at(fault.Field), fault.Field, fault.Message)
	}
	if len(faults) > 0 {
		return
	}
	k.set(l.config, value)
	l.origin.sources[k.path] = at(k.path)
	l.clearRival(k, value, at(k.path))
	l.locate(at, k, raw, k.path, k.path)
	if k.members == nil {
		return
	}
	for i := range reflect.ValueOf(value).Len() {
		path := fmt.Sprintf("%s[%d]", k.path, i)
		l.origin.sources[path] = at(path)
	}
}

// locate records where the entries of a table are. Their lines are known by the path as it is spelled in the file.
func (l *configLoader) locate(
	at func(path string) configSource, k *configKey, raw any, path, spelled string,
) {
	entries, _ := raw.(map[string]any)
	for name, value := range entries {
		canonical, inner := k.entryName(name), joinConfigPath(spelled, name)
		if _, ok := value.(map[string]any); ok {
			canonical, _ = headerScope(name)
		}
		canonical = joinConfigPath(path, canonical)
		l.origin.sources[canonical] = at(inner)
		l.locate(at, k, value, canonical, inner)
	}
}

// loadVariables reads the variables that the table names and those with "__" in their
// names; other variables that begin with STEPWELL_ do not set keys.
func (l *configLoader) loadVariables(getenv func(string) string, environ []string) {
	keys := make(map[string]*configKey)
	for i := range configKeys {
		k := &configKeys[i]
		keys[k.envName()] = k
		if k.env != "" && getenv(k.env) != "" {
			l.loadText(k, getenv(k.env), configSource{kind: fromEnv, name: k.env})
		}
	}
	delete(keys, "")
	for _, variable := range slices.Sorted(slices.Values(environ)) {
		name, text, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, configEnvPrefix) || !strings.Contains(name, "__") {
			continue
		}
		source := configSource{kind: fromEnv, name: name}
		if k := keys[name]; k != nil {
			l.loadText(k, text, source)
		} else if i := slices.IndexFunc(removedKeys, func(k removedKey) bool { return keyVariable(k.path) == name }); i >= 0 {
			l.origin.warnings = append(l.origin.warnings, removedKeys[i].warning(source))
		} else {
			l.report(source, "", unknownConfigName("variable", name, slices.Sorted(maps.Keys(keys))))
		}
	}
}

func (l *configLoader) loadFlags(flags map[string]string) {
	for i := range configKeys {
		k := &configKeys[i]
		if text, ok := flags[k.path]; ok {
			l.loadText(k, text, configSource{kind: fromFlag, name: cmp.Or(k.flag, "handler")}) // see handlerFlag
		}
	}
}

func (l *configLoader) loadText(k *configKey, text string, source configSource) {
	raw, err := k.parseText(text)
	if err != nil {
		l.report(source, k.path, err.Error())
		return
	}
	l.loadValue(func(string) configSource { return source }, k, raw)
}

// checkTogether checks the rules about several keys. A broken rule is reported for
// the key that was set by the strongest source.
func (l *configLoader) checkTogether() {
	for _, rule := range configRules {
		broken := slices.ContainsFunc(l.problems, func(p inputProblem) bool {
			return slices.Contains(rule.paths, p.Field) || p.Field != "" && p.Field == rule.given
		})
		if broken {
			continue
		}
		if err := rule.check(l.config, l.origin); err != nil {
			last := slices.MaxFunc(rule.paths, func(a, b string) int {
				return cmp.Compare(l.origin.of(a).kind, l.origin.of(b).kind)
			})
			l.report(l.origin.of(last), last, err.Error())
		}
	}
}

// checkConfigCallables checks the targets of worker.handlers and
// worker.default_handler by a function that knows handlers.
func checkConfigCallables(c *Config, p *provenance, check func(callable string) error) error {
	targets := map[string]string{"worker.default_handler": c.Worker.DefaultHandler}
	for name, target := range c.Worker.Handlers {
		targets[joinConfigPath("worker.handlers", name)] = target
	}
	var problems inputProblems
	for _, path := range slices.Sorted(maps.Keys(targets)) {
		if err := check(targets[path]); err != nil {
			problems = append(problems, inputProblem{Source: p.of(path).String(), Field: path, Message: err.Error()})
		}
	}
	return configError(problems)
}

// hadKeys reports whether a table contained keys that were removed.
func hadKeys(path string) bool {
	return slices.ContainsFunc(removedKeys, func(k removedKey) bool { return strings.HasPrefix(k.path, path+".") })
}

// configPaths returns what a file may name: keys, and the tables they are in.
func configPaths() []string {
	var paths []string
	for i := range configKeys {
		for path := configKeys[i].path; path != ""; path = path[:max(strings.LastIndexByte(path, '.'), 0)] {
			paths = append(paths, path)
		}
	}
	return paths
}

// configError returns an error that lists every problem, or nil without problems: a *usageError, unless a file is
// missing, which has its own exit code.
func configError(problems inputProblems) error {
	if len(problems) == 0 {
		return nil
	}
	if errors.Is(problems, fs.ErrNotExist) {
		return fmt.Errorf("configuration: %w", problems)
	}
	for i := range problems {
		problems[i].Field = redactName(problems[i].Field)
	}
	if len(problems) == 1 {
		return usagef("configuration: %v", problems[0])
	}
	return usagef("configuration: %d problems\n  %s", len(problems), strings.ReplaceAll(problems.Error(), "\n", "\n  "))
}

// unknownConfigName returns the problem of an unknown key or variable. It suggests the known name with the fewest
// different letters, or else one with the same last part.
func unknownConfigName(what, name string, known []string) string {
	near := nearestWord(name, known, max(2, len(strings.TrimPrefix(name, configEnvPrefix))/3))
	last := name[strings.LastIndexByte(name, '.')+1:]
	i := slices.IndexFunc(known, func(k string) bool { return strings.HasSuffix(k, "."+last) })
	if near == "" && i >= 0 {
		near = known[i]
	}
	return "unknown " + what + meant(near)
}

// inherit gives keys that no source set the values of the keys they inherit from.
func (l *configLoader) inherit() {
	for i := range configKeys {
		k := &configKeys[i]
		if k.inherits == "" || l.origin.of(k.path) != (configSource{}) {
			continue
		}
		from := configKeyAt(k.inherits)
		k.set(l.config, from.get(l.config))
		l.origin.sources[k.path] = l.origin.of(k.inherits)
	}
}

// clearRival clears the other form of a key if an earlier layer set it.
func (l *configLoader) clearRival(k *configKey, value any, source configSource) {
	old := l.origin.of(k.rival)
	sameLayer := old.kind == source.kind && (old.kind == fromEnv || old.name == source.name)
	if k.rival == "" || value == "" || sameLayer {
		return
	}
	l.clear(configKeyAt(k.rival), source)
}

func (l *configLoader) clear(k *configKey, source configSource) {
	k.set(l.config, "")
	l.origin.sources[k.path] = source
}

// applyFixture makes fixture mode keep its state in memory, unless it is given a directory and allowed to use it, and
// makes retry delays exact, unless jitter was switched on.
func (l *configLoader) applyFixture() {
	c := l.config
	if !c.Fixture.Enabled {
		return
	}
	given := l.origin.of("store.path").kind != fromDefault
	if !c.Store.Memory && !(c.Fixture.AllowData && given) {
		c.Store.Memory = true
		l.origin.sources["store.memory"] = l.origin.of("fixture.enabled")
	}
	if l.origin.of("engine.jitter").kind == fromDefault {
		c.Engine.Jitter = false
		l.origin.sources["engine.jitter"] = l.origin.of("fixture.enabled")
	}
	if l.origin.of("worker.undelivered").kind == fromDefault { // virtual time does not wait for real time
		c.Worker.Undelivered = undeliveredFail
		l.origin.sources["worker.undelivered"] = l.origin.of("fixture.enabled")
	}
}
