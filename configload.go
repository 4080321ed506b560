package main

// Where the configuration comes from: defaults, files, their overlays,
// environment and flags, each checked alone, then laid over the ones before.

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

const (
	configEnvPrefix   = "STEPWELL_"
	defaultConfigFile = "stepwell.toml"
)

// configArgs is what a command line says about the configuration.
type configArgs struct {
	files []string          // --config, in order
	flags map[string]string // what flags of keys say, by the key's path
	quiet bool
}

// configSourceKind is a layer of the configuration; a later one wins.
type configSourceKind uint8

const (
	fromDefault configSourceKind = iota
	fromFile
	fromEnv
	fromFlag
)

// configSource is where a value came from.
type configSource struct {
	kind configSourceKind
	name string // of the file, the variable or the flag
	line int    // in the file, from 1; 0 when not known
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

// provenance says where each value of a Config came from.
type provenance struct {
	files   []string                // read, in order
	sources map[string]configSource // by path of a key or table entry
}

// of is the source of the key or table entry at a path.
func (p *provenance) of(path string) configSource { return p.sources[path] }

// loadConfig makes the configuration. A *usageError means that nothing but
// flags is at fault; any other error is a *configError. Either lists every
// problem of every source, without secrets.
func loadConfig(
	args configArgs, getenv func(string) string, environ []string, readFile func(string) ([]byte, error),
) (*Config, *provenance, error) {
	l := &configLoader{
		readFile: readFile,
		config:   defaultConfig(),
		origin:   &provenance{sources: make(map[string]configSource)},
	}
	for _, name := range l.loadFiles(args.files, getenv("STEPWELL_CONFIG")) {
		l.loadOverlay(name, cmp.Or(args.flags["environment"], getenv("STEPWELL_ENV")))
	}
	l.loadVariables(getenv, environ)
	l.loadPublicKeys(getenv)
	l.loadFlags(args.flags)
	l.config.Log.Quiet = args.quiet
	l.inherit()
	l.checkTogether()
	l.applyFixture()
	l.checkAuth()
	if err := newConfigError(l.problems); err != nil {
		return nil, nil, err
	}
	return l.config, l.origin, nil
}

// configLoader lays one source after the other over a configuration.
type configLoader struct {
	readFile func(string) ([]byte, error)
	config   *Config
	origin   *provenance
	problems []configProblem
}

func (l *configLoader) report(source configSource, path, message string) {
	l.problems = append(l.problems, configProblem{source, path, message})
}

// loadFiles reads the files that the command line names, or else the
// environment, or else the one in the working directory, which may be missing.
// It returns those that may have an overlay.
func (l *configLoader) loadFiles(named []string, fromEnv string) []string {
	if len(named) == 0 && fromEnv != "" {
		named = []string{fromEnv}
	}
	if len(named) == 0 {
		l.loadFile(defaultConfigFile, true)
		return slices.Clone(l.origin.files)
	}
	for _, name := range named {
		l.loadFile(name, false)
	}
	return named
}

// loadOverlay reads <name>.<environment>.toml, if there is one, when the
// command line or the environment names an environment.
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
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			err = e.Err // the name is in the source
		}
		l.report(source, "", fmt.Sprintf("reading the file: %v", err))
		return
	}
	l.origin.files = append(l.origin.files, name)
	var table map[string]any
	if _, err := toml.Decode(string(data), &table); err != nil {
		if e, ok := errors.AsType[toml.ParseError](err); ok {
			source.line = e.Position.Line
		}
		l.report(source, "", tomlSyntaxProblem(err))
		return
	}
	before := len(l.problems)
	l.loadTable(&configFile{source, findConfigLines(string(data))}, "", table)
	slices.SortStableFunc(l.problems[before:], func(a, b configProblem) int {
		return a.source.line - b.source.line
	})
}

// configFile is a decoded file.
type configFile struct {
	source configSource
	lines  configLines
}

func (f *configFile) at(path string) configSource {
	s := f.source
	s.line = f.lines.of(path)
	return s
}

