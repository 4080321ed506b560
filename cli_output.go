package main

// What commands print: tables for people, with colours where the terminal shows them, and JSON for programs.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// shortOutput is the short name of --output.
const shortOutput = "o"

// outputForms are the values of -o.
var outputForms = []string{"table", "wide", "json", "jsonl", "name"}

// withOutput adds the flag -o, for print.
func (o *options) withOutput() *options {
	o.headless = o.Bool("no-headers", false, "omit the headings of a table")
	return o.withForms(outputForms...)
}

// withForms adds the flag -o with the forms that a command has.
func (o *options) withForms(forms ...string) *options {
	o.forms, o.output = forms, o.String("output", "table", "`FORM`: choose the form: "+strings.Join(forms, ", "))
	o.Var(o.Lookup("output").Value, shortOutput, o.Lookup("output").Usage)
	return o
}

func (o *options) checkForm() error {
	if o.output != nil && !slices.Contains(o.forms, *o.output) {
		return o.misuse("-o must be %s, not %q", anyOf(o.forms), *o.output)
	}
	return nil
}

// forPeople reports whether the output is a table, and not for a program.
func (o *options) forPeople() bool { return *o.output == "table" || *o.output == "wide" }

// output is a result, and its forms other than JSON.
type output struct {
	result any                        // encoded as JSON; a list has an element per item
	name   func(item document) string // what -o name prints for an item
	table  func(t *table)
}

