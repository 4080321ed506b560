package main

// Loading templates: directories and files of definitions, and those of the demo.

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// demoTemplates are the templates of a service without template directories.
//
//go:embed templates/demo/*.json templates/demo/*.toml
var demoTemplates embed.FS

// loadTemplates reads all templates in the directories, which may also be files, or the demo templates if
// there are none, and resolves them for an environment. The rules may be nil. The error
// is an inputProblems with every problem of every file. The warnings name their files.
func loadTemplates(dirs []string, env string, rules *templateRules) (*registry, []string, error) {
	l := &templateLoader{env: env, rules: rules, files: map[string]bool{}, defined: map[string]string{}}
	if len(dirs) == 0 {
		l.embedded()
	}
	for _, dir := range dirs {
		// A directory may have such a name as well.
		if templateFormat(dir) != "" {
			if info, err := os.Stat(dir); err == nil && !info.IsDir() {
				l.file(dir)
				continue
			}
		}
		if files, ok := l.directory(filepath.Clean(dir)); ok && files == 0 {
			l.warnings = append(l.warnings, dir+": has no template; only "+templateFiles+" are read")
		}
	}
	// Once, not after each of possibly many problems.
	if l.refused {
		hint := "docs/reference/templates.md describes the formats and every field"
		l.problems = append(l.problems, inputProblem{Message: hint})
	}
	if len(l.problems) > 0 {
		return nil, l.warnings, l.problems
	}
	if rules != nil && rules.schemas != schemasRefused {
		l.warnOfSchemas()
	}
	return newRegistry(l.templates), l.warnings, nil
}

// templateLoader collects the templates of files.
type templateLoader struct {
	env       string
	rules     *templateRules
	templates []*template
	warnings  []string
	problems  inputProblems
	refused   bool              // a definition has problems
	files     map[string]bool   // files read, because directories may overlap
	defined   map[string]string // full name of a template: its file
}

func (l *templateLoader) problem(file string, err error) {
	l.problems = append(l.problems, inputProblem{Source: file, Message: err.Error(), cause: err})
}

// directory reads the files of a directory and its subdirectories in the order of
// their names, except hidden ones and links to directories. It returns the number
// of files, and whether it could read the directory itself.
func (l *templateLoader) directory(dir string) (files int, ok bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		what := pick(templateFormat(dir) == "", "templates directory", "template")
		l.problem(dir, fmt.Errorf("reading the %s: %w", what, templateFileReason(err)))
		return 0, false
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			below, _ := l.directory(name)
			files += below
		case templateFormat(name) != "":
			l.file(name)
			files++
		}
	}
	return files, true
}

// warnOfSchemas warns, once and first, that the schemas of templates are not enforced.
func (l *templateLoader) warnOfSchemas() {
	first, count := "", 0
	for _, t := range l.templates {
		if t.input != nil || slices.ContainsFunc(t.steps, func(s stepTemplate) bool { return s.result != nil }) {
			first = cmp.Or(first, t.fullName())
			count++
		}
	}
	if count > 0 {
		l.warnings = slices.Insert(l.warnings, 0, fmt.Sprintf("templates.enforce_input_schema is \"off\", so that no schema is enforced; "+
			"templates that have one: %d, the first is %s", count, first))
	}
}

// templateFileReason returns an error without the path, which the problem names.
func templateFileReason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// templateFiles names the files that are read, for messages.
const templateFiles = "*.json, *.toml, *.yaml and *.yml files"

// templateFormat returns json, toml or yaml by a file's name, or "" for other files.
func templateFormat(name string) string {
	switch ext := path.Ext(name); ext {
	case ".json", ".toml", ".yaml":
		return ext[1:]
	case ".yml":
		return "yaml"
	}
	return ""
}

func (l *templateLoader) file(name string) {
	if l.files[name] {
		return
	}
	l.files[name] = true
	if data, err := readTemplateFile(name, math.MaxInt64); err != nil {
		l.problem(name, fmt.Errorf("reading the template: %w", templateFileReason(err)))
	} else {
		l.add(name, data)
	}
}

// readTemplateFile reads a regular file, up to a limit in bytes. Others, such as
// pipes, might never end.
func readTemplateFile(name string, limit int64) ([]byte, error) {
	f, err := openRegular(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

func (l *templateLoader) embedded() {
	files, err := fs.Glob(demoTemplates, "templates/demo/*")
	for _, name := range files {
		var data []byte
		if data, err = demoTemplates.ReadFile(name); err != nil {
			break
		}
		l.add("built-in "+name, data)
	}
	if err != nil {
		l.problem("built-in templates", err)
	}
}

// add adds the template of one definition.
func (l *templateLoader) add(file string, data []byte) {
	t, problems, warnings := parseTemplate(file, data, templateFormat(file), l.env, l.rules)
	l.problems = append(l.problems, problems...)
	l.warnings = append(l.warnings, warnings...)
	if t == nil {
		l.refused = true
		return
	}
	name := t.fullName()
	if other, taken := l.defined[name]; taken {
		// What was read is gone: the definition is read again to find the line of its name.
		r := &templateReader{file: file, blamed: map[string]bool{}}
		r.definition(data, templateFormat(file))
		r.problem("name", "duplicate template %s, also defined in %s", name, other)
		r.locate(r.problems)
		l.problems = append(l.problems, r.problems...)
		return
	}
	l.defined[name] = file
	l.templates = append(l.templates, t)
}
