// Package slip finds the name that was meant by one that is written wrong.
package slip

import (
	"strings"
	"unicode"
)

// Of returns the one of names that name is likely a slip of, or "" if it is like none. Names
// that differ in digits alone are a series, and short ones are all alike: neither is a slip.
func Of(name string, names []string) string {
	if len(name) < 4 {
		return ""
	}
	best, least := "", max(1, len(name)/4)+1
	for _, n := range names {
		if d := Distance(name, n); d < least && withoutDigits(n) != withoutDigits(name) {
			best, least = n, d
		}
	}
	return best
}

func withoutDigits(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, name)
}

// Distance counts the bytes to insert, delete or replace to make b of a
// (Levenshtein), one row of the matrix at a time.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
