package deploy

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

// What is in the image, run as its user with its default arguments in a root
// that holds nothing else, serves the sockets. The program is that of the
// debug build, with the libraries that a static one does without.
func TestImageServesWithoutArguments(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("ignored: only root may change the root of a process")
	}
	all := stages(t, "Dockerfile")
	image := all[len(all)-1]
	uid, err := strconv.Atoi(strings.Split(commands[*instructions.UserCommand](image)[0].User, ":")[0])
	if err != nil {
		t.Fatal(err)
	}
	jail := t.TempDir()
	// The folders above are readable for nobody else.
	for folder := jail; folder != os.TempDir(); folder = filepath.Dir(folder) {
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := dockerfiles["Dockerfile"].program
	for _, c := range commands[*instructions.CopyCommand](image) {
		dest := filepath.Join(jail, c.DestPath)
		switch {
		case c.DestPath == program:
			install(t, filepath.Join(root, "target/debug/leasehold"), dest)
		case c.Chown != "":
			if err := os.MkdirAll(dest, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(dest, uid, uid); err != nil {
				t.Fatal(err)
			}
		}
	}
	libraries, err := exec.Command("ldd", filepath.Join(root, "target/debug/leasehold")).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, library := range regexp.MustCompile(`/\S+`).FindAllString(string(libraries), -1) {
		install(t, library, filepath.Join(jail, library))
	}

	arguments := commands[*instructions.CmdCommand](image)[0].CmdLine
	process := exec.Command(program, arguments...)
	process.Dir = "/"
	process.Env = []string{}
	var log strings.Builder
	process.Stderr = &log
	process.SysProcAttr = &syscall.SysProcAttr{
		Chroot:     jail,
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)},
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- process.Wait() }()
	defer process.Process.Kill()
	socket := filepath.Join(jail, "tmp/dapr-components-sockets/memory.sock")
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if connection, err := net.Dial("unix", socket); err == nil {
			connection.Close()
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v\n%s", err, log.String())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not listen")
		}
	}
	if err := process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
}

// install copies a file and makes it executable.
func install(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o755); err != nil {
		t.Fatal(err)
	}
}
