package consul

import (
	"context"
	"math"
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

// MayWriteIdentity reports whether the token may write the identity. It writes nothing.
func (c *Client) MayWriteIdentity(ctx context.Context, fleet string) (bool, error) {
	return c.mayWrite(ctx, c.identityKey(fleet))
}

// MayWriteTopics reports whether the token may write the documents of topics and their
// histories, as an operator's may. It writes nothing.
func (c *Client) MayWriteTopics(ctx context.Context) (documents, histories bool, err error) {
	const nobody = "doctor" // the policies name prefixes, not topics
	if documents, err = c.mayWrite(ctx, c.key(nobody)); err == nil {
		histories, err = c.mayWrite(ctx, c.historyKey(nobody))
	}
	return documents, histories, err
}

// MayWriteStatus reports whether the token may write an instance's note. It writes nothing.
func (c *Client) MayWriteStatus(ctx context.Context, instance string) (bool, error) {
	return c.mayWrite(ctx, c.statusKey(instance))
}

// mayWrite reports whether the token may write a key. Its compare-and-set names an index
// that no key has, so it changes nothing.
func (c *Client) mayWrite(ctx context.Context, key string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.pace.limit)
	defer cancel()
	pair := &api.KVPair{Key: key, ModifyIndex: math.MaxInt64}
	_, _, err := c.client.KV().CAS(pair, (&api.WriteOptions{}).WithContext(ctx))
	switch {
	case Forbidden(err):
		return false, nil
	case err != nil:
		return false, c.fail(err, "ask consul for the right to write %s", key)
	}
	return true, nil
}

// identityKey replaces the slashes of a prefix: two in a row would change the key in a URL.
func (c *Client) identityKey(fleet string) string {
	return c.prefix + "/identity/" + strings.ReplaceAll(fleet, "/", ":")
}
