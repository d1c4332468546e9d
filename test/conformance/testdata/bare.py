# What a command must not be able to do. A line "NAME: ..." is an attack that succeeded.
# Arguments: the port of the provider's daemon, and "control" where nothing is around.
import ctypes, os, re, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
control = len(sys.argv) > 2
evil = "93.184.216.35"
proxy = int((re.search(r":(\d+)$", os.environ.get("HTTP_PROXY", "")) or [0, 40000])[1])

def attack(name):
    def run(f):
        try: got = f()
        except OSError as e: got = None
        if got: print(name + ": " + str(got))
    return run

@attack("other sockets")
def _():
    found = []
    for family in range(50):
        for kind in range(1, 11):
            for protocol in (0, 1, 2, 6, 17, 33, 132, 136, 255, 262):
                fd = libc.socket(family, kind, protocol)
                if fd >= 0:
                    os.close(fd)
                    if family not in (2, 10) or kind != 1 or protocol not in (0, 6): found.append((family, kind, protocol))
    return found[:3]

@attack("a pair of datagrams")
def _():
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        try: return socket.socketpair(socket.AF_UNIX, kind)
        except OSError: pass

@attack("listen")
def _():
    s = socket.socket(); s.listen(); return "listens"

# Somebody answers where the kernel of another machine does: also with a refusal.
def reach(port, before=lambda s: None, family=socket.AF_INET, address=evil):
    s = socket.socket(family)
    s.settimeout(60 if control else 1)
    before(s)
    try: s.connect((address, port))
    except ConnectionRefusedError: return "refused by it"
    return "connected"

attack("connect past the proxy")(lambda: reach(80))
attack("connect past the proxy at its port")(lambda: reach(proxy))
attack("connect past the proxy at its port by IPv6's sockets")(lambda: reach(proxy, family=socket.AF_INET6, address="::ffff:" + evil))

def rebind(*options):
    def before(s):
        for level, option, value in options:
            try: s.setsockopt(level, option, value)
            except OSError: pass
    return before

def forget(s):
    try: s.connect(("127.0.0.1", proxy))
    except OSError: pass
    libc.connect(s.fileno(), b"\0" * 16, 16) # AF_UNSPEC

attack("bind to another device")(lambda: not control and reach(proxy, rebind((1, 25, b"w0\0"), (1, 25, b"\0"), (1, 62, b"\0\0\0\0"), (0, 50, socket.htonl(1).to_bytes(4, "little")), (0, 8, b"\1\0\0\0"))))
attack("disconnect, and connect again")(lambda: not control and reach(proxy, forget))

@attack("connect by TCP fast open")
def _():
    s = socket.socket()
    s.settimeout(60 if control else 1)
    try: s.sendto(b"x", 0x20000000, (evil, 80))
    except BlockingIOError: pass
    return "sent"

@attack("the daemon")
def _():
    for address in "127.0.0.1", "203.0.113.9":
        for way in "connect", "fast open":
            try:
                s = socket.socket()
                s.settimeout(60 if control else 1)
                if way == "connect": s.connect((address, int(sys.argv[1])))
                else: s.sendto(b"x", 0x20000000, (address, int(sys.argv[1])))
                return address + " by " + way
            except OSError: pass

others = [int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) != 1]
def sid(p):
    try: return os.getsid(p)
    except OSError: return os.getsid(0) # it is gone
others = [p for p in others if sid(p) != os.getsid(0)]

@attack("see another process")
def _():
    found = []
    for p in others:
        for name in "environ", "mem", "fd/0", "root/etc":
            try: os.close(os.open("/proc/%d/%s" % (p, name), os.O_RDONLY)); found.append((p, name))
            except OSError: pass
        if libc.ptrace(0x4206, p, 0, 0) == 0: found.append((p, "ptrace"))
    return found

@attack("signal another process")
def _():
    found = []
    for p in others:
        try: os.kill(p, signal.SIGCONT); found.append(p)
        except OSError: pass
    return found

@attack("write beside the copy")
def _():
    found = []
    here = os.getcwd()
    for top in "/home/user", "/opt", "/srv", "/run", "/etc", "/root", "/usr/local":
        for dir, _, names in os.walk(top):
            if (dir + "/").startswith(here + "/") or dir.count("/") > 4: continue
            for name in ["new-one"] + names:
                path = dir + "/" + name
                try: os.close(os.open(path, os.O_WRONLY | os.O_CREAT)); found.append(path)
                except OSError: pass
    return found[:3]

@attack("truncate beside the copy")
def _():
    found = []
    here = os.getcwd()
    for top in "/home/user", "/opt", "/srv", "/run":
        for dir, _, names in os.walk(top):
            if (dir + "/").startswith(here + "/") or dir.count("/") > 4: continue
            for name in names:
                try: os.truncate(dir + "/" + name, os.stat(dir + "/" + name).st_size); found.append(dir + "/" + name)
                except OSError: pass
    return found[:3]

attack("io_uring")(lambda: libc.syscall(425, 4, ctypes.create_string_buffer(120)) >= 0)
attack("user namespace")(lambda: libc.unshare(0x10000000) == 0)
