package main

// The servers under test: three or five Tidegate nodes, or as many Redis servers, each with a Sentinel beside it. A group starts
// them, stops them in every way, and knows who leads; it never looks into their data.

import (
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	port         = 6379
	nodePort     = 16379
	sentinelPort = 26379
)

// patience is how long anything may take on a busy machine. No verdict depends on how fast something is below that.
const patience = 60 * time.Second

// Node is one server. Its processes are started, and ended, together.
type Node struct {
	number    int
	dir       string
	processes []*exec.Cmd
	ended     []chan struct{}
	// mayEnd: this test ends it now, or would understand that it ends. Any other end is a violation.
	mayEnd  *atomic.Bool
	damaged bool // its files were changed: it may refuse to start
}

type Group struct {
	judge     *Judge
	sentinel  bool // Redis with Sentinel instead of Tidegate
	binary    string
	flags     []string
	folder    string
	random    *rand.Rand // of kills
	slowDisk  string     // a library that makes disks hang; empty: none
	powerLoss string     // a library that makes a kill lose what was not synced; empty: none
	wallClock string     // a library that sets wall clocks; empty: none
	authority *Authority // of the nodes' certificates; nil: they share a secret
	network   *Network
	mutex     sync.Mutex
	nodes     map[int]*Node // the members
	last      int           // the highest number so far
}

func (g *Group) start(count int) error {
	if err := os.WriteFile(filepath.Join(g.folder, "secret"), []byte("only the nodes of this test know these words"), 0o600); err != nil {
		return err
	}
	for number := 1; number <= count; number++ {
		if err := g.addNode(number); err != nil {
			return err
		}
	}
	for number := 1; number <= count; number++ {
		if err := g.launch(number); err != nil {
			return err
		}
	}
	if _, err := g.waitForLeader(); err != nil {
		return err
	}
	return g.waitUntilWhole()
}

