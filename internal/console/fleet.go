package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/problem"
)

// fleetView has everything that the page of the fleet shows.
type fleetView struct {
	Live    int
	Members []fleetRow
	// Problems are those that no single scanner has.
	Problems []problemRow
}

// fleetRow is one scanner and the problems that it has.
type fleetRow struct {
	memberRow
	Documents string
	Problems  []problem.Problem
}

func (c *Console) fleet(_ context.Context, _ *http.Request, now reading) (any, error) {
	v := fleetView{Live: len(balance.Live(now.Fleet))}
	for _, m := range now.Fleet {
		row := fleetRow{memberRow: newMemberRow(m, now.At), Documents: "–"}
		if m.Documents != 0 {
			row.Documents = fmt.Sprintf("%08x", m.Documents>>32)
		}
		for _, p := range now.Problems {
			if slices.Contains(p.Nodes, m.Instance) {
				row.Problems = append(row.Problems, p)
			}
		}
		v.Members = append(v.Members, row)
	}
	for _, p := range problemRows(now.Problems, v.Live) {
		if len(p.Nodes) == 0 {
			v.Problems = append(v.Problems, p)
		}
	}
	return v, nil
}
