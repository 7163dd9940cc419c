package consul

import (
	"context"
	"strings"

	"github.com/hashicorp/consul/api"
)

// Identity returns the identity of the data that a fleet expects in Redis; "" and index 0
// if there is none. The read is consistent, as in Get. fleet is the fleet's prefix in
// Redis, because fleets may share a prefix in Consul.
func (c *Client) Identity(ctx context.Context, fleet string) (id string, index uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.pace.limit)
	defer cancel()
	q := &api.QueryOptions{RequireConsistent: true}
	pair, _, err := c.client.KV().Get(c.identityKey(fleet), q.WithContext(ctx))
	if err != nil {
		return "", 0, c.fail(err, "read the identity of the data from consul")
	}
	if pair == nil {
		return "", 0, nil
	}
	return strings.TrimSpace(string(pair.Value)), pair.ModifyIndex, nil
}

// SaveIdentity writes the identity of the data that a fleet expects, if the index is still
// the one given. It returns false on a conflict.
func (c *Client) SaveIdentity(ctx context.Context, fleet, id string, index uint64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.pace.limit)
	defer cancel()
	pair := &api.KVPair{Key: c.identityKey(fleet), Value: []byte(id), ModifyIndex: index}
	ok, _, err := c.client.KV().CAS(pair, (&api.WriteOptions{}).WithContext(ctx))
	if err != nil {
		return false, c.fail(err, "write the identity of the data to consul")
	}
	return ok, nil
}

// identityKey replaces the slashes of a prefix: two in a row would change the key in a URL.
func (c *Client) identityKey(fleet string) string {
	return c.prefix + "/identity/" + strings.ReplaceAll(fleet, "/", ":")
}