// addNode makes the place of a node.
func (g *Group) addNode(number int) error {
	if err := g.network.addHost(number); err != nil {
		return err
	}
	node := &Node{number: number, dir: filepath.Join(g.folder, fmt.Sprint(number))}
	if err := errors.Join(os.MkdirAll(node.dir, 0o755), node.makeClock()); err != nil {
		return err
	}
	if g.authority != nil {
		if err := g.authority.addNode(fmt.Sprint(number), g.address(number)); err != nil {
			return err
		}
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.nodes[number] = node
	g.last = max(g.last, number)
	return nil
}

// members returns the numbers of the nodes, ascending.
func (g *Group) members() []int {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	numbers := make([]int, 0, len(g.nodes))
	for number := range g.nodes {
		numbers = append(numbers, number)
	}
	sort.Ints(numbers)
	return numbers
}

func (g *Group) others(than int) []int {
	var others []int
	for _, number := range g.members() {
		if number != than {
			others = append(others, number)
		}
	}
	return others
}

func (g *Group) node(number int) *Node {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.nodes[number]
}

func (g *Group) address(number int) string { return g.network.hosts[number].address }

// launch starts the processes of a node.
func (g *Group) launch(number int) error {
	node := g.node(number)
	commands, err := g.commands(node)
	if err != nil {
		return err
	}
	// After a kill, what was noted has been undone; after an orderly end, it is durable.
	if err := errors.Join(os.RemoveAll(node.names()), os.Mkdir(node.names(), 0o755)); err != nil {
		return err
	}
	mayEnd := &atomic.Bool{}
	mayEnd.Store(node.damaged)
	node.processes, node.ended, node.mayEnd = nil, nil, mayEnd
	for _, words := range commands {
		log, err := os.OpenFile(filepath.Join(node.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		command := exec.Command(words[0], words[1:]...)
		command.Stdout, command.Stderr = log, log
		command.Env = os.Environ()
		if g.slowDisk != "" {
			command.Env = append(command.Env, "LD_PRELOAD="+g.slowDisk+" "+g.powerLoss+" "+g.wallClock, "SLOW_DISK_HANGS="+node.hangs(),
				"WALL_CLOCK="+node.clock(),
				"POWER_LOSS_DIR="+node.dir, "POWER_LOSS_JOURNAL="+node.names(), fmt.Sprintf("POWER_LOSS_SEED=%d", g.random.Int63()))
		}
		command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		err = g.network.in(number, command.Start)
		log.Close()
		if err != nil {
			return err
		}
		ended := make(chan struct{})
		go func() {
			command.Wait()
			if !mayEnd.Load() {
				g.judge.violate("process", "node %d ended by itself: %v", number, command.ProcessState)
			}
			close(ended)
		}()
		node.processes, node.ended = append(node.processes, command), append(node.ended, ended)
	}
	return nil
}

// commands returns the command lines of a node.
func (g *Group) commands(node *Node) ([][]string, error) {
	own := g.address(node.number)
	if !g.sentinel {
		var nodes []string
		for _, number := range g.members() {
			nodes = append(nodes, fmt.Sprintf("%d=%s:%d@%d", number, g.address(number), port, nodePort))
		}
		flags := []string{"--node-secret-file", filepath.Join(g.folder, "secret")}
		if g.authority != nil {
			flags = g.authority.flags(fmt.Sprint(node.number))
		}
		return [][]string{append([]string{
			g.binary, "--bind", own, "--port", fmt.Sprint(port), "--protected-mode", "no", "--dir", node.dir,
			"--node-id", fmt.Sprint(node.number), "--nodes", strings.Join(nodes, " "),
			"--node-announce", fmt.Sprintf("%s:%d@%d", own, port, nodePort),
		}, append(flags, g.flags...)...)}, nil
	}
	// Both rewrite their configuration when roles change, so it is made once.
	server, sentinel := filepath.Join(node.dir, "redis.conf"), filepath.Join(node.dir, "sentinel.conf")
	if _, err := os.Stat(server); err != nil {
		text := fmt.Sprintf("bind %s\nport %d\nprotected-mode no\ndir %s\nappendonly yes\nappendfsync always\n", own, port, node.dir)
		if node.number != 1 {
			text += fmt.Sprintf("replicaof %s %d\n", g.address(1), port)
		}
		if err := os.WriteFile(server, []byte(text), 0o644); err != nil {
			return nil, err
		}
		text = fmt.Sprintf("bind %s\nport %d\nprotected-mode no\ndir %s\nsentinel monitor group %s %d 2\n", own, sentinelPort, node.dir, g.address(1), port) +
			"sentinel down-after-milliseconds group 1000\nsentinel failover-timeout group 3000\n"
		if err := os.WriteFile(sentinel, []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return [][]string{{g.binary, server}, {g.binary, sentinel, "--sentinel"}}, nil
}

// hangs names the file whose presence lets the node's disk hang.
func (n *Node) hangs() string { return filepath.Join(n.dir, "hangs") }

// names is the folder in which the library of a loss of power notes which names of files are not durable.
func (n *Node) names() string { return n.dir + ".names" }

// losePower undoes some of the last changes of names in the folder of a killed node that had not been synced.
func (n *Node) losePower(random *rand.Rand) error {
	journal := filepath.Join(n.names(), "journal")
	text, err := os.ReadFile(journal)
	if err != nil || len(text) == 0 {
		return nil // nothing was noted
	}
	changes := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for i, durable := len(changes)-1, random.Intn(len(changes)+1); i >= durable; i-- {
		change := strings.Split(changes[i], "\t")
		switch change[0] {
		case "create":
			err = os.Remove(change[1])
		case "mkdir":
			err = os.RemoveAll(change[1])
		case "rename":
			err = os.Rename(change[2], change[1])
		case "replace":
			if err = os.Rename(change[2], change[1]); err == nil {
				err = os.Rename(change[3], change[2])
			}
		case "unlink":
			err = os.Rename(change[2], change[1])
		}
		// A kill between a removal and the note of it: that removal has reached the disk.
		if err != nil && !(errors.Is(err, os.ErrNotExist) && (change[0] == "create" || change[0] == "rename" || change[0] == "replace")) {
			return fmt.Errorf("%q can't be undone: %w", changes[i], err)
		}
	}
	return os.Remove(journal)
}

// data is the folder of a Tidegate node's files.
func (n *Node) data() string { return filepath.Join(n.dir, "tidegate-data") }

// signal sends a signal to all processes of a node.
func (n *Node) signal(signal syscall.Signal) {
	for _, process := range n.processes {
		process.Process.Signal(signal)
	}
}

// hasEnded returns whether the server of the node is gone.
func (n *Node) hasEnded() bool {
	select {
	case <-n.ended[0]:
		return true
	default:
		return false
	}
}

// waitForEnd waits until all processes of a node are gone, and says whether the server was ended by this signal, or ended itself.
func (n *Node) waitForEnd() (syscall.WaitStatus, error) {
	for _, ended := range n.ended {
		select {
		case <-ended:
		case <-time.After(patience):
			return 0, fmt.Errorf("node %d does not end", n.number)
		}
	}
	return n.processes[0].ProcessState.Sys().(syscall.WaitStatus), nil
}

// isStopped returns whether the kernel shows the server as stopped by a signal.
func (n *Node) isStopped() bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.processes[0].Process.Pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	return err == nil && strings.HasPrefix(rest, "T")
}

// kill ends nodes at once, as kill -9 does, and returns whether that has killed each.
func (g *Group) kill(numbers ...int) (bool, error) {
	for _, number := range numbers {
		g.node(number).mayEnd.Store(true)
		g.node(number).signal(syscall.SIGKILL)
	}
	killed := true
	for _, number := range numbers {
		status, err := g.node(number).waitForEnd()
		if err != nil {
			return false, err
		}
		if err := g.node(number).losePower(g.random); err != nil {
			return false, err
		}
		killed = killed && status.Signaled() && status.Signal() == syscall.SIGKILL
	}
	return killed, nil
}

// ask sends one command to a node on a connection of its own.
func (g *Group) ask(number int, args ...any) (Reply, error) {
	conn, err := g.network.dial(number, port)
	if err != nil {
		return Reply{}, err
	}
	defer conn.close()
	return conn.call(time.Second, args...)
}

// askSentinel asks the Sentinel of a node which node is the master.
func (g *Group) askSentinel(number int) (int, error) {
	conn, err := g.network.dial(number, sentinelPort)
	if err != nil {
		return 0, err
	}
	defer conn.close()
	reply, err := conn.call(time.Second, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "group")
	for _, member := range g.members() {
		if err == nil && len(reply.items) > 0 && reply.items[0].text == g.address(member) {
			return member, nil
		}
	}
	return 0, fmt.Errorf("no master: %v %v", reply, err)
}

// info returns a field of INFO replication of a node; empty if it does not answer.
func (g *Group) info(number int, name string) string {
	reply, err := g.ask(number, "INFO", "replication")
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(reply.text, "\r\n") {
		if value, found := strings.CutPrefix(line, name+":"); found {
			return value
		}
	}
	return ""
}

// leader returns the node that leads: of several that say so, the one of the newest reign. Returns 0 if none says so.
func (g *Group) leader() int {
	leader, newest := 0, int64(-1)
	for _, number := range g.members() {
		if g.info(number, "role") == "master" {
			if term := (Reply{text: g.info(number, "group_term")}).number(); leader == 0 || term > newest {
				leader, newest = number, term
			}
		}
	}
	return leader
}

func (g *Group) waitForLeader() (int, error) {
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(20 * time.Millisecond) {
		if leader := g.leader(); leader != 0 {
			return leader, nil
		}
	}
	return 0, errors.New("no node leads")
}

// waitUntilWhole waits until a leader sees all other members connected; and until all Sentinels know it and each other.
func (g *Group) waitUntilWhole() error {
	others := fmt.Sprint(len(g.members()) - 1)
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(50 * time.Millisecond) {
		leader := g.leader()
		isWhole := leader != 0 && g.info(leader, "connected_slaves") == others
		for _, number := range g.members() {
			isWhole = isWhole && (!g.sentinel || g.isReady(number, leader, others))
		}
		if isWhole {
			return nil
		}
	}
	return errors.New("the group does not become whole")
}

// isReady returns whether the Sentinel of a node is in order: it knows the master, and counts all others.
func (g *Group) isReady(number, leader int, others string) bool {
	conn, err := g.network.dial(number, sentinelPort)
	if err != nil {
		return false
	}
	defer conn.close()
	reply, err := conn.call(time.Second, "SENTINEL", "MASTER", "group")
	// Names and values, as in the replies of our own commands, but without an outcome.
	master := Reply{items: append([]Reply{{}}, reply.items...)}
	return err == nil && master.field("ip").text == g.address(leader) && master.field("flags").text == "master" &&
		master.field("num-slaves").text == others && master.field("num-other-sentinels").text == others
}

// manage sends a NODE command to the leader until it is done.
func (g *Group) manage(args ...any) error {
	var last error
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(100 * time.Millisecond) {
		leader, err := g.waitForLeader()
		if err != nil {
			return err
		}
		reply, err := g.ask(leader, append([]any{"NODE"}, args...)...)
		switch {
		case err != nil:
			last = err // it may have been done: the next reply says so
		case !reply.isError():
			return nil
		case strings.Contains(reply.text, "already") || strings.Contains(reply.text, "is a voter") || strings.Contains(reply.text, "not a member"):
			return nil
		default:
			last = errors.New(reply.text)
		}
	}
	return fmt.Errorf("NODE %v: %w", args, last)
}

// join starts a node with a new number, and makes it a voter.
func (g *Group) join() (int, error) {
	number := g.last + 1
	if err := g.addNode(number); err != nil {
		return 0, err
	}
	if err := g.launch(number); err != nil {
		return 0, err
	}
	if err := g.manage("ADD", number); err != nil {
		return 0, err
	}
	return number, g.manage("PROMOTE", number)
}

// remove ends the membership of a node, whether it runs or not, and then its processes.
func (g *Group) remove(number int) error {
	if g.leader() == number {
		if err := g.manage("TRANSFER", g.others(number)[0]); err != nil {
			return err
		}
	}
	if err := g.manage("REMOVE", number); err != nil {
		return err
	}
	_, err := g.kill(number)
	g.mutex.Lock()
	defer g.mutex.Unlock()
	delete(g.nodes, number)
	return err
}

// log returns what a node has written to its log from an offset on.
func (n *Node) log(from int64) string {
	text, err := os.ReadFile(filepath.Join(n.dir, "log"))
	if err != nil || int64(len(text)) < from {
		return ""
	}
	return string(text[from:])
}

func (n *Node) logSize() int64 { return int64(len(n.log(0))) }

// end kills everything.
func (g *Group) end() {
	for _, number := range g.members() {
		if node := g.node(number); node.processes != nil {
			os.Remove(node.hangs())
			node.mayEnd.Store(true)
			node.signal(syscall.SIGKILL)
			node.waitForEnd()
		}
	}
}
