package e2e

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/leasehold/leasehold/clients/go"
	"github.com/leasehold/leasehold/clients/go/internal/stage"
)

const (
	patience = 30 * time.Second
	mariaDB  = "mariadbd"
)

var errMissing = errors.New("it is not installed")

// atEnd is what TestMain undoes, the last first.
var atEnd struct {
	sync.Mutex
	tasks []func()
}

func later(task func()) {
	atEnd.Lock()
	defer atEnd.Unlock()
	atEnd.tasks = append(atEnd.tasks, task)
}

func TestMain(m *testing.M) {
	code := m.Run()
	for i := len(atEnd.tasks) - 1; i >= 0; i-- {
		atEnd.tasks[i]()
	}
	os.Exit(code)
}

// program finds a program on PATH, or where Debian puts PostgreSQL's.
func program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		return "", fmt.Errorf("%s: %w", name, errMissing)
	}
	return found[len(found)-1], nil
}

// unprivileged is the user for servers that refuse to run as root; nil if this process is not root.
func unprivileged() (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(nobody.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}, nil
}

// folder is a temporary folder that every user may enter, with a short path for sockets.
func folder(name string) (string, error) {
	path, err := os.MkdirTemp("", name)
	if err != nil {
		return "", err
	}
	later(func() { _ = os.RemoveAll(path) })
	return path, os.Chmod(path, 0o777)
}

// watch runs the server in its arguments until its input ends. The input also ends when this
// process is killed or times out. The first argument is the signal that ends the server.
const watch = `end=$1; shift; "$@" & read -r _; kill -s "$end" $!; wait $!`

// server starts a server, which ends with that signal: INT, TERM, …
func server(attributes *syscall.SysProcAttr, end, name string, arguments ...string) error {
	process := exec.Command("sh", append([]string{"-c", watch, "sh", end, name}, arguments...)...)
	process.SysProcAttr = attributes
	input, err := process.StdinPipe()
	if err != nil {
		return err
	}
	if err := process.Start(); err != nil {
		return err
	}
	later(func() {
		_ = input.Close()
		_ = process.Wait()
	})
	return nil
}

// skipMissing ignores a test whose server is not installed. In CI only MariaDB may be missing.
func skipMissing(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, errMissing) {
		return
	}
	if os.Getenv("CI") == "true" && !strings.Contains(err.Error(), mariaDB) {
		t.Fatal(err)
	}
	t.Skipf("ignored: %v", err)
}

func setUp(attributes *syscall.SysProcAttr, name string, arguments ...string) error {
	process := exec.Command(name, arguments...)
	process.SysProcAttr = attributes
	if output, err := process.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, output)
	}
	return nil
}

// answers waits until a database answers.
func answers(db *sql.DB, err error) (*sql.DB, error) {
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if err = db.Ping(); err == nil || time.Now().After(deadline) {
			return db, err
		}
	}
}

var postgres = sync.OnceValues(func() (*sql.DB, error) {
	initdb, err := program("initdb")
	if err != nil {
		return nil, err
	}
	path, err := folder("pg")
	if err != nil {
		return nil, err
	}
	attributes, err := unprivileged()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(path, "data")
	if err := setUp(attributes, initdb, "--no-sync", "--auth=trust", "--username=test", "--pgdata", data); err != nil {
		return nil, err
	}
	// listen_addresses is empty: a Unix socket only.
	err = server(attributes, "INT", filepath.Join(filepath.Dir(initdb), "postgres"),
		"-D", data, "-k", path, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "log_min_messages=fatal")
	if err != nil {
		return nil, err
	}
	return answers(sql.Open("pgx", "host="+path+" user=test dbname=postgres"))
})

var mysql = sync.OnceValues(func() (*sql.DB, error) {
	mariadbd, err := program(mariaDB)
	if err != nil {
		return nil, err
	}
	path, err := folder("my")
	if err != nil {
		return nil, err
	}
	attributes, err := unprivileged()
	if err != nil {
		return nil, err
	}
	data, socket := filepath.Join(path, "data"), filepath.Join(path, "socket")
	for _, made := range []string{data, filepath.Join(data, "test")} { // a folder is a database
		if err := os.Mkdir(made, 0o777); err != nil {
			return nil, err
		}
		if err := os.Chmod(made, 0o777); err != nil {
			return nil, err
		}
	}
	if err := server(attributes, "TERM", mariadbd, "--no-defaults", "--datadir="+data, "--socket="+socket,
		"--skip-networking", "--skip-grant-tables", "--tmpdir="+path, "--pid-file="+filepath.Join(path, "pid"), "--log-error="+filepath.Join(path, "log")); err != nil {
		return nil, err
	}
	return answers(sql.Open("mysql", "root@unix("+socket+")/test"))
})

var sqlite = sync.OnceValues(func() (*sql.DB, error) {
	path, err := folder("sqlite")
	if err != nil {
		return nil, err
	}
	return answers(sql.Open("sqlite", filepath.Join(path, "db")+"?_pragma=busy_timeout(60000)"))
})

var redisServer = sync.OnceValues(func() (*redis.Client, error) {
	path, err := folder("redis")
	if err != nil {
		return nil, err
	}
	binary, err := program("redis-server")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(path, "socket")
	if err := server(nil, "TERM", binary, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", path, "--loglevel", "warning"); err != nil {
		return nil, err
	}
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	later(func() { _ = client.Close() })
	return client, nil
})

// stages has one for each backend.
var stages struct {
	sync.Mutex
	started map[string]*stage.Stage
}

// onEach runs a test on every backend.
func onEach(t *testing.T, test func(*testing.T, *stage.Stage, *leasehold.Locks)) {
	backends := os.Getenv("LEASEHOLD_BACKENDS")
	if backends == "" {
		backends = "memory,redis,etcd"
	}
	for _, backend := range strings.Split(backends, ",") {
		t.Run(backend, func(t *testing.T) {
			s := stageOf(t, backend)
			locks, err := leasehold.New(stage.Store, leasehold.WithEndpoint(s.Address()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = locks.Close() })
			test(t, s, locks)
		})
	}
}

func stageOf(t *testing.T, backend string) *stage.Stage {
	t.Helper()
	stages.Lock()
	defer stages.Unlock()
	if s := stages.started[backend]; s != nil {
		return s
	}
	s, err := stage.Start(backend)
	if err != nil {
		t.Fatal(err)
	}
	later(s.Close)
	if stages.started == nil {
		stages.started = map[string]*stage.Stage{}
	}
	stages.started[backend] = s
	return s
}
