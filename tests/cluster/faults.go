package main

// The faults. Each one is made while clients work, holds for a while, and is then undone; the next one begins when the group is
// whole again. Each says what shows that it took effect: packets that were dropped, a process that the signal has killed, a file
// that has other bytes. A fault that leaves a majority with the clients holds until a change is acknowledged that began under it:
// so a group that stands still under a fault that does not pass is found, too.

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

type Fault struct {
	name  string
	needs need
	// make makes the fault and undoes it. Returns whether it took effect.
	make func(r *Run) (bool, error)
}

// need is what a fault needs, in bits.
type need int

const (
	network  need = 1 << iota // the switch
	five                      // five nodes
	library                   // the libraries that make disks hang, and set clocks
	fullDisk                  // file systems may be mounted
	ours                      // Tidegate's commands and files
)

var faults = []Fault{
	{"leader-isolated", network, func(r *Run) (bool, error) { return r.isolate(r.leader()) }},
	{"follower-isolated", network, func(r *Run) (bool, error) { return r.isolate(r.follower()) }},
	{"leader-mute", network, func(r *Run) (bool, error) {
		leader := r.leader()
		return r.cut(pairs([]int{leader}, r.group.others(leader)))
	}},
	{"leader-deaf", network, func(r *Run) (bool, error) {
		leader := r.leader()
		return r.cut(pairs(r.group.others(leader), []int{leader}))
	}},
	{"one-way", network, func(r *Run) (bool, error) {
		nodes := r.shuffled()
		return r.cut(pairs(nodes[:1], nodes[1:2]))
	}},
	{"halves", network, func(r *Run) (bool, error) {
		nodes := r.shuffled()
		return r.cut(bothWays(nodes[:len(nodes)/2], nodes[len(nodes)/2:]))
	}},
	{"bridge", network, func(r *Run) (bool, error) {
		nodes := r.shuffled()
		return r.cut(bothWays(nodes[1:len(nodes)/2+1], nodes[len(nodes)/2+1:]))
	}},
	{"ring", network | five, func(r *Run) (bool, error) {
		nodes := r.shuffled()
		var links [][2]int
		for i := range nodes {
			links = append(links, bothWays(nodes[i:i+1], []int{nodes[(i+2)%len(nodes)]})...)
		}
		return r.cut(links)
	}},
	{"clients-cut", network, clientsCut},
	{"slow-links", network, slowLinks},
	{"half-open", network, halfOpen},
	{"voter-restart", network, voterRestart},
	{"kill-leader", 0, func(r *Run) (bool, error) { return r.killAndRestart(true, r.leader()) }},
	{"kill-follower", 0, func(r *Run) (bool, error) { return r.killAndRestart(true, r.follower()) }},
	{"kill-minority", five, func(r *Run) (bool, error) { return r.killAndRestart(true, r.shuffled()[:2]...) }},
	{"kill-all", 0, func(r *Run) (bool, error) { return r.killAndRestart(false, r.group.members()...) }},
	{"term-leader", ours, func(r *Run) (bool, error) { return r.restart(r.leader(), r.group.binary) }},
	{"pause-leader", 0, func(r *Run) (bool, error) { return r.pause(r.between(100, 400), r.leader()) }},
	{"pause-leader-long", 0, func(r *Run) (bool, error) { return r.pause(r.between(1000, 3000), r.leader()) }},
	{"pause-followers", 0, func(r *Run) (bool, error) {
		return r.pause(r.between(100, 400), r.group.others(r.leader())...)
	}},
	{"starve", 0, func(r *Run) (bool, error) { return r.starve(r.group.members()...) }},
	{"hung-disk-leader", library | ours, func(r *Run) (bool, error) { return r.hangDisk(r.leader(), true) }},
	{"hung-disk-follower", library | ours, func(r *Run) (bool, error) { return r.hangDisk(r.follower(), false) }},
	{"clock-jump", library | ours, clockJump},
	{"full-disk", fullDisk | ours, fillDisk},
	{"bit-flip", ours, func(r *Run) (bool, error) { return r.damage(flipBit) }},
	{"truncated", ours, func(r *Run) (bool, error) { return r.damage(truncate) }},
	{"old-copy", ours, oldCopy},
	{"snapshot", ours, installSnapshot},
	{"transfer", ours, func(r *Run) (bool, error) {
		follower := r.follower()
		return true, r.group.manage("TRANSFER", follower)
	}},
	{"replace", ours, replace},
	{"rolling", ours, rolling},
	{"storm", 0, storm},
}

// Choosing nodes and links

