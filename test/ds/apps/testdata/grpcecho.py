"""A service over gRPC's C core, without generated code, and its clients:

    grpcecho.py serve PORT
    grpcecho.py talk PORT CALLS

The clients are threads on one connection each. They call one after another, several
at once, and by streams, with a few bytes to some hundred KiB, and say what came back.
"""

import concurrent.futures
import hashlib
import signal
import sys
import threading

import grpc

SIZES = [0, 1, 100, 1000, 5000, 16384, 70000, 300000]


def handlers():
    def one(request, context):
        return hashlib.sha256(request).digest() + request

    def down(request, context):
        for i in range(20):
            yield request + b"%d" % i

    def up(requests, context):
        h = hashlib.sha256()
        for r in requests:
            h.update(r)
        return h.digest()

    def both(requests, context):
        for r in requests:
            yield r[::-1]

    return grpc.method_handlers_generic_handler("echo.Echo", {
        "One": grpc.unary_unary_rpc_method_handler(one),
        "Down": grpc.unary_stream_rpc_method_handler(down),
        "Up": grpc.stream_unary_rpc_method_handler(up),
        "Both": grpc.stream_stream_rpc_method_handler(both),
    })


def serve(port):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers([handlers()])
    if not server.add_insecure_port("127.0.0.1:%d" % port):
        sys.exit("cannot listen")
    server.start()
    print("ready", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    server.stop(0).wait()


def payload(who, i):
    n = SIZES[(who + i) % len(SIZES)]
    return (b"%d/%d " % (who, i) * (n // 4 + 1))[:n]


def client(port, who, calls, said):
    # Channels with equal settings would share a connection.
    channel = grpc.insecure_channel("127.0.0.1:%d" % port, options=[("who", who)])
    one, both = channel.unary_unary("/echo.Echo/One"), channel.stream_stream("/echo.Echo/Both")
    up, down = channel.stream_unary("/echo.Echo/Up"), channel.unary_stream("/echo.Echo/Down")
    h, wrong = hashlib.sha256(), 0
    for i in range(calls):
        p = payload(who, i)
        # gRPC looks at errno some time after connect; where its first wait for a lock comes in
        # between, it has looked for a file that is not there by then, and takes that for connect's.
        r = one(p, timeout=60, wait_for_ready=True)
        wrong += r != hashlib.sha256(p).digest() + p
        h.update(r)
    for f in [one.future(payload(who, i), timeout=60) for i in range(calls)]:
        h.update(f.result())
    for r in down(payload(who, 4), timeout=60):
        h.update(r)
    h.update(up((payload(who, i) for i in range(calls)), timeout=60))
    for r in both((payload(who, i) for i in range(calls)), timeout=60):
        h.update(r)
    channel.close()
    said[who] = "client %d: %d wrong, %s" % (who, wrong, h.hexdigest())


def talk(port, calls):
    said = {}
    threads = [threading.Thread(target=client, args=(port, who, calls, said)) for who in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for who in range(4):
        print(said.get(who, "client %d failed" % who))


if sys.argv[1] == "serve":
    serve(int(sys.argv[2]))
else:
    talk(int(sys.argv[2]), int(sys.argv[3]))
