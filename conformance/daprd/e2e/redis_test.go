package e2e

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// redisCommand sends one command and returns the first line of the reply, or
// the second, if the reply is a bulk string.
func redisCommand(address string, args ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	command := fmt.Sprintf("*%d\r\n", len(args))
	for _, arg := range args {
		command += fmt.Sprintf("$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := conn.Write([]byte(command)); err != nil {
		return "", err
	}
	reader := bufio.NewReader(conn)
	line, err := reader.ReadString('\n')
	if err == nil && strings.HasPrefix(line, "$") && !strings.HasPrefix(line, "$-1") {
		line, err = reader.ReadString('\n')
	}
	return strings.TrimRight(line, "\r\n"), err
}

// redisGet returns the value of a key; "$-1" if it does not exist.
func redisGet(t *testing.T, address, key string) string {
	t.Helper()
	value, err := redisCommand(address, "GET", key)
	if err != nil {
		t.Fatal(err)
	}
	return value
}
