package main

// The command template: listing, showing, checking, converting and drawing templates.

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strings"
)

func templateCommands() command {
	return command{name: "template", help: "list and show templates; check, convert and draw template files", commands: []command{
		{
			name: "list", effect: reads, help: "list the templates of the service",
			examples: []string{"template list", "template list --namespace demo -o wide"},
			define: lists(listing{path: "/v1/templates", member: "templates", name: "template", none: "no template",
				columns: []column{
					{head: "TEMPLATE", show: templateColumn.show}, of("STEPS", "step_count"),
					of("DESCRIPTION", "description"),
				}}, [2]string{"namespace", "`NAMESPACE`: list only templates in this namespace"}),
		},
		{
			name: "show", effect: reads, operands: "TEMPLATE", help: "show a template of the service and its steps",
			examples: []string{"template show demo/diamond", "template show demo/diamond@1.0.0 -o json"},
			define:   showTemplate,
		},
		{
			name: "check", operands: "FILE…", help: "check template files or directories, without a service",
			more:     "Problems are listed one per line, with file, line, column and path in the template.",
			examples: []string{"template check order.json", "template check templates/"},
			define:   checkTemplates,
		},
		{
			name: "convert", operands: "FILE", help: "print a template file as JSON, without a service",
			more:     "Comments are lost.",
			examples: []string{"template convert order.yaml > order.json", "template convert order.toml --to line"},
			define:   convertFile,
		},
		{
			name: "graph", operands: "FILE|TEMPLATE", help: "draw the dependency graph of a template file, or of a template of the service",
			examples: []string{"template graph order.json", "template graph demo/diamond"},
			define:   drawTemplate,
		},
	}}
}

func showTemplate(o *options) runner {
	return o.shows("", nil, func(d document) output {
		return output{d, member("template"), func(t *table) {
			t.fields(d, []column{
				{head: "template", show: templateColumn.show}, of("description", "description"),
				of("identity", "configuration.identity_strategy"),
				of("context", "configuration.default_context"),
			})
			t.line("")
			t.list(d.at("steps").list(), []column{
				of("STEP", "name"), of("TYPE", "type"), of("HANDLER", "handler.callable"), listColumn("AFTER", "dependencies"),
				of("ATTEMPTS", "default_max_attempts"), of("DESCRIPTION", "description").whenWide(),
			})
		}}
	})
}

// template asks for a template of the service.
func (c *client) template(ctx context.Context, name string) (d document, err error) {
	ref, err := parseTemplateRef(name)
	if err != nil {
		return d, err
	}
	return c.get(ctx, ref.path(), nil)
}

func checkTemplates(o *options) runner {
	flags := configArgs{here: true} // as serve would check them: nothing runs, and nothing is sent
	keyFlag(o, configKeyAt("environment"), &flags)
	verbose := o.Bool("v", false, "list the files of a directory that are not templates")
	return func(_ context.Context, files []string) error {
		cfg, _, err := o.p.loadConfig(flags, o.p.environ)
		if err != nil {
			return err
		}
		handlers := newHandlerSet(&cfg.Worker, version, o.p.getenv)
		rules := handlers.templateRules(&cfg.Templates, schemasTold)
		rules.bounded = true
		rules.unrun = func(callable string) bool { return handlers.resolve(callable).kind == outsideActor }
		if *verbose {
			rules.passed = func(file, why string) { fmt.Fprintf(o.p.stderr, "passed over: %s: %s\n", printable(file), why) }
		}
		r, warnings, err := loadTemplates(files, cfg.Environment, rules)
		o.p.warn(warnings)
		if err != nil {
			return err
		}
		for _, t := range r.sorted {
			fmt.Fprintf(o.p.stdout, "%s: %s\n", t.fullName(), counted(len(t.steps), "step", "steps"))
		}
		return nil
	}
}

// warn prints warnings, one a line.
func (p *process) warn(warnings []string) {
	for _, w := range warnings {
		fmt.Fprintln(p.stderr, "warning: "+printable(w))
	}
}

func convertFile(o *options) runner {
	to := o.String("to", "json", "`FORMAT`: choose the format: json, or line, the line of a store")
	return func(_ context.Context, files []string) error {
		if *to != "json" && *to != "line" {
			return o.misuse("--to must be json or line, not %q", *to)
		}
		if templateFormat(files[0]) == "" {
			return o.misuse("%s: %s", files[0], templateFiles)
		}
		data, err := readTemplateFile(files[0], math.MaxInt64)
		if err != nil {
			return err
		}
		text, err := convertTemplate(files[0], data, *to)
		if err != nil {
			return err
		}
		_, err = o.p.stdout.Write(text)
		return err
	}
}

func drawTemplate(o *options) runner {
	o.withClient()
	return func(ctx context.Context, operands []string) error {
		d, err := templateFileOr(ctx, o, operands[0])
		if err != nil {
			return o.named(err)
		}
		return o.p.drawGraph(readShape(d))
	}
}

// templateFileOr reads a template from a file, or else asks the service for it.
func templateFileOr(ctx context.Context, o *options, name string) (document, error) {
	if !isTemplateFile(name) {
		c, err := o.client()
		if err != nil {
			return document{}, err
		}
		return c.template(ctx, name)
	}
	r, _, err := loadTemplates([]string{name}, o.p.getenv("STEPWELL_ENV"), nil)
	if err != nil {
		return document{}, err
	}
	t, err := onlyTemplate(r, name)
	if err != nil {
		return document{}, err
	}
	return readDocument(t.json), nil
}

func onlyTemplate(r *registry, file string) (*template, error) {
	all := r.sorted
	if len(all) != 1 {
		return nil, usagef("%s has %d templates; want one file", file, len(all))
	}
	return all[0], nil
}

// isTemplateFile reports whether an operand names a file or directory and not a template of the service. Only how it is
// written counts: otherwise a file or directory called demo/diamond could replace the template.
func isTemplateFile(name string) bool {
	path := filepath.ToSlash(name)
	first, _, _ := strings.Cut(path, "/")
	return templateFormat(name) != "" || isDots(first) || filepath.IsAbs(name) || strings.HasSuffix(path, "/")
}

// drawGraph draws a graph as a list in the order of the dependencies.
func (p *process) drawGraph(s *shape) error {
	t := &table{p: p, style: p.styleOf(p.stdout)}
	for _, name := range s.byLevel() {
		var about []string
		if parents := s.parents[name]; len(parents) > 0 {
			about = append(about, "after "+strings.Join(parents, ", "))
		}
		if answer := s.answers[name]; answer != "" {
			about = append(about, answer)
		}
		t.row(strings.Repeat("  ", s.level(name))+name, t.paint(faint, strings.Join(about, "; ")))
	}
	return t.write(behindDoor(p.stdout))
}
