package main

// Misspelt names: how far one word is from another, for "did you mean".

// typoLimit is how many letters may differ for a word to be taken for another.
func typoLimit(word string) int { return min(3, (len(word)+1)/3) }

// typoDistance is the least number of bytes put in, left out or replaced that
// makes a into b, or limit + 1 when it is more than limit.
func typoDistance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	row := make([]int, len(b)+1) // the distances of a[:i] to each b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal, least := row[0], i+1
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
			least = min(least, row[j+1])
		}
		if least > limit {
			return limit + 1
		}
	}
	return min(row[len(b)], limit+1)
}
