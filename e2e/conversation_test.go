package e2e

// Conversations with the API: the files testdata/api/*.txt, each played with a
// fresh server. This file documents and reads the format;
// conversation_play_test.go plays conversations.
//
//	# templates: testdata/templates      directives, in the lines before the first request
//	POST /v1/tasks                       a request; indented below it its headers,
//	  X-Request-Id: abc                  then its body, sent as application/json
//	  {"name": "diamond"}                unless a Content-Type header says otherwise
//	code == 201                          a check of the answer
//	header Location ~ /v1/tasks/
//	json steps.# == 4
//	shape Task
//	set id = json task_uuid              a variable, used as {id} from here on
//	GET /v1/tasks/{id}
//	until json status == "complete"      repeats the GET until it holds
//
// Body lines of the form `body-text "a\x00"` (a Go string), `body-hex 7b7d` and
// `body-repeat "[" 10000` add exactly these bytes. Any other line is added as it
// is, followed by a line break if the next line is plain, too. A line that begins
// with # is a comment.
//
// A check is `code OP JSON`, `header NAME OP TEXT`, `body OP TEXT` or
// `json PATH OP JSON` with one of the operators
//
//	==  !=          equal: for json by value, otherwise as text
//	~  !~           matches a regular expression; values other than strings are matched as JSON
//	has             an object with at least these members
//	exists absent null
//	is KIND         is of a kind, see wire.Problems
//
// and `shape NAME` is short for `json . is NAME`. A path consists of member names
// and indexes with dots between them (`\.` is a dot in a name), or is `.` for the
// whole body; `#` is the length of a list, `*` all its elements, and `name=x` its
// first element whose member `name` is the string x.
// A variable is set from `json PATH`, `header NAME` or `repeat "x" 1000`.

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

// conversation is the content of one file. Its directives, the "# key: value" lines
// at the top, choose the server:
//
//	surface    worker, mount or fixture; orchestration by default. mount is the orchestration
//	           server with paths that begin with mount.path, and answers as in the mount-point
//	           API's document; fixture is the control API.
//	templates  a directory
//	config     "key = value" of a configuration file; several lines are joined by line breaks
type conversation struct {
	file       string
	directives map[string]string
	exchanges  []*convExchange
}

// convExchange is a request and the checks of its answer.
type convExchange struct {
	line    int
	method  string // "" for the lines before the first request
	path    string
	headers [][2]string
	body    []convBody
	checks  []convCheck
}

// convBody is a part of a request body.
type convBody struct {
	text  string
	plain bool // variables are replaced, and a line break separates it from a plain part that follows
}

// convCheck is a line with a check of an answer.
type convCheck struct {
	line  int
	text  string // the line, for messages
	until bool   // repeat the request until it holds
	set   string // the variable to set; then there is no op
	what  string // code, header, json, body, repeat
	arg   string // the header's name, the path; for repeat the value
	op    string
	want  string
}

var (
	conversationRequestLine   = regexp.MustCompile(`^([A-Z]+) (/\S*)$`)
	conversationHeaderLine    = regexp.MustCompile(`^([A-Z][A-Za-z0-9-]*):(?: (.*))?$`)
	conversationDirectiveLine = regexp.MustCompile(`^# ([a-z]+): (.+)$`)
	conversationVariable      = regexp.MustCompile(`\{([a-z][a-z0-9_]*)\}`)
	conversationSetLine       = regexp.MustCompile(`^set ([a-z][a-z0-9_]*) = (json|header|repeat) (.+)$`)
	conversationRepeatLine    = regexp.MustCompile(`^(".*"|'.*') ([0-9]+)$`)
	conversationCheckLine     = regexp.MustCompile(
		`^(?:(code|body)|(header|json) (\S+)) (?:(==|!=|~|!~|is|has) (.+)|(exists|absent|null))$`)
)

// conversationFiles returns the files of testdata/api, sorted.
func conversationFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(repository("testdata/api/*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata/api: got %d conversations, error %v; want some", len(files), err)
	}
	return files
}

// surface returns the surface that the conversation talks to.
func (c *conversation) surface() string { return cmp.Or(c.directives["surface"], "orchestration") }

// readConversation reads a file; errors name the line.
func readConversation(file string) (*conversation, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading a conversation: %w", err)
	}
	return parseConversation(file, string(text))
}

func parseConversation(file, text string) (*conversation, error) {
	c := &conversation{file: file, directives: map[string]string{}, exchanges: []*convExchange{{line: 1}}}
	n := 0
	for line := range strings.Lines(text) {
		n++
		if err := c.addLine(n, strings.TrimRight(line, " \r\n")); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
	}
	return c, nil
}

