package main

// The network between the nodes and the clients.
//
// With root, each node lives in a network namespace of its own, and so do the clients. The only way out of a namespace is a TUN
// device, and its other end is here: a switch that moves each IP packet from one device to another, and that may drop, delay,
// double or reorder the packets of each directed link. So links break as they do between machines: nothing is refused, nothing is
// closed, TCP sends again and backs off, and a node that dies behind a cut link leaves half-open connections to the others. The
// kernel's own tools for that (netem, nftables) are missing on many machines.
//
// Without root, the nodes have loopback addresses, and no fault of the network can be made.

import (
	"cmp"
	"fmt"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// The clients are a host, too.
const clientsNumber = 250

const (
	dialTimeout = 500 * time.Millisecond
	mtu         = 9000
)

// Link is what happens to packets on their way from one host to another.
type Link struct {
	cut             bool
	loss, double    float64
	delay, jitter   time.Duration
	dropped, slowed atomic.Int64 // packets
}

// Host is a place for a node, or for the clients.
type Host struct {
	address   string
	namespace *os.File // nil: the one that this program started in
	device    *os.File
}

type Network struct {
	home  *os.File // the namespace that this program started in; nil without namespaces
	mutex sync.RWMutex
	hosts map[int]*Host
	links map[[2]int]*Link
}

// newNetwork returns a network and, if it has no switch, the reason.
func newNetwork() (*Network, string) {
	n := &Network{hosts: map[int]*Host{}, links: map[[2]int]*Link{}}
	home, err := os.Open("/proc/self/ns/net")
	if err == nil {
		n.home = home
		if err = n.addHost(clientsNumber); err == nil {
			return n, ""
		}
	}
	n.home = nil
	return n, err.Error()
}

func (n *Network) hasSwitch() bool { return n.home != nil }

// addHost makes the host of a node, unless it is there.
func (n *Network) addHost(number int) error {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.hosts[number] != nil {
		return nil
	}
	if n.home == nil {
		pid := os.Getpid()
		n.hosts[number] = &Host{address: fmt.Sprintf("127.%d.%d.%d", pid>>8&255, pid&255, number)}
		return nil
	}
	host := &Host{address: fmt.Sprintf("10.99.0.%d", number)}
	if err := n.onThread(func() error { return host.enterNew() }); err != nil {
		return err
	}
	for other := range n.hosts {
		n.links[[2]int{number, other}], n.links[[2]int{other, number}] = &Link{}, &Link{}
	}
	n.hosts[number] = host
	go n.forward(number, host.device)
	return nil
}

// enterNew moves the calling thread to a new namespace and gives that its device.
func (h *Host) enterNew() error {
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		return fmt.Errorf("no network namespace: %w", err)
	}
	var err error
	if h.namespace, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", syscall.Gettid())); err != nil {
		return err
	}
	device, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("/dev/net/tun: %w", err)
	}
	request := struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}{flags: syscall.IFF_TUN | syscall.IFF_NO_PI}
	copy(request.name[:], "tun0")
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(device), syscall.TUNSETIFF, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("TUNSETIFF: %w", errno)
	}
	h.device = os.NewFile(uintptr(device), "tun0")
	for _, words := range []string{
		"link set lo up",
		fmt.Sprintf("link set tun0 mtu %d up", mtu),
		"addr add " + h.address + "/24 dev tun0",
	} {
		if out, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", words, err, out)
		}
	}
	return nil
}

// forward moves the packets that a host sends.
func (n *Network) forward(from int, device *os.File) {
	random := rand.New(rand.NewSource(int64(from)))
	packet := make([]byte, mtu+64)
	for {
		length, err := device.Read(packet)
		if err != nil {
			return
		}
		// Only IPv4; the last byte of the destination is the number of a host.
		if length < 20 || packet[0]>>4 != 4 || packet[16] != 10 || packet[17] != 99 {
			continue
		}
		n.mutex.RLock()
		link, host := n.links[[2]int{from, int(packet[19])}], n.hosts[int(packet[19])]
		if host == nil || link == nil {
			n.mutex.RUnlock()
			continue
		}
		cut, loss, double, delay, jitter := link.cut, link.loss, link.double, link.delay, link.jitter
		n.mutex.RUnlock()
		if cut || random.Float64() < loss {
			link.dropped.Add(1)
			continue
		}
		copies := 1
		if random.Float64() < double {
			copies = 2
		}
		for ; copies > 0; copies-- {
			if delay+jitter == 0 {
				host.device.Write(packet[:length])
				continue
			}
			link.slowed.Add(1)
			late := append([]byte(nil), packet[:length]...)
			time.AfterFunc(delay+time.Duration(random.Int63n(int64(jitter)+1)), func() { host.device.Write(late) })
		}
	}
}

// setLinks changes some directed links, and returns a function that counts the packets dropped and slowed on these since then.
func (n *Network) setLinks(pairs [][2]int, change func(*Link)) (affected func() int64) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	count := func() (sum int64) {
		for _, pair := range pairs {
			sum += n.links[pair].dropped.Load() + n.links[pair].slowed.Load()
		}
		return sum
	}
	for _, pair := range pairs {
		change(n.links[pair])
	}
	before := count()
	return func() int64 {
		n.mutex.RLock()
		defer n.mutex.RUnlock()
		return count() - before
	}
}

// cut cuts directed links.
func (n *Network) cut(pairs [][2]int) (affected func() int64) {
	return n.setLinks(pairs, func(link *Link) { link.cut = true })
}

// heal makes all links whole.
func (n *Network) heal() {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	for _, link := range n.links {
		link.cut, link.loss, link.double, link.delay, link.jitter = false, 0, 0, 0, 0
	}
}

// dial connects a client to a port of a node.
func (n *Network) dial(number, port int) (*Conn, error) {
	n.mutex.RLock()
	host := n.hosts[number]
	n.mutex.RUnlock()
	var stream net.Conn
	err := n.in(clientsNumber, func() (err error) {
		// An address instead of a name: so the dialer makes the socket on this thread, in its namespace.
		stream, err = (&net.Dialer{Timeout: dialTimeout}).Dial("tcp4", net.JoinHostPort(host.address, fmt.Sprint(port)))
		return err
	})
	if err != nil {
		return nil, err
	}
	return newConn(stream), nil
}

// in runs a function on a thread in the namespace of a host. Sockets and processes that it makes belong to that.
func (n *Network) in(number int, do func() error) error {
	if n.home == nil {
		return do()
	}
	n.mutex.RLock()
	namespace := n.hosts[number].namespace
	n.mutex.RUnlock()
	return n.onThread(func() error {
		if err := setNamespace(namespace); err != nil {
			return err
		}
		return do()
	})
}

// onThread runs a function that changes the namespace of its thread, and changes it back.
func (n *Network) onThread(do func() error) error {
	runtime.LockOSThread()
	err := do()
	if back := setNamespace(n.home); back != nil {
		// The thread stays locked to its goroutine, so nothing else ever runs in the wrong namespace.
		return cmp.Or(err, back)
	}
	runtime.UnlockOSThread()
	return err
}

// Package syscall knows no name for the number of setns.
var setnsNumber = map[string]uintptr{"amd64": 308, "arm64": 268}[runtime.GOARCH]

func setNamespace(namespace *os.File) error {
	if setnsNumber == 0 {
		return fmt.Errorf("no setns for %s", runtime.GOARCH)
	}
	if _, _, errno := syscall.RawSyscall(setnsNumber, namespace.Fd(), syscall.CLONE_NEWNET, 0); errno != 0 {
		return fmt.Errorf("setns: %w", errno)
	}
	return nil
}
