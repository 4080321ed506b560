package main

// The commands healthcheck, which probes a service, and health, which shows what its checks found.

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

func healthCommand() command {
	return command{
		name: "health", effect: reads, help: "show the health checks of a running service",
		more:     "The exit code is 1 if one of them is not healthy.",
		examples: []string{"health", "health --url http://127.0.0.1:8081 -o json"},
		define: func(o *options) runner {
			return o.asks(func(ctx context.Context, c *client, _ []string) error {
				d, err := c.get(ctx, "/health/detailed", nil)
				if err != nil {
					return err
				}
				err = o.print(output{d, member("status"), func(t *table) {
					t.line(t.state(d.text("status")))
					for name, v := range d.at("checks").members() {
						t.row(t.sign(v.text("status"))+" "+name, v.text("message"))
					}
				}})
				if err == nil && d.text("status") != "healthy" {
					return exitf(exitFailed, "")
				}
				return err
			})
		},
	}
}

func healthcheckCommand() command {
	return command{
		name: "healthcheck", help: "ask a running service whether it is alive; for container probes",
		examples: []string{"healthcheck", "healthcheck --ready --timeout 1s"}, define: healthcheck,
	}
}

// healthcheck asks a running service whether it is alive or ready.
func healthcheck(o *options) runner {
	url := o.String("url", "", "`URL`: check the service there; by default at the address that variables, or the file in $STEPWELL_CONFIG, configure")
	ready := o.Bool("ready", false, "check that the service is ready, not only alive")
	timeout := o.duration("timeout", 3*time.Second, "`DURATION`: give up after this time")
	return func(ctx context.Context, _ []string) error {
		free, role := *url == "", "orchestration"
		if free {
			c, _, err := loadConfig(configArgs{}, o.p.getenv, o.p.environ, readConfigFile)
			if err != nil {
				return err
			}
			role = pick(c.Role == "worker", "worker", role)
			*url = cmp.Or(o.p.asking.local, reachableURL(c.listen(role)))
		}
		c, err := o.p.clientOf(*url, role)
		if err == nil {
			c.free = free
			ctx, cancel := context.WithTimeout(ctx, *timeout)
			defer cancel()
			err = c.probe(ctx, pick(*ready, "/health/ready", "/health/live"))
		}
		return o.named(err)
	}
}

// probe prints what a service answers for a path, which needs no credentials.
func (c *client) probe(ctx context.Context, path string) error {
	req, err := c.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	resp, err := c.exchange(req, false)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return err
	}
	said := printable(strings.TrimSpace(string(body)))
	if resp.StatusCode != http.StatusOK {
		return exitf(exitCode(c.refused(resp, body)), "%s answers %s for %s: %s", c.url, resp.Status, path, said)
	}
	_, err = fmt.Fprintln(c.p.stdout, said)
	return err
}
