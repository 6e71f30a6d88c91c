// Package stage has the environment of the checks: the addresses and the lossy proxy that `run` set.
package stage

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// Stage is the environment of the checks.
type Stage struct {
	Direct, Lossy, Backend string
	StressTime             time.Duration
	// IsFront is false on Redis itself.
	IsFront bool

	control string
}

// FromEnvironment reads the variables that `run` sets.
func FromEnvironment() (Stage, error) {
	seconds := 5.0
	if text := os.Getenv("FRONT_STRESS_SECONDS"); text != "" {
		var err error
		if seconds, err = strconv.ParseFloat(text, 64); err != nil {
			return Stage{}, fmt.Errorf("FRONT_STRESS_SECONDS: %w", err)
		}
	}
	return Stage{
		Direct:     os.Getenv("FRONT_ADDRESS"),
		Lossy:      os.Getenv("FRONT_LOSSY_ADDRESS"),
		Backend:    os.Getenv("FRONT_BACKEND"),
		StressTime: time.Duration(seconds * float64(time.Second)),
		IsFront:    os.Getenv("FRONT_IS_REDIS") != "1",
		control:    os.Getenv("FRONT_LOSSY_CONTROL"),
	}, nil
}

// Lose loses one of `every` replies to commands on a key, at most limit of them.
func (s Stage) Lose(key string, every, limit int) error {
	_, err := s.command(fmt.Sprintf("lose %s %d %d", key, every, limit))
	return err
}

// Lost returns how many replies were lost.
func (s Stage) Lost(key string) (int, error) {
	answer, err := s.command("lost " + key)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(answer)
}

func (s Stage) command(line string) (string, error) {
	connection, err := net.Dial("tcp", s.control)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	if _, err := fmt.Fprintln(connection, line); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(connection).ReadString('\n')
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(answer, "error") {
		return "", fmt.Errorf("the lossy proxy: %s", answer)
	}
	return strings.TrimSpace(answer), nil
}

// FreshKey is a name that no other check uses.
func FreshKey(what string) string { return what + "-" + strings.ToLower(rand.Text()[:12]) }

// Version is the version of a library in this program, without the leading v.
func Version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return strings.TrimPrefix(dependency.Version, "v")
		}
	}
	return "of unknown version"
}
