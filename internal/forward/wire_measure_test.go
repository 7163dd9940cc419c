//go:build measure

package forward

import (
	"testing"
	"time"
)

func TestMeasureWireEndsAWriteThatBlocks(t *testing.T) {
	const timeout = 200 * time.Millisecond
	if took := endBlockedWrite(t, timeout); took > 5*time.Second {
		t.Errorf("an error after %v, want one after %v", took, timeout)
	}
}
