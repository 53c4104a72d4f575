// Proof from outside: a group of servers under faults, clients that note what they were told, and a judge.
//
// One run: start the servers, let clients work, make one fault after the other, heal, wait until the group is whole, kill it once
// more, and judge what the clients saw and what the data are. README.md says how to run it and how to read the result.
//
// Exit code: 0 passed; 1 violated; 2 invalid: too little happened for a verdict, or something of the test itself failed.
package main

import (
	"cmp"
	"errors"
	"flag"
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

var (
	seed       = flag.Int64("seed", 1, "choose faults and calls by this number")
	seconds    = flag.Int("seconds", 60, "make faults for so long")
	binary     = flag.String("binary", "target/release/tidegate", "the server")
	nextBinary = flag.String("next", "", "the server that a rolling upgrade changes to; empty: the same")
	keep       = flag.String("keep", "", "keep logs, data and histories in this new folder; without, they are kept only after a violation")
	nodesCount = flag.Int("nodes", 3, "3 or 5")
	clients    = flag.Int("clients", 8, "clients at a time")
	chosen     = flag.String("faults", "", "make only these, by commas; empty: all that are possible here")
	suite      = flag.String("suite", "../suite", "folder with the users' scripts, and the sources of the libraries that make disks hang and lose power, and set clocks")
	scripts    = flag.String("scripts", "", "folder with other scripts of the same names; empty: `scenarios` in that of -suite")
	tls        = flag.Bool("tls", false, "let nodes have certificates of an authority instead of a shared secret")
	against    = flag.String("against", "tidegate", "tidegate or redis-sentinel")
)

// Run is the state of one run.
type Run struct {
	group   *Group
	judge   *Judge
	random  *rand.Rand
	next    string            // the binary that the next rolling upgrade changes to
	scripts map[string]Script // those of users, by name
	stop    atomic.Bool
	mutex   sync.Mutex
	effects map[string]int
	invalid []string
}

func (r *Run) stopped() bool { return r.stop.Load() }

func (r *Run) count(what string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.effects[what]++
}

// invalidate notes why this run proves nothing.
func (r *Run) invalidate(format string, args ...any) {
	r.judge.event("INVALID "+format, args...)
	r.invalid = append(r.invalid, fmt.Sprintf(format, args...))
}

func main() {
	flag.Parse()
	if flag.NArg() > 0 || *nodesCount != 3 && *nodesCount != 5 || *against != "tidegate" && *against != "redis-sentinel" {
		flag.Usage()
		os.Exit(2)
	}
	enterMountNamespace()
	code, err := run()
	if err != nil {
		fmt.Println("INVALID:", err)
		code = 2
	}
	os.Exit(code)
}

const inside = "TIDEGATE_CLUSTER_INSIDE"

// enterMountNamespace starts this program anew in a namespace in which it may mount what goes away with it. Without root, nothing
// is mounted.
func enterMountNamespace() {
	if os.Geteuid() != 0 || os.Getenv(inside) != "" {
		return
	}
	unshare, err := exec.LookPath("unshare")
	if err == nil && exec.Command(unshare, "-m", "true").Run() == nil {
		syscall.Exec(unshare, append([]string{unshare, "-m"}, os.Args...), append(os.Environ(), inside+"=1"))
	}
}

// run makes one run and returns its exit code.
func run() (int, error) {
	folder, err := newFolder()
	if err != nil {
		return 2, err
	}
	r, noSwitch, err := newRun(folder)
	if err != nil {
		return 2, err
	}
	possible, err := r.chooseFaults(noSwitch)
	if err != nil {
		return 2, err
	}
	fmt.Printf("seed %d, %d nodes, %d s, %s %v, in %s\n", *seed, *nodesCount, *seconds, r.group.binary, r.group.flags, folder)
	if r.group.powerLoss != "" {
		fmt.Println("each kill is a loss of power: it loses what was not synced")
	}
	defer r.group.end()
	if err := r.group.start(*nodesCount); err != nil {
		return 2, err
	}
	if err := r.work(possible); err != nil {
		return 2, err
	}
	code := r.report(possible)
	if code == 0 && *keep == "" {
		r.group.end()
		os.RemoveAll(folder)
	}
	return code, nil
}

// newFolder makes the folder of everything that a run leaves behind.
func newFolder() (string, error) {
	if *keep == "" {
		return os.MkdirTemp("", "tidegate-cluster-")
	}
	if err := os.Mkdir(*keep, 0o755); err != nil {
		return "", err
	}
	return filepath.Abs(*keep)
}

// newRun returns a run whose servers are not started yet; and, if its network has no switch, the reason.
func newRun(folder string) (r *Run, noSwitch string, err error) {
	judge, err := newJudge(folder)
	if err != nil {
		return nil, "", err
	}
	binaries := []string{*binary, *nextBinary}
	if *nextBinary == "" {
		binaries[1] = *binary
	}
	for i := range binaries {
		path, err := exec.LookPath(binaries[i])
		if err != nil {
			return nil, "", err
		}
		if binaries[i], err = filepath.Abs(path); err != nil {
			return nil, "", err
		}
	}
	users, err := readScripts(cmp.Or(*scripts, filepath.Join(*suite, "scenarios")))
	if err != nil {
		return nil, "", err
	}
	network, noSwitch := newNetwork()
	group := &Group{
		judge: judge, sentinel: *against != "tidegate", binary: binaries[0], folder: folder,
		random: rand.New(rand.NewSource(*seed)), network: network, nodes: map[int]*Node{},
	}
	if *tls && !group.sentinel {
		if group.authority, err = newAuthority(folder); err != nil {
			return nil, "", err
		}
	}
	if !group.sentinel {
		group.flags = []string{
			"--replication-log-keep", "1mb", "--read-lease", []string{"yes", "no"}[*seed%2],
			"--min-replicas-to-write", []string{"0", "1"}[*seed/2%2],
		}
	}
	return &Run{
		group: group, judge: judge, random: rand.New(rand.NewSource(*seed)), next: binaries[1], scripts: users, effects: map[string]int{},
	}, noSwitch, nil
}

// chooseFaults returns the faults to make, and says which can't be made here.
func (r *Run) chooseFaults(noSwitch string) ([]Fault, error) {
	lacks, err := r.lacks(noSwitch)
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, name := range strings.Split(*chosen, ",") {
		wanted[name] = true
	}
	var possible []Fault
	leftOut := map[string][]string{} // by reason
	for _, fault := range faults {
		if *chosen != "" && !wanted[fault.name] {
			continue
		}
		delete(wanted, fault.name)
		reason := ""
		for _, need := range []need{network, five, library, fullDisk, ours} {
			if fault.needs&need != 0 && reason == "" {
				reason = lacks[need]
			}
		}
		if reason != "" {
			leftOut[reason] = append(leftOut[reason], fault.name)
			continue
		}
		possible = append(possible, fault)
	}
	for _, reason := range sorted(leftOut) {
		fmt.Printf("left out: %s (%s)\n", strings.Join(leftOut[reason], " "), reason)
	}
	delete(wanted, "")
	if len(wanted) > 0 {
		return nil, fmt.Errorf("no such faults: %v; there are others in faults.go", sorted(wanted))
	}
	if len(possible) == 0 {
		return nil, errors.New("none of these faults can be made here")
	}
	return possible, nil
}

// lacks returns what can't be had here, and why.
func (r *Run) lacks(noSwitch string) (map[need]string, error) {
	lacks := map[need]string{network: noSwitch}
	if *nodesCount < 5 {
		lacks[five] = "there are not five nodes"
	}
	if r.group.sentinel {
		lacks[ours] = "only Tidegate can do it"
		return lacks, nil
	}
	if os.Getenv(inside) == "" {
		lacks[fullDisk] = "no root, or no namespace of mounts"
	}
	var err error
	if r.group.slowDisk, err = r.compile("slow_disk"); err != nil {
		lacks[library] = err.Error()
	} else if r.group.wallClock, err = r.compile("wall_clock"); err != nil {
		return nil, err
	} else if *seed%4 >= 2 {
		// The library keeps files that are removed, and so needs all of them on one file system.
		lacks[fullDisk] = "with this seed, kills lose what was not synced"
		if r.group.powerLoss, err = r.compile("power_loss"); err != nil {
			return nil, err
		}
	}
	return lacks, nil
}

// compile compiles one of the suite's libraries that are loaded before the C library.
func (r *Run) compile(name string) (string, error) {
	library := filepath.Join(r.group.folder, name+".so")
	out, err := exec.Command("gcc", "-shared", "-fPIC", "-O2", "-o", library, filepath.Join(*suite, name+".c"), "-ldl", "-lpthread").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("gcc: %v %.100s", err, out)
	}
	return library, nil
}

