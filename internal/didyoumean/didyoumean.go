// Package didyoumean finds the name that somebody probably meant when they mistyped it.
package didyoumean

import (
	"strings"
	"unicode"
)

// Of returns the one of names that is most like the mistyped name, or "" if none is like
// it. A difference only in digits is no typing error, as in jobs1 and jobs2. Names
// shorter than 4 bytes are too similar to each other to guess.
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

// Distance returns the Levenshtein distance: the number of bytes to insert, delete or
// replace to turn a into b.
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
