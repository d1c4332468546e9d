//go:build unix && !launcher

package main

import (
	"context"
	"strings"
	"time"

	"github.com/pccrun/pccrun/task"
)

// checkpointVerb is `pccrun checkpoint`: it keeps what a task has come to, lists what is kept, and removes it.
func checkpointVerb(args []string) int {
	asJSON := false
	words, err := options(args, flags{"--json": &asJSON})
	switch {
	case err != nil:
	case len(words) == 0:
		err = misuse("checkpoint: want a task", "pccrun task list lists them, pccrun checkpoint list what is kept")
	case words[0] == "list":
		err = unexpected(words, 1, "pccrun checkpoint list")
	default:
		err = unexpected(words, 2, "pccrun checkpoint TASK NAME")
	}
	var store task.Store
	var top string
	if err == nil {
		store, top, _, err = tasksHere(true)
	}
	if err != nil {
		return failSession(err)
	}
	switch {
	case words[0] == "list":
		return listCheckpoints(store, asJSON)
	case words[0] == "rm" && len(words) == 2:
		if err := task.RemoveCheckpoint(context.Background(), store, words[1]); err != nil {
			return failSession(err)
		}
		return result(asJSON, object{{"checkpoint", words[1]}, {"removed", true}}, say, "checkpoint "+words[1]+" was removed")
	}
	r, err := store.Find(words[0], top)
	var c task.Checkpoint
	if err == nil {
		c, err = task.MakeCheckpoint(context.Background(), store, r, strings.Join(words[1:], ""))
	}
	if err != nil {
		return failSession(err)
	}
	return result(asJSON, checkpointFields(&c), printText, c.Name)
}

func checkpointFields(c *task.Checkpoint) object {
	return object{
		{"checkpoint", c.Name}, {"task", c.Task}, {"repository", c.Repository}, {"commit", c.Commit}, {"agent", c.Agent}, {"conversation", c.Conversation}, {"made", c.Made.Format(time.RFC3339)},
	}
}

func listCheckpoints(store task.Store, asJSON bool) int {
	list, err := task.Checkpoints(store)
	if err != nil {
		say(inWords(err))
	}
	if asJSON {
		printJSON(object{{"checkpoints", each(list, func(c task.Checkpoint) object { return checkpointFields(&c) })}})
		return 0
	}
	var rows table
	for _, c := range list {
		rows.row(c.Name, c.Task, c.Agent, c.Commit[:7], c.Repository)
	}
	return rows.print()
}
