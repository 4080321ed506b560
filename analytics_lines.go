package main

// The figures as lines of the snapshot, one for each template and each step:
//
//	{"figures":"template","seq":120,"namespace":"t","name":"pair","version":"1.0.0",
//	 "all":{row},"hours":[{row},…]}
//	{"figures":"step", …,"step":"a","all":{row},"hours":[{row},…]}
//
// with rows like
//
//	{"hour":490896,"counts":{"attempts_ended":3,…},"bins":[[21,2],[40,1]],"sum":5310,"max":5000,
//	 "types":{"timeout":1},"last":1767225600123456}
//
// "hour" counts from the Unix epoch, durations are in microseconds. All lines
// of a snapshot are as of the sequence that it covers.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
)

// figuresHead is the start of a line of figures.
const figuresHead = `{"figures":`

// The two kinds of lines.
const (
	templateFiguresKind = "template"
	stepFiguresKind     = "step"
)

// figuresLine is one line on disk.
type figuresLine struct {
	Figures   string      `json:"figures"`
	Seq       uint64      `json:"seq"`
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Version   string      `json:"version"`
	Step      string      `json:"step,omitempty"`
	All       rowOnDisk   `json:"all"`
	Hours     []rowOnDisk `json:"hours"`
}

// rowOnDisk is one row on disk; members that are zero are left out.
type rowOnDisk struct {
	Hour   int64             `json:"hour,omitempty"`
	Counts map[string]uint64 `json:"counts,omitempty"`
	Bins   [][2]uint64       `json:"bins,omitempty"` // number and count
	Sum    int64             `json:"sum,omitempty"`
	Max    int64             `json:"max,omitempty"`
	Types  map[string]uint64 `json:"types,omitempty"`
	Last   instant           `json:"last,omitempty"`
}

// writeLines passes every line to add, without its closing brace.
func (f *frozenFigures) writeLines(seq uint64, add func(line []byte) error) error {
	for _, t := range f.templates {
		if err := f.writeLine(t.line(templateFiguresKind, seq), t.own, add); err != nil {
			return err
		}
		for i, s := range t.steps {
			line := t.line(stepFiguresKind, seq)
			line.Step = t.names[i]
			if err := f.writeLine(line, s, add); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *templateFigures) line(kind string, seq uint64) figuresLine {
	return figuresLine{
		Figures: kind, Seq: seq, Namespace: t.name.namespace, Name: t.name.name, Version: t.name.version,
	}
}

func (f *frozenFigures) writeLine(line figuresLine, s *figureSeries, add func(line []byte) error) error {
	if s == nil {
		return nil
	}
	line.All = s.all.onDisk()
	line.Hours = []rowOnDisk{}
	for _, r := range s.hours(f.newest - keptHours) {
		line.Hours = append(line.Hours, r.onDisk())
	}
	text, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("encoding figures: %w", err)
	}
	return add(text[:len(text)-1])
}

func (r *figureRow) onDisk() rowOnDisk {
	d := rowOnDisk{Hour: r.hour, Counts: map[string]uint64{}, Sum: r.times.sum, Max: r.times.max, Last: r.last}
	for f, n := range r.counts {
		if n > 0 {
			d.Counts[figureNames[f]] = n
		}
	}
	for _, b := range r.times.bins {
		d.Bins = append(d.Bins, [2]uint64{uint64(b.number()), b.count()})
	}
	if len(r.types) > 0 {
		d.Types = map[string]uint64{}
	}
	for _, t := range r.types {
		d.Types[errorKindName(t.kind)] = t.count
	}
	return d
}

// load reads a line of a snapshot into a book that has counted nothing yet.
func (a *analytics) load(line []byte) error {
	var l figuresLine
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return fmt.Errorf("figures: %w", err)
	}
	if l.Seq == 0 || a.covered != 0 && l.Seq != a.covered {
		return fmt.Errorf("figures as of sequence %d after figures as of sequence %d", l.Seq, a.covered)
	}
	a.covered = l.Seq
	s, err := l.series(&a.book)
	if err != nil {
		return fmt.Errorf("figures of %s.%s@%s %s: %w", l.Namespace, l.Name, l.Version, l.Step, err)
	}
	f := a.book.template(a.book.findOrAdd(templateID{l.Namespace, l.Name, l.Version}))
	p := &f.own
	switch l.Figures {
	case templateFiguresKind:
	case stepFiguresKind:
		p = &f.steps[f.findOrAdd(l.Step)]
	default:
		return fmt.Errorf("figures of an unknown kind %q, from a newer version", l.Figures)
	}
	if *p != nil {
		return fmt.Errorf("duplicate figures of %s.%s@%s %s", l.Namespace, l.Name, l.Version, l.Step)
	}
	*p = s
	if l.Figures == templateFiguresKind {
		a.book.addToWhole(s)
	}
	return nil
}

func (l *figuresLine) series(b *figureBook) (*figureSeries, error) {
	all, err := l.All.row(b.gen)
	s := &figureSeries{gen: b.gen, all: all}
	for i := range l.Hours {
		r, rowErr := l.Hours[i].row(b.gen)
		err = cmp.Or(err, rowErr)
		if s.now != nil && s.now.hour >= r.hour {
			return nil, fmt.Errorf("hour %d comes after hour %d", r.hour, s.now.hour)
		}
		if s.now != nil {
			s.past = append(s.past, s.now)
		}
		s.now = r
		b.newest = max(b.newest, r.hour)
	}
	return s, err
}

func (d *rowOnDisk) row(gen uint64) (*figureRow, error) {
	r := &figureRow{gen: gen, hour: d.Hour, last: d.Last}
	known := 0
	for f, name := range figureNames {
		if n, ok := d.Counts[name]; ok {
			r.counts[f] = n
			known++
		}
	}
	if known < len(d.Counts) {
		return r, fmt.Errorf("unknown counts, from a newer version: %v", d.Counts)
	}
	r.times.sum, r.times.max = d.Sum, d.Max
	for _, b := range d.Bins {
		r.times.bins = append(r.times.bins, makeBin(int(b[0]), b[1]))
		r.times.count += b[1]
	}
	for name, n := range d.Types {
		r.addType(errorKindNamed(name), n)
	}
	return r, nil
}
