package sink

import "strings"

// Nearest is the known name that a misspelt one probably means, or "" where none is
// near: it differs in case, dashes and underscores, or in a third of its letters, 3 at most.
func Nearest(given string, known []string) string {
	best, fewest := "", 4
	given = plainName(given)
	if len(given) > 64 {
		return ""
	}
	for _, name := range known {
		if n := edits(given, plainName(name)); n < fewest && n <= (max(len(given), len(name))+1)/3 {
			best, fewest = name, n
		}
	}
	return best
}

func plainName(name string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
}

// edits is how many letters must be inserted, left out, replaced or swapped with their
// neighbour to turn a into b.
func edits(a, b string) int {
	var before []int
	last, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range a {
		row[0] = i + 1
		for j := range b {
			replace := last[j]
			if a[i] != b[j] {
				replace++
			}
			row[j+1] = min(replace, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before = last
		last = row
		row = make([]int, len(b)+1)
	}
	return last[len(b)]
}