func (r *Run) leader() int {
	leader, err := r.group.waitForLeader()
	if err != nil {
		r.judge.violate("progress", "%v", err)
		return r.group.members()[0]
	}
	return leader
}

func (r *Run) follower() int {
	others := r.group.others(r.leader())
	return others[r.random.Intn(len(others))]
}

func (r *Run) shuffled() []int {
	nodes := r.group.members()
	r.random.Shuffle(len(nodes), func(a, b int) { nodes[a], nodes[b] = nodes[b], nodes[a] })
	return nodes
}

func (r *Run) between(low, high int) time.Duration {
	return time.Duration(low+r.random.Intn(high-low+1)) * time.Millisecond
}

// pairs returns the links from some hosts to others.
func pairs(from, to []int) (links [][2]int) {
	for _, a := range from {
		for _, b := range to {
			links = append(links, [2]int{a, b})
		}
	}
	return links
}

func bothWays(a, b []int) [][2]int { return append(pairs(a, b), pairs(b, a)...) }

// hold lets a fault last, and ends when a change has been acknowledged under it, if it leaves a majority with the clients.
func (r *Run) hold(majority bool) {
	if majority && !r.judge.waitForProgress() {
		r.judge.violate("progress", "nothing was acknowledged for %v under a fault that leaves a majority", patience)
	}
	time.Sleep(r.between(300, 3000))
	if r.group.sentinel {
		time.Sleep(8 * time.Second) // Sentinel takes its time
	}
}

// Faults of the network

func (r *Run) cut(links [][2]int) (bool, error) {
	r.judge.event("cut: %v", links)
	affected := r.group.network.cut(links)
	r.hold(true)
	r.group.network.heal()
	return affected() > 0, nil
}

func (r *Run) isolate(node int) (bool, error) {
	return r.cut(bothWays([]int{node}, r.group.others(node)))
}

func clientsCut(r *Run) (bool, error) {
	affected := r.group.network.cut(bothWays([]int{r.leader()}, []int{clientsNumber}))
	r.hold(false)
	r.group.network.heal()
	return affected() > 0, nil
}

// slowLinks delays, loses, doubles and reorders packets between nodes.
func slowLinks(r *Run) (bool, error) {
	nodes := r.group.members()
	var links [][2]int
	for i := range nodes {
		links = append(links, pairs(nodes[i:i+1], r.group.others(nodes[i]))...)
	}
	delay, jitter, loss := r.between(0, 40), r.between(1, 40), r.random.Float64()*0.1
	r.judge.event("slow: %v + up to %v, %.0f %% lost", delay, jitter, loss*100)
	affected := r.group.network.setLinks(links, func(l *Link) { l.delay, l.jitter, l.loss, l.double = delay, jitter, loss, 0.02 })
	r.hold(false)
	r.hold(false)
	r.group.network.heal()
	return affected() > 0, nil
}

// halfOpen lets the leader vanish without a word: its machine dies behind a cut link. The others, and clients, keep connections to
// nobody until they notice, and the node comes back meanwhile.
func halfOpen(r *Run) (bool, error) {
	leader := r.leader()
	affected := r.group.network.cut(bothWays([]int{leader}, append(r.group.others(leader), clientsNumber)))
	killed, err := r.group.kill(leader)
	if err != nil {
		return false, err
	}
	r.hold(true)
	r.group.network.heal()
	return killed && affected() > 0, r.group.launch(leader)
}

// voterRestart restarts the voter that gives the leader its lease, inside that lease, and lets it elect another leader at once.
func voterRestart(r *Run) (bool, error) {
	leader := r.leader()
	others := r.group.others(leader)
	voters := others[:len(others)/2]
	affected := r.group.network.cut(bothWays([]int{leader}, others[len(others)/2:]))
	time.Sleep(r.between(20, 200))
	killed, err := r.group.kill(voters...)
	if err != nil {
		return false, err
	}
	r.group.network.cut(bothWays([]int{leader}, others))
	for _, voter := range voters {
		if err := r.group.launch(voter); err != nil {
			return false, err
		}
	}
	r.hold(true)
	r.group.network.heal()
	return killed && affected() > 0, nil
}

// Faults of processes

func (r *Run) killAndRestart(majority bool, nodes ...int) (bool, error) {
	killed, err := r.group.kill(nodes...)
	if err != nil {
		return false, err
	}
	r.judge.event("killed: %v", nodes)
	if majority {
		r.hold(!r.group.sentinel)
	}
	for _, node := range nodes {
		if err := r.group.launch(node); err != nil {
			return false, err
		}
		time.Sleep(r.between(0, 200))
	}
	return killed, nil
}

