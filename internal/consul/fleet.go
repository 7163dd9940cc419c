package consul

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/hashicorp/consul/api"
)

// ServiceName is the name of scanners in Consul's catalog.
const ServiceName = "duefleet-scanner"

// WriteStatus writes a scanner's note about its configuration to
// <prefix>/status/<instance>/config.
func (c *Client) WriteStatus(ctx context.Context, instance string, note []byte) error {
	ctx, cancel := context.WithTimeout(ctx, c.pace.limit)
	defer cancel()
	pair := &api.KVPair{Key: c.statusKey(instance), Value: note}
	if _, err := c.client.KV().Put(pair, (&api.WriteOptions{}).WithContext(ctx)); err != nil {
		return c.fail(err, "write status of %s to consul", instance)
	}
	return nil
}

// DeleteStatus removes a scanner's note, if there is one.
func (c *Client) DeleteStatus(ctx context.Context, instance string) error {
	ctx, cancel := context.WithTimeout(ctx, c.pace.limit)
	defer cancel()
	if _, err := c.client.KV().Delete(c.statusKey(instance), (&api.WriteOptions{}).WithContext(ctx)); err != nil {
		return c.fail(err, "delete status of %s from consul", instance)
	}
	return nil
}

// ReadStatuses returns the notes of scanners by instance.
func (c *Client) ReadStatuses(ctx context.Context) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.pace.limit)
	defer cancel()
	pairs, _, err := c.client.KV().List(c.prefix+"/status/", (&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, c.fail(err, "read statuses from consul")
	}
	notes := map[string][]byte{}
	for _, pair := range pairs {
		if instance, ours := c.noted(pair.Key); ours {
			notes[instance] = pair.Value
		}
	}
	return notes, nil
}

// noted returns the instance whose note has this key, or false if it isn't the key of a
// note.
func (c *Client) noted(key string) (instance string, ours bool) {
	instance, ours = strings.CutSuffix(strings.TrimPrefix(key, c.prefix+"/status/"), "/config")
	return instance, ours && !strings.Contains(instance, "/")
}

func (c *Client) statusKey(instance string) string {
	return c.prefix + "/status/" + instance + "/config"
}

// SweepStatus removes the notes of dead scanners and returns their instances. It calls
// dead with each note to find out. It keeps a note that changes meanwhile, and deletes
// only keys of the form <prefix>/status/<instance>/config.
func (c *Client) SweepStatus(ctx context.Context, dead func(instance string, note []byte) bool) (swept []string,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, c.pace.limit)
	defer cancel()
	folder := c.prefix + "/status/"
	pairs, _, err := c.client.KV().List(folder, (&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, c.fail(err, "read statuses from consul")
	}
	for _, pair := range pairs {
		instance, ours := c.noted(pair.Key)
		if !ours || !dead(instance, pair.Value) {
			continue
		}
		switch _, ok, err := c.transact(ctx, &api.KVTxnOp{Verb: api.KVDeleteCAS, Key: pair.Key, Index: pair.ModifyIndex}); {
		case err != nil:
			return swept, c.fail(err, "delete status of %s from consul", instance)
		case ok:
			swept = append(swept, instance)
		}
	}
	return swept, nil
}

// Register registers a scanner in Consul's catalog. The entry has a check of /readyz at
// adminAddr (host:port) every 5 seconds, which passes only for this instance. Consul
// removes the entry if the check fails for longer than 90 seconds, even if another
// scanner listens at the address by then.
//
// There is one entry per adminAddr: a scanner that replaces a killed one takes over its
// entry. If the entry already belongs to instance, Register doesn't write it again, so
// its check goes on. Call Register repeatedly, because an agent may lose the entry.
func (c *Client) Register(ctx context.Context, instance, adminAddr string) error {
	host, port, err := c.reachable(ctx, adminAddr)
	if err != nil {
		return c.fail(err, "register %s in consul", instance)
	}
	ctx, cancel := context.WithTimeout(ctx, c.pace.limit)
	defer cancel()
	there, err := c.registered(ctx, serviceID(host, port))
	if err == nil && there != nil && there.Meta["instance"] == instance {
		return nil
	}
	ready := url.URL{Scheme: "http", Host: net.JoinHostPort(host, strconv.Itoa(port)), Path: "/readyz",
		RawQuery: url.Values{"instance": {instance}}.Encode()}
	err = c.client.Agent().ServiceRegisterOpts(&api.AgentServiceRegistration{
		ID:      serviceID(host, port),
		Name:    ServiceName,
		Address: host,
		Port:    port,
		Meta:    map[string]string{"instance": instance, "prefix": c.prefix},
		Check: &api.AgentServiceCheck{
			HTTP:                           ready.String(),
			Interval:                       "5s",
			Timeout:                        "2s",
			DeregisterCriticalServiceAfter: "90s",
		},
	}, api.ServiceRegisterOpts{ReplaceExistingChecks: true}.WithContext(ctx))
	if err != nil {
		return c.fail(err, "register %s in consul", instance)
	}
	return nil
}

// Deregister removes the scanner at adminAddr (host:port) from Consul's catalog. A
// missing entry is no error.
func (c *Client) Deregister(ctx context.Context, adminAddr string) error {
	host, port, err := c.reachable(ctx, adminAddr)
	if err != nil {
		return c.fail(err, "deregister %s from consul", adminAddr)
	}
	ctx, cancel := context.WithTimeout(ctx, c.pace.limit)
	defer cancel()
	if there, err := c.registered(ctx, serviceID(host, port)); err == nil && there == nil {
		return nil
	}
	err = c.client.Agent().ServiceDeregisterOpts(serviceID(host, port), (&api.QueryOptions{}).WithContext(ctx))
	var status api.StatusError
	if errors.As(err, &status) && status.Code == 404 {
		return nil
	}
	if err != nil {
		return c.fail(err, "deregister %s from consul", adminAddr)
	}
	return nil
}

// registered returns an entry from Consul's agent, or nil. It filters the list of all
// entries. If it read a single entry that the agent doesn't have, the agent would log an
// error.
func (c *Client) registered(ctx context.Context, id string) (*api.AgentService, error) {
	all, err := c.client.Agent().ServicesWithFilterOpts(fmt.Sprintf("ID == %q", id),
		(&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, err
	}
	return all[id], nil
}

func serviceID(host string, port int) string {
	return ServiceName + "-" + net.JoinHostPort(host, strconv.Itoa(port))
}

// reachable returns the host and port at which Consul's agent can call a server that
// listens at addr. If the server listens on all interfaces, the host is the address of
// the interface from which this machine reaches the agent.
func (c *Client) reachable(ctx context.Context, addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	if port, err = strconv.Atoi(text); err != nil {
		return "", 0, err
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return host, port, nil
	}
	agent := c.addr
	if _, rest, ok := strings.Cut(agent, "://"); ok {
		agent = rest
	}
	agent, _, _ = strings.Cut(agent, "/")
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", agent) // a UDP socket: this sends nothing
	if err != nil {
		return "", 0, err
	}
	host, _, err = net.SplitHostPort(conn.LocalAddr().String())
	return host, port, errors.Join(err, conn.Close())
}