// print writes a result in the form of -o.
func (o *options) print(out output) error {
	switch *o.output {
	case "table", "wide":
		t := &table{p: o.p, style: o.p.styleOf(o.p.stdout), wide: *o.output == "wide", headless: *o.headless}
		out.table(t)
		// Cells are printable already (see document.text); the door would escape our colours.
		return t.write(behindDoor(o.p.stdout))
	case "json":
		return o.p.printJSON(out.result)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(out.result); err != nil {
		return err
	}
	whole := readDocument(b.Bytes())
	items := whole.list()
	if !whole.isList() {
		items = []document{whole}
	}
	for _, item := range items {
		text := string(item.raw)
		if *o.output == "name" {
			text = out.name(item)
		}
		fmt.Fprintln(o.p.stdout, text)
	}
	return nil
}

// qualifiedName returns the namespace and the name of a template, as commands take them.
func qualifiedName(d document) string { return d.text("namespace") + "/" + d.text("name") }

// outOf adds a line such as "25 of 310" to a table, unless everything was listed.
func (out output) outOf(listed, all int) output {
	rows := out.table
	out.table = func(t *table) {
		if rows(t); listed > 0 && all > listed && !t.headless {
			t.line(fmt.Sprintf("%d of %d", listed, all))
		}
	}
	return out
}

// member returns what -o name prints: a member of the items, or the name of a template.
func member(path string) func(document) string {
	if path == "template" {
		return qualifiedName
	}
	return func(d document) string { return d.text(path) }
}

// document is a JSON value in a response. Its methods return nothing for members that do not exist.
type document struct{ raw json.RawMessage }

// readDocument makes a document of JSON, without insignificant space.
func readDocument(data []byte) document {
	var b bytes.Buffer
	if json.Compact(&b, unmarked(data)) != nil {
		return document{}
	}
	return document{b.Bytes()}
}

func (d document) MarshalJSON() ([]byte, error) {
	if d.raw == nil {
		return []byte("null"), nil
	}
	return d.raw, nil
}

// at returns the value at a path of member names and indexes, as in "steps.0.name".
func (d document) at(path string) document {
	for path != "" {
		var word string
		word, path, _ = strings.Cut(path, ".")
		if i, err := strconv.Atoi(word); err == nil && d.isList() {
			if list := d.list(); i < len(list) {
				d = list[i]
				continue
			}
			return document{}
		}
		d = document{objectMember(d.raw, word)}
	}
	return d
}

// text returns the value at a path as a printable text: a string without its quotes, nothing for null.
func (d document) text(path string) string { return printable(d.exact(path)) }

// exact is like text, but returns what the service sent, for programs: it may mislead a terminal.
func (d document) exact(path string) string {
	d = d.at(path)
	var s string
	switch {
	case len(d.raw) == 0 || string(d.raw) == "null":
		return ""
	case d.raw[0] == '"' && json.Unmarshal(d.raw, &s) == nil:
		return s
	}
	return string(d.raw)
}

// json returns the value at a path as printable JSON, or nothing if it is not there.
func (d document) json(path string) string { return printable(string(d.at(path).raw)) }

func (d document) isList() bool { return len(d.raw) > 0 && d.raw[0] == '[' }

// list returns the elements of an array.
func (d document) list() (all []document) {
	for e := range jsonElements(d.raw) {
		all = append(all, document{e})
	}
	return all
}

func (d document) number(path string) float64 {
	f, _ := strconv.ParseFloat(d.text(path), 64)
	return f
}

// when returns the time at a path, which is in UTC if it has no zone.
func (d document) when(path string) (at time.Time, ok bool) {
	i, err := parseInstant(d.text(path))
	return i.time(), err == nil
}

// style describes what an output device can show.
type style struct {
	colour   bool
	terminal *os.File // nil if it is none
}

// styleOf returns the style for a writer: colours on a terminal, unless NO_COLOR is set.
func (p *process) styleOf(w io.Writer) (s style) {
	if f, ok := behindDoor(w).(*os.File); ok && isTerminal(w) && p.getenv("TERM") != "dumb" {
		s.terminal = f
		s.colour = p.getenv("NO_COLOR") == "" && showsColours(f)
	}
	return s
}

// Colours are SGR parameters (ECMA-48 §8.3.117).
const (
	plain  = ""
	bold   = "1"
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
)

func (s style) paint(colour, text string) string {
	if !s.colour || colour == plain || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// look is how a state is shown.
type look struct{ colour, sign string }

var looks = map[string]look{
	"complete": {green, "✔"}, "resolved_manually": {green, "✔"}, "healthy": {green, "✔"},
	"succeeded": {green, "✔"}, "failed": {red, "✖"},
	"error": {red, "✖"}, "blocked_by_failures": {red, "✖"}, "stale": {red, "✖"},
	"cancelled": {faint, "⊘"}, "in_progress": {blue, "▶"}, "steps_in_process": {blue, "▶"},
	"waiting_for_retry": {yellow, "↻"}, "warning": {yellow, "!"},
}

func (s style) sign(state string) string {
	l, ok := looks[state]
	if !ok {
		l = look{faint, "·"}
	}
	return s.paint(l.colour, l.sign)
}

// state returns the sign and the name of a state.
func (s style) state(state string) string {
	if state == "" {
		return ""
	}
	return s.sign(state) + " " + s.paint(looks[state].colour, state)
}

// table is a table of aligned columns.
type table struct {
	style
	p              *process
	wide, headless bool
	rows           [][]string
}

// head adds the row of headings.
func (t *table) head(cells ...string) {
	if t.headless {
		return
	}
	for i, cell := range cells {
		cells[i] = t.paint(bold, cell)
	}
	t.rows = append(t.rows, cells)
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// line adds a line that is not a row; the columns after it are aligned again.
func (t *table) line(text string) { t.rows = append(t.rows, nil, []string{text}, nil) }

// write writes the rows. A nil row ends a block of aligned columns.
func (t *table) write(w io.Writer) error {
	var b strings.Builder
	for begin := 0; begin < len(t.rows); {
		end := begin
		for end < len(t.rows) && t.rows[end] != nil {
			end++
		}
		writeAligned(&b, t.rows[begin:end])
		begin = end + 1
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// widthsOf returns how many columns the cells of rows take.
func widthsOf(rows [][]string) (widths []int) {
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], shownWidth(cell))
		}
	}
	return widths
}

func writeAligned(b *strings.Builder, rows [][]string) {
	widths := widthsOf(rows)
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-shownWidth(cell)+2))
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// shownWidth returns how many columns a text takes, without its colours.
func shownWidth(s string) (n int) {
	for len(s) > 0 {
		if strings.HasPrefix(s, "\x1b[") {
			s = s[strings.IndexByte(s, 'm')+1:]
			continue
		}
		r, size := utf8.DecodeRuneInString(s)
		n, s = n+runeWidth(r), s[size:]
	}
	return n
}

// runeWidth returns how many columns a character takes.
func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf): // it joins the one before
		return 0
	}
	return 1 + boolCount(unicode.Is(wideRunes, r))
}

