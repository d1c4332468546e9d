package main

func helpVerb(args []string) int { return 0 }

func versionVerb(args []string) int { return 0 }

func completionVerb(args []string) int { return 0 }
