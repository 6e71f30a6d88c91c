package checks

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"leasehold/conformance/redis-front/internal/report"
	"leasehold/conformance/redis-front/internal/stage"
)

const (
	clients = 8
	keys    = 3
	// lossesApart: one of this many replies is lost.
	lossesApart = 20
	// releases: how often each lock is released at least.
	releases = 10
)

// section is what a lock protects. It has the time until which its holder is sure of the lock.
type section struct {
	key string

	mutex              sync.Mutex
	sureUntil          time.Time
	overlaps, releases int
}

// enter reports whether the client came in time.
func (s *section) enter(sureUntil time.Time) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	now := time.Now()
	if !now.Before(sureUntil) {
		return false // the client was delayed: by now another may hold the lock
	}
	if now.Before(s.sureUntil) {
		s.overlaps++
	}
	s.sureUntil = sureUntil
	return true
}

func (s *section) leave(sureUntil time.Time) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.sureUntil.Equal(sureUntil) {
		s.sureUntil = time.Time{}
	}
}

func (s *section) released() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.releases++
}

func (c checks) stress() error {
	var sections []*section
	for range keys {
		key := stage.FreshKey("stress")
		if err := c.stage.Lose(key, lossesApart, 1_000_000); err != nil {
			return err
		}
		sections = append(sections, &section{key: key})
	}
	var contenders []Client
	for number := range clients {
		if number%2 == 0 {
			contenders = append(contenders, c.direct())
		} else {
			contenders = append(contenders, c.lossy())
		}
	}
	// A slow store gets as many rounds as it needs.
	err := report.Eventually("enough releases, and a lost reply", func() error {
		contend(contenders, sections, time.Now().Add(c.stage.StressTime))
		return c.enough(sections)
	})
	for _, section := range sections {
		overlaps := report.Expect("the number of overlaps on "+section.key, section.overlaps, 0)
		err = errors.Join(overlaps, err)
	}
	if err != nil {
		return err
	}
	for _, section := range sections {
		if _, err := takenWhenFree(c.direct(), section.key); err != nil {
			return err
		}
	}
	return nil
}

func contend(contenders []Client, sections []*section, ends time.Time) {
	var group sync.WaitGroup
	for _, client := range contenders {
		group.Go(func() { stressClient(client, sections, ends) })
	}
	group.Wait()
}

func (c checks) enough(sections []*section) error {
	lost := 0
	for _, section := range sections {
		if section.releases < releases {
			return fmt.Errorf("only %d releases of %s", section.releases, section.key)
		}
		ofKey, err := c.stage.Lost(section.key)
		if err != nil {
			return err
		}
		lost += ofKey
	}
	if lost == 0 {
		return errors.New("no reply was lost")
	}
	return nil
}

func stressClient(client Client, sections []*section, ends time.Time) {
	for time.Now().Before(ends) {
		section := sections[rand.IntN(len(sections))]
		sureUntil := time.Now().Add(Short)
		held, err := client.Take(section.key, Short)
		if err != nil {
			// Clients that poll pause between their tries.
			time.Sleep(rand.N(10 * time.Millisecond))
			continue
		}
		inTime := section.enter(sureUntil)
		if rand.IntN(10) == 0 {
			_ = held.Extend(Short)
		}
		// The lock is held for a while, so that an overlap shows.
		time.Sleep(rand.N(2 * time.Millisecond))
		section.leave(sureUntil)
		if held.Release() == nil && inTime {
			section.released()
		}
	}
}
