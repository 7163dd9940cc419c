package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/duefleet/duefleet/task"
)

// Load reads and checks the settings in the file at path, and in the environment. A
// variable wins over the file; see environment. If path is "", there is no file. The
// error is Errors with all mistakes, or the error of reading the file.
func Load(path string, environ []string) (*Config, error) {
	doc, err := read(path)
	if err != nil {
		return nil, err
	}
	return decode(path, doc, environ)
}

// LoadConnections is Load for callers that only need the settings of connections. It
// ignores mistakes in topics, so that an operator can reach the fleet in spite of them.
// Topics is empty.
func LoadConnections(path string, environ []string) (*Config, error) {
	doc, err := read(path)
	if err != nil {
		return nil, err
	}
	errs := &errorList{file: path}
	cfg := examine(doc, environ, errs)
	cfg.Topics = map[string]Topic{}
	errs.list = slices.DeleteFunc(errs.list, func(m FieldError) bool {
		return m.Key == "topics" || strings.HasPrefix(m.Key, "topics.")
	})
	return cfg, errs.err()
}

func read(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	doc, err := readLimited(path, maxDocument)
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	return doc, nil
}

func decode(path string, doc []byte, environ []string) (*Config, error) {
	errs := &errorList{file: path}
	cfg := examine(doc, environ, errs)
	if err := errs.err(); err != nil {
		return nil, err
	}
	return cfg, nil
}

// examine adds every mistake to errs and returns the Config without the broken parts.
func examine(doc []byte, environ []string, errs *errorList) *Config {
	parsed := readFile(doc, errs)
	env := environment(environ, errs)
	bothGiven(parsed.connections, errs)
	bothGiven(env, errs)
	s := parsed.connections.overlaid(env)
	readSecrets(s, errs)
	cfg := Defaults()
	s.apply(&cfg)
	cfg.nameFiles(s)
	cfg.SecretFiles = secretFiles(cfg, s)
	checkConfig(cfg, s, errs)
	for name, t := range parsed.topics {
		cfg.Topics[name] = t.topic
	}
	return &cfg
}

// contents are the settings in a file, before the environment applies.
type contents struct {
	connections settings
	topics      map[string]fileTopic
}

// fileTopic is one topic of a file, and its settings as a document of its own.
type fileTopic struct {
	topic Topic
	doc   []byte
	line  func(key string) int
}

func readFile(doc []byte, errs *errorList) contents {
	c := contents{connections: newSettings(), topics: map[string]fileTopic{}}
	w := walker{table: configFields(), errs: errs, out: c.connections,
		topics: func(n ast.Node) { readTopics(n, c.topics, errs) }}
	if root := parse(doc, maxFileMarks, errs); root != nil {
		w.mapping("", root)
	}
	return c
}

func readTopics(n ast.Node, topics map[string]fileTopic, errs *errorList) {
	table := topicFields()
	for _, p := range errs.pairs("topics", n) {
		if err := task.CheckTopic(p.key); err != nil {
			errs.add("topics."+p.key, p.line, "%v", err)
			continue
		}
		part := errs.within("topics." + p.key + ".")
		w := walker{table: table, errs: part, out: newSettings()}
		w.mapping("", p.value)
		topics[p.key] = fileTopic{topic: buildTopic(p.key, w.out, part), doc: render(w.out),
			line: w.out.line}
		errs.list = append(errs.list, part.list...)
	}
	refuseConflicts(topics, errs)
}

func refuseConflicts(topics map[string]fileTopic, errs *errorList) {
	all := make(map[string]Topic, len(topics))
	for name, t := range topics {
		all[name] = t.topic
	}
	for _, c := range Conflicts(all) {
		errs.add("topics."+c.Topic+"."+c.Key, topics[c.Topic].line(c.Key), "%s", c.Problem)
	}
}

