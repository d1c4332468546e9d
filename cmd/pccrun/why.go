package main

func whyVerb(args []string) int { return 0 }
