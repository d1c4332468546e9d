package cgroups

import (
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"
)

// Processors picks n of the processors that this process may run on, for
// sched_setaffinity(2), at random so that several sandboxes do not meet on the
// same ones. It returns all if there are no more than n.
func Processors(n int) (unix.CPUSet, error) {
	var all, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return set, os.NewSyscallError("sched_getaffinity", err)
	}
	var numbers []int
	for i := 0; len(numbers) < all.Count(); i++ {
		if all.IsSet(i) {
			numbers = append(numbers, i)
		}
	}
	for _, i := range rand.Perm(len(numbers))[:min(n, len(numbers))] {
		set.Set(numbers[i])
	}
	return set, nil
}
