package connect

import "strings"

// Advised returns the text of an error from a server, with advice. section is as Advice takes it.
func Advised(section string, err error) string { return err.Error() + Advice(section, err.Error()) }

// Advice returns what to do about the text of an error from a server, as in "; check
// redis.tls.ca_file". The caller appends it to the error. It is "" if neither the
// settings nor missing rights seem to be the cause. section is the server's section in
// the configuration: redis, rabbitmq or consul.
func Advice(section, text string) string {
	for _, a := range advices() {
		if strings.Contains(text, a.about) {
			return "; " + strings.NewReplacer("SECTION", section, "WAY-TO-TLS", wayToTLS(section)).Replace(a.advice)
		}
	}
	if strings.Contains(text, "connection reset by peer") {
		// A server may refuse a client's certificate after the client believes that the
		// handshake is done. A reset may then arrive before the reason.
		return "; the server closed the connection: see its log; if it asks for certificates, check " + section +
			".tls.cert_file and key_file"
	}
	if strings.HasSuffix(strings.TrimRight(text, `"`), "EOF") {
		return "; the server closed the connection: see its log; if it speaks TLS at that port, " + wayToTLS(section)
	}
	for _, s := range []string{"connection refused", "no such host", "i/o timeout"} {
		if strings.Contains(text, s) {
			return "; check that the server runs there, and " + section + "." + addressKey(section)
		}
	}
	return ""
}

// wayToTLS returns how to turn on TLS.
func wayToTLS(section string) string {
	if section == "rabbitmq" {
		return "write amqps:// in rabbitmq.urls"
	}
	return "set " + section + ".tls.enabled"
}

func addressKey(section string) string {
	return map[string]string{"redis": "addrs", "rabbitmq": "urls", "consul": "addr"}[section]
}

// advices are matched against errors of crypto/tls, Redis, RabbitMQ and Consul. The first
// match counts.
func advices() []struct{ about, advice string } {
	const (
		untrusted = "the server does not take this client's certificate: check SECTION.tls.cert_file"
		rights    = "docs/deploy.md lists the rights that are needed"

		expired = "this client's certificate has expired: check SECTION.tls.cert_file, and renew it"

		required = "the server asks for a certificate by an authority that it trusts: " +
			"check SECTION.tls.cert_file and key_file"
	)
	return []struct{ about, advice string }{
		{"remote error: tls: expired certificate", expired},
		{"remote error: tls: certificate required", required},
		{"remote error: tls: unknown certificate", untrusted},
		{"remote error: tls: bad certificate", untrusted},
		{"signed by unknown authority", "check SECTION.tls.ca_file, which must hold the authority of the server's " +
			"certificate"},
		{"certificate has expired", "renew the server's certificate"},
		{"certificate is valid for", "check SECTION.tls.server_name"},
		{"cannot validate certificate for", "check SECTION.tls.server_name"},
		{"does not look like a TLS handshake", "the server does not speak TLS there: check the port, or SECTION.tls.enabled"},
		{"HTTP response to HTTPS client", "the server does not speak TLS there: check the port, or SECTION.tls.enabled"},
		{"HTTP request to an HTTPS server", "WAY-TO-TLS"},
		// A broker that expects TLS gives this answer to a client without TLS.
		{"frame size exceeds negotiated frame_max",
			"the server does not speak AMQP there: check the port; if it speaks TLS, WAY-TO-TLS"},
		{"WRONGPASS", "check redis.username and redis.password"},
		{"NOAUTH", "check redis.username and redis.password"},
		{"NOPERM", "grant it with ACL SETUSER; " + rights},
		{"executing the script can't run", "ACL LOG names the command: grant it with ACL SETUSER; " + rights},
		{"Login was refused", "check user and password in rabbitmq.urls"},
		{"no access to this vhost", "check the vhost in rabbitmq.urls, and the user's permissions there"},
		{"403 ACCESS_REFUSED", "grant it with rabbitmqctl set_permissions; " + rights},
		{"ACL not found", "check consul.token"},
		{"Permission denied", "grant it to consul.token by a policy; " + rights},
	}
}