// work runs clients and faults, and then judges what they saw and left.
func (r *Run) work(possible []Fault) error {
	all := workloads(r)
	if err := r.prepare(); err != nil {
		return err
	}
	var working sync.WaitGroup
	start := func(do func()) {
		working.Add(1)
		go func() {
			defer working.Done()
			do()
		}()
	}
	for number := 1; number <= *clients; number++ {
		start(func() { r.client(number, all) })
	}
	for number := *clients + 1; number <= *clients+workers; number++ {
		start(func() { r.worker(number, all["users-order"]) })
	}
	// A replica of Redis promises nothing that could be judged.
	for place := 0; place < *nodesCount && !r.group.sentinel; place++ {
		start(func() { watchNode(r, place, all["counter"].(*counters)) })
	}
	if !r.group.sentinel {
		start(func() { watchTime(r) })
	}
	r.makeFaults(possible)
	r.judge.event("no more faults")
	if !r.judge.waitForProgress() {
		r.judge.violate("progress", "nothing was acknowledged for %v after the last fault", patience)
	}
	for begin := time.Now(); time.Since(begin) < patience && !r.isEnough(all); {
		time.Sleep(100 * time.Millisecond)
	}
	r.stop.Store(true)
	working.Wait()
	all["users-order"].(*usersOrders).drain(r.newClient(*clients + workers + 1))
	if err := r.finish(all); err != nil {
		return err
	}
	if !r.group.sentinel {
		if err := r.finishAgain(all); err != nil {
			return err
		}
	}
	r.judgeCalls(all)
	return nil
}

