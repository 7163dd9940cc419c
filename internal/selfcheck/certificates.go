package selfcheck

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/telemetry"
)

const (
	// certificateRest is how long before its end a certificate becomes a problem.
	certificateRest = 7 * 24 * time.Hour
	// certificateInterval is the time between two looks at the files.
	certificateInterval = time.Minute
)

// Certificates checks whether certificates of this scanner's files end soon: the authorities' and
// its own. It doesn't see the certificates of servers.
type Certificates struct {
	Files []connect.Certificate
	Log   *slog.Logger
	Every time.Duration // between two looks; 0: a minute

	found atomic.Pointer[problem.Problem] // nil: none ends soon
}

// Watch runs the check until ctx ends.
func (k *Certificates) Watch(ctx context.Context) {
	for ctx.Err() == nil {
		k.Look(ctx)
		retry.Sleep(ctx, cmp.Or(k.Every, certificateInterval))
	}
}

// Look reads the files once. Certificates that end soon are one problem.
func (k *Certificates) Look(ctx context.Context) {
	now, first := time.Now(), time.Time{}
	var texts []string
	for _, c := range k.Files {
		end := c.Expires()
		if end.Sub(now) >= certificateRest {
			continue
		}
		verb := "ends"
		if end.Before(now) {
			verb = "ended"
		}
		texts = append(texts, fmt.Sprintf("%s, for connections to %s, %s at %s", c.File, c.Use, verb,
			end.UTC().Format(time.RFC3339)))
		if first.IsZero() || end.Before(first) {
			first = end
		}
	}
	before := k.found.Load()
	switch {
	case len(texts) > 0:
		p := problem.New(problem.CertificateExpiring, "", "a certificate ends soon: "+strings.Join(texts, "; "))
		p.Facts = map[string]string{"ends": first.UTC().Format(time.RFC3339)}
		if k.found.Store(&p); before == nil {
			k.Log.WarnContext(ctx, "a certificate ends soon", "why", strings.Join(texts, "; "))
		}
	case before != nil:
		k.found.Store(nil)
		k.Log.InfoContext(ctx, "no certificate ends soon")
	}
}

// Problems returns which certificates of this scanner end soon.
func (k *Certificates) Problems() []problem.Problem { return one(k.found.Load()) }

// Last fails while a certificate ends soon. Connections are still possible, so the check isn't
// required.
func (k *Certificates) Last() telemetry.Result {
	return telemetry.Probed("none ends soon", k.Problems()...)
}
