# Python's event loops, those that are not in its library, by one conversation.
#
#	loops.py serve LOOP PORT
#	loops.py talk  LOOP PORT MEGABYTES
#
# LOOP is asyncio, uvloop, trio, twisted or gevent. A request is a letter and a number in a
# line: E, so many bytes to be sent back; U, so many, whose digest is the answer; D, so many
# are wanted. What a loop needs for it are the coroutines of a Stream. Of gevent these
# block, and are run to their end by send.
import random, sys, zlib

what, loop, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
CLIENTS, ROUNDS = 8, 60
block = random.Random(1).randbytes(1000003)


def pieces(n):
    for at in range(0, n, 65536):
        yield block[at % 900000:][:min(n - at, 65536)]


class Stream:
    """What is read by some(), which gives b"" at the end, beside write(b) and close()."""

    have = b""

    async def fill(self):
        b = await self.some()
        self.have += b
        return b

    async def line(self):
        while b"\n" not in self.have:
            if not await self.fill():
                return b""
        line, self.have = self.have.split(b"\n", 1)
        return line

    async def exactly(self, n):
        while len(self.have) < n:
            assert await self.fill()
        b, self.have = self.have[:n], self.have[n:]
        return b

    async def digest(self, n):
        crc = 0
        while n > 0:
            if not self.have:
                assert await self.fill()
            b, self.have = self.have[:n], self.have[n:]
            crc, n = zlib.crc32(b, crc), n - len(b)
        return crc


async def serve(s):
    while line := await s.line():
        op, n = chr(line[0]), int(line[1:])
        if op == "E":
            await s.write(await s.exactly(n))
        elif op == "U":
            await s.write(b"%08x\n" % await s.digest(n))
        else:
            for b in pieces(n):
                await s.write(b)
    await s.close()


async def talk(s, i, n):
    r, crc = random.Random(i), 0
    for _ in range(ROUNDS):
        b = r.randbytes(r.choice([1, 10, 100, 1000, 9000, 30000]))
        await s.write(b"E%d\n" % len(b) + b)
        assert await s.exactly(len(b)) == b
        crc = zlib.crc32(b, crc)
    await s.write(b"U%d\n" % n)
    for b in pieces(n):
        await s.write(b)
    up = await s.line()
    await s.write(b"D%d\n" % n)
    down = await s.digest(n)
    await s.close()
    return f"{i}: {crc:08x} {up.decode()} {down:08x}"


def sizes():
    """Of each client how many bytes go either way."""
    return [(i, int(sys.argv[4]) << 20 if i == 0 else 300000 + i) for i in range(CLIENTS)]


if loop in ("asyncio", "uvloop"):
    import asyncio

    class Pair(Stream):
        def __init__(self, reader, writer):
            self.reader, self.writer = reader, writer

        async def some(self):
            return await self.reader.read(65536)

        async def write(self, b):
            self.writer.write(b)
            await self.writer.drain()

        async def close(self):
            self.writer.close()

    async def one(i, n):
        return await talk(Pair(*await asyncio.open_connection("127.0.0.1", port)), i, n)

    async def main():
        if what == "serve":
            await (await asyncio.start_server(lambda r, w: serve(Pair(r, w)), "127.0.0.1", port)).serve_forever()
        print("\n".join(await asyncio.gather(*[one(*k) for k in sizes()])))

    if loop == "uvloop":
        import uvloop
        uvloop.install()
    asyncio.run(main())

elif loop == "trio":
    import trio

    class Trio(Stream):
        def __init__(self, stream):
            self.stream, self.write, self.close = stream, stream.send_all, stream.aclose

        async def some(self):
            return await self.stream.receive_some(65536)

    async def one(said, i, n):
        said[i] = await talk(Trio(await trio.open_tcp_stream("127.0.0.1", port)), i, n)

    async def main():
        if what == "serve":
            await trio.serve_tcp(lambda s: serve(Trio(s)), port, host="127.0.0.1")
        said = {}
        async with trio.open_nursery() as nursery:
            for k in sizes():
                nursery.start_soon(one, said, *k)
        print("\n".join(said[i] for i, _ in sizes()))

    trio.run(main)

elif loop == "twisted":
    from twisted.internet import defer, protocol, reactor, task
    from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol

    class Twisted(protocol.Protocol, Stream):
        reader = writer = None  # who waits for bytes, who for room
        full = ended = False

        def connectionMade(self):
            self.transport.registerProducer(self, True)
            if what == "serve":
                defer.ensureDeferred(serve(self))

        def go(self, name):
            waiting = getattr(self, name)
            setattr(self, name, None)
            if waiting:
                waiting.callback(None)

        def pauseProducing(self):
            self.full = True

        def resumeProducing(self):
            self.full = False
            self.go("writer")

        def stopProducing(self):
            self.resumeProducing()

        def dataReceived(self, b):
            self.transport.pauseProducing()
            self.came = b
            self.go("reader")

        def connectionLost(self, why):
            self.ended = True
            self.came = b""
            self.go("reader")

        came = b""

        async def some(self):
            if not self.came and not self.ended:
                self.transport.resumeProducing()
                self.reader = defer.Deferred()
                await self.reader
            b, self.came = self.came, b""
            return b

        async def write(self, b):
            self.transport.write(b)
            if self.full:
                self.writer = defer.Deferred()
                await self.writer

        async def close(self):
            self.transport.unregisterProducer()
            self.transport.loseConnection()

    async def one(i, n):
        return await talk(await connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", port), Twisted()), i, n)

    async def main():
        print("\n".join(await defer.gatherResults([defer.ensureDeferred(one(*k)) for k in sizes()])))

    if what == "serve":
        reactor.listenTCP(port, protocol.Factory.forProtocol(Twisted), interface="127.0.0.1")
        reactor.run()
    task.react(lambda _: defer.ensureDeferred(main()))

elif loop == "gevent":
    import gevent
    from gevent import socket
    from gevent.server import StreamServer

    class Gevent(Stream):
        def __init__(self, socket):
            self.socket = socket
            socket.setsockopt(6, 1, 1)  # TCP_NODELAY

        async def some(self):
            return self.socket.recv(65536)

        async def write(self, b):
            self.socket.sendall(b)

        async def close(self):
            self.socket.close()

    def run(coroutine):
        try:
            coroutine.send(None)
        except StopIteration as end:
            return end.value

    if what == "serve":
        StreamServer(("127.0.0.1", port), lambda s, _: run(serve(Gevent(s)))).serve_forever()
    jobs = [gevent.spawn(lambda k: run(talk(Gevent(socket.create_connection(("127.0.0.1", port))), *k)), k) for k in sizes()]
    gevent.joinall(jobs, raise_error=True)
    print("\n".join(j.value for j in jobs))
