// An HTTP server, and a client that prints what it got.
//
//	http.js serve PORT
//	http.js ask   PORT REQUESTS
//
// The path is the size of the answer; what is posted comes back.
const http = require('http'), crypto = require('crypto');
const [what, port, requests] = [process.argv[2], +process.argv[3], +process.argv[4]];
const content = Buffer.alloc(1 << 21);
for (let i = 0; i < content.length; i++) content[i] = (i * 2654435761) >>> 13;

if (what === 'serve') {
  http.createServer((q, a) => {
    if (q.method === 'POST') return q.pipe(a);
    const size = +q.url.slice(1);
    a.writeHead(200, {'Content-Length': size});
    for (let at = 0; at < size; at += 65536) a.write(content.subarray(at, Math.min(size, at + 65536)));
    a.end();
  }).listen(port, '127.0.0.1');
} else {
  const sizes = [0, 1, 500, 1024, 65536, 300000, 1 << 21];
  const ask = (agent, i) => new Promise((good, bad) => {
    const size = sizes[i % sizes.length], post = i % 3 === 0;
    const q = http.request({port, host: '127.0.0.1', agent, path: '/' + size, method: post ? 'POST' : 'GET'}, (a) => {
      const digest = crypto.createHash('sha256');
      a.on('data', (d) => digest.update(d)).on('error', bad).on('end', () => good(`${i} ${a.statusCode} ${digest.digest('hex')}`));
    }).on('error', bad);
    q.end(post ? content.subarray(0, size) : undefined);
  });
  (async () => {
    for (const keepAlive of [true, false]) {
      const agent = new http.Agent({keepAlive, maxSockets: 20});
      const answers = await Promise.all(Array.from({length: requests}, (_, i) => ask(agent, i)));
      console.log(answers.join('\n'));
      agent.destroy();
    }
  })().catch((e) => { console.error(e); process.exit(1); });
}
