package console

import (
	"strings"

	udiff "github.com/aymanbagabas/go-udiff"
)

// diffLine is a line of a unified difference. Kind is "added", "gone", "place" or "".
type diffLine struct{ Kind, Text string }

// unified returns the difference between two texts, without the names of files.
func unified(before, after []byte) (lines []diffLine) {
	text := udiff.Unified("", "", string(before), string(after))
	_, text, _ = strings.Cut(text, "\n")
	_, text, _ = strings.Cut(text, "\n")
	kinds := map[byte]string{'+': "added", '-': "gone", '@': "place"}
	for line := range strings.Lines(text) {
		lines = append(lines, diffLine{kinds[line[0]], strings.TrimSuffix(line, "\n")})
	}
	return lines
}
