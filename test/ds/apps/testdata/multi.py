# Python's multiprocessing over TCP: a listener whose connections are served by
# processes, a manager that other processes reach, and workers begun in each of the
# ways there are. What a client prints follows from its arguments.
#
#	multi.py serve listener|manager PORT
#	multi.py talk  listener|manager PORT fork|spawn|forkserver
import collections, hashlib, multiprocessing, queue, random, sys, threading
from multiprocessing.connection import Client, Listener
from multiprocessing.managers import BaseManager

KEY = b"not a secret"
WORKERS, ROUNDS = 3, 20


def things(seed):
    r = random.Random(seed)
    for i in range(ROUNDS):
        # Above 16 KiB it writes twice, and TCP then waits 40 ms each time.
        size = r.choice([0, 1, 60, 481, 5000, 12000, 15000, 70000 if i == 20 else 300])
        yield (i, r.randbytes(size)) if i % 2 else {"round": i, "list": list(r.randbytes(size // 100)), "bytes": r.randbytes(size)}


# Each connection sends back what comes, and its digest.
def serve_one(c):
    try:
        while True:
            thing = c.recv()
            c.send([thing, hashlib.sha256(repr(thing).encode()).digest()])
    except EOFError:
        c.close()


def serve_listener(port):
    with Listener(("127.0.0.1", port), backlog=50, authkey=KEY) as listener:
        turn = 0
        while True:
            c = listener.accept()
            turn += 1
            if turn % 2:
                threading.Thread(target=serve_one, args=(c,), daemon=True).start()
                continue
            p = multiprocessing.get_context("fork").Process(target=serve_one, args=(c,), daemon=True)
            p.start()
            c.close()


def talk_listener(args):
    port, seed = args
    digest = hashlib.sha256()
    with Client(("127.0.0.1", port), authkey=KEY) as c:
        for thing in things(seed):
            c.send(thing)
            assert c.poll(60)
            same, part = c.recv()
            assert same == thing
            digest.update(part)
        assert not c.poll(0)
    return digest.hexdigest()


class Manager(BaseManager):
    pass


class Table:
    def __init__(self):
        self.lock, self.sums, self.kept = threading.Lock(), collections.Counter(), {}

    def add(self, name, value):
        with self.lock:
            self.sums[name] += value
            return len(self.sums)

    def keep(self, name, thing):
        self.kept[name] = thing

    def kept_of(self, name):
        return self.kept[name]

    def totals(self):
        return sorted(self.sums.items())


def registered(serving):
    if serving:
        work, table = queue.Queue(), Table()
        Manager.register("work", callable=lambda: work)
        Manager.register("table", callable=lambda: table)
    else:
        Manager.register("work")
        Manager.register("table")
    return Manager


def talk_manager(args):
    port, seed = args
    m = registered(False)(address=("127.0.0.1", port), authkey=KEY)
    m.connect()
    work, table = m.work(), m.table()
    for thing in things(seed):
        table.keep(seed, thing)
        assert table.kept_of(seed) == thing
        work.put(len(repr(thing)))
        table.add("taken", work.get())  # perhaps another's
        table.add("rounds", 1)
    return hashlib.sha256(repr(table.kept_of(seed)).encode()).hexdigest()


if __name__ == "__main__":
    what, kind, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if what == "serve" and kind == "listener":
        serve_listener(port)
    elif what == "serve":
        registered(True)(address=("127.0.0.1", port), authkey=KEY).get_server().serve_forever()
    else:
        way = multiprocessing.get_context(sys.argv[4])
        with way.Pool(WORKERS) as pool:
            talk = talk_listener if kind == "listener" else talk_manager
            print("\n".join(pool.map(talk, [(port, seed) for seed in range(2 * WORKERS)], chunksize=1)))
        if kind == "manager":
            m = registered(False)(address=("127.0.0.1", port), authkey=KEY)
            m.connect()
            print(m.table().totals(), m.work().empty())
