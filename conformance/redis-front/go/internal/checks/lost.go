package checks

import (
	"time"

	"leasehold/conformance/redis-front/internal/report"
	"leasehold/conformance/redis-front/internal/stage"
)

func (c checks) lostGrant() error {
	key, lossy, direct := stage.FreshKey("lost-grant"), c.lossy(), c.direct()
	if err := c.stage.Lose(key, 1, 1); err != nil {
		return err
	}
	// The library may have given up, or have repeated the command.
	held, err := lossy.Take(key, 3*time.Second)
	if err := c.oneLost(key); err != nil {
		return err
	}
	if err == nil {
		if err := Refused("another's try", try(direct, key)); err != nil {
			return err
		}
		if err := held.Release(); err != nil {
			return err
		}
	}
	_, err = takenWhenFree(direct, key)
	return err
}

func (c checks) foundGrant() error {
	key, lossy, direct := stage.FreshKey("found"), c.lossy(), c.direct()
	if err := c.stage.Lose(key, 1, 1); err != nil {
		return err
	}
	held, err := lossy.Take(key, Long)
	if err != nil {
		return err
	}
	return report.InOrder(
		func() error { return c.oneLost(key) },
		func() error { return Refused("another's try", try(direct, key)) },
		held.Release,
	)
}

func (c checks) lostExtension() error {
	key, lossy, direct := stage.FreshKey("lost-extension"), c.lossy(), c.direct()
	held, err := lossy.Take(key, Long)
	if err != nil {
		return err
	}
	if err := c.stage.Lose(key, 1, 1); err != nil {
		return err
	}
	_ = held.Extend(Long)
	return report.InOrder(
		func() error { return c.oneLost(key) },
		func() error { return Refused("another's try", try(direct, key)) },
		held.Release,
		func() error { return takenAndReleased(direct, key) },
	)
}

func (c checks) lostRelease() error {
	key, lossy, direct := stage.FreshKey("lost-release"), c.lossy(), c.direct()
	held, err := lossy.Take(key, Long)
	if err != nil {
		return err
	}
	if err := c.stage.Lose(key, 1, 1); err != nil {
		return err
	}
	_ = held.Release()
	if err := c.oneLost(key); err != nil {
		return err
	}
	_, err = takenWhenFree(direct, key)
	return err
}

func (c checks) oneLost(key string) error {
	lost, err := c.stage.Lost(key)
	if err != nil {
		return err
	}
	return report.Expect("the number of lost replies", lost, 1)
}
