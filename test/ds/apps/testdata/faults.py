# Small conversations between this process and a forked child.
#
#	faults.py peek                  the child dies with bytes of ours unread
#	faults.py think ROUNDS EXTRA    the server thinks for longer than an offer lasts
#	faults.py habit ROUNDS...       connections one after the other to one port, of so many
#	                                rounds each; says of each when it begins
import os, signal, socket, sys, time

what, numbers = sys.argv[1], [int(a) for a in sys.argv[2:]]


def connected(child):
    listener = socket.create_server(("127.0.0.1", 0))
    pid = os.fork()
    if pid == 0:
        port = listener.getsockname()[1]
        listener.close()
        child(socket.create_connection(("127.0.0.1", port)))
        os._exit(0)
    s, _ = listener.accept()
    return s, pid


def ask(c, rounds):
    for _ in range(rounds):
        c.sendall(b"q" * 40)
        c.recv(100)


def answer(s, rounds):
    for _ in range(rounds):
        s.recv(100)
        s.sendall(b"a" * 40)


def drain(c):
    while c.recv(65536):
        pass


if what == "peek":
    s, pid = connected(lambda c: (ask(c, 60), time.sleep(60)))
    answer(s, 60)
    s.sendall(b"unread")
    time.sleep(0.3)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for flags in (socket.MSG_PEEK, 0):
        try:
            print("recv", flags, "gives", s.recv(10, flags))
        except OSError as e:
            print("recv", flags, "gives", e.strerror)
elif what == "think":
    rounds, extra = numbers
    s, pid = connected(lambda c: (ask(c, rounds), c.sendall(b"go"), drain(c)))
    answer(s, rounds)
    s.recv(100)
    for _ in range(extra):
        s.sendall(b".")
    time.sleep(1.3)
    for _ in range(4000): # where there is little CPU, who looks for the other looks more often
        s.sendall(b"x" * 65536)
    s.close()
    os.waitpid(pid, 0)
elif what == "habit":
    listener = socket.create_server(("127.0.0.1", 0))
    pid = os.fork()
    for rounds in numbers:
        if pid == 0:
            s, _ = listener.accept()
            answer(s, rounds)
            s.recv(100)
        else:
            print("connection of", rounds, file=sys.stderr, flush=True)
            s = socket.create_connection(listener.getsockname())
            ask(s, rounds)
        s.close()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
