package consul

import (
	"cmp"
	"context"

	"github.com/hashicorp/consul/api"
)

// anonymous is the accessor ID of the token for requests without one.
const anonymous = "00000000-0000-0000-0000-000000000002"

// TokenName returns the description of the client's token in Consul, or "token" and its
// accessor if it has none. It returns "" if the client has no token.
func (c *Client) TokenName(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.pace.limit)
	defer cancel()
	token, _, err := c.client.ACL().TokenReadSelf((&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return "", c.fail(err, "read the token of consul")
	}
	if token.AccessorID == anonymous {
		return "", nil
	}
	return cmp.Or(token.Description, "token "+token.AccessorID), nil
}
