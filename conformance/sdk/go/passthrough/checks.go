package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/dapr/go-sdk/client"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold/conformance/sdk/go/internal/report"
)

const checkTimeout = 15 * time.Second

func fresh(name string) string { return name + "-" + uuid.NewString() }

// within runs a check under one deadline for all its calls.
func within(body func(context.Context) error) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
		defer cancel()
		return body(ctx)
	}
}

func checkLock(r *report.Report, c client.Client, store string) {
	r.Check("a lock is granted, refused and released beside it", within(func(ctx context.Context) error {
		resource := fresh("passthrough")
		try := func(owner string, want bool) error {
			response, err := c.TryLockAlpha1(ctx, store, &client.LockRequest{
				ResourceID: resource, LockOwner: owner, ExpiryInSeconds: 30,
			})
			if err != nil {
				return err
			}
			return report.Expect("success", response.Success, want)
		}
		if err := errors.Join(try("a", true), try("b", false)); err != nil {
			return err
		}
		response, err := c.UnlockAlpha1(ctx, store, &client.UnlockRequest{ResourceID: resource, LockOwner: "a"})
		if err != nil {
			return err
		}
		return report.Expect("status", response.StatusCode, 0)
	}))
}

func checkState(r *report.Report, c client.Client, store string) {
	reads := func(ctx context.Context, key, want string) (etag string, err error) {
		item, err := c.GetState(ctx, store, key, nil)
		if err != nil {
			return "", err
		}
		return item.Etag, report.Expect("value", string(item.Value), want)
	}
	r.Check("state is saved, read and deleted in "+store, within(func(ctx context.Context) error {
		key := fresh("key")
		if err := c.SaveState(ctx, store, key, []byte("value of ключ"), nil); err != nil {
			return err
		}
		if _, err := reads(ctx, key, "value of ключ"); err != nil {
			return err
		}
		if err := c.DeleteState(ctx, store, key, nil); err != nil {
			return err
		}
		_, err := reads(ctx, key, "")
		return err
	}))
	r.Check("a stale ETag is refused in "+store, within(func(ctx context.Context) error {
		key := fresh("etag")
		if err := c.SaveState(ctx, store, key, []byte("first"), nil); err != nil {
			return err
		}
		stale, err := reads(ctx, key, "first")
		if err != nil {
			return err
		}
		// The SDK's default is that the last write wins, with any ETag.
		firstWins := client.WithConcurrency(client.StateConcurrencyFirstWrite)
		if err := c.SaveStateWithETag(ctx, store, key, []byte("second"), stale, nil, firstWins); err != nil {
			return err
		}
		err = c.SaveStateWithETag(ctx, store, key, []byte("third"), stale, nil, firstWins)
		if status.Code(err) != codes.Aborted {
			return fmt.Errorf("it ended with %v", err)
		}
		_, err = reads(ctx, key, "second")
		return err
	}))
}

// checkEvents leaves its subscription open until ctx ends: daprd 1.18.2 may
// panic if one ends while it is reading the answer to an event.
func checkEvents(ctx context.Context, r *report.Report, c client.Client, pubsub string) {
	r.Check("a published event reaches a streaming subscription", func() error {
		topic := fresh("topic")
		subscription, err := c.Subscribe(ctx, client.SubscriptionOptions{PubsubName: pubsub, Topic: topic})
		if err != nil {
			return err
		}
		publishing, arrived := context.WithTimeout(ctx, checkTimeout)
		defer arrived()
		go publishAnew(publishing, c, pubsub, topic)
		event, err := subscription.Receive()
		if err != nil {
			return err
		}
		return errors.Join(report.Expect("event", string(event.RawData), "order 1"), event.Success())
	})
}

// publishAnew publishes until ctx ends: the subscription may begin later than
// the call that makes it ends.
func publishAnew(ctx context.Context, c client.Client, pubsub, topic string) {
	for ctx.Err() == nil {
		if err := c.PublishEvent(ctx, pubsub, topic, []byte("order 1")); err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "publish: %v\n", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func checkSecret(r *report.Report, c client.Client, store, key, value string) {
	r.Check("a secret is read", within(func(ctx context.Context) error {
		secret, err := c.GetSecret(ctx, store, key, nil)
		if err != nil {
			return err
		}
		return report.Expect("secret", secret[key], value)
	}))
}

func checkMetadata(r *report.Report, c client.Client, appID string, components []string) {
	r.Check("the metadata names daprd's components", within(func(ctx context.Context) error {
		metadata, err := c.GetMetadata(ctx)
		if err != nil {
			return err
		}
		if err := report.Expect("app ID", metadata.ID, appID); err != nil {
			return err
		}
		for _, name := range components {
			if !slices.ContainsFunc(metadata.RegisteredComponents, func(c *client.MetadataRegisteredComponents) bool { return c.Name == name }) {
				return fmt.Errorf("the metadata lacks %s", name)
			}
		}
		return nil
	}))
}
