package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

const frontPassword = "of-the-front"

// A front has one database. Another is refused while daprd starts, not at the first
// lock, and the message names it.
func TestTheFrontRefusesAnotherDatabaseOfStockDaprd(t *testing.T) {
	t.Parallel()
	front := startRedisFront(t, userComponent(t, "memory", "store", nil))
	launchDaprd(t, stockOptions(t, "app", builtInRedis("locks", front.address, map[string]string{"redisDB": "1"}))).
		exitsWith("DB index is out of range: a front has only 0")
	d := startStockDaprd(t, "app", builtInRedis("locks", front.address, map[string]string{"redisDB": "0"}))
	expectTry(t, d.grpc, "locks", "r", "a", 60, true)
}

// passwordFile writes the file for --password-file.
func passwordFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(frontPassword+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The password of redisPassword, here from daprd's secret store.
func TestStockDaprdSendsTheFrontsPassword(t *testing.T) {
	t.Parallel()
	front := startRedisFront(t, userComponent(t, "memory", "store", nil), "--password-file", passwordFile(t))
	for _, username := range []string{"", "default"} {
		locks := builtInRedis("locks", front.address, nil)
		if username != "" {
			locks.Spec.Metadata = append(locks.Spec.Metadata, metadataItem{Name: "redisUsername", Value: username})
		}
		locks.Spec.Metadata = append(locks.Spec.Metadata, metadataItem{
			Name: "redisPassword", SecretKeyRef: &secretKeyRef{Name: "FRONT_PASSWORD", Key: "FRONT_PASSWORD"},
		})
		locks.Auth = &auth{SecretStore: "secrets"}
		options := stockOptions(t, "app", locks, plainComponent("secrets", "secretstores.local.env"))
		options.env = []string{"FRONT_PASSWORD=" + frontPassword}
		d := startDaprd(t, options)
		resource := "r-of-" + username
		expectTry(t, d.grpc, "locks", resource, "a", 60, true)
		expectUnlock(t, d.http, "locks", resource, "a", released)
	}
}

// Without the password, and with a wrong one, daprd ends at its start, with Redis's
// error texts for both.
func TestStockDaprdEndsWithoutTheFrontsPassword(t *testing.T) {
	t.Parallel()
	front := startRedisFront(t, userComponent(t, "memory", "store", nil), "--password-file", passwordFile(t))
	for name, c := range map[string]struct{ password, message string }{
		"none":  {"", "NOAUTH"},
		"wrong": {"wrong", "WRONGPASS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locks := builtInRedis("locks", front.address, map[string]string{"redisPassword": c.password})
			launchDaprd(t, stockOptions(t, "app", locks)).exitsWith(c.message)
		})
	}
}

// TLS, with the name that daprd connects to in the certificate, and the authority where
// Go looks for it: lock.redis has no key for one.
func TestStockDaprdReachesTheFrontOverTLS(t *testing.T) {
	t.Parallel()
	certificates := newCertificates(t)
	front := startRedisFront(t, userComponent(t, "memory", "store", nil),
		"--tls-cert", certificates.serverCert, "--tls-key", certificates.serverKey)
	options := stockOptions(t, "app", builtInRedis("locks", front.address, map[string]string{"enableTLS": "true"}))
	options.env = []string{"SSL_CERT_FILE=" + certificates.authority}
	d := startDaprd(t, options)
	expectTry(t, d.grpc, "locks", "r", "a", 60, true)
	expectUnlock(t, d.http, "locks", "r", "a", released)
}

// daprd refuses a certificate that no known authority has signed. A component without
// TLS cannot use a front with TLS.
func TestStockDaprdEndsWhereTheFrontsTLSDoesNotFit(t *testing.T) {
	t.Parallel()
	certificates := newCertificates(t)
	front := startRedisFront(t, userComponent(t, "memory", "store", nil),
		"--tls-cert", certificates.serverCert, "--tls-key", certificates.serverKey)
	for name, c := range map[string]struct{ enabled, message string }{
		"an unknown authority": {"true", "certificate"},
		"no TLS":               {"false", "error connecting to Redis"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locks := builtInRedis("locks", front.address, map[string]string{"enableTLS": c.enabled})
			launchDaprd(t, stockOptions(t, "app", locks)).exitsWith(c.message)
		})
	}
}

// With --tls-client-ca the front demands a certificate, which clientCert and clientKey
// have as PEM text.
func TestStockDaprdShowsTheFrontItsCertificate(t *testing.T) {
	t.Parallel()
	certificates := newCertificates(t)
	front := startRedisFront(t, userComponent(t, "memory", "store", nil),
		"--tls-cert", certificates.serverCert, "--tls-key", certificates.serverKey,
		"--tls-client-ca", certificates.authority)
	environment := []string{"SSL_CERT_FILE=" + certificates.authority}
	options := stockOptions(t, "app", builtInRedis("locks", front.address, map[string]string{
		"enableTLS":  "true",
		"clientCert": readFile(t, certificates.clientCert),
		"clientKey":  readFile(t, certificates.clientKey),
	}))
	options.env = environment
	d := startDaprd(t, options)
	expectTry(t, d.grpc, "locks", "r", "a", 60, true)

	options = stockOptions(t, "app", builtInRedis("locks", front.address, map[string]string{"enableTLS": "true"}))
	options.env = environment
	launchDaprd(t, options).exitsWith("error connecting to Redis")
}

// lock.redis takes a path for a Unix socket, but adds a port to an address without one. So
// the socket's name must end like a port.
func TestStockDaprdReachesTheFrontOverAUnixSocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(sockets(t), "front:6390")
	startRedisFront(t, userComponent(t, "memory", "store", nil), "--unix-socket", socket)
	d := startStockDaprd(t, "app", builtInRedis("locks", socket, nil))
	expectTry(t, d.grpc, "locks", "r", "a", 60, true)
	expectUnlock(t, d.http, "locks", "r", "a", released)
}