// wideRunes are the characters that take two columns (Unicode Standard Annex #11, without the rarest).
var wideRunes = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115f, 1}, {0x231a, 0x231b, 1}, {0x23e9, 0x23ec, 1}, {0x23f0, 0x23f3, 3}, {0x2614, 0x2615, 1}, {0x2648, 0x2653, 1},
		{0x26a1, 0x26a1, 1}, {0x26d4, 0x26d4, 1}, {0x2705, 0x2705, 1}, {0x270a, 0x270b, 1}, {0x2728, 0x2728, 1}, {0x274c, 0x274e, 2},
		{0x2753, 0x2755, 1}, {0x2757, 0x2757, 1}, {0x2795, 0x2797, 1}, {0x2b50, 0x2b55, 5}, {0x2e80, 0x303e, 1}, {0x3041, 0xa4cf, 1},
		{0xac00, 0xd7a3, 1}, {0xf900, 0xfaff, 1}, {0xfe30, 0xfe6f, 1}, {0xff00, 0xff60, 1}, {0xffe0, 0xffe6, 1},
	},
	R32: []unicode.Range32{{0x1f300, 0x1f64f, 1}, {0x1f680, 0x1f6ff, 1}, {0x1f900, 0x1faff, 1}, {0x20000, 0x3fffd, 1}},
}

// clipShown shortens a line to a number of columns, and keeps its colours whole.
func clipShown(s string, columns int) string {
	if shownWidth(s) <= columns {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		if strings.HasPrefix(s, "\x1b[") {
			end := strings.IndexByte(s, 'm') + 1
			b.WriteString(s[:end])
			s = s[end:]
			continue
		}
		r, size := utf8.DecodeRuneInString(s)
		if columns -= runeWidth(r); columns < 1 { // the ellipsis takes one
			break
		}
		b.WriteString(s[:size])
		s = s[size:]
	}
	b.WriteString("…")
	if strings.Contains(b.String(), "\x1b[") {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}

// column is a column of a list.
type column struct {
	head string
	show func(t *table, item document) string
	wide bool // only with -o wide
	any  bool // only if an item has a value
}

// of returns a column of a member's text.
func of(head, path string) column {
	return column{head: head, show: func(_ *table, d document) string { return d.text(path) }}
}

func stateOfColumn(head, path string) column {
	return column{head: head, show: func(t *table, d document) string { return t.state(d.text(path)) }}
}

func ageOf(head, path string) column {
	return column{head: head, show: func(t *table, d document) string { return t.p.age(d, path) }}
}

// whenWide returns the column for -o wide alone.
func (c column) whenWide() column {
	c.wide = true
	return c
}

// list adds a row per item.
func (t *table) list(items []document, columns []column) {
	var shown []column
	var heads []string
	for _, c := range columns {
		has := func(d document) bool { return c.show(t, d) != "" }
		if (t.wide || !c.wide) && (!c.any || slices.ContainsFunc(items, has)) {
			shown, heads = append(shown, c), append(heads, c.head)
		}
	}
	begin := len(t.rows)
	t.head(heads...)
	for _, item := range items {
		cells := make([]string, len(shown))
		for i, c := range shown {
			cells[i] = c.show(t, item)
		}
		t.row(cells...)
	}
	if t.terminal != nil && !t.wide {
		fitRows(t.rows[begin:], terminalColumns(t.terminal))
	}
}

// The columns that remain of a cell that is cut to fit a window. Those of a UUID show its time (RFC 9562, 5.7), which
// usually identifies a task.
const (
	shortestCell = 12
	shortestUUID = 14
)

// fitRows cuts the cells of rows so that these have at most so many columns: UUIDs first, then the widest column, and
// so on.
func fitRows(rows [][]string, columns int) {
	widths := widthsOf(rows)
	over, cuts, least := -2-columns, make([]int, len(widths)), make([]int, len(widths))
	for i, w := range widths {
		over += w + 2 // two spaces follow each column but the last
		cuts[i], least[i] = i, shortestCell
		if _, isUUID := parseUUID(rows[len(rows)-1][i]); isUUID {
			least[i] = shortestUUID
		}
	}
	slices.SortStableFunc(cuts, func(a, b int) int { return cmp.Or(least[b]-least[a], widths[b]-widths[a]) })
	for _, i := range cuts {
		cut := max(0, min(over, widths[i]-least[i]))
		widths[i], over = widths[i]-cut, over-cut
	}
	for _, row := range rows {
		for i, cell := range row {
			row[i] = clipShown(cell, widths[i])
		}
	}
}

// fields adds a row per column, for one item, and leaves out those without a value.
func (t *table) fields(item document, columns []column) {
	for _, c := range columns {
		if text := c.show(t, item); text != "" && (t.wide || !c.wide) {
			t.lines(t.paint(faint, c.head), text)
		}
	}
}

// lines adds a row whose text may have several lines.
func (t *table) lines(head, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		t.row(head, line)
		head = ""
	}
}

