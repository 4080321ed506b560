package e2e

import (
	"os"
	"stepwell/e2e/wire"
	"testing"
)

// TestMCPClient has the official client of the Model Context Protocol list and call every tool of the command mcp.
func TestMCPClient(t *testing.T) {
	t.Parallel()
	tools := os.Getenv("CLIENT_TOOLS")
	if tools == "" {
		wire.Lack(t, "CLIENT_TOOLS", "needs the client: export CLIENT_TOOLS=$(.ci/client-tools)")
	}
	p := serveWith(t, nil, "--fixture")
	c := clientTools{t, tools, t.TempDir(), nil}
	c.copy(repository("testdata/clients/agent.py"), "agent.py")
	c.run("python/bin/python", "agent.py", programFile(t), p.ready.OrchestrationURL)
}
