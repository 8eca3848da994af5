package app

import (
	"net"
	"strings"
	"time"
)

// notifyTimeout is how long a manager that reads nothing keeps the service waiting.
const notifyTimeout = time.Second

// serviceManagerSocket is where systemd hears from a service of Type=notify; empty without
// one. See sd_notify(3).
type serviceManagerSocket string

func serviceManager(lookupEnv func(string) (string, bool)) serviceManagerSocket {
	path, _ := lookupEnv("NOTIFY_SOCKET")
	return serviceManagerSocket(path)
}

// notify tells a state. The service runs on where nobody listens.
func (s serviceManagerSocket) notify(state string) {
	if s == "" {
		return
	}
	name := string(s)
	if abstract, ok := strings.CutPrefix(name, "@"); ok {
		name = "\x00" + abstract
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(notifyTimeout))
	_, _ = conn.Write([]byte(state))
	_ = conn.Close()
}
