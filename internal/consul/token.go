package consul

import (
	"cmp"
	"context"

	"github.com/hashicorp/consul/api"
)

// anonymous is the accessor of the token that requests without one get.
const anonymous = "00000000-0000-0000-0000-000000000002"

// TokenName returns what Consul calls the client's token: its description, or where it has
// none "token" and its accessor. It is "" without a token of the client's own.
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
