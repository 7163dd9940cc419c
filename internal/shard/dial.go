package shard

import (
	"crypto/tls"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/dial"
)

// Dialing returns a copy of options with a Dialer of this project, unless they have one.
// Its connections find out soon that the server speaks no TLS at the port, and say so.
// They send a refused password at most once a second.
func Dialing(options *redis.UniversalOptions) *redis.UniversalOptions {
	own := *options
	if own.Dialer == nil {
		config := own.TLSConfig
		own.Dialer = dial.New(dial.Config{TLS: func() *tls.Config { return config }, Timeout: own.DialTimeout}).Dial
	}
	return &own
}
