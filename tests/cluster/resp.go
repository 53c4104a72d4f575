package main

// A client of the Redis protocol (RESP2) that never repeats a call. A test of a group needs to know of each call whether it was
// answered, refused, or left open. Libraries hide that behind their retries.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// Reply is one reply: a text, a number, nothing, an error, or a list of replies.
type Reply struct {
	kind  byte // the first byte of its RESP form; '0' for nothing
	text  string
	items []Reply
}

func (r Reply) isError() bool { return r.kind == '-' }
func (r Reply) isNull() bool  { return r.kind == '0' }

// number returns the number of a reply that is one, in whichever form, and -1 for any other.
func (r Reply) number() int64 {
	if n, err := strconv.ParseInt(r.text, 10, 64); err == nil {
		return n
	}
	return -1
}

// granted returns the outcome of a command for coordination: its first element is 1.
func (r Reply) granted() bool { return len(r.items) > 0 && r.items[0].number() == 1 }

// field returns the named field of such a reply; the names and values follow the outcome.
func (r Reply) field(name string) Reply {
	for i := 1; i+1 < len(r.items); i += 2 {
		if r.items[i].text == name {
			return r.items[i+1]
		}
	}
	return Reply{kind: '0'}
}

func (r Reply) String() string {
	if r.items == nil {
		return string(r.kind) + r.text
	}
	return fmt.Sprint(r.items)
}

// Conn is a connection to one server.
type Conn struct {
	stream net.Conn
	reader *bufio.Reader
}

func newConn(stream net.Conn) *Conn { return &Conn{stream, bufio.NewReader(stream)} }

func (c *Conn) close() { c.stream.Close() }

// call sends one command and returns its reply. After an error nothing is known about the command, and the connection is of no use.
func (c *Conn) call(timeout time.Duration, args ...any) (Reply, error) {
	replies, err := c.pipeline(timeout, [][]any{args})
	if err != nil {
		return Reply{}, err
	}
	return replies[0], nil
}

// pipeline sends several commands in one write. It returns the replies that came before an error, too.
func (c *Conn) pipeline(timeout time.Duration, commands [][]any) ([]Reply, error) {
	c.stream.SetDeadline(time.Now().Add(timeout))
	var out []byte
	for _, args := range commands {
		out = fmt.Appendf(out, "*%d\r\n", len(args))
		for _, arg := range args {
			text := fmt.Sprint(arg)
			out = fmt.Appendf(out, "$%d\r\n%s\r\n", len(text), text)
		}
	}
	if _, err := c.stream.Write(out); err != nil {
		return nil, err
	}
	var replies []Reply
	for range commands {
		reply, err := c.read()
		if err != nil {
			return replies, err
		}
		replies = append(replies, reply)
	}
	return replies, nil
}

func (c *Conn) read() (Reply, error) {
	line, err := c.reader.ReadString('\n')
	if err != nil {
		return Reply{}, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return Reply{}, errors.New("an empty line instead of a reply")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', '-', ':':
		return Reply{kind: kind, text: rest}, nil
	case '$', '*':
		count, err := strconv.Atoi(rest)
		if err != nil {
			return Reply{}, err
		}
		if count < 0 {
			return Reply{kind: '0'}, nil
		}
		if kind == '$' {
			bytes := make([]byte, count+2)
			if _, err := io.ReadFull(c.reader, bytes); err != nil {
				return Reply{}, err
			}
			return Reply{kind: kind, text: string(bytes[:count])}, nil
		}
		items := make([]Reply, 0, count)
		for i := 0; i < count; i++ {
			item, err := c.read()
			if err != nil {
				return Reply{}, err
			}
			items = append(items, item)
		}
		return Reply{kind: kind, items: items}, nil
	}
	return Reply{}, fmt.Errorf("no reply begins like this: %q", line)
}
