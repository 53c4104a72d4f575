package main

// The judge itself is judged: each of these histories breaks one promise, and one breaks none.

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

func TestLocks(t *testing.T) {
	acquire := func(client int, owner string, begin, end int64, output any) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: lockInput{"acquire", owner}, Call: begin, Output: output, Return: end}
	}
	release := func(client int, owner string, begin, end int64, output any) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: lockInput{"release", owner}, Call: begin, Output: output, Return: end}
	}
	granted := func(token int64) lockOutput { return lockOutput{true, token} }
	refused := lockOutput{}
	const open = 1 << 62
	for name, test := range map[string]struct {
		good    bool
		history []porcupine.Operation
	}{
		"one after the other": {true, []porcupine.Operation{
			acquire(1, "a", 0, 10, granted(1)), acquire(2, "b", 11, 12, refused), release(1, "a", 13, 14, granted(1)), acquire(2, "b", 15, 16, granted(2)),
		}},
		"an unknown grant explains a refusal": {true, []porcupine.Operation{
			acquire(1, "a", 0, open, nil), acquire(2, "b", 11, 12, refused), acquire(1, "a", 13, 14, granted(7)),
		}},
		"two owners": {false, []porcupine.Operation{acquire(1, "a", 0, 10, granted(1)), acquire(2, "b", 11, 12, granted(2))}},
		"a token goes back": {false, []porcupine.Operation{
			acquire(1, "a", 0, 10, granted(2)), release(1, "a", 13, 14, granted(2)), acquire(2, "b", 15, 16, granted(2)),
		}},
		"a grant is lost":            {false, []porcupine.Operation{acquire(1, "a", 0, 10, granted(1)), release(1, "a", 11, 12, refused)}},
		"a refusal without an owner": {false, []porcupine.Operation{acquire(1, "a", 0, 10, refused)}},
	} {
		if porcupine.CheckOperations(lockModel, test.history) != test.good {
			t.Errorf("%s: the verdict should be %v", name, test.good)
		}
	}
}

func TestRegisters(t *testing.T) {
	set := func(value string, begin, end int64) porcupine.Operation {
		return porcupine.Operation{ClientId: 1, Input: registerInput{kind: "set", new: value}, Call: begin, Return: end}
	}
	get := func(value string, begin, end int64) porcupine.Operation {
		return porcupine.Operation{ClientId: 2, Input: registerInput{kind: "get"}, Call: begin, Output: value, Return: end}
	}
	if !porcupine.CheckOperations(registerModel, []porcupine.Operation{set("1", 0, 10), set("2", 20, 1<<62), get("1", 30, 40), get("2", 50, 60)}) {
		t.Error("a write whose end is unknown may happen late")
	}
	if porcupine.CheckOperations(registerModel, []porcupine.Operation{set("1", 0, 10), set("2", 20, 30), get("1", 40, 50)}) {
		t.Error("a stale read")
	}
}

func TestSpans(t *testing.T) {
	judge, err := newJudge(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	judge.judgeSpans("gate", "key", []Span{{begin: 0, end: 10}, {begin: 10, end: 20}, {begin: 15, end: 25}}, 2)
	if len(judge.violations) != 0 {
		t.Error(judge.violations)
	}
	judge.judgeSpans("gate", "key", []Span{{begin: 0, end: 10}, {begin: 5, end: 20}, {begin: 9, end: 25}}, 2)
	if len(judge.violations) != 1 {
		t.Error("three held two places")
	}
}
