# A server that echoes the first half of each connection itself and leaves the second
# half to a program that it begins by pidfd_spawn, which the C library has since 2.39.
# What the client prints follows from its arguments.
#
#	spawn.py serve PORT
#	spawn.py talk  PORT WAY...
#
# The program gets the connection as a descriptor that is not closed, or as what file
# actions copy that are older than the connection.
import ctypes, hashlib, os, random, select, socket, sys

HALF = 3_000_000
NUMBER = 200  # what the file actions copy
libc = ctypes.CDLL(None)


def vector(*words):
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)


def check(error, what):
    if error:
        raise OSError(error, what)


# Both functions: one by a path, the other by a name that is looked for.
def spawn(way, c, actions):
    pidfd, environment = ctypes.c_int(-1), vector(*(f"{k}={v}".encode() for k, v in os.environ.items()))
    if way == "inherited":
        c.set_inheritable(True)
        argv = vector(b"sh", b"-c", b"exec cat <&%d >&%d" % (c.fileno(), c.fileno()))
        check(libc.pidfd_spawnp(ctypes.byref(pidfd), b"sh", None, None, argv, environment), "pidfd_spawnp")
    else:
        os.dup2(c.fileno(), NUMBER, inheritable=False)
        check(libc.pidfd_spawn(ctypes.byref(pidfd), b"/bin/cat", actions, None, vector(b"cat"), environment), "pidfd_spawn")
        os.close(NUMBER)
    return pidfd.value


def serve(port):
    actions = ctypes.create_string_buffer(1024)  # larger than its struct
    libc.posix_spawn_file_actions_init(actions)
    for to in 0, 1:
        check(libc.posix_spawn_file_actions_adddup2(actions, NUMBER, to), "adddup2")
    with socket.create_server(("127.0.0.1", port)) as l:
        while True:
            c, _ = l.accept()
            way = c.recv(9, socket.MSG_WAITALL).decode()
            left = HALF
            while left:
                data = c.recv(min(left, 65536))
                c.sendall(data)
                left -= len(data)
            pidfd = spawn(way, c, actions)
            c.close()
            if not select.select([pidfd], [], [], 60)[0]:
                print("the program does not end", flush=True)
            else:
                os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
            os.close(pidfd)


def talk(port, way):
    r, digest = random.Random(way), hashlib.sha256()
    with socket.create_connection(("127.0.0.1", port)) as c:
        c.sendall(way.encode())
        sent = 0
        while sent < 2 * HALF:
            data = r.randbytes(min(r.choice([1, 100, 481, 5000, 30000]), 2 * HALF - sent))
            c.sendall(data)
            back = c.recv(len(data), socket.MSG_WAITALL)
            if back != data:
                sys.exit(f"{way}: after {sent} bytes {len(back)} of {len(data)} come back, or others")
            digest.update(back)
            sent += len(data)
        c.shutdown(socket.SHUT_WR)
        print(way, digest.hexdigest(), c.recv(1))


if sys.argv[1] == "serve":
    serve(int(sys.argv[2]))
for way in sys.argv[3:]:
    talk(int(sys.argv[2]), way)
