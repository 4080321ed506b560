package main

// The command config, and the flags that set keys.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// configFileFlag defines --config. Without it and its variable, a file in the working directory counts if a.here is set.
func configFileFlag(o *options, a *configArgs) {
	o.Func("config", "`FILE`: read this configuration (repeatable; default $STEPWELL_CONFIG"+pick(a.here, ", then ./stepwell.toml)", ")"),
		func(name string) error {
			if name == "" {
				return errors.New("missing file name")
			}
			a.files = append(a.files, name)
			return nil
		})
}

// handlerFlag defines --handler, which sets worker.handlers.
func handlerFlag(o *options, a *configArgs) {
	handlers := map[string]string{}
	o.Func("handler", "`CALLABLE=URL`: run a callable with a handler at a URL, or with a program, as CALLABLE=exec:PROGRAM (repeatable; replaces [worker.handlers])",
		func(text string) error {
			callable, handler, ok := strings.Cut(text, "=")
			switch {
			case ok && callable == "":
				return errors.New("the name of the callable is empty: want CALLABLE=URL or CALLABLE=exec:PROGRAM")
			case !ok || handler == "":
				return errors.New("want CALLABLE=URL or CALLABLE=exec:PROGRAM")
			}
			handlers[callable] = handler
			table, _ := json.Marshal(handlers) // strings
			if a.flags == nil {
				a.flags = make(map[string]string)
			}
			a.flags["worker.handlers"] = string(table)
			return new(handlerSet).check(handler)
		})
}

func keyFlag(o *options, k *configKey, a *configArgs) {
	if k.flag == "" {
		return
	}
	_, isList := k.def.([]string)
	set := func(text string) error {
		if a.flags == nil {
			a.flags = make(map[string]string)
		}
		// A flag of a list can be repeated. Flags stay texts here, because loadConfig reads each source with its own
		// messages.
		if earlier, ok := a.flags[k.path]; ok && isList {
			text = earlier + "," + text
		}
		a.flags[k.path] = text
		return nil
	}
	if _, ok := k.def.(bool); ok {
		o.BoolFunc(k.flag, k.help, set)
		return
	}
	help := k.help
	if def := tomlLiteral(k.def); def != `""` && def != "[]" {
		help += " (default " + def + ")"
	}
	o.keyOperands[k.flag] = k.operand
	o.Func(k.flag, help, set)
}

// loadConfig loads the configuration and checks the handlers that it names. Keys are set by the variables in environ.
func (p *process) loadConfig(args configArgs, environ []string) (*Config, *provenance, error) {
	c, origin, err := loadConfig(args, p.getenv, environ, readConfigFile)
	if err == nil {
		err = checkConfigCallables(c, origin, new(handlerSet).check)
	}
	return c, origin, err
}

func configCommands() command {
	return command{name: "config", help: "show the effective configuration, or check files", commands: []command{
		{
			name: "show", operands: "[KEY]", help: "show the effective configuration and where each value comes from",
			more:     "KEY is a key, or a table for the keys below it. The flags are those of \"serve\".",
			examples: []string{"config show store", "config show --listen 0.0.0.0:80 -o json"}, define: showConfig,
		},
		{
			name: "validate", operands: "[FILE…]", help: "check files, in the order in which they are read",
			more: "Without FILE, check $STEPWELL_CONFIG or ./stepwell.toml.", examples: []string{"config validate", "config validate base.toml production.toml"}, define: validateConfig,
		},
	}}
}

func showConfig(o *options) runner {
	a := new(serveArgs)
	o.withOutput()
	serveFlags(o, a)
	return func(_ context.Context, operands []string) error {
		c, origin, err := o.p.loadConfig(a.configArgs, o.p.environ)
		if err != nil {
			return err
		}
		o.p.warn(origin.warnings)
		rows := configRows(c, origin)
		if len(operands) > 0 {
			if rows, err = rowsBelow(rows, operands[0]); err != nil {
				return o.named(err)
			}
		}
		return o.print(output{rows, member("key"), func(t *table) {
			t.head("KEY", "VALUE", "SOURCE")
			for _, r := range rows {
				t.row(printable(r.path()), tomlLiteral(r.Value), printable(r.Source))
			}
		}})
	}
}

// configRow is one line of "config show": a key, or an entry of a table.
type configRow struct {
	Key    string `json:"key"` // or the path of a table in its value
	Entry  string `json:"entry,omitempty"`
	Value  any    `json:"value"` // without secrets
	Source string `json:"source"`
}

func (r *configRow) path() string {
	return pick(r.Entry == "", r.Key, joinConfigPath(r.Key, r.Entry))
}

func rowsBelow(rows []configRow, key string) ([]configRow, error) {
	var below []configRow
	var known []string
	for _, r := range rows {
		known = append(known, r.path())
		if r.path() == key || strings.HasPrefix(r.path(), key+".") {
			below = append(below, r)
		}
	}
	if len(below) == 0 {
		return nil, usagef("%s: %s", key, unknownConfigName("key", key, known))
	}
	return below, nil
}

// configRows lists the values in the order of the table of keys, a table entry
// by entry, because each may come from another place.
func configRows(c *Config, origin *provenance) []configRow {
	var rows []configRow
	for i := range configKeys {
		k := &configKeys[i]
		value, before := k.get(c), len(rows)
		tables := k.tables(value)
		for _, path := range slices.Sorted(maps.Keys(tables)) {
			for _, name := range slices.Sorted(maps.Keys(tables[path])) {
				source := origin.of(joinConfigPath(path, name)).String()
				rows = append(rows, configRow{path, redactName(name), k.shownText(tables[path][name]), source})
			}
		}
		if len(rows) == before {
			rows = append(rows, configRow{k.path, "", k.shown(value), origin.of(k.path).String()})
		}
	}
	return rows
}

// validateConfig checks files, alone and together. It ignores variables that set
// keys, because only the files are in question.
func validateConfig(o *options) runner {
	a := configArgs{here: true}
	keyFlag(o, configKeyAt("environment"), &a)
	return func(_ context.Context, files []string) error {
		a.files = files
		_, origin, err := o.p.loadConfig(a, nil)
		if err != nil {
			return err
		}
		if len(origin.files) == 0 {
			return exitf(exitNotFound, "config validate: there is no %s here, and no file was given", defaultConfigFile)
		}
		_, err = fmt.Fprintln(o.p.stdout, "ok")
		return err
	}
}
