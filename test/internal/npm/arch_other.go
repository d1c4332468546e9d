//go:build !amd64

package npm

import "runtime"

// arch is what npm calls this machine's processor.
const arch = runtime.GOARCH