// bothGiven reports secrets that the file, or the environment, gives both as a value and
// as a file.
func bothGiven(s settings, errs *errorList) {
	for _, f := range configFields() {
		if _, file := s.values[f.key]; !file || f.fileOf == "" {
			continue
		}
		if _, value := s.values[f.fileOf]; value {
			errs.about(s, f.key, "can't be given together with %s", f.fileOf)
		}
	}
}

// overlaid returns the settings with the values of over in place of its own. A secret's
// value in over replaces the secret's file, and the other way round.
func (s settings) overlaid(over settings) settings {
	all := settings{values: maps.Clone(s.values), sections: s.sections, refused: s.refused}
	for key, g := range over.values {
		delete(all.values, key+"_file")
		delete(all.values, strings.TrimSuffix(key, "_file"))
		all.values[key] = g
	}
	return all
}

// readSecrets sets each secret with a file to the file's content.
func readSecrets(s settings, errs *errorList) {
	for _, fileField := range configFields() {
		g, ok := s.values[fileField.key]
		if !ok || fileField.fileOf == "" {
			continue
		}
		value, err := ReadSecret(fileField.fileOf, g.value.(string))
		if err != nil {
			errs.about(s, fileField.key, "%v", err)
			continue
		}
		g.value = value
		s.values[fileField.fileOf] = g
	}
}

// secretFiles returns the files with secrets, private keys included.
func secretFiles(c Config, s settings) []string {
	var all []string
	for _, f := range configFields() {
		if g, ok := s.values[f.key]; ok && f.fileOf != "" {
			all = append(all, g.value.(string))
		}
	}
	if c.Console.UsersFile != "" {
		all = append(all, c.Console.UsersFile)
	}
	if c.Console.TLS.KeyFile != "" {
		all = append(all, c.Console.TLS.KeyFile)
	}
	for _, t := range []TLS{c.Redis.TLS, c.RabbitMQ.TLS, c.Consul.TLS} {
		if t.Enabled && t.KeyFile != "" {
			all = append(all, t.KeyFile)
		}
	}
	return all
}

// nameFiles records which secrets come from files, so that they can be read again later.
func (c *Config) nameFiles(s settings) {
	for key, path := range c.fromFiles() {
		if g, ok := s.values[key+"_file"]; ok {
			*path = g.value.(string)
		}
	}
}

// fromFiles returns pointers to the fields that name the files of secrets, by the
// secret's key.
func (c *Config) fromFiles() map[string]*string {
	return map[string]*string{
		"redis.username": &c.Redis.UsernameFile, "redis.password": &c.Redis.PasswordFile,
		"rabbitmq.urls": &c.RabbitMQ.URLsFile, "consul.token": &c.Consul.TokenFile,
		"console.token": &c.Console.TokenFile,
	}
}

// maxSecret is far longer than any password, token or list of URLs.
const maxSecret = 64 << 10

// ReadSecret reads and checks a secret in the file at path. key is the secret's, such as
// redis.password. The value has the type of the secret's field: []string for rabbitmq.urls,
// else string. The error says what is wrong with the file or its content.
func ReadSecret(key, path string) (any, error) {
	if err := regular(path); err != nil {
		return nil, err
	}
	content, err := readLimited(path, maxSecret)
	if err != nil {
		return nil, err
	}
	text := strings.TrimPrefix(strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r"), bom)
	if text == "" || len(content) > maxSecret {
		return nil, fmt.Errorf("must name a file of 1 to %d bytes; %s has %d", maxSecret, path, len(text))
	}
	f, _ := configFields().find(key)
	value, problem := f.fromText(text)
	if problem != "" {
		return nil, errors.New("content of the file: " + problem)
	}
	return value, nil
}

// regular refuses anything but a regular file. Opening a pipe blocks until the other end
// is opened, and no signal ends that.
func regular(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil //nolint:nilerr // the caller opens the file and gets a better error
	}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return fmt.Errorf("must be a regular file; %s is a directory", path)
	case mode&os.ModeNamedPipe != 0:
		return fmt.Errorf("must be a regular file; %s is a pipe", path)
	default:
		return fmt.Errorf("must be a regular file; %s is a device or a socket", path)
	}
}

