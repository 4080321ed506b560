package main

// The commands beside serve: what operators and container probes run.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"
)

func (p *process) auth(_ context.Context, args []string) error {
	now := func() instant { return instantOf(time.Now()) }
	return authCommand(args, p.authSettings(), now, p.stdout, p.stderr)
}

func (p *process) config(_ context.Context, args []string) error {
	return configCommand(args, p.getenv, p.environ, p.stdout, p.stderr)
}

// checkCommand is `store check`: it reads every line and applies every record,
// and changes nothing.
func (p *process) checkCommand(args []string) error {
	fs := p.flags("store check")
	dir := dataFlag(fs)
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	s := newStore(nil, slog.New(slog.DiscardHandler))
	if err := checkStoreFiles(*dir, &restorer{s: s}, p.stdout); err != nil {
		return err
	}
	states := []string{}
	for i := range taskStates {
		if n := s.index.states[i].count(); n > 0 {
			states = append(states, fmt.Sprintf("%d %s", n, i))
		}
	}
	fmt.Fprintf(p.stdout, "every record applies: %d tasks (%s)\n", len(s.byID), orDefault(strings.Join(states, ", "), "none"))
	return nil
}

// flags is a flag set that reports to standard error.
func (p *process) flags(name string) *flag.FlagSet {
	fs := flag.NewFlagSet("stepwell "+name, flag.ContinueOnError)
	fs.SetOutput(p.stderr)
	return fs
}

// parseFlags parses flags of a command that takes no other arguments.
func parseFlags(fs *flag.FlagSet, args []string) error {
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return &usageError{} // the flag set has said it already
	}
	if fs.NArg() > 0 {
		return usagef("unexpected argument %q", fs.Arg(0))
	}
	return nil
}

// healthcheck asks a running service whether it lives or is ready.
func (p *process) healthcheck(ctx context.Context, args []string) error {
	fs := p.flags("healthcheck")
	url := fs.String("url", "", "where the service answers; by default the configured listener")
	ready := fs.Bool("ready", false, "ask for readiness, not only for life")
	timeout := fs.Duration("timeout", 3*time.Second, "how long to wait")
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	if *url == "" {
		base, err := p.configuredURL()
		if err != nil {
			return err
		}
		*url = base
	}
	path := "/health/live"
	if *ready {
		path = "/health/ready"
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	return p.probe(ctx, strings.TrimRight(*url, "/")+path)
}

// configuredURL is the listener of the first role that is switched on.
func (p *process) configuredURL() (string, error) {
	flags, err := parseServeArgs(nil, p.stderr)
	if err != nil {
		return "", err
	}
	cfg, _, err := loadConfig(flags.configArgs, p.getenv, p.environ, os.ReadFile)
	if err != nil {
		return "", err
	}
	address := cfg.Orchestration.Web.Listen
	if cfg.Role == "worker" {
		address = cfg.Worker.Web.Listen
	}
	return reachableURL(address), nil
}

func (p *process) probe(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return usagef("%v", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("asking for health: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("asking for health: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", url, resp.Status, strings.TrimSpace(string(body)))
	}
	fmt.Fprintf(p.stdout, "%s", body)
	return nil
}
