package main

func profileVerb(args []string) int { return 0 }