// restart ends a node by SIGTERM, and starts it again, with this binary from now on.
func (r *Run) restart(number int, binary string) (bool, error) {
	node := r.group.node(number)
	node.mayEnd.Store(true)
	node.signal(syscall.SIGTERM)
	status, err := node.waitForEnd()
	if err != nil {
		return false, err
	}
	r.hold(true)
	r.group.binary = binary
	return status.Exited() && status.ExitStatus() == 0, r.group.launch(number)
}

func rolling(r *Run) (bool, error) {
	tookEffect := true
	before := r.group.binary
	for i, node := range r.group.members() {
		if i > 0 {
			if err := r.group.waitUntilWhole(); err != nil {
				return false, err
			}
		}
		done, err := r.restart(node, r.next)
		if err != nil {
			return false, err
		}
		tookEffect = tookEffect && done
	}
	// The way back is as good a test.
	r.next = before
	return tookEffect, nil
}

// pause stops nodes for a time and lets them go on, as a virtual machine is paused.
func (r *Run) pause(length time.Duration, nodes ...int) (bool, error) {
	r.judge.event("pause: %v for %v", nodes, length)
	for _, node := range nodes {
		r.group.node(node).signal(syscall.SIGSTOP)
	}
	time.Sleep(length)
	stopped := true
	for _, node := range nodes {
		stopped = stopped && r.group.node(node).isStopped()
		r.group.node(node).signal(syscall.SIGCONT)
	}
	time.Sleep(r.between(100, 1000))
	return stopped, nil
}

// starve gives nodes little of the processor: each runs for some milliseconds, and then stands for longer, out of step.
func (r *Run) starve(nodes ...int) (bool, error) {
	until, stops := time.Now().Add(r.between(2000, 4000)), 0
	done := make(chan int)
	for i, node := range nodes {
		go func(node *Node, random *rand.Rand) {
			stops := 0
			for time.Now().Before(until) {
				node.signal(syscall.SIGSTOP)
				time.Sleep(time.Duration(20+random.Intn(60)) * time.Millisecond)
				if node.isStopped() {
					stops++
				}
				node.signal(syscall.SIGCONT)
				time.Sleep(time.Duration(1+random.Intn(15)) * time.Millisecond)
			}
			done <- stops
		}(r.group.node(node), rand.New(rand.NewSource(r.random.Int63()+int64(i))))
	}
	for range nodes {
		stops += <-done
	}
	return stops >= 10*len(nodes), nil
}

// storm makes faults at random moments, several at once: links that come and go, kills, pauses, and transfers of leadership.
func storm(r *Run) (bool, error) {
	nodes, count := r.group.members(), 0
	for until := time.Now().Add(r.between(4000, 8000)); time.Now().Before(until); count++ {
		node := nodes[r.random.Intn(len(nodes))]
		r.judge.event("storm: %d", node)
		switch kind := r.random.Intn(6); {
		case kind < 2 && r.group.network.hasSwitch():
			others := r.group.others(node)
			r.random.Shuffle(len(others), func(a, b int) { others[a], others[b] = others[b], others[a] })
			r.group.network.cut(pairs([]int{node}, others[:1+r.random.Intn(len(others))]))
		case kind < 4 && r.group.network.hasSwitch():
			r.group.network.heal()
		case kind < 5:
			if _, err := r.pause(r.between(20, 400), node); err != nil {
				return false, err
			}
		case r.random.Intn(2) == 0:
			if _, err := r.group.kill(node); err != nil {
				return false, err
			}
			time.Sleep(r.between(0, 300))
			if err := r.group.launch(node); err != nil {
				return false, err
			}
		case !r.group.sentinel:
			r.group.ask(max(r.group.leader(), nodes[0]), "NODE", "TRANSFER", node)
		}
		time.Sleep(r.between(0, 400))
	}
	r.group.network.heal()
	return count > 3, nil
}

// Faults of disks

// hangDisk lets no sync of a node end. A leader hands over; a follower lags behind.
func (r *Run) hangDisk(number int, leads bool) (bool, error) {
	node := r.group.node(number)
	if err := os.WriteFile(node.hangs(), nil, 0o644); err != nil {
		return false, err
	}
	defer os.Remove(node.hangs())
	r.judge.event("hangs: the disk of node %d", number)
	tookEffect := false
	for begin := time.Now(); time.Since(begin) < patience && !tookEffect; time.Sleep(50 * time.Millisecond) {
		if leads {
			leader := r.group.leader()
			tookEffect = leader != 0 && leader != number
		} else {
			tookEffect = r.group.missing(number) > 0
		}
	}
	r.hold(true)
	return tookEffect, nil
}

