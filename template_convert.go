package main

// Converting a definition to JSON.

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// convertTemplate returns the definition of a file as JSON, or its line in a store. It fails if the definition has
// problems.
func convertTemplate(file string, data []byte, to string) ([]byte, error) {
	from := templateFormat(file)
	t, problems, _ := parseTemplate(file, data, from, "", nil)
	if t == nil {
		return nil, problems
	}
	if to == "line" {
		return fmt.Appendf(nil, `{"hash":%q,"definition":%s}`+"\n", t.hash, t.json), nil
	}
	var out bytes.Buffer
	err := json.Indent(&out, (&templateReader{file: file}).definition(data, from), "", "  ")
	return append(out.Bytes(), '\n'), err
}
