# Servers of Python's library and clients for them. The same seed gives the same
# conversation, so that what a client prints can be compared.
#
#	pairs.py serve asyncio|forking|threading PORT
#	pairs.py talk  asyncio|blocking PORT CONNECTIONS ROUNDS
#
# A request is the length and as many bytes; the answer is the bytes reversed,
# and at the end of the client's half the digest of all it had sent.
import asyncio, hashlib, random, socket, socketserver, struct, sys, threading


class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        digest = hashlib.sha256()
        while head := self.rfile.read(4):
            body = self.rfile.read(struct.unpack("!I", head)[0])
            digest.update(body)
            self.wfile.write(body[::-1])
        self.wfile.write(digest.digest())


async def echo(reader, writer):
    digest = hashlib.sha256()
    while head := await reader.read(1):
        head += await reader.readexactly(3)
        body = await reader.readexactly(struct.unpack("!I", head)[0])
        digest.update(body)
        writer.write(body[::-1])
        await writer.drain()
    writer.write(digest.digest())
    await writer.drain()
    writer.close()


def bodies(seed, rounds):
    r = random.Random(seed)
    for _ in range(rounds):
        yield r.randbytes(r.choice([0, 1, 60, 120, 481, 5000, 70000, 300000]))


def blocking(port, seed, rounds):
    s = socket.create_connection(("127.0.0.1", port))
    digest, file = hashlib.sha256(), s.makefile("rb")
    for body in bodies(seed, rounds):
        digest.update(body)
        # From a thread: neither side reads all before it answers.
        t = threading.Thread(target=s.sendall, args=(struct.pack("!I", len(body)) + body,))
        t.start()
        assert file.read(len(body)) == body[::-1]
        t.join()
    s.shutdown(socket.SHUT_WR)
    assert file.read() == digest.digest()
    return digest.hexdigest()


async def talk(port, seed, rounds):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    digest = hashlib.sha256()
    for body in bodies(seed, rounds):
        digest.update(body)
        writer.write(struct.pack("!I", len(body)) + body)
        got, _ = await asyncio.gather(reader.readexactly(len(body)), writer.drain())
        assert got == body[::-1]
    writer.write_eof()
    assert await reader.read() == digest.digest()
    writer.close()
    await writer.wait_closed()
    return digest.hexdigest()


async def serve_asyncio(port):
    async with await asyncio.start_server(echo, "127.0.0.1", port) as server:
        await server.serve_forever()


async def talk_asyncio(port, connections, rounds):
    for digest in await asyncio.gather(*(talk(port, seed, rounds) for seed in range(connections))):
        print(digest)


what, kind, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
if what == "talk":
    connections, rounds = int(sys.argv[4]), int(sys.argv[5])
    if kind == "asyncio":
        asyncio.run(talk_asyncio(port, connections, rounds))
    else:
        results = [None] * connections

        def one(seed):
            results[seed] = blocking(port, seed, rounds)

        threads = [threading.Thread(target=one, args=(seed,)) for seed in range(connections)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        print(*results, sep="\n")
elif kind == "asyncio":
    asyncio.run(serve_asyncio(port))
else:
    mixin = {"forking": socketserver.ForkingMixIn, "threading": socketserver.ThreadingMixIn}[kind]
    server = type("Server", (mixin, socketserver.TCPServer), {"allow_reuse_address": True, "request_queue_size": 64})
    with server(("127.0.0.1", port), Echo) as s:
        s.serve_forever()