// missing is the number of changes that the leader knows a node to lack; 0 if it does not know.
func (g *Group) missing(number int) int64 {
	reply, err := g.ask(max(g.leader(), 1), "NODE", "LIST")
	if err != nil {
		return 0
	}
	for _, member := range reply.items {
		fields := Reply{items: append([]Reply{{}}, member.items...)}
		if fields.field("id").number() == int64(number) {
			return max(fields.field("missing").number(), 0)
		}
	}
	return 0
}

// fillDisk leaves not a byte to a node, whose files are moved to a small file system for that.
func fillDisk(r *Run) (tookEffect bool, err error) {
	number := r.shuffled()[0]
	node := r.group.node(number)
	aside := node.data() + ".aside"
	if _, err := r.group.kill(number); err != nil {
		return false, err
	}
	err = errors.Join(os.Rename(node.data(), aside), os.Mkdir(node.data(), 0o700), syscall.Mount("tmpfs", node.data(), "tmpfs", 0, "size=512m"))
	if err == nil {
		err = copyFiles(aside, node.data())
	}
	if err == nil {
		err = r.group.launch(number)
	}
	if err == nil {
		err = r.group.waitUntilCaughtUp(number)
	}
	if err != nil {
		return false, err
	}
	if r.random.Intn(2) == 0 && r.group.leader() != number {
		r.group.manage("TRANSFER", number)
	}
	r.judge.event("full: the disk of node %d", number)
	tookEffect, err = r.fill(node)
	if err != nil {
		return false, err
	}
	if err := r.group.waitUntilCaughtUp(number); err != nil {
		return false, err
	}
	// And back.
	if _, err := r.group.kill(number); err != nil {
		return false, err
	}
	err = errors.Join(os.RemoveAll(aside), os.Mkdir(aside, 0o700), copyFiles(node.data(), aside))
	err = errors.Join(err, syscall.Unmount(node.data(), 0), os.Remove(node.data()), os.Rename(aside, node.data()))
	if err != nil {
		return false, err
	}
	return tookEffect, r.group.launch(number)
}

func copyFiles(from, to string) error {
	if out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %s", out)
	}
	return nil
}

// fill fills the disk of a node, lets the group write until the node notices, and frees it.
func (r *Run) fill(node *Node) (bool, error) {
	ballast := filepath.Join(node.data(), "ballast")
	file, err := os.Create(ballast)
	if err != nil {
		return false, err
	}
	defer os.Remove(ballast)
	defer file.Close()
	for block := make([]byte, 1<<20); len(block) > 0; block = block[:len(block)/2] {
		for err = nil; err == nil; {
			_, err = file.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return false, err
		}
	}
	// A follower stands still while the others go on; a leader hands over. The file that is being written may have room for 64 MB.
	hasLed, isFull := false, false
	for written := 0; written < 160 && !isFull; written++ {
		before := r.group.info(node.number, "slave_repl_offset")
		r.writeMuch(1 << 20)
		switch r.group.leader() {
		case 0:
		case node.number:
			hasLed = true
		default:
			isFull = hasLed || before == r.group.info(node.number, "slave_repl_offset") && r.group.missing(node.number) > 0
		}
	}
	r.hold(!hasLed)
	return isFull, nil
}

// writeMuch lets the journals grow by so many bytes, or tries to. The bytes can't be compressed.
func (r *Run) writeMuch(size int) {
	value := make([]byte, 1<<16)
	conn, err := r.group.network.dial(max(r.group.leader(), 1), port)
	if err != nil {
		return
	}
	defer conn.close()
	for i := 0; i < size/len(value); i++ {
		r.random.Read(value)
		if _, err := conn.call(callTimeout, "SET", fmt.Sprintf("much:%d", i%32), string(value)); err != nil {
			return
		}
	}
}

// damage kills a follower and changes a file of its. It may refuse to start, and is then replaced by a new node; if it starts, it must be right.
func (r *Run) damage(change func(path string, random *rand.Rand) (bool, error)) (bool, error) {
	number := r.follower()
	if _, err := r.group.kill(number); err != nil {
		return false, err
	}
	node := r.group.node(number)
	files, _ := filepath.Glob(filepath.Join(node.data(), "*-*"))
	if len(files) == 0 {
		return false, fmt.Errorf("node %d has no files", number)
	}
	path := files[r.random.Intn(len(files))]
	changed, err := change(path, r.random)
	if err != nil {
		return false, err
	}
	r.judge.event("damaged: %s", path)
	return changed, r.startOrReplace(number)
}

