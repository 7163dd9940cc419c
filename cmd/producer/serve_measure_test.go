//go:build measure

package main

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

// TestMeasureIdleConnections: a connection that is idle after a request takes at most 64 KiB,
// by the peaks of servers with one and with 1,000.
func TestMeasureIdleConnections(t *testing.T) {
	const many, each = 1000, 64 << 10
	one, all := idle(t, 1), idle(t, many)
	t.Logf("peak with one connection %d MiB, with %d connections %d MiB: %d KiB each", one>>20, many, all>>20,
		(all-one)/many>>10)
	if all-one > many*each {
		t.Errorf("the limit is %d KiB each", each>>10)
	}
}

// idle returns the peak memory, in bytes, of a server with n connections that are idle after a
// request.
func idle(t *testing.T, n int) int64 {
	t.Helper()
	s := newSandbox(t).serve("--max-connections", fmt.Sprint(n))
	for i := range n {
		client := &http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			fmt.Sprintf("http://%s/v1/topics/orders/tasks/o-%d", s.addr, i), nil)
		check.OK(t, err)
		req.Header.Set("Authorization", "Bearer "+testToken)
		resp, err := client.Do(req)
		check.OK(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		check.OK(t, err)
		check.OK(t, resp.Body.Close())
		check.Equal(t, "status", resp.StatusCode, http.StatusNotFound)
	}
	s.stop(t)
	peak := peakMemory(s.cmd.ProcessState)
	if peak == 0 {
		t.Fatal("how much memory the server held is not known on this system")
	}
	return peak
}
