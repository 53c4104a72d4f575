package main

// The judge: it gets the outcome of each call, and knows what must never be seen.
//
// A call is *ok* if it was answered, *failed* if it was refused (then it must have had no effect, ever), and *unknown* if its
// connection ended or its time was over (then it may have an effect, at any time from its begin on). Registers and locks are
// judged by porcupine, which looks for one order of all calls that explains every reply. All else is judged by invariants, in
// workloads.go.

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
)

type Outcome int

const (
	ok Outcome = iota
	failed
	unknown
)

// Tally counts the outcomes of one workload.
type Tally [3]atomic.Int64

type Judge struct {
	mutex      sync.Mutex
	begin      time.Time
	folder     string
	violations []string
	refusals   map[string]int // error replies by their beginning
	tallies    map[string]*Tally
	acked      atomic.Int64 // the latest begin of a change that was acknowledged, in nanoseconds since the begin of the run
	clocks     []wrongClocks
	events     *os.File
}

func newJudge(folder string) (*Judge, error) {
	events, err := os.Create(filepath.Join(folder, "events"))
	return &Judge{begin: time.Now(), folder: folder, refusals: map[string]int{}, tallies: map[string]*Tally{}, events: events}, err
}

// now is the time since the begin of the run.
func (j *Judge) now() time.Duration { return time.Since(j.begin) }

// event notes what happens to the servers; time is that of the run and, to compare with their logs, that of the clock.
func (j *Judge) event(format string, args ...any) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	fmt.Fprintf(j.events, "%9.3f %s %s\n", j.now().Seconds(), time.Now().UTC().Format("15:04:05.000000"), fmt.Sprintf(format, args...))
}

// violate notes that a promise was broken.
func (j *Judge) violate(kind, format string, args ...any) {
	text := kind + ": " + fmt.Sprintf(format, args...)
	j.event("VIOLATION %s", text)
	j.mutex.Lock()
	defer j.mutex.Unlock()
	j.violations = append(j.violations, text)
	if len(j.violations) <= 20 {
		fmt.Printf("VIOLATION at %.3f s: %.500s\n", j.now().Seconds(), text)
	}
}

// violateEach notes one violation for each kind that has elements.
func (j *Judge) violateEach(workload, where string, faults map[string][]string) {
	for kind, elements := range faults {
		if len(elements) > 0 {
			sort.Strings(elements)
			j.violate(workload, "%s: %d elements are %s: %.200s", where, len(elements), kind, strings.Join(elements, " "))
		}
	}
}

func (j *Judge) refusal(text string) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	j.refusals[fmt.Sprintf("%.60s", text)]++
}

func (j *Judge) tally(name string) *Tally {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	if j.tallies[name] == nil {
		j.tallies[name] = &Tally{}
	}
	return j.tallies[name]
}

// acknowledge notes that a change that began at this time is done.
func (j *Judge) acknowledge(begin time.Duration) {
	for {
		last := j.acked.Load()
		if int64(begin) <= last || j.acked.CompareAndSwap(last, int64(begin)) {
			return
		}
	}
}

// waitForProgress waits until a change is acknowledged that begins after now.
func (j *Judge) waitForProgress() bool {
	from := j.now()
	for ; j.now() < from+patience; time.Sleep(5 * time.Millisecond) {
		if j.acked.Load() > int64(from) {
			return true
		}
	}
	return false
}

// History is the calls for one key.
type History struct {
	mutex      sync.Mutex
	operations []porcupine.Operation
	unknowns   int
}

func (h *History) add(j *Judge, client int, begin time.Duration, input, output any, outcome Outcome) {
	// A call that was refused has no effect, so it explains nothing.
	if outcome == failed {
		return
	}
	end := j.now()
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if outcome == unknown {
		end, output = 1<<62, nil
		h.unknowns++
	}
	h.operations = append(h.operations, porcupine.Operation{ClientId: client, Input: input, Call: int64(begin), Output: output, Return: int64(end)})
}

// isFull: the time that a verdict takes grows fast with the calls whose end is unknown.
func (h *History) isFull() bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return len(h.operations) >= 300 || h.unknowns >= 8
}

// Register: a key that is read, set, and set if it has a value.
type registerInput struct {
	kind      string // "get", "set", "cas"
	from, new string
}

var registerModel = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		in, value := input.(registerInput), state.(string)
		switch {
		case in.kind == "get":
			return output == nil || output.(string) == value, value
		case in.kind == "set":
			return true, in.new
		case in.from == value:
			return output == nil || output.(string) == "1", in.new
		default:
			return output == nil || output.(string) == "0", value
		}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v -> %v", input, output) },
}

