package config

import "strings"

const (
	envPrefix = "DUEFLEET_"
	// envTestPrefix is the prefix of variables that only tests read.
	envTestPrefix = "DUEFLEET_TEST_"
	// envOutbox is read by duefleet-relay alone.
	envOutbox = "DUEFLEET_OUTBOX_DATABASE"
)

// envName returns the variable for a key outside topics: redis.tls.ca_file is
// DUEFLEET_REDIS_TLS_CA_FILE.
func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// environment reads the variables that begin with DUEFLEET_. Lists are
// separated by commas. An empty variable is an empty value, not a missing
// one. An unknown variable is an error.
func environment(environ []string, errs *errorList) settings {
	s := newSettings()
	byName := map[string]field{}
	var names []string
	for _, f := range configFields() {
		short := strings.TrimPrefix(envName(f.key), envPrefix)
		byName[short], names = f, append(names, short)
	}
	for _, line := range environ {
		name, text, _ := strings.Cut(line, "=")
		short, ours := strings.CutPrefix(name, envPrefix)
		if !ours || strings.HasPrefix(name, envTestPrefix) || name == envOutbox || ofKubernetes(name, text) {
			continue
		}
		f, known := byName[short]
		if !known {
			errs.variable(name, "unknown variable"+didYouMean(short, names, envPrefix))
			continue
		}
		value, problem := f.fromText(text)
		if problem != "" {
			errs.variable(name, problem)
			continue
		}
		s.values[f.key] = given{value: value, file: environmentFile, name: name}
	}
	return s
}

// environmentFile is used in a FieldError in place of the file.
const environmentFile = "environment"

func (l *errorList) variable(name, problem string) {
	l.list = append(l.list, FieldError{File: environmentFile, Key: name, Problem: problem})
}

// ofKubernetes reports whether Kubernetes sets the variable. It sets some in each pod for
// each Service of the namespace, as in DUEFLEET_SERVICE_HOST. If those were unknown
// variables, no scanner could start next to a Service named duefleet or duefleet-redis.
func ofKubernetes(name, text string) bool {
	if strings.HasSuffix(name, "_SERVICE_HOST") || strings.Contains(name, "_SERVICE_PORT") {
		return true
	}
	_, port, found := strings.Cut(name, "_PORT")
	for _, protocol := range []string{"TCP", "UDP", "SCTP"} {
		if found && strings.Contains(port, "_"+protocol) {
			return true
		}
	}
	return found && port == "" && strings.Contains(text, "://")
}