func (c *conversation) addLine(n int, line string) error {
	e := c.exchanges[len(c.exchanges)-1]
	switch {
	case line == "":
		return nil
	case line[0] == '#':
		return c.addComment(line)
	case line[0] == ' ' || line[0] == '\t':
		return e.addRequestLine(line)
	}
	if m := conversationRequestLine.FindStringSubmatch(line); m != nil {
		c.exchanges = append(c.exchanges, &convExchange{line: n, method: m[1], path: m[2]})
		return nil
	}
	k, err := parseConversationCheck(n, line)
	if err != nil {
		return err
	}
	return e.addCheck(k)
}

func (c *conversation) addComment(line string) error {
	m := conversationDirectiveLine.FindStringSubmatch(line)
	if m == nil || len(c.exchanges) > 1 {
		return nil
	}
	if !slices.Contains([]string{"surface", "templates", "config"}, m[1]) {
		return fmt.Errorf("unknown directive %q", m[1])
	}
	if old, ok := c.directives[m[1]]; ok {
		m[2] = old + "\n" + m[2]
	}
	c.directives[m[1]] = m[2]
	return nil
}

// addRequestLine adds a line that is indented below a request.
func (e *convExchange) addRequestLine(line string) error {
	text := strings.TrimPrefix(strings.TrimPrefix(line, "\t"), "  ")
	if e.method == "" || len(e.checks) > 0 {
		return fmt.Errorf("an indented line belongs to the request line above it")
	}
	if m := conversationHeaderLine.FindStringSubmatch(text); m != nil && e.body == nil {
		e.headers = append(e.headers, [2]string{m[1], m[2]})
		return nil
	}
	part, err := parseConversationBody(text)
	e.body = append(e.body, part)
	return err
}

func parseConversationBody(text string) (convBody, error) {
	if hexed, ok := strings.CutPrefix(text, "body-hex "); ok {
		b, err := hex.DecodeString(strings.ReplaceAll(hexed, " ", ""))
		return convBody{text: string(b)}, err
	}
	if quoted, ok := strings.CutPrefix(text, "body-text "); ok {
		s, err := strconv.Unquote(quoted)
		return convBody{text: s}, err
	}
	if repeat, ok := strings.CutPrefix(text, "body-repeat "); ok {
		s, err := parseConversationRepeat(repeat)
		return convBody{text: s}, err
	}
	return convBody{text: text, plain: true}, nil
}

// parseConversationRepeat reads a string in double quotes, as in Go, or in single quotes,
// without escapes, and how often it is repeated.
func parseConversationRepeat(text string) (string, error) {
	m := conversationRepeatLine.FindStringSubmatch(text)
	if m == nil {
		return "", fmt.Errorf(`got %s; want a quoted string and a number`, text)
	}
	s, n := m[1], 0
	if s[0] == '\'' {
		s = `"` + strings.ReplaceAll(s[1:len(s)-1], `"`, `\"`) + `"`
	}
	s, err := strconv.Unquote(s)
	if err == nil {
		n, err = strconv.Atoi(m[2])
	}
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", text, err)
	}
	return strings.Repeat(s, n), nil
}

func (e *convExchange) addCheck(k convCheck) error {
	if e.method == "" && k.what != "repeat" {
		return fmt.Errorf("%q comes before the first request", k.text)
	}
	if k.until && e.method != "GET" {
		return fmt.Errorf("until repeats a GET only, not a %s", e.method)
	}
	e.checks = append(e.checks, k)
	return nil
}

func parseConversationCheck(n int, line string) (convCheck, error) {
	rest, until := strings.CutPrefix(line, "until ")
	k := convCheck{line: n, text: line, until: until}
	if m := conversationSetLine.FindStringSubmatch(line); m != nil {
		k.set, k.what, k.arg = m[1], m[2], m[3]
		var err error
		if k.what == "repeat" {
			k.arg, err = parseConversationRepeat(k.arg)
		}
		return k, err
	}
	if shape, ok := strings.CutPrefix(rest, "shape "); ok {
		rest = "json . is " + shape
	}
	m := conversationCheckLine.FindStringSubmatch(rest)
	if m == nil {
		return k, fmt.Errorf("%q is neither a request nor a check", line)
	}
	k.what, k.arg, k.op, k.want = m[1]+m[2], m[3], m[4]+m[6], m[5]
	return k, k.validate()
}

// validate finds mistakes in a check that do not depend on the answer.
func (k *convCheck) validate() (err error) {
	byValue := k.what == "json" || k.what == "code"
	switch {
	case k.op == "==" || k.op == "!=" || k.op == "has":
		if byValue {
			_, err = wire.Decode([]byte(conversationVariable.ReplaceAllString(k.want, "0")))
		}
	case k.op == "~" || k.op == "!~":
		_, err = regexp.Compile(k.want)
	case k.op == "is":
		for alternative := range strings.SplitSeq(k.want, "|") {
			if !wire.KnowsKind(alternative) {
				err = fmt.Errorf("unknown kind %q", alternative)
			}
		}
	}
	return err
}