// ReadRegular reads a regular file. It refuses a directory, a pipe and a device, and returns
// the errors of os.ReadFile.
func ReadRegular(path string) ([]byte, error) {
	if err := regular(path); err != nil {
		return nil, err
	}
	return os.ReadFile(path) //nolint:gosec // the operator names the file
}

// readLimited reads a file, at most one byte more than limit.
func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	return content, errors.Join(err, f.Close())
}

// checkConfig checks rules across keys.
func checkConfig(c Config, s settings, errs *errorList) {
	if len(c.Redis.Addrs) > 1 && c.Redis.MasterName == "" && c.Redis.DB != 0 {
		errs.about(s, "redis.db", "must be 0 with several redis.addrs: a cluster has no other database")
	}
	checkTLS("redis.tls", c.Redis.TLS, s, errs)
	checkTLS("rabbitmq.tls", c.RabbitMQ.TLS, s, errs)
	checkTLS("consul.tls", c.Consul.TLS, s, errs)
	checkPair("console.tls", c.Console.TLS.CertFile, c.Console.TLS.KeyFile, s, errs) // the console reads the files itself
	for _, err := range c.RabbitMQ.Unencrypted(c.RabbitMQ.URLs) {
		errs.about(s, "rabbitmq.urls", "%v", err)
	}
	if c.Consul.TLS.Enabled && strings.HasPrefix(c.Consul.Addr, "http://") {
		errs.about(s, "consul.addr", "must begin with https://: consul.tls is enabled")
	}
}

// Unencrypted returns an error for each URL without TLS if TLS is enabled.
func (r RabbitMQ) Unencrypted(urls []string) (errs []error) {
	if !r.TLS.Enabled {
		return nil
	}
	for i, u := range urls {
		if !strings.HasPrefix(u, "amqps://") {
			errs = append(errs, fmt.Errorf("number %d must begin with amqps://: rabbitmq.tls is enabled", i+1))
		}
	}
	return errs
}

// checkTLS refuses settings that would silently leave a connection unencrypted, and
// unusable files.
func checkTLS(section string, t TLS, s settings, errs *errorList) {
	if !checkPair(section, t.CertFile, t.KeyFile, s, errs) {
		return
	}
	if !t.Enabled {
		_, isSet := s.values[section+".enabled"]
		if t != (TLS{}) && !isSet {
			errs.about(s, section+".enabled", "must be given if the section has other keys: true, or false to leave it unused")
		}
		return
	}
	if _, err := t.Roots(); err != nil {
		errs.about(s, section+".ca_file", "%v", err)
	}
	if _, err := t.Certificates(); err != nil {
		errs.about(s, section+".cert_file", "%v", err)
	}
}

// checkPair refuses a certificate without its key, and a key without its certificate.
func checkPair(section, cert, key string, s settings, errs *errorList) (ok bool) {
	if (cert == "") != (key == "") {
		errs.about(s, section+".cert_file", "and key_file must be given together")
		return false
	}
	return true
}

// Roots reads the authorities in CAFile; nil for the system's. An error means that the file
// can't be used.
func (t TLS) Roots() (*x509.CertPool, error) {
	if t.CAFile == "" {
		return nil, nil
	}
	pem, err := ReadRegular(t.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("no PEM certificate in " + t.CAFile)
	}
	return pool, nil
}

// Certificates reads this client's certificate with its key; nil without CertFile. An error
// means that a file can't be used.
func (t TLS) Certificates() ([]tls.Certificate, error) {
	if t.CertFile == "" {
		return nil, nil
	}
	for _, path := range []string{t.CertFile, t.KeyFile} {
		if err := regular(path); err != nil {
			return nil, err
		}
	}
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, err
	}
	return []tls.Certificate{pair}, nil
}
