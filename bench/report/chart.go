package report

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart draws the figures with one name. Each subject ends with a number, which is the
// point's place on the horizontal axis. For example, "scanners: 3, M = 16" is a point at
// 16 on the line "scanners: 3".
type Chart struct {
	// File is the name of the SVG file, and Title its heading.
	File, Title string
	// Name is the figures' name.
	Name string
	// Split is the text in the subject between the line's name and the number.
	Split string
	// X is the label of the horizontal axis, which is logarithmic.
	X string
}

// Draw writes the chart to a folder. If the sheet has no such figures, it writes nothing
// and returns an empty path.
func (c Chart) Draw(s Sheet, dir string) (path string, err error) {
	lines := c.lines(s)
	if len(lines) == 0 {
		return "", nil
	}
	p, err := c.plot(lines)
	if err != nil {
		return "", fmt.Errorf("draw %s: %w", c.File, err)
	}
	return c.File, c.save(p, filepath.Join(dir, c.File))
}

func (c Chart) plot(lines []chartLine) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Name
	p.Legend.Top, p.Legend.Left = true, true
	p.X.Scale, p.Y.Min = plot.LogScale{}, 0
	p.X.Tick.Marker = powersOfTwo{}
	p.Add(plotter.NewGrid())
	largest := 0.0
	for i, l := range lines {
		line, points, err := plotter.NewLinePoints(l.points)
		if err != nil {
			return nil, err
		}
		line.Color, points.Color, points.Shape = plotutil.Color(i), plotutil.Color(i), draw.CircleGlyph{}
		p.Add(line, points)
		p.Legend.Add(l.name, line, points)
		for _, xy := range l.points {
			largest = max(largest, xy.Y)
		}
	}
	// Leave room for the legend.
	p.Y.Max = largest * 1.4
	return p, nil
}

func (c Chart) save(p *plot.Plot, path string) error {
	const width, height = 16 * vg.Centimeter, 10 * vg.Centimeter
	canvas := vgsvg.New(width, height)
	p.Draw(draw.New(canvas))
	f, err := os.Create(path) //nolint:gosec // a chart of ours
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(f); err != nil {
		_ = f.Close()
		return fmt.Errorf("draw %s: %w", path, err)
	}
	return f.Close()
}

type chartLine struct {
	name   string
	points plotter.XYs
}

func (c Chart) lines(s Sheet) []chartLine {
	var lines []chartLine
	for _, f := range s.Figures {
		name, x, ok := strings.Cut(f.Subject, c.Split)
		at, err := strconv.ParseFloat(x, 64)
		if f.Name != c.Name || !ok || err != nil {
			continue
		}
		i := slices.IndexFunc(lines, func(l chartLine) bool { return l.name == name })
		if i < 0 {
			i = len(lines)
			lines = append(lines, chartLine{name: name})
		}
		lines[i].points = append(lines[i].points, plotter.XY{X: at, Y: f.Median})
	}
	return lines
}

// powersOfTwo sets the marks of the horizontal axis.
type powersOfTwo struct{}

// Ticks returns the powers of two between two values.
func (powersOfTwo) Ticks(least, most float64) []plot.Tick {
	var ticks []plot.Tick
	for v := 1.0; v <= most; v *= 2 {
		if v >= least {
			ticks = append(ticks, plot.Tick{Value: v, Label: strconv.Itoa(int(v))})
		}
	}
	return ticks
}