// loadTable checks the table at a path against the table of keys.
func (l *configLoader) loadTable(f *configFile, path string, table map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(table)) {
		inner, value := joinConfigPath(path, name), table[name]
		if k := configKeyAt(inner); k != nil {
			l.loadValue(f, k, value)
			continue
		}
		if !isConfigSection(inner) {
			l.report(f.at(inner), inner, unknownConfigName("key", inner, configPaths()))
			continue
		}
		section, ok := value.(map[string]any)
		if !ok {
			l.report(f.at(inner), inner, "want a table, got "+tomlTypeName(value))
			continue
		}
		l.loadTable(f, inner, section)
	}
}

func (l *configLoader) loadValue(f *configFile, k *configKey, raw any) {
	value, faults := k.convert(raw)
	l.accept(k, value, faults, f.at)
	if entries, ok := raw.(map[string]any); ok && faults == nil {
		for name := range entries { // only the file's own spelling leads to the line
			l.origin.sources[joinConfigPath(k.path, k.entryName(name))] = f.at(joinConfigPath(k.path, name))
		}
	}
}

// accept takes a converted value, or reports what is wrong with it. at is the
// source of a path.
func (l *configLoader) accept(
	k *configKey, value any, faults []configFault, at func(path string) configSource,
) {
	for _, fault := range faults {
		l.report(at(fault.path), fault.path, fault.message)
	}
	if len(faults) > 0 {
		return
	}
	k.set(l.config, value)
	l.origin.sources[k.path] = at(k.path)
	l.clearRival(k, value, at(k.path))
	switch value := value.(type) {
	case map[string]string:
		for name := range value {
			path := joinConfigPath(k.path, name)
			l.origin.sources[path] = at(path)
		}
	case []apiKeyConfig:
		for i := range value {
			path := fmt.Sprintf("%s[%d]", k.path, i)
			l.origin.sources[path] = at(path)
		}
	}
}

// loadVariables takes the names with "__" in them and the few that the table
// gives; any other STEPWELL_ variable is somebody else's.
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
		} else {
			l.report(source, "", unknownConfigName("variable", name, slices.Sorted(maps.Keys(keys))))
		}
	}
}

func (l *configLoader) loadFlags(flags map[string]string) {
	for i := range configKeys {
		k := &configKeys[i]
		if text, ok := flags[k.path]; ok {
			l.loadText(k, text, configSource{kind: fromFlag, name: k.flag})
		}
	}
}

func (l *configLoader) loadText(k *configKey, text string, source configSource) {
	value, faults := k.convertText(text)
	l.accept(k, value, faults, func(string) configSource { return source })
}

// checkTogether puts a broken rule down to the one of its keys that the
// strongest source set.
func (l *configLoader) checkTogether() {
	for _, rule := range configRules {
		broken := slices.ContainsFunc(l.problems, func(p configProblem) bool {
			return slices.Contains(rule.paths, p.path) || p.path != "" && p.path == rule.given
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

// checkConfigCallables lets check say which builtins do not exist among those
// that worker.handlers and worker.default_handler name.
func checkConfigCallables(c *Config, p *provenance, check func(callable string) error) error {
	const handlers, byDefault = "worker.handlers", "worker.default_handler"
	targets := map[string]string{byDefault: c.Worker.DefaultHandler}
	for name, target := range c.Worker.Handlers {
		targets[joinConfigPath(handlers, name)] = target
	}
	var problems []configProblem
	for _, path := range slices.Sorted(maps.Keys(targets)) {
		if !strings.HasPrefix(targets[path], "builtin:") {
			continue
		}
		if err := check(targets[path]); err != nil {
			problems = append(problems, configProblem{p.of(path), path, err.Error()})
		}
	}
	return newConfigError(problems)
}

// isConfigSection reports whether keys stand in the table at a path.
func isConfigSection(path string) bool {
	return slices.ContainsFunc(configKeys, func(k configKey) bool {
		return strings.HasPrefix(k.path, path+".")
	})
}

// configPaths is whatever a file may name: keys, and the tables that they stand
// in.
func configPaths() []string {
	var paths []string
	for i := range configKeys {
		path := configKeys[i].path
		paths = append(paths, path)
		for dot := strings.LastIndexByte(path, '.'); dot >= 0; dot = strings.LastIndexByte(path, '.') {
			path = path[:dot]
			paths = append(paths, path)
		}
	}
	return paths
}
