//go:build !redislock09

package main

import (
	"context"
	"errors"
	"fmt"

	"leasehold/conformance/redis-front/internal/checks"
	"leasehold/conformance/redis-front/internal/report"
	"leasehold/conformance/redis-front/internal/stage"
)

func (o own) runMulti(to *report.Report, subject string) {
	to.Check(subject, "ObtainMulti with one key is a lock like any other", o.multi)
	sentence := "ObtainMulti with two keys is refused, and takes neither"
	if o.stage.IsFront {
		to.Check(subject, sentence, o.twoKeys)
	} else {
		to.Ignore(subject, sentence, "Redis itself serves it")
	}
}

func (o own) multi() error {
	ctx, key := context.Background(), stage.FreshKey("multi")
	lock, err := o.client().ObtainMulti(ctx, []string{key}, checks.Long, nil)
	if err != nil {
		return err
	}
	_, err = o.client().Obtain(ctx, key, checks.Long, nil)
	return report.InOrder(
		func() error { return checks.Refused("another's try", refusal(err)) },
		func() error { return lock.Release(ctx) },
	)
}

func (o own) twoKeys() error {
	ctx := context.Background()
	keys := []string{stage.FreshKey("two"), stage.FreshKey("two")}
	if _, err := o.client().ObtainMulti(ctx, keys, checks.Long, nil); err == nil {
		return errors.New("it was granted")
	}
	for _, key := range keys {
		if _, err := o.client().Obtain(ctx, key, checks.Long, nil); err != nil {
			return fmt.Errorf("%s is not free: %w", key, err)
		}
	}
	return nil
}
