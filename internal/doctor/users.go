package doctor

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
)

// examineUsers checks whether the user in the settings still exists after a restart of
// Redis. Redis tells in which file it stores users, but not whether this user is in it.
// So doctor reads the file if the server runs on this machine.
func (p Target) examineUsers(ctx context.Context, r *report, n node, info map[string]string) {
	const check = "redis.users"
	if p.Settings.Redis.Username == "" && p.Settings.Redis.Password == "" {
		return // the server needs no user
	}
	user := p.redisUser()
	file, err := n.setting(ctx, "aclfile")
	save := "ACL SAVE"
	if file == "" {
		file, save = info["config_file"], "CONFIG REWRITE"
	}
	listed, read := userListed(n.addr, file, user)
	switch {
	case err != nil: // a scanner needs no permission for CONFIG
		r.unchecked(check, "%s", mayNot(ctx, err, "read whether user "+user+" outlives a restart of "+n.addr+": that takes "+
			"the right +config|get, which shows requirepass, too; a user that ACL SETUSER made is kept by ACL SAVE or "+
			"CONFIG REWRITE"))
	case file == "":
		r.warn(check, "start the server with an aclfile, or with a configuration file: docs/deploy.md, Rights",
			"%s has neither: a restart forgets user %s, unless the server's command line names it", n.addr, user)
	case !read:
		r.unchecked(check, "%s keeps its users in %s, which can't be read here; a user that ACL SETUSER made is kept by %s",
			n.addr, file, save)
	case !listed:
		r.warn(check, n.cli(save), "%s has no user %s: a restart of %s forgets it", file, user, n.addr)
	default:
		r.ok(check, "user %s is in %s, and outlives a restart of %s, with the password and the rights that are there; "+
			"%s saves later ones", user, file, n.addr, save)
	}
}

// mayNot returns why there is no answer, or that the user has no right to it.
func mayNot(ctx context.Context, err error, what string) string {
	if why := unanswered(ctx, err); why != "" {
		return why
	}
	return "this user may not " + what
}

// userListed reports whether a server's file has a user. read is false if doctor can't
// find out. Then the server runs elsewhere, the file can't be read, or it includes
// another file that may have the user.
func userListed(addr, file, user string) (listed, read bool) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host != "localhost" && !net.ParseIP(host).IsLoopback() || !filepath.IsAbs(file) {
		return false, false
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return false, false
	}
	line := `(?mi)^\s*user\s+"?` + regexp.QuoteMeta(user) + `"?\s`
	if user == "default" {
		line += `|^\s*requirepass\s`
	}
	listed = regexp.MustCompile(line).Match(text)
	return listed, listed || !regexp.MustCompile(`(?mi)^\s*include\s`).Match(text)
}