// Lock: at most one owner, and each grant has a greater token than the one before. Leases are longer than any run.
type lockInput struct {
	kind, owner string // "acquire", "release"
}

type lockOutput struct {
	granted bool
	token   int64
}

type lockState struct {
	owner string
	token int64
	exact bool // false: this grant's token was never seen, and is greater than `token`
}

var lockModel = porcupine.Model{
	Init: func() any { return lockState{exact: true} },
	Step: func(state, input, output any) (bool, any) {
		in, lock := input.(lockInput), state.(lockState)
		out, isKnown := output.(lockOutput)
		isOwner := lock.owner == in.owner
		if in.kind == "release" {
			if isKnown && out.granted != isOwner {
				return false, lock
			}
			if isOwner {
				lock.owner = ""
			}
			return true, lock
		}
		switch {
		case lock.owner == "" && !isKnown:
			return true, lockState{owner: in.owner, token: lock.token}
		case lock.owner == "":
			return out.granted && out.token > lock.token, lockState{in.owner, out.token, true}
		case !isOwner:
			return !isKnown || !out.granted, lock
		case !isKnown:
			return true, lock
		case lock.exact:
			return out.granted && out.token == lock.token, lock
		default:
			return out.granted && out.token > lock.token, lockState{in.owner, out.token, true}
		}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v -> %v", input, output) },
}

// The users' gate: a count of the places that are taken, changed by their two scripts, and read.
var gateModel = porcupine.Model{
	Init: func() any { return int64(-1) }, // no key
	Step: func(state, input, output any) (bool, any) {
		taken := state.(int64)
		switch {
		case input == "acquire" && taken < gateLimit:
			taken = max(taken, 0) + 1
		case input == "release" && taken > 0:
			taken--
		}
		return output == nil || output.(int64) == taken, taken
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v -> %v", input, output) },
}

// The users' lock: a string that is set if it is not there, and deleted by its owner. Each owner takes it once.
type mutexInput struct {
	kind, owner string // "take", "get", "unlock"
}

var mutexModel = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		in, owner := input.(mutexInput), state.(string)
		reply, after := owner, owner
		switch {
		case in.kind == "take" && owner == "":
			reply, after = "OK", in.owner
		case in.kind == "take":
			reply = ""
		case in.kind == "unlock" && owner == in.owner:
			reply, after = "1", ""
		case in.kind == "unlock":
			reply = "0"
		}
		return output == nil || output.(string) == reply, after
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v -> %v", input, output) },
}

// judgeHistories asks porcupine about each key. Returns how many keys it could not decide in time.
func (j *Judge) judgeHistories(kind string, model porcupine.Model, histories map[string]*History) (undecided int) {
	for key, history := range histories {
		result, info := porcupine.CheckOperationsVerbose(model, history.operations, 20*time.Second)
		switch result {
		case porcupine.Illegal:
			page := filepath.Join(j.folder, key+".html")
			if err := porcupine.VisualizePath(model, info, page); err != nil {
				page = err.Error()
			}
			var text []string
			for _, operation := range history.operations {
				text = append(text, fmt.Sprintf("client %d from %d to %d: %+v -> %+v", operation.ClientId, operation.Call, operation.Return, operation.Input, operation.Output))
			}
			os.WriteFile(filepath.Join(j.folder, key+".txt"), []byte(strings.Join(text, "\n")+"\n"), 0o644)
			j.violate(kind, "no order of the %d calls for %s explains their replies: %s", len(history.operations), key, page)
		case porcupine.Unknown:
			undecided++
		}
	}
	return undecided
}

// Span is a time for which somebody held a place for sure: from the reply that granted it until the release was sent, or until
// the lease could have ended.
type Span struct {
	begin, end time.Duration
	holder     string
	token      int64
}

// judgeSpans checks that no more than `limit` spans of a key overlap.
func (j *Judge) judgeSpans(kind, key string, spans []Span, limit int) {
	sort.Slice(spans, func(a, b int) bool { return spans[a].begin < spans[b].begin })
	var open []Span
	for _, span := range spans {
		still := open[:0]
		for _, other := range open {
			if other.end > span.begin {
				still = append(still, other)
			}
		}
		open = append(still, span)
		if len(open) > limit {
			j.violate(kind, "%s had more than %d holders at once: %+v", key, limit, open)
		}
	}
}
