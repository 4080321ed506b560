package main

// Subsets of JSON values: whether a value has everything that another one names.

// jsonSubset is what a JSON value must have, compiled.
type jsonSubset struct {
	members map[string]*jsonSubset // of an object; nil for any other value
	value   []byte                 // of what is no object
	leaves  int                    // how many values it names, at all levels
}

// newJSONSubset compiles a text that passed checkJSON.
func newJSONSubset(raw []byte) *jsonSubset {
	if jsonKind(raw) != '{' {
		return &jsonSubset{value: raw, leaves: 1}
	}
	s := &jsonSubset{members: map[string]*jsonSubset{}}
	eachMember(raw, func(key string, value []byte) bool {
		m := newJSONSubset(value)
		s.members[key] = m
		s.leaves += m.leaves
		return true
	})
	return s
}

// fits tells whether a value has each member named, as it is named: objects may
// have more of them, arrays must be equal, numbers count by their value.
func (s *jsonSubset) fits(raw []byte) bool {
	if s.members == nil {
		return sameJSON(s.value, raw)
	}
	found := 0
	isObject := eachMember(raw, func(key string, value []byte) bool {
		m := s.members[key]
		if m != nil && !m.fits(value) {
			return false
		}
		if m != nil {
			found++
		}
		return found < len(s.members)
	})
	return isObject && found == len(s.members)
}

// sameJSON tells whether two texts that passed checkJSON stand for one value.
func sameJSON(a, b []byte) bool {
	kind := jsonKind(a)
	if kind != jsonKind(b) {
		return false
	}
	switch kind {
	case '0':
		return exactNumber(compactJSON(nil, a)).Cmp(exactNumber(compactJSON(nil, b))) == 0
	case '"':
		s, _ := jsonString(a)
		t, _ := jsonString(b)
		return s == t
	case '[':
		return sameElements(a, b)
	case '{':
		return newJSONSubset(a).equals(b)
	}
	return true
}

func sameElements(a, b []byte) bool {
	var all [][]byte
	eachElement(b, func(e []byte) bool { all = append(all, e); return true })
	same := true
	eachElement(a, func(e []byte) bool {
		same = len(all) > 0 && sameJSON(e, all[0])
		if same {
			all = all[1:]
		}
		return same
	})
	return same && len(all) == 0
}

// equals is fits for an object that has no member more, at any level.
func (s *jsonSubset) equals(raw []byte) bool {
	if s.members == nil {
		return sameJSON(s.value, raw)
	}
	same := jsonKind(raw) == '{' && countMembers(raw) == len(s.members)
	if same {
		eachMember(raw, func(key string, value []byte) bool {
			m := s.members[key]
			same = m != nil && m.equals(value)
			return same
		})
	}
	return same
}

func countMembers(object []byte) (n int) {
	eachMember(object, func(string, []byte) bool { n++; return true })
	return n
}
