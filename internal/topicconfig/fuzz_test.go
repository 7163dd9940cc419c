package topicconfig

import (
	"reflect"
	"testing"

	"github.com/duefleet/duefleet/internal/config"
)

// FuzzEdit: an edit writes the topic that the draft is, whatever the text of the document. It
// writes the same text if it is made again.
func FuzzEdit(f *testing.F) {
	for _, doc := range []string{"backoff: {max: 1m}\nshards: 8\n", "shard: 0\n", "intake: {}\n",
		"declare:\n  queue: q # a\n"} {
		for _, assignment := range []string{
			"shards=8", "shards=", "shard=", "=8", "shards", "declare=", "declare.queue=q", "declare=q", "declare.queue=\"",
			"exchange=a=b",
			"exchange= x ", "exchange=# x", "exchange=\n", "exchange=\u2028", "exchange=0x1f", "exchange=~", "exchange=\xff",
			"backoff.max=1h", "a.b.c=1", ".=1", "tick=1h",
		} {
			f.Add([]byte(doc), assignment)
		}
	}
	f.Fuzz(func(t *testing.T, doc []byte, assignment string) {
		d := config.ReadDraft("orders", doc)
		d.Assign(assignment)
		want, mistakes := d.Topic()
		written, _, err := edit("orders", doc, []string{assignment})
		if err != nil || mistakes != nil {
			if !reflect.DeepEqual(err, mistakes) {
				t.Fatalf("%q with %q: got %v, want %v", doc, assignment, err, mistakes)
			}
			return
		}
		if got, err := config.ParseTopic("orders", written); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q with %q became %q: got %+v, %v; want %+v", doc, assignment, written, got, err, want)
		}
		if again, _, err := edit("orders", written, nil); err != nil || string(again) != string(written) {
			t.Fatalf("%q became %q when it was written again: %v", written, again, err)
		}
	})
}
