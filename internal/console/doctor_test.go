package console

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/duefleet/duefleet/internal/doctor"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// TestDoctorOnDemand: an operator has everything checked, one time for all, and everybody sees
// the findings afterwards. Nobody else may, and looking alone checks nothing.
func TestDoctorOnDemand(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	r.Serve(t, 1)
	cfg := settings()
	cfg.UsersFile = usersFile(t, map[string]string{"ann": ":operate", "bob": ""})
	var calls atomic.Int64
	goOn := make(chan struct{})
	s := serve(t, r.Store, Config{Settings: cfg, Doctor: func(ctx context.Context) []doctor.Finding {
		calls.Add(1)
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return append(doctor.Examine(ctx, doctor.Target{}), doctor.Finding{Check: "redis.eviction", State: doctor.Fail,
			What: "evicts <b>", Fix: "set noeviction"},
			doctor.Finding{Check: "queue", State: doctor.NotChecked, What: "no right"})
	}})
	ann := s.signIn(url.Values{"user": {"ann"}, "password": {"ann"}})
	bob := s.signIn(url.Values{"user": {"bob"}, "password": {"bob"}})
	_, page, _ := s.ask(http.MethodGet, "/doctor", nil, bob...)
	contains(t, page, "Not checked so far", `aria-current="page">Doctor`, "This needs the role operate")
	status, _, _ := s.ask(http.MethodPost, "/doctor", url.Values{}, bob...)
	check.Equal(t, "bob's", status, http.StatusForbidden)
	status, _, _ = s.ask(http.MethodPost, "/doctor", url.Values{}, append(ann, "Sec-Fetch-Site", "cross-site")...)
	check.Equal(t, "another site's", status, http.StatusForbidden)
	lines := s.events(t.Context(), "/stream/doctor", bob...)
	for range 2 {
		status, _, _ = s.ask(http.MethodPost, "/doctor", url.Values{}, ann...)
		check.Equal(t, "ann's", status, http.StatusSeeOther)
	}
	_, page, _ = s.ask(http.MethodGet, "/doctor", nil, bob...)
	contains(t, page, "Checks for ann")
	close(goOn)
	for line := ""; !strings.Contains(line, "evicts &lt;b&gt;"); {
		line = check.Receive(t, "the findings", lines)
	}
	check.Equal(t, "examinations", calls.Load(), 1)
	_, page, _ = s.ask(http.MethodGet, "/doctor", nil, ann...)
	contains(t, page, "1 of 3 checks found something wrong", "set noeviction", "for ann", "no right")
	if strings.Index(page, "redis.eviction") > strings.Index(page, ">config<") {
		t.Error("what is wrong isn't the first")
	}
	status, _, _ = s.ask(http.MethodPost, "/doctor", url.Values{}, ann...)
	check.Equal(t, "again", status, http.StatusSeeOther)
	check.Until(t, "a second examination", func() bool { return calls.Load() == 2 })
}
