package admin

import (
	"fmt"
	"iter"
	"strings"
)

// few is how many items that are alike are shown, and how many names a text has. The others
// are counted.
const few = 3

// Few returns the items for a reader, in their order, with a nil slice each. If a kind has more
// than three items, Few returns three. Then it returns the fourth, with a slice of all the others
// of its kind, itself included. It returns all items of the kind "".
func Few[T any](items []T, kind func(T) string) iter.Seq2[T, []T] {
	return func(yield func(T, []T) bool) {
		kinds := map[string][]T{}
		for _, item := range items {
			kinds[kind(item)] = append(kinds[kind(item)], item)
		}
		seen := map[string]int{}
		for _, item := range items {
			k := kind(item)
			var more []T
			if seen[k]++; k != "" && seen[k] > few {
				more = kinds[k][few:]
			}
			if (more == nil || seen[k] == few+1) && !yield(item, more) {
				return
			}
		}
	}
}

// Names returns names as text, as in "a, b, c and 994 more".
func Names(names []string) string {
	if more := len(names) - few; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), more)
	}
	return strings.Join(names, ", ")
}
