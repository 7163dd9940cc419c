package didyoumean

import "testing"

func TestTypos(t *testing.T) {
	t.Parallel()
	names := []string{"orders", "invoices.eu", "t38", "jobs1"}
	for name, want := range map[string]string{
		"order": "orders", "odrers": "", "ordrs": "orders", "invoice.eu": "invoices.eu",
		"invoces.ue": "", "t39": "", "jobs2": "", "jobs": "", "mails": "", "ord": "",
	} {
		if got := Of(name, names); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
