package main

// Loading templates at start-up: which files there are, and every problem of
// every file in one error. The demo templates are embedded here.

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// demoTemplates are what a service without template directories runs.
//
//go:embed templates/demo/*.json templates/demo/*.toml
var demoTemplates embed.FS

// templateProblems is the error of templates that cannot be loaded.
type templateProblems []templateProblem

// Error has one line for each problem.
func (p templateProblems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

// loadTemplates reads all templates in the directories, or the demo templates
// when there are no directories, resolved for the environment. checkCallable
// tells what is wrong with a callable (nil: nothing is asked). The error is a
// templateProblems with every problem of every file; the warnings name their
// files, too.
func loadTemplates(dirs []string, env string, checkCallable func(callable string) error) (
	*registry, []string, error) {
	l := &templateLoader{
		env:           env,
		checkCallable: checkCallable,
		files:         map[string]bool{},
		defined:       map[string]string{},
	}
	if len(dirs) == 0 {
		l.embedded()
	}
	for _, dir := range dirs {
		if files, ok := l.directory(filepath.Clean(dir)); ok && files == 0 {
			l.warnings = append(l.warnings, dir+": no *.json or *.toml file with a template in it")
		}
	}
	if len(l.problems) > 0 {
		return nil, l.warnings, l.problems
	}
	return newRegistry(l.templates), l.warnings, nil
}

// templateLoader collects what is found in files.
type templateLoader struct {
	env           string
	checkCallable func(callable string) error
	templates     []*template
	warnings      []string
	problems      templateProblems
	files         map[string]bool   // read already: directories may overlap
	defined       map[string]string // full name of a template: its file
}

func (l *templateLoader) problem(file string, err error) {
	l.problems = append(l.problems, templateProblem{file: file, reason: err.Error()})
}

// directory reads the files of a directory and of those in it, in the order of
// their names; hidden ones and links to directories are passed over. It
// returns the number of files, and whether the directory itself could be read.
func (l *templateLoader) directory(dir string) (files int, ok bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		l.problem(dir, fmt.Errorf("reading the templates directory: %w", templateFileReason(err)))
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

// templateFileReason is what went wrong without the path, which the problem names.
func templateFileReason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// templateFormat is json or toml by a file's name, "" for other files.
func templateFormat(name string) string {
	format := strings.TrimPrefix(path.Ext(name), ".")
	if slices.Contains([]string{"json", "toml"}, format) {
		return format
	}
	return ""
}

func (l *templateLoader) file(name string) {
	if l.files[name] {
		return
	}
	l.files[name] = true
	data, err := readTemplateFile(name)
	if err != nil {
		l.problem(name, fmt.Errorf("reading the template: %w", templateFileReason(err)))
		return
	}
	l.add(name, data)
}

// readTemplateFile refuses what might never end, such as a pipe.
func readTemplateFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	return os.ReadFile(name)
}

func (l *templateLoader) embedded() {
	names, err := fs.Glob(demoTemplates, "templates/demo/*")
	if err != nil {
		l.problem("templates/demo", err)
	}
	for _, name := range names {
		data, err := demoTemplates.ReadFile(name)
		if err != nil {
			l.problem(name, err)
			continue
		}
		l.add("built-in "+name, data)
	}
}

// add reads one definition.
func (l *templateLoader) add(file string, data []byte) {
	t, problems, warnings := parseCheckedTemplate(file, data, templateFormat(file), l.env, l.checkCallable)
	l.problems = append(l.problems, problems...)
	l.warnings = append(l.warnings, warnings...)
	if t == nil {
		return
	}
	if other, taken := l.defined[t.fullName()]; taken {
		l.problem(file, fmt.Errorf("%s is defined in %s already", t.fullName(), other))
		return
	}
	l.defined[t.fullName()] = file
	l.templates = append(l.templates, t)
}
