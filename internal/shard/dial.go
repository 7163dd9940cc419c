package shard

import (
	"crypto/tls"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/dial"
)

// Dialing returns a copy of options whose connections find out soon that the server
// speaks no TLS at the port, say so, and don't send a refused password more than once a
// second. It changes none that have a Dialer of their own.
func Dialing(options *redis.UniversalOptions) *redis.UniversalOptions {
	own := *options
	if own.Dialer == nil {
		config := own.TLSConfig
		own.Dialer = dial.New(dial.Config{TLS: func() *tls.Config { return config }, Timeout: own.DialTimeout}).Dial
	}
	return &own
}
