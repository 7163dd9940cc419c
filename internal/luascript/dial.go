package luascript

import (
	"crypto/tls"
	"errors"
	"fmt"
	"reflect"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/redisdial"
)

// Dial returns the Server of the caller's client, which closing leaves open. If that is
// nil, it returns one by the options, and closing closes it.
func Dial(rdb redis.UniversalClient, options *redis.UniversalOptions) (server *Server, closing func() error,
	err error) {
	if err := checkGiven(rdb, options); err != nil {
		return nil, nil, err
	}
	if rdb != nil {
		return Given(rdb), func() error { return nil }, nil
	}
	if err := checkAddrs(options); err != nil {
		return nil, nil, err
	}
	server = Open(Dialing(options))
	return server, server.Close, nil
}

// Dialing returns a copy of options with a Dialer of this project, unless they have one.
// Its connections find out soon that the server speaks no TLS at the port, and say so.
// They send a refused password at most once a second.
func Dialing(options *redis.UniversalOptions) *redis.UniversalOptions {
	own := *options
	if own.Dialer == nil {
		config := own.TLSConfig
		own.Dialer = redisdial.New(redisdial.Config{TLS: func() *tls.Config { return config }, Timeout: own.DialTimeout}).Dial
	}
	return &own
}

// checkGiven returns an error unless exactly one of client and options is given.
func checkGiven(rdb redis.UniversalClient, options *redis.UniversalOptions) error {
	switch {
	case rdb == nil && options == nil:
		return errors.New("neither Config.Redis nor Config.Options is given; give one of them")
	case rdb != nil && options != nil:
		return errors.New("both Config.Redis and Config.Options are given; give one of them")
	}
	if v := reflect.ValueOf(rdb); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("Config.Redis is a nil %T; give a client, or Config.Options alone", rdb)
	}
	return nil
}

// checkAddrs returns an error for an address that can't be dialed. The error doesn't
// quote the address, because a URL may hold a password.
func checkAddrs(options *redis.UniversalOptions) error {
	if len(options.Addrs) == 0 {
		return errors.New("Config.Options.Addrs must name a Redis, as in 127.0.0.1:6379")
	}
	for i, addr := range options.Addrs {
		if mistake := redisdial.OptionMistake(addr, options.Dialer != nil); mistake != "" {
			return fmt.Errorf("Config.Options.Addrs[%d] %s; it %s", i, redisdial.AddrForm, mistake)
		}
	}
	return nil
}
