// Streams over a server of several processes, and clients that print digests.
//
//	streams.js serve PORT WORKERS
//	streams.js talk  PORT CONNECTIONS BYTES
//
// A worker sends back what comes, by a pipeline, and ends its half when the client has
// ended its own. NODE_CLUSTER_SCHED_POLICY says who accepts: with "rr" the first
// process, which passes connections to workers, with "none" each worker.
const cluster = require('cluster'), crypto = require('crypto'), net = require('net');
const {PassThrough, Readable, Transform, pipeline} = require('stream');
const {pipeline: piped} = require('stream/promises');
const [what, port, count, bytes] = [process.argv[2], +process.argv[3], +process.argv[4], +process.argv[5]];

function* content(seed, size) {
  let x = seed + 1;
  for (let at = 0; at < size;) {
    x = (x * 1103515245 + 12345) & 0x7fffffff;
    const b = Buffer.alloc(Math.min(size - at, 1 + x % 100000), String(x));
    at += b.length;
    yield b;
  }
}

function served(socket) {
  const step = () => new Transform({highWaterMark: 20000, transform(b, _, done) { setImmediate(done, null, Buffer.from(b)); }});
  pipeline(socket, step(), new PassThrough(), step(), socket, (e) => { if (e) console.error(e); });
}

async function talk(i) {
  const socket = net.connect({port, host: '127.0.0.1', allowHalfOpen: true});
  const sent = crypto.createHash('sha256'), got = crypto.createHash('sha256');
  let n = 0;
  await Promise.all([
    piped(Readable.from(content(i, bytes)), new Transform({transform(b, _, done) { sent.update(b); done(null, b); }}), socket),
    (async () => { for await (const b of socket) { got.update(b); n += b.length; } })(),
  ]);
  const [a, b] = [sent.digest('hex'), got.digest('hex')];
  if (a !== b) throw new Error(`connection ${i}: ${n} bytes came back as others`);
  return `${i} ${n} ${b}`;
}

if (what === 'talk') {
  Promise.all(Array.from({length: count}, (_, i) => talk(i))).then((all) => console.log(all.join('\n')), (e) => { console.error(e); process.exit(1); });
} else if (cluster.isPrimary) {
  // Listening once all workers do: the first to accept would get all connections.
  let ready = 0;
  for (let i = 0; i < count; i++) cluster.fork().on('listening', () => { if (++ready === count) net.createServer().listen(port + 1, '127.0.0.1'); });
} else {
  net.createServer({allowHalfOpen: true}, served).listen(port, '127.0.0.1');
}
