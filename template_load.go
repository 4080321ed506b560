package main

// Loading templates: directories and files of definitions, and those of the demo.

import (
	"bytes"
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
	"regexp"
	"slices"
	"strings"
)

// demoTemplates are the templates of a service without template directories.
//
//go:embed templates/demo/*.json templates/demo/*.toml
var demoTemplates embed.FS

// loadTemplates reads all templates in the directories, which may be those of projects, or files, or the demo templates if
// there are none, and resolves them for an environment. The rules may be nil. The error
// is an inputProblems with every problem of every file. The warnings name their files.
func loadTemplates(dirs []string, env string, rules *templateRules) (*registry, []string, error) {
	l := &templateLoader{env: env, rules: rules, files: map[string]bool{}, defined: map[string]string{}}
	if len(dirs) == 0 {
		l.embedded()
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		switch {
		case err != nil || info.IsDir(): // which may have the name of a template as well
			if l.directory(filepath.Clean(dir)) {
				l.warnings = append(l.warnings, dir+": has no template; "+templateFiles+", and only with steps")
			}
		case templateFormat(dir) == "":
			l.problem(dir, errors.New("is not a directory; "+templateFiles))
		default:
			l.file(dir, "")
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
	r := newRegistry(l.templates)
	r.files = l.files
	return r, l.warnings, nil
}

// templateLoader collects the templates of files.
type templateLoader struct {
	env       string
	rules     *templateRules
	templates []*template
	warnings  []string
	problems  inputProblems
	refused   bool              // a definition has problems
	files     map[string]bool   // whether a file is a template; kept because directories may overlap
	defined   map[string]string // full name of a template: its file
}

func (l *templateLoader) problem(file string, err error) {
	l.problems = append(l.problems, inputProblem{Source: file, Message: err.Error(), cause: err})
}

// directory reads the templates of a directory and of those below it. It reports whether the directory has none.
func (l *templateLoader) directory(dir string) (empty bool) {
	empty = true
	templateEntries(dir, func(name string, err error) {
		switch {
		case err != nil && name == dir:
			what := pick(templateFormat(dir) == "", "templates directory", "template")
			l.problem(dir, fmt.Errorf("reading the %s: %w", what, withoutPath(err)))
			empty = false
		case err != nil:
			l.warnings = append(l.warnings, fmt.Sprintf("%s: passed over: %v", name, withoutPath(err)))
		case l.file(name, dir):
			empty = false
		}
	})
	return empty
}

// templateEntries calls f with the files of a directory and of those below it that have the name of a template, in the
// order of their names, and with the directories that cannot be read. Hidden names, links to directories, node_modules,
// pipes and what the kernel makes up are left out.
func templateEntries(dir string, f func(name string, err error)) {
	fs.WalkDir(os.DirFS(dir), ".", func(below string, e fs.DirEntry, err error) error {
		name := filepath.Join(dir, below)
		full, _ := filepath.Abs(name)
		switch {
		case err != nil:
			f(name, err)
		case below != "." && strings.HasPrefix(e.Name(), "."), e.Name() == "node_modules", slices.Contains([]string{"/proc", "/sys", "/dev"}, full):
			if e.IsDir() {
				return fs.SkipDir
			}
		case e.Type()&^fs.ModeSymlink == 0 && templateFormat(name) != "":
			f(name, nil)
		}
		return nil
	})
}

// inText finds a member of a template in a file that is not valid in its format.
func inText(name string, data []byte) bool {
	member := regexp.MustCompile(`"` + name + `"\s*:|(?m:^` + name + `\s*[:=]|^\[\[\s*` + name + `)`)
	return member.Match(unmarked(data))
}

// passesOver reports whether a file that was found in a directory is for another program. One that looks like a template
// is named.
func (l *templateLoader) passesOver(file string, data []byte) bool {
	var definition []byte
	var invalid bool // in its format
	// Most files of a project have neither word, and need not be parsed.
	if bytes.Contains(data, []byte("steps")) || bytes.Contains(data, []byte("namespace")) {
		r := &templateReader{file: file, blamed: map[string]bool{}}
		definition = r.definition(data, templateFormat(file))
		invalid = definition == nil
	}
	var missing []string
	for _, name := range []string{"steps", "name", "version"} {
		if invalid && !inText(name, data) || !invalid && objectMember(definition, name) == nil {
			missing = append(missing, name)
		}
	}
	steps := objectMember(definition, "steps")
	switch {
	case len(missing) == 0:
		return false
	case invalid && missing[0] != "steps", steps != nil && (jsonKind(steps) == '[' || len(missing) == 1),
		steps == nil && objectMember(definition, "namespace_name") != nil,
		steps == nil && len(missing) == 1 && objectMember(definition, "namespace") != nil:
		l.warnings = append(l.warnings, fmt.Sprintf("%s: passed over: looks like a template, but has no %s", file, anyOf(missing)))
	default:
		l.pass(file, "not a template")
	}
	return true
}

// pass tells that a file is passed over, and returns false.
func (l *templateLoader) pass(file, why string) bool {
	if l.rules != nil && l.rules.passed != nil {
		l.rules.passed(file, why)
	}
	return false
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

// templateFiles names the files that are read, for messages.
const templateFiles = "only *.json, *.toml, *.yaml and *.yml files are read"

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

// maxFoundTemplate is the size of files that are read without being named, in bytes.
const maxFoundTemplate = 16 << 20

// file reads a file that is named alone, or that was found in a directory. It reports whether the file is a template.
func (l *templateLoader) file(name, dir string) bool {
	taken, seen := l.files[name]
	if !seen {
		taken = l.read(name, dir)
		if !taken && l.rules != nil && l.rules.known[name] {
			l.problem(name, errors.New("is no longer a template; to remove its template, delete the file"))
		}
		l.files[name] = taken
	}
	return taken
}

func (l *templateLoader) read(name, dir string) bool {
	limit := int64(math.MaxInt64)
	if dir != "" {
		if limit = maxFoundTemplate + 1; leadsOut(name, dir) {
			return l.pass(name, "a link that leads out")
		}
	}
	data, err := readTemplateFile(name, limit)
	switch {
	case err != nil:
		l.problem(name, fmt.Errorf("reading the template: %w", withoutPath(err)))
	case dir != "" && len(data) > maxFoundTemplate:
		return l.pass(name, "larger than 16 MiB")
	case dir != "" && l.passesOver(name, data):
		return false
	default:
		l.add(name, data)
	}
	return true
}

// leadsOut reports whether a name in a directory is a link to something outside it.
func leadsOut(name, dir string) bool {
	full, _ := filepath.Abs(name)
	target, err := filepath.EvalSymlinks(full)
	full, _ = filepath.Abs(dir)
	root, rootErr := filepath.EvalSymlinks(full)
	separator := string(filepath.Separator)
	return err == nil && rootErr == nil && !strings.HasPrefix(target+separator, strings.TrimSuffix(root, separator)+separator)
}

// readTemplateFile reads a regular file, up to a limit in bytes. Others, such as pipes, might never end.
func readTemplateFile(name string, limit int64) ([]byte, error) {
	f, err := openRegular(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

func (l *templateLoader) embedded() {
	files, _ := fs.Glob(demoTemplates, "templates/demo/*")
	for _, name := range files {
		data, _ := demoTemplates.ReadFile(name) // which reads what this program contains
		l.add("built-in "+name, data)
	}
}

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