// finish lets each workload judge the data of all nodes, when they agree, or of the leader of Redis.
func (r *Run) finish(all map[string]Workload) error {
	if err := r.group.waitUntilWhole(); err != nil {
		r.judge.violate("group", "at the end: %v", err)
		return nil
	}
	members := r.group.members()
	if r.group.sentinel {
		members = []int{r.leader()}
	}
	for _, number := range members {
		if err := r.group.waitUntilCaughtUp(number); err != nil {
			r.judge.violate("group", "at the end: %v", err)
			continue
		}
		conn, err := r.group.network.dial(number, port)
		if err != nil {
			return err
		}
		for name, workload := range all {
			if err := workload.finish(number, conn); err != nil {
				conn.close()
				return fmt.Errorf("%s can't read from node %d: %w", name, number, err)
			}
		}
		conn.close()
	}
	return nil
}

// finishAgain kills all nodes once more, and judges the data that each has then.
func (r *Run) finishAgain(all map[string]Workload) error {
	r.judge.event("everything is killed once more")
	if _, err := r.group.kill(r.group.members()...); err != nil {
		return err
	}
	for _, number := range r.group.members() {
		if err := r.group.launch(number); err != nil {
			return err
		}
	}
	if err := r.finish(all); err != nil {
		return err
	}
	for _, number := range r.group.members() {
		for _, line := range strings.Split(r.group.node(number).log(0), "\n") {
			if strings.Contains(line, "panicked") || strings.Contains(line, "please report") {
				r.judge.violate("log", "of node %d: %s", number, line)
			}
		}
	}
	return nil
}

// judgeCalls judges what clients saw of registers, locks, gates and leases.
func (r *Run) judgeCalls(all map[string]Workload) {
	undecided := 0
	for _, name := range sorted(all) {
		if judged, isJudged := all[name].(Judged); isJudged {
			undecided += judged.judgeCalls()
		}
	}
	if undecided > 0 {
		r.invalidate("porcupine could not decide about %d keys in time", undecided)
	}
}

