package luascript

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// refusedAt finds in a refusal by Redis 7.0 the hash of the script, and its line, from 1,
// that the user's rights don't allow.
var refusedAt = regexp.MustCompile(`executing the script can't run.* script: ([0-9a-f]{40}), on @user_script:(\d+)`)

// refusedInScript matches the refusal of later versions (8.0 does so). It names what is
// missing in the same words as outside scripts.
var refusedInScript = regexp.MustCompile(`^ERR ACL failure in script: (.*?)( script: [0-9a-f]{40}, on @user_script:\d+\.?)?$`)

// commandIn finds the command that a line of a script runs.
var commandIn = regexp.MustCompile(`redis\.call\('(\w+)'`)

// explain returns an error as callers read it. It words a refusal inside a script as Redis
// words it outside scripts, so that it names the command that the user may not run. Redis
// 7.0 doesn't name it inside scripts.
func (c *Client) explain(err error) error {
	if why := refusedInScript.FindStringSubmatch(err.Error()); why != nil {
		return deniedError("NOPERM " + why[1])
	}
	if command := c.refusedCommand(err.Error()); command != "" {
		return deniedError(fmt.Sprintf("NOPERM this user has no permissions to run the '%s' command", command))
	}
	return Explain(err)
}

// deniedError is Redis's refusal of a command inside a script, worded as outside.
type deniedError string

func (e deniedError) Error() string { return string(e) }

// RedisError marks the error as one that Redis answered.
func (deniedError) RedisError() {}

func (c *Client) refusedCommand(text string) string {
	at := refusedAt.FindStringSubmatch(text)
	if at == nil {
		return ""
	}
	for _, script := range c.scripts {
		if script.hash != at[1] {
			continue
		}
		lines := strings.Split(script.text, "\n")
		n, err := strconv.Atoi(at[2])
		if err != nil || n < 1 || n > len(lines) {
			return ""
		}
		if found := commandIn.FindStringSubmatch(lines[n-1]); found != nil {
			return strings.ToLower(found[1])
		}
	}
	return ""
}

// Denied reports whether Redis refused a call because of its user: a right is missing, or
// the password is missing or wrong.
func Denied(err error) bool { return hasPrefix(err, "NOPERM", "NOAUTH", "WRONGPASS") }
