package main

// The command openapi, which prints the document of a surface.

import (
	"context"
	"encoding/json"
	"slices"
)

// openAPICommand prints the document of a surface, as it is without a configuration.
func openAPICommand() command {
	surfaces := []string{"orchestration", "worker", "mount"}
	return command{
		name: "openapi", help: "print the OpenAPI document of a role or of the mount point",
		examples: []string{"openapi > openapi.json", "openapi --role worker"},
		define: func(o *options) runner {
			role := o.String("role", "orchestration", "the `ROLE`: "+anyOf(surfaces))
			return func(context.Context, []string) error {
				if !slices.Contains(surfaces, *role) {
					return o.misuse("--role must be %s, not %q", anyOf(surfaces), *role)
				}
				document, err := openAPIForSurface(defaultAPIKeyHeader, nil, *role)
				if err != nil {
					return err
				}
				return o.p.printJSON(json.RawMessage(document))
			}
		},
	}
}