// prepare makes what the workloads expect.
func (r *Run) prepare() error {
	leader, err := r.group.waitForLeader()
	if err != nil {
		return err
	}
	for _, names := range [][2]string{{"stream", "group"}, {ordersKey, ordersGroup}} {
		reply, err := r.group.ask(leader, "XGROUP", "CREATE", names[0], names[1], "0", "MKSTREAM")
		if err == nil && reply.isError() {
			err = fmt.Errorf("XGROUP: %s", reply.text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// client is one client: it does one thing after the other, with short pauses. Every second one does nothing that waits for a lease.
func (r *Run) client(number int, all map[string]Workload) {
	var names []string
	for _, name := range sorted(all) {
		_, isLease := all[name].(*leases)
		_, isExpiry := all[name].(*expiry)
		if number%2 == 0 || !isLease && !isExpiry {
			names = append(names, name)
		}
	}
	c := r.newClient(number)
	for !r.stopped() {
		all[names[c.random.Intn(len(names))]].step(c)
		c.pause(6)
	}
	c.disconnect()
}

// worker is a client that does one thing only, without pauses.
func (r *Run) worker(number int, workload Workload) {
	c := r.newClient(number)
	for !r.stopped() {
		workload.step(c)
	}
	c.disconnect()
}

func (r *Run) newClient(number int) *Client {
	return &Client{number: number, run: r, random: rand.New(rand.NewSource(*seed*1000 + int64(number)))}
}

// makeFaults makes all faults in a random order, again and again, until the time is over, but each at least once.
func (r *Run) makeFaults(possible []Fault) {
	order := r.random.Perm(len(possible))
	time.Sleep(time.Second)
	for begin, rounds := time.Now(), 0; rounds == 0 || time.Since(begin) < time.Duration(*seconds)*time.Second; {
		fault := possible[order[0]]
		if order = order[1:]; len(order) == 0 {
			order = r.random.Perm(len(possible))
			rounds++
		}
		r.judge.event("fault: %s", fault.name)
		tookEffect, err := fault.make(r)
		r.judge.event("end of: %s; took effect: %v %v", fault.name, tookEffect, err)
		if err == nil {
			err = r.group.waitUntilWhole()
		}
		if err != nil {
			// What the group does not do within a minute, it does not do.
			r.judge.violate("group", "after %s: %v", fault.name, err)
			return
		}
		if tookEffect {
			r.count(fault.name)
		} else {
			r.count(fault.name + " WITHOUT EFFECT")
		}
		time.Sleep(r.between(100, 1000))
	}
}

// minimum is how many calls of each workload must have been answered for a verdict.
const minimum = 30

// isEnough returns whether enough calls were answered.
func (r *Run) isEnough(all map[string]Workload) bool {
	for name := range all {
		if r.judge.tally(name)[ok].Load() < minimum {
			return false
		}
	}
	return true
}

func (r *Run) report(possible []Fault) int {
	for _, fault := range possible {
		if r.effects[fault.name] == 0 {
			r.invalidate("%s never took effect", fault.name)
		}
	}
	fmt.Println("faults that took effect:")
	for _, name := range sorted(r.effects) {
		fmt.Printf("  %-24s %5d\n", name, r.effects[name])
	}
	fmt.Printf("%-26s %8s %8s %8s\n", "calls:", "ok", "failed", "unknown")
	for _, name := range sorted(r.judge.tallies) {
		tally := r.judge.tallies[name]
		fmt.Printf("  %-24s %8d %8d %8d\n", name, tally[ok].Load(), tally[failed].Load(), tally[unknown].Load())
		if tally[ok].Load() < minimum {
			r.invalidate("%s has only %d answered calls", name, tally[ok].Load())
		}
	}
	if len(r.judge.refusals) > 0 {
		fmt.Println("error replies:")
	}
	for _, text := range sorted(r.judge.refusals) {
		fmt.Printf("  %5d %s\n", r.judge.refusals[text], text)
	}
	kinds := map[string]int{}
	for _, violation := range r.judge.violations {
		kind, _, _ := strings.Cut(violation, ":")
		kinds[kind]++
	}
	for _, kind := range sorted(kinds) {
		fmt.Printf("violations of %-12s %5d\n", kind, kinds[kind])
	}
	switch {
	case len(r.judge.violations) > 0:
		fmt.Printf("VIOLATED: %d times with seed %d; see %s\n", len(r.judge.violations), *seed, r.group.folder)
		return 1
	case len(r.invalid) > 0:
		fmt.Printf("INVALID with seed %d: %s; see %s\n", *seed, strings.Join(r.invalid, "; "), r.group.folder)
		return 2
	}
	fmt.Printf("passed with seed %d\n", *seed)
	return 0
}

func sorted[V any](table map[string]V) []string {
	var keys []string
	for key := range table {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
