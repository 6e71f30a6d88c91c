// Package checks has what every lock library must find true, whatever it locks in.
package checks

import (
	"errors"
	"fmt"
	"time"

	"leasehold/conformance/redis-front/internal/report"
	"leasehold/conformance/redis-front/internal/stage"
)

const (
	// Long is far longer than a check takes, so that a lock does not end by its TTL.
	Long = time.Minute
	// Short can be waited for. etcd grants no less than 2 s.
	Short = time.Second
)

// ErrRefused says that the lock is another's, or no longer the caller's.
var ErrRefused = errors.New("refused")

// Client is a lock library with a connection of its own.
type Client interface {
	// Take tries once. ErrRefused if the lock is another's.
	Take(key string, ttl time.Duration) (Held, error)
	// PTTL asks the server.
	PTTL(key string) (time.Duration, error)
}

// Held is a lock that was granted. Its calls are refused once it is lost.
type Held interface {
	Extend(ttl time.Duration) error
	Release() error
}

// Library is what the checks need to know of a lock library.
type Library struct {
	Name    string
	Connect func(address string) Client
	// TakesItsOwn says that it is granted a lock of its own value, so that a repeated command is
	// answered as the first one was on Redis itself too.
	TakesItsOwn bool
}

// Run runs all checks of one library.
func Run(to *report.Report, on stage.Stage, library Library) {
	c := checks{on, library}
	subject := library.Name + " on " + on.Backend
	for _, fact := range []struct {
		sentence string
		body     func() error
	}{
		{"a held lock is refused to another, and granted after its release", c.exclusion},
		{"a lock ends at its TTL, and not before", c.expiry},
		{"an owner whose lock was lost changes nothing of the next owner's", c.lateOwner},
		{"an extension sets the TTL", c.extension},
		{"a lock whose grant was not answered has one holder, and becomes free", c.lostGrant},
		{"a lock whose extension was not answered is held until its release", c.lostExtension},
		{"a lock whose release was not answered is free", c.lostRelease},
		{"no two clients hold a lock at once, with replies lost in between", c.stress},
	} {
		to.Check(subject, fact.sentence, fact.body)
	}
	sentence := "the library's own retry finds the grant that was not answered"
	if on.IsFront || library.TakesItsOwn {
		to.Check(subject, sentence, c.foundGrant)
	} else {
		to.Ignore(subject, sentence, "Redis itself refuses it")
	}
}

type checks struct {
	stage   stage.Stage
	library Library
}

func (c checks) direct() Client { return c.library.Connect(c.stage.Direct) }
func (c checks) lossy() Client  { return c.library.Connect(c.stage.Lossy) }

func (c checks) exclusion() error {
	key, first, second := stage.FreshKey("exclusion"), c.direct(), c.direct()
	held, err := first.Take(key, Long)
	if err != nil {
		return err
	}
	return report.InOrder(
		func() error { return Refused("the other's try", try(second, key)) },
		held.Release,
		func() error { return takenAndReleased(second, key) },
	)
}

func (c checks) expiry() error {
	key, first, second := stage.FreshKey("expiry"), c.direct(), c.direct()
	_, earliest, err := grantedForShort(first, key)
	if err != nil {
		return err
	}
	if _, err := takenWhenFree(second, key); err != nil {
		return err
	}
	if time.Now().Before(earliest) {
		return errors.New("the lock was granted to another before its TTL was over")
	}
	return nil
}

func (c checks) lateOwner() error {
	key, first, second := stage.FreshKey("late"), c.direct(), c.direct()
	late, _, err := grantedForShort(first, key)
	if err != nil {
		return err
	}
	current, err := takenWhenFree(second, key)
	if err != nil {
		return err
	}
	return report.InOrder(
		func() error { return Refused("the late owner's extension", late.Extend(Long)) },
		func() error { return Refused("the late owner's release", late.Release()) },
		func() error { return Refused("another try", try(first, key)) },
		current.Release,
	)
}

func (c checks) extension() error {
	key, client := stage.FreshKey("extension"), c.direct()
	held, err := client.Take(key, 20*time.Second)
	if err != nil {
		return err
	}
	if err := held.Extend(Long); err != nil {
		return err
	}
	left, err := client.PTTL(key)
	if err != nil {
		return err
	}
	if left <= 30*time.Second || left > 62*time.Second {
		return fmt.Errorf("PTTL tells %v after an extension to %v", left, Long)
	}
	return held.Release()
}

// Refused is an error unless err is ErrRefused.
func Refused(what string, err error) error {
	if errors.Is(err, ErrRefused) {
		return nil
	}
	return fmt.Errorf("%s was not refused but answered with: %v", what, err)
}

func try(client Client, key string) error {
	_, err := client.Take(key, Long)
	return err
}

func takenAndReleased(client Client, key string) error {
	held, err := client.Take(key, Long)
	if err != nil {
		return err
	}
	return held.Release()
}

// The lock, and until when it lasts at least. A library refuses a grant that arrives after its
// TTL, which a busy machine makes happen.
func grantedForShort(client Client, key string) (held Held, until time.Time, err error) {
	err = report.Eventually(key+" is granted", func() (err error) {
		until = time.Now().Add(Short)
		held, err = client.Take(key, Short)
		return err
	})
	return held, until, err
}

func takenWhenFree(client Client, key string) (held Held, err error) {
	err = report.Eventually(key+" becomes free", func() (err error) {
		held, err = client.Take(key, Long)
		return err
	})
	return held, err
}
