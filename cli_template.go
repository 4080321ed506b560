package main

// The command template: listing, showing, checking, converting and drawing templates.

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// template asks for a template of the service.
func (c *client) template(ctx context.Context, name string) (d document, err error) {
	ref, err := parseTemplateRef(name)
	if err != nil {
		return d, err
	}
	return c.get(ctx, ref.path(), nil)
}

func (p *process) templateCheck(o *options) runner {
	var flags configArgs
	keyFlag(o, configKeyAt("environment"), &flags)
	return func(_ context.Context, files []string) error {
		cfg, _, err := p.loadConfig(flags, p.environ)
		if err != nil {
			return err
		}
		handlers, err := newHandlerSet(&cfg.Worker, version, p.getenv)
		if err != nil {
			return err
		}
		r, warnings, err := loadTemplates(files, cfg.Environment, handlers.templateRules(&cfg.Templates, schemasTold))
		for _, w := range warnings {
			fmt.Fprintln(p.stderr, "warning: "+w)
		}
		if err != nil {
			return err
		}
		for _, t := range r.all() {
			fmt.Fprintf(p.stdout, "%s: %s\n", t.fullName(), counted(len(t.steps), "step", "steps"))
		}
		return nil
	}
}

func (p *process) templateConvert(o *options) runner {
	to := o.String("to", "yaml", "write as `FORMAT`: json, toml or yaml")
	return func(_ context.Context, files []string) error {
		if !slices.Contains([]string{"json", "toml", "yaml"}, *to) {
			return o.misuse("--to must be json, toml or yaml, not %q", *to)
		}
		if templateFormat(files[0]) == "" {
			return o.misuse("%s: only %s are read", files[0], templateFiles)
		}
		data, err := readTemplateFile(files[0], math.MaxInt64)
		if err != nil {
			return err
		}
		text, err := convertTemplate(files[0], data, *to)
		if err != nil {
			return err
		}
		_, err = p.stdout.Write(text)
		return err
	}
}

func (p *process) templateGraph(o *options) runner {
	o.withClient()
	o.forms = []string{"text", "mermaid", "dot"}
	o.output = o.String("o", "text", "draw as `FORM`: text, mermaid or dot")
	return func(ctx context.Context, operands []string) error {
		d, err := p.templateFileOr(ctx, o, operands[0])
		if err != nil {
			return o.named(err)
		}
		draw := map[string]func(io.Writer, string, *shape) error{"text": p.drawText, "mermaid": drawMermaid, "dot": drawDot}
		return draw[*o.output](p.stdout, d.text("name"), readShape(d))
	}
}

// templateFileOr reads a template from a file, or else asks the service for it.
func (p *process) templateFileOr(ctx context.Context, o *options, name string) (document, error) {
	if !isTemplateFile(name) {
		c, err := p.client(o)
		if err != nil {
			return document{}, err
		}
		return c.template(ctx, name)
	}
	r, _, err := loadTemplates([]string{name}, p.getenv("STEPWELL_ENV"), nil)
	if err != nil {
		return document{}, err
	}
	t, err := onlyTemplate(r, name)
	if err != nil {
		return document{}, err
	}
	return readDocument(t.json), nil
}

// onlyTemplate returns the template of a file.
func onlyTemplate(r *registry, file string) (*template, error) {
	all := r.all()
	if len(all) != 1 {
		return nil, usagef("%s has %d templates; want one file", file, len(all))
	}
	return all[0], nil
}

// isTemplateFile reports whether an operand names a file and not a template of the service.
func isTemplateFile(name string) bool {
	if templateFormat(name) != "" {
		return true
	}
	info, err := os.Stat(name)
	return err == nil && (info.Mode().IsRegular() || info.IsDir()) && filepath.Ext(name) != "" || err == nil && info.IsDir()
}

// drawText draws a graph as a list in the order of the dependencies.
func (p *process) drawText(w io.Writer, _ string, s *shape) error {
	t := &table{p: p, style: p.styleOf(w)}
	for _, name := range s.byLevel() {
		after := ""
		if parents := s.parents[name]; len(parents) > 0 {
			after = t.paint(faint, "after "+strings.Join(parents, ", "))
		}
		t.row(strings.Repeat("  ", s.level(name))+printable(name), after)
	}
	return t.write(w)
}

// drawMermaid draws a flowchart (https://mermaid.js.org/syntax/flowchart.html). An edge to a step that
// its parent decides on is dotted.
func drawMermaid(w io.Writer, _ string, s *shape) error {
	var b strings.Builder
	b.WriteString("flowchart TD\n")
	for i, name := range s.names {
		fmt.Fprintf(&b, "  s%d[%q]\n", i, strings.ReplaceAll(name, `"`, "#quot;"))
	}
	s.edges(func(from, to int, decided bool) {
		arrow := "-->"
		if decided {
			arrow = "-.->"
		}
		fmt.Fprintf(&b, "  s%d %s s%d\n", from, arrow, to)
	})
	_, err := io.WriteString(w, b.String())
	return err
}

// drawDot draws a digraph (https://graphviz.org/doc/info/lang.html).
func drawDot(w io.Writer, title string, s *shape) error {
	var b strings.Builder
	quote := func(text string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"` }
	fmt.Fprintf(&b, "digraph %s {\n  node [shape=box]\n", quote(title))
	for _, name := range s.names {
		fmt.Fprintf(&b, "  %s\n", quote(name))
	}
	s.edges(func(from, to int, decided bool) {
		style := ""
		if decided {
			style = " [style=dashed]"
		}
		fmt.Fprintf(&b, "  %s -> %s%s\n", quote(s.names[from]), quote(s.names[to]), style)
	})
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (p *process) analyticsCommands() command {
	return command{name: "analytics", help: "show how tasks and steps fare", commands: []command{
		{
			name: "performance", help: "show rates and durations over the last hours",
			examples: []string{"analytics performance", "analytics performance --hours 1 -o json"},
			define:   p.performance,
		},
		{
			name: "bottlenecks", help: "list the slowest steps and tasks",
			examples: []string{"analytics bottlenecks", "analytics bottlenecks --min-executions 100"},
			define:   p.bottlenecks,
		},
	}}
}

// shows returns a command that shows what a path answers, and what judge says about it, unless it is nil.
func (p *process) shows(
	o *options, path string, filters [][2]string, show func(t *table, d document), judge func(document) error,
) runner {
	o.withClient().withOutput()
	query := url.Values{}
	o.filters(query, filters)
	return p.asks(o, func(ctx context.Context, c *client, _ []string) error {
		d, err := c.get(ctx, path, query)
		if err != nil {
			return err
		}
		err = p.print(o, output{d, member("status"), func(t *table) { show(t, d) }})
		if err == nil && judge != nil {
			err = judge(d)
		}
		return err
	})
}
