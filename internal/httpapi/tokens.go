package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/duefleet/duefleet/task"
)

const (
	// minToken is the shortest token, in characters. The file has plain hashes, so a short
	// token could be guessed from it.
	minToken = 32
	// maxToken is the longest token, in characters.
	maxToken = 1024
	// maxTokensFile limits the file, in bytes.
	maxTokensFile = 4 << 20
	// rereadAfter is how long a change of the file may go unnoticed.
	rereadAfter = time.Second
)

// client is an entry of the file of tokens: what a program may do.
type client struct {
	Name   string   `yaml:"name"`
	SHA256 []string `yaml:"sha256"`
	Topics []string `yaml:"topics"`
	Verbs  []string `yaml:"verbs"`
	Rate   float64  `yaml:"rate"`

	hashes [][sha256.Size]byte
	bucket *bucket
}

// anyone is the client of a server without tokens.
func anyone() *client {
	return &client{Name: "local", Topics: []string{"*"}, Verbs: verbs(), bucket: newBucket(0)}
}

// verbs returns the names of what a client can be permitted.
func verbs() []string { return []string{"schedule", "get", "reschedule", "cancel"} }

// may reports whether the client may do something with a topic. A topic of the file that
// ends with * stands for all that begin so.
func (c *client) may(verb, topic string) bool {
	return slices.Contains(c.Verbs, verb) && slices.ContainsFunc(c.Topics, func(allowed string) bool {
		beginning, all := strings.CutSuffix(allowed, "*")
		return allowed == topic || all && strings.HasPrefix(topic, beginning)
	})
}

// check completes an entry. Its error never has a hash.
func (c *client) check() error {
	if c.Name == "" || len(c.Name) > 64 || strings.ContainsFunc(c.Name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("name: must be 1 to 64 visible ASCII characters")
	}
	if len(c.SHA256) == 0 || len(c.Topics) == 0 || len(c.Verbs) == 0 {
		return errors.New("sha256, topics and verbs are needed")
	}
	for _, text := range c.SHA256 {
		sum, err := hex.DecodeString(text)
		if err != nil || len(sum) != sha256.Size {
			return fmt.Errorf("sha256: must be %d hexadecimal digits; got %d characters", 2*sha256.Size, len(text))
		}
		c.hashes = append(c.hashes, [sha256.Size]byte(sum))
	}
	for _, topic := range c.Topics {
		if topic == "*" {
			continue
		}
		if err := task.CheckTopic(strings.TrimSuffix(topic, "*")); err != nil {
			return fmt.Errorf("topics: %w", err)
		}
	}
	for _, verb := range c.Verbs {
		if !slices.Contains(verbs(), verb) {
			return fmt.Errorf("verbs: must be of %s; got %.20q", strings.Join(verbs(), ", "), verb)
		}
	}
	if !(c.Rate >= 0 && c.Rate <= 1e6) { // not a number, too
		return errors.New("rate: must be 0 to 1000000 requests a second")
	}
	return nil
}

// parseTokens parses a file of tokens. Its error never has a hash.
func parseTokens(text []byte) ([]*client, error) {
	var file struct {
		Clients []*client `yaml:"clients"`
	}
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		first, _, _ := strings.Cut(err.Error(), "\n") // the other lines quote the file
		return nil, errors.New(first)
	}
	if len(file.Clients) == 0 {
		return nil, errors.New("clients: at least one is needed")
	}
	names := map[string]bool{}
	for i, c := range file.Clients {
		if c == nil {
			return nil, fmt.Errorf("client %d: is empty", i+1)
		}
		if err := c.check(); err != nil {
			return nil, fmt.Errorf("client %d (%.64q): %w", i+1, c.Name, err)
		}
		if names[c.Name] {
			return nil, fmt.Errorf("client %d (%q): the name is given twice", i+1, c.Name)
		}
		names[c.Name] = true
	}
	return file.Clients, nil
}

// tokens are the clients of a file, which is read again within a second after a change. If
// it can't be used, the last good content stays in use, and the log says so once. It is
// safe for concurrent use.
type tokens struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex
	clients []*client
	sum     [sha256.Size]byte
	read    time.Time
	broken  bool
}

func newTokens(path string, log *slog.Logger) (*tokens, error) {
	t := &tokens{path: path, log: log}
	if err := t.reread(); err != nil {
		return nil, fmt.Errorf("tokens %s: %w", path, err)
	}
	t.read = time.Now()
	return t, nil
}

// find returns the client with a token, or nil. It compares with the hash of every token,
// each in constant time.
func (t *tokens) find(ctx context.Context, token string) (found *client) {
	if len(token) < minToken || len(token) > maxToken {
		return nil
	}
	sum := sha256.Sum256([]byte(token))
	for _, c := range t.current(ctx) {
		for i := range c.hashes {
			if subtle.ConstantTimeCompare(sum[:], c.hashes[i][:]) == 1 {
				found = c
			}
		}
	}
	return found
}

// current returns the clients, read again if the last reading was a second ago.
func (t *tokens) current(ctx context.Context) []*client {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.read) < rereadAfter {
		return t.clients
	}
	t.read = time.Now()
	err := t.reread()
	switch {
	case err != nil && !t.broken:
		t.log.WarnContext(ctx, "file of tokens can't be used, its last good content stays in use", "error", err)
	case err == nil && t.broken:
		t.log.InfoContext(ctx, "file of tokens can be used again")
	}
	t.broken = err != nil
	return t.clients
}

// reread takes the content of the file if it differs. A client with the same rate keeps
// its bucket.
func (t *tokens) reread() error {
	text, err := readFile(t.path)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	if sum == t.sum {
		return nil
	}
	clients, err := parseTokens(text)
	if err != nil {
		return err
	}
	for _, c := range clients {
		c.bucket = newBucket(c.Rate)
		for _, old := range t.clients {
			if old.Name == c.Name && old.Rate == c.Rate {
				c.bucket = old.bucket
			}
		}
	}
	t.clients, t.sum = clients, sum
	return nil
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxTokensFile {
		return nil, fmt.Errorf("must be a regular file of at most %d bytes", maxTokensFile)
	}
	return os.ReadFile(path)
}
