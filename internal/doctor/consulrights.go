package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/duefleet/duefleet/internal/consul"
)

// consulRights are the folders that a token may not write, of those that scanners or
// operators write.
type consulRights struct{ scanners, operators []string }

// examineConsulRights asks Consul what the token may write, and writes nothing. It returns
// whether the token may write documents and their histories, as an operator's may. Without
// an answer it may.
func (p Target) examineConsulRights(ctx context.Context, r *report) (writes bool) {
	const check = "consul.rights"
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	prefix := p.Settings.Consul.Prefix
	lacks, err := p.readConsulRights(ctx)
	switch {
	case err != nil:
		r.failErr(ctx, err, check, fixConsul(p.Settings.Consul, err), "%v", err)
		return true
	case len(lacks.scanners) == 0:
		r.ok(check, "the token may read the topics and write under %s/status/ and %s/identity/", prefix, prefix)
	case len(lacks.operators) == 0:
		r.info(check, "the token has the rights of an operator, not of a scanner; to check the scanners' rights, run doctor "+
			"with their configuration")
	case len(lacks.operators) == 1 && len(lacks.scanners) > 1: // what it lacks concerns the caller, not the fleet
		r.warn(check, operatorPolicy(prefix), "the token has rights of an operator, and may not write under %s",
			lacks.operators[0])
	default:
		r.fail(check, scannerPolicy(prefix), "the token may not write under %s", strings.Join(lacks.scanners, " and "))
	}
	return len(lacks.operators) == 0
}

func (p Target) readConsulRights(ctx context.Context) (lacks consulRights, err error) {
	prefix := p.Settings.Consul.Prefix
	status, err := p.Consul.MayWriteStatus(ctx, "doctor")
	if err != nil {
		return lacks, err
	}
	identity, err := p.Consul.MayWriteIdentity(ctx, p.Settings.Redis.Prefix)
	if err != nil {
		return lacks, err
	}
	documents, histories, err := p.Consul.MayWriteTopics(ctx)
	add := func(to *[]string, folder string, may bool) {
		if !may {
			*to = append(*to, prefix+"/"+folder+"/")
		}
	}
	add(&lacks.scanners, "status", status)
	add(&lacks.scanners, "identity", identity)
	add(&lacks.operators, "topics", documents)
	add(&lacks.operators, "history", histories)
	return lacks, err
}

// scannerPolicy and operatorPolicy return the policies in docs/deploy.md, each in one line.
func scannerPolicy(prefix string) string {
	return policy(rule("key", prefix+"/topics/", "write"), rule("key_prefix", prefix+"/topics/", "read"),
		rule("key_prefix", prefix+"/status/", "write"), rule("key_prefix", prefix+"/identity/", "write"),
		rule("service", consul.ServiceName, "write"))
}

func operatorPolicy(prefix string) string {
	return policy(rule("key_prefix", prefix+"/topics/", "write"), rule("key_prefix", prefix+"/history/", "write"),
		rule("key_prefix", prefix+"/status/", "read"))
}

func policy(rules ...string) string {
	return "set consul.token to one whose policy has: " + strings.Join(rules, " ")
}

func rule(resource, name, level string) string {
	return fmt.Sprintf(`%s "%s" {policy="%s"}`, resource, name, level)
}
