# Messages by way of RabbitMQ: rabbit.py PORT CONSUMERS MESSAGES publishes to all consumers,
# waits for each to be confirmed, and prints a digest of what each consumer was given.
import sys, threading, zlib

import pika

port, consumers, messages = map(int, sys.argv[1:])
at = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)
got, ready = {}, threading.Semaphore(0)


def consume(i):
    connection = pika.BlockingConnection(at)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=20 * i + 1)
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, "news")
    ready.release()
    digest = n = 0
    for method, _, body in channel.consume(queue):
        digest, n = zlib.crc32(body, digest), n + 1
        channel.basic_ack(method.delivery_tag)
        if n == messages:
            break
    got[i] = n, digest
    channel.cancel()
    connection.close()


connection = pika.BlockingConnection(at)
channel = connection.channel()
channel.exchange_declare("news", "fanout")
channel.confirm_delivery()
threads = [threading.Thread(target=consume, args=(i,)) for i in range(consumers)]
for t in threads:
    t.start()
for t in threads:
    ready.acquire()
for i in range(messages):
    channel.basic_publish("news", "", b"%d " % i + b"x" * (i * 37 % 20000))
for t in threads:
    t.join()
connection.close()
print(sorted(got.items()))
