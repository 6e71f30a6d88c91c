// Package checks has the checks of every lock library, on any store.
package checks

import (
	"errors"
	"fmt"
	"os"
	"sync"
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

// ErrRefused means that the lock is another's, or no longer the caller's.
var ErrRefused = errors.New("refused")

// Client is a lock library with its own connection.
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

// Library is what the checks need of a lock library.
type Library struct {
	Name string
	// Module is its Go module, whose version is part of what is printed.
	Module  string
	Connect func(address string, protocol int) Client
	// TakesItsOwn means that it is granted a lock with its own value, so that Redis itself, too,
	// answers a repeated command like the first one.
	TakesItsOwn bool
	// Own runs the checks of what only this library offers.
	Own func(on stage.Stage, to *report.Report, subject string)
}

// Main runs all checks of one library, over RESP2 and RESP3, and exits.
func Main(library Library) {
	on, err := stage.FromEnvironment()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(64)
	}
	to := &report.Report{}
	name := library.Name + " " + stage.Version(library.Module)
	var group sync.WaitGroup
	for _, protocol := range []int{2, 3} {
		group.Go(func() {
			checks{on, library, protocol}.run(to, fmt.Sprintf("%s RESP%d on %s", name, protocol, on.Backend))
		})
	}
	group.Go(func() { library.Own(on, to, name+" on "+on.Backend) })
	group.Wait()
	os.Exit(to.Close())
}

type checks struct {
	stage    stage.Stage
	library  Library
	protocol int
}

func (c checks) run(to *report.Report, subject string) {
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
	if c.library.TakesItsOwn {
		to.Check(subject, "the library's own retry finds the grant that was not answered", c.foundGrant)
	}
}

func (c checks) direct() Client { return c.library.Connect(c.stage.Direct, c.protocol) }
func (c checks) lossy() Client  { return c.library.Connect(c.stage.Lossy, c.protocol) }

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
		return fmt.Errorf("PTTL returned %v after an extension to %v", left, Long)
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

// Waits checks a call that waits for a lock: it is granted after the holder's release. Before the
// release the call has to report its first refusal.
func Waits(release func() error, wait func(refused func()) error) error {
	refused := make(chan struct{})
	granted := make(chan error, 1)
	go func() { granted <- wait(sync.OnceFunc(func() { close(refused) })) }()
	select {
	case <-refused:
	case err := <-granted:
		return fmt.Errorf("the waiting call returned before the release, with error %v", err)
	}
	if err := release(); err != nil {
		return err
	}
	return <-granted
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
