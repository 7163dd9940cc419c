package consumer

import (
	"errors"
	"fmt"
	"testing"
)

// TestATestOfAHandlerSeesWhatItDecides, also if the error is wrapped.
func TestATestOfAHandlerSeesWhatItDecides(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		err             error
		parked, dropped bool
	}{
		"nothing":        {nil, false, false},
		"a failure":      {errTest, false, false},
		"parked":         {Park(errTest), true, false},
		"dropped":        {Drop(errTest), false, true},
		"parked wrapped": {fmt.Errorf("charge: %w", Park(errTest)), true, false},
		"dropped joined": {errors.Join(errTest, Drop(nil)), false, true},
	} {
		if IsParked(row.err) != row.parked || IsDropped(row.err) != row.dropped {
			t.Errorf("%s: parked %v, dropped %v", name, IsParked(row.err), IsDropped(row.err))
		}
	}
}
