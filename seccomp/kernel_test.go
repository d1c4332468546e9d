package seccomp

const roleVariable = "PCCRUN_SECCOMP_TEST_ROLE"

func play(string) {}
