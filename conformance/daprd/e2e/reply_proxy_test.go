package e2e

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
)

// replyProxy stands between a Redis client and its server. It passes everything on,
// except the replies that it is set to lose.
type replyProxy struct {
	address string
	server  string

	mutex sync.Mutex
	next  loss
	lost  int
}

// loss is which replies are lost, and how.
type loss struct {
	// verb is the command, in lower case, and times how many replies to it are lost.
	verb  string
	times int
	// silent is whether the client is left waiting; else both connections are reset.
	silent bool
}

func startReplyProxy(t *testing.T, server string) *replyProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &replyProxy{address: listener.Addr().String(), server: server}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client.(*net.TCPConn))
		}
	}()
	return p
}

// lose lets such commands through and loses their replies. It replaces an earlier
// setting.
func (p *replyProxy) lose(next loss) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.next = next
}

// replies is how many were lost.
func (p *replyProxy) replies() int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.lost
}

func (p *replyProxy) serve(client *net.TCPConn) {
	defer client.Close()
	upstream, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	server := upstream.(*net.TCPConn)
	defer server.Close()

	// For the next reply. A client sends a command in one piece, and nothing
	// more before it has the reply.
	isSilent := make(chan bool, 1)
	go func() {
		defer server.Close()
		defer client.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := client.Read(buffer)
			if err != nil {
				return
			}
			if silent, chosen := p.chosen(buffer[:n]); chosen {
				isSilent <- silent
			}
			if _, err := server.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()

	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		select {
		case silent := <-isSilent:
			if silent {
				_, _ = io.Copy(io.Discard, server)
				return
			}
			_ = client.SetLinger(0)
			_ = server.SetLinger(0)
			return
		default:
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// chosen is whether these bytes are a command whose reply is to be lost.
func (p *replyProxy) chosen(sent []byte) (silent, chosen bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.next.times == 0 || !bytes.Contains(bytes.ToLower(sent), []byte("\r\n"+p.next.verb+"\r\n")) {
		return false, false
	}
	p.next.times--
	p.lost++
	return p.next.silent, true
}
