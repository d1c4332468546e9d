package npm

// arch is what npm calls this machine's processor.
const arch = "x64"