func flipBit(path string, random *rand.Rand) (bool, error) {
	text, err := os.ReadFile(path)
	used := len(bytes.TrimRight(text, "\x00"))
	if err != nil || used == 0 {
		return false, err
	}
	text[random.Intn(used)] ^= 1 << random.Intn(8)
	return true, os.WriteFile(path, text, 0o600)
}

func truncate(path string, random *rand.Rand) (bool, error) {
	text, err := os.ReadFile(path)
	used := len(bytes.TrimRight(text, "\x00"))
	if err != nil || used == 0 {
		return false, err
	}
	return true, os.Truncate(path, int64(random.Intn(used)))
}

// oldCopy gives a follower the files that it had some time ago.
func oldCopy(r *Run) (bool, error) {
	number := r.follower()
	if _, err := r.group.kill(number); err != nil {
		return false, err
	}
	node := r.group.node(number)
	copied := node.data() + ".copy"
	if err := errors.Join(os.Mkdir(copied, 0o700), copyFiles(node.data(), copied)); err != nil {
		return false, err
	}
	defer os.RemoveAll(copied)
	if err := r.group.launch(number); err != nil {
		return false, err
	}
	if err := r.group.waitUntilCaughtUp(number); err != nil {
		return false, err
	}
	r.hold(true)
	if _, err := r.group.kill(number); err != nil {
		return false, err
	}
	if err := os.RemoveAll(node.data()); err != nil {
		return false, err
	}
	if err := os.Rename(copied, node.data()); err != nil {
		return false, err
	}
	r.judge.event("old copy: node %d", number)
	return true, r.startOrReplace(number)
}

// startOrReplace starts a node whose files are not as it left them.
func (r *Run) startOrReplace(number int) error {
	node := r.group.node(number)
	node.damaged = true
	if err := r.group.launch(number); err != nil {
		return err
	}
	for begin := time.Now(); time.Since(begin) < 15*time.Second && !node.hasEnded(); time.Sleep(50 * time.Millisecond) {
		if r.group.isCaughtUp(number) {
			r.count("changed files: accepted")
			node.damaged = false
			node.mayEnd.Store(false)
			return nil
		}
	}
	r.count("changed files: replaced")
	if _, err := r.group.join(); err != nil {
		return err
	}
	return r.group.remove(number)
}

// Faults of the group

// installSnapshot lets a node miss more than the others keep of their logs.
func installSnapshot(r *Run) (bool, error) {
	number := r.follower()
	node := r.group.node(number)
	if _, err := r.group.kill(number); err != nil {
		return false, err
	}
	from, old := node.logSize(), map[string]bool{}
	for _, path := range r.group.segments(number) {
		old[path] = true
	}
	// The files of a log go one by one, and grow to many megabytes; the newest entries are also in memory.
	begin, isKept := time.Now(), true
	for rounds := 0; rounds < 8 || isKept && time.Since(begin) < patience; rounds++ {
		r.writeMuch(8 << 20)
		for _, other := range r.group.others(number) {
			r.group.ask(other, "BGSAVE")
		}
		isKept = false
		for _, path := range r.group.segments(number) {
			isKept = isKept || old[path]
		}
	}
	if err := r.group.launch(number); err != nil {
		return false, err
	}
	if err := r.group.waitUntilCaughtUp(number); err != nil {
		return false, err
	}
	return strings.Contains(node.log(from), "a snapshot of"), nil
}

// segments returns the files of the logs of all nodes but this one.
func (g *Group) segments(except int) (paths []string) {
	for _, number := range g.others(except) {
		files, _ := filepath.Glob(filepath.Join(g.node(number).data(), "*.seg"))
		paths = append(paths, files...)
	}
	return paths
}

// replace adds a node and removes another one, perhaps the leader.
func replace(r *Run) (bool, error) {
	nodes := r.shuffled()
	if _, err := r.group.join(); err != nil {
		return false, err
	}
	time.Sleep(r.between(0, 1000))
	return true, r.group.remove(nodes[0])
}

// isCaughtUp returns whether a node has, now, what the leader has committed at the beginning of the call.
func (g *Group) isCaughtUp(number int) bool {
	leader := g.leader()
	if leader == 0 {
		return false
	}
	offset := (Reply{text: g.info(leader, "master_repl_offset")}).number()
	for i := 0; offset >= 0 && i < 20; i++ {
		if (Reply{text: g.info(number, "slave_repl_offset")}).number() >= offset || leader == number {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

func (g *Group) waitUntilCaughtUp(number int) error {
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(50 * time.Millisecond) {
		if g.isCaughtUp(number) {
			return nil
		}
	}
	return fmt.Errorf("node %d does not catch up", number)
}
