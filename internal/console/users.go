package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// role says what a user may do.
type role string

const (
	view    role = "view"    // look
	operate role = "operate" // look and act
)

// account is one line of the users file.
type account struct {
	hash string
	role role
}

// users are the accounts of a file. The file is read again when it changes. If it can't be
// used then, the last good accounts stay in use. Its methods are safe for concurrent use.
type users struct {
	path string
	log  *slog.Logger

	mu       sync.Mutex
	accounts map[string]account
	changed  time.Time // of the content in use
	refused  string    // the last error in the log, so that it is logged once
}

// openUsers reads the file. The error names the line, and shows no hash.
func openUsers(path string, log *slog.Logger) (*users, error) {
	u := &users{path: path, log: log}
	return u, u.reread()
}

// reread reads the file if it has changed. The caller holds mu, or is alone.
func (u *users) reread() error {
	info, err := os.Stat(u.path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New(u.path + " must be a regular file")
	}
	if info.ModTime().Equal(u.changed) {
		return nil
	}
	content, err := os.ReadFile(u.path)
	if err != nil {
		return err
	}
	accounts, err := parseUsers(string(content))
	if err != nil {
		return fmt.Errorf("%s: %w", u.path, err)
	}
	u.accounts, u.changed = accounts, info.ModTime()
	return nil
}

// parseUsers reads lines of the form user:hash[:role].
func parseUsers(content string) (map[string]account, error) {
	accounts := map[string]account{}
	number := 0
	for line := range strings.Lines(content) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, rest, _ := strings.Cut(line, ":")
		hash, given, _ := strings.Cut(rest, ":")
		a := account{hash: hash, role: role(given)}
		if given == "" {
			a.role = view
		}
		_, twice := accounts[name]
		_, err := bcrypt.Cost([]byte(hash))
		switch {
		case name == "" || twice:
			return nil, fmt.Errorf("line %d: must begin with a user's name that no other line has", number)
		case err != nil:
			return nil, fmt.Errorf("line %d: must have a bcrypt hash, as `htpasswd -B` writes it", number)
		case a.role != view && a.role != operate:
			return nil, fmt.Errorf("line %d: the role must be view or operate", number)
		}
		accounts[name] = a
	}
	if len(accounts) == 0 {
		return nil, errors.New("must have a line user:hash[:role]")
	}
	return accounts, nil
}

// find returns a user's present account.
func (u *users) find(ctx context.Context, name string) (account, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.reread(); err == nil {
		u.refused = ""
	} else if u.refused != err.Error() {
		u.refused = err.Error()
		u.log.WarnContext(ctx, "users file can't be used, the last good one stays in use", "error", err)
	}
	a, there := u.accounts[name]
	return a, there
}

// check returns the account if the password is right. It takes as long for an unknown user.
func (u *users) check(ctx context.Context, name, password string) (account, bool) {
	a, there := u.find(ctx, name)
	if !there {
		a.hash = u.anyHash()
	}
	err := bcrypt.CompareHashAndPassword([]byte(a.hash), []byte(password))
	return a, there && err == nil
}

func (u *users) anyHash() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, a := range u.accounts {
		return a.hash
	}
	return ""
}