// spacedTabs replaces tabs, with which the frames of traces begin, by spaces.
func spacedTabs(text string) string { return strings.ReplaceAll(text, "\t", "    ") }

// printableLines is printable for a text whose lines stay apart.
func printableLines(text string) string {
	lines := strings.Split(strings.TrimRight(spacedTabs(text), "\n"), "\n")
	for i, line := range lines {
		lines[i] = printable(strings.TrimSuffix(line, "\r"))
	}
	return strings.Join(lines, "\n")
}

// serviceNow returns the time of the service that was asked last.
func (p *process) serviceNow() instant { return p.now() + instant(p.ahead.Load()) }

// age returns how long ago the time at a path is, for the service.
func (p *process) age(d document, path string) string {
	at, ok := d.when(path)
	if !ok {
		return ""
	}
	return shortDuration(max(0, p.serviceNow().time().Sub(at)))
}

// until returns how long it is until a time.
func (p *process) until(d document, path string) string {
	at, ok := d.when(path)
	if !ok {
		return ""
	}
	return shortDuration(at.Sub(p.serviceNow().time()).Round(time.Second))
}

// shortDuration writes a duration with at most two units, as in 3m12s.
func shortDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + shortDuration(-d)
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%gms", math.Round(float64(d)/1e4)/100)
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%gs", math.Round(d.Seconds()*10)/10)
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	}
	big, small, units := 24*time.Hour, time.Hour, "dh"
	if d < time.Hour {
		big, small, units = time.Minute, time.Second, "ms"
	} else if d < big {
		big, small, units = time.Hour, time.Minute, "hm"
	}
	text := fmt.Sprintf("%d%c", d/big, units[0])
	if rest := d % big / small; rest > 0 {
		text += fmt.Sprintf("%d%c", rest, units[1])
	}
	return text
}

func minutesOf(head, path string) column {
	return column{head: head, show: func(_ *table, d document) string {
		if d.text(path) == "" {
			return ""
		}
		return fmt.Sprintf("%.0fm", d.number(path))
	}}
}

var taskNameColumn = column{head: "TEMPLATE", show: func(_ *table, d document) string {
	return d.text("namespace_name") + "/" + d.text("task_name")
}}

// members iterates over the members of an object, in its order.
func (d document) members() iter.Seq2[string, document] {
	return func(yield func(string, document) bool) {
		for name, value := range jsonMembers(d.raw) {
			if !yield(printable(name), document{value}) {
				return
			}
		}
	}
}

// The door to the terminal. What services and files say is data: it cannot move the cursor, retitle the window, forge
// a line or reorder what a person reads. Texts of documents are printable (see document.text), and everything else that
// a terminal gets passes a door, which escapes what misleads.

// door is an output that people read. It escapes the characters that mislead, except line feeds.
type door struct {
	w io.Writer

	mu   sync.Mutex
	rest []byte // the beginning of a character that the next Write ends; guarded by mu
}

func (d *door) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := append(d.rest, p...)
	// A writer may split a text anywhere, so the bytes of a cut character wait for the rest.
	end := len(text) - cutRune(text)
	d.rest = bytes.Clone(text[end:])
	if _, err := io.WriteString(d.w, escape(string(text[:end]), "\n")); err != nil {
		return 0, err
	}
	return len(p), nil
}

// behindDoor returns the output itself, for printable texts with our own colours and moves of the cursor.
func behindDoor(w io.Writer) io.Writer {
	if d, ok := w.(*door); ok {
		return d.w
	}
	return w
}

// isTerminal reports whether an output is a terminal, or another character device.
func isTerminal(w io.Writer) bool {
	if q, ok := w.(*logQueue); ok {
		w = q.to
	}
	f, ok := behindDoor(w).(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
