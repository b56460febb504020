/* On each of two threads a server answers requests that interleave, and the thread works for no request as well. Prints of
 * each time that a thread computes: thread, trace ID or "none", start and end (monotonic). It begins when it reads a line.
 *
 * The tracer is loaded by `--require dd-trace/init`; here it only tells the trace IDs. */
'use strict';
const {once} = require('node:events');
const http = require('node:http');
const {Worker, isMainThread, parentPort} = require('node:worker_threads');
const {setTimeout: sleep} = require('node:timers/promises');
const tracer = require('dd-trace');
const {getNativeThreadId} = require('@datadog/pprof');

const REQUESTS = 6, TURNS = 3, OUTSIDE = 6, OBJECTS = 2_000_000;
const times = [];
let kept = [];

/* Computes with much garbage, some of which lives so long that it is moved, and collections of all of it. */
function compute(trace) {
  const start = process.hrtime.bigint();
  for (let i = 0; i < OBJECTS; i++) {
    if (i % 100_000 === 0) kept = [];
    if (i === OBJECTS / 2) gc();
    kept.push({i});
  }
  times.push([getNativeThreadId(), trace, start, process.hrtime.bigint()]);
}

async function answer(request, response) {
  const trace = tracer.scope().active().context().toTraceId(true);
  for (let turn = 0; turn < TURNS; turn++) {
    compute(trace);
    if (turn % 2) await sleep(1);
    else await new Promise(setImmediate);
  }
  response.end();
  await once(response, 'close');
  await sleep(1);
  compute('none');
}

function ask(port) {
  return new Promise((done) => http.get({port}, (response) => response.resume().on('end', done)));
}

/* Work between the requests that is for none of them. */
async function outside() {
  for (let turn = 0; turn < OUTSIDE; turn++) {
    compute('none');
    await sleep(5);
  }
}

async function serve() {
  const answers = [];
  const server = http.createServer((request, response) => answers.push(answer(request, response)));
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const {port} = server.address();
  await Promise.all([outside(), ...Array.from({length: REQUESTS}, () => ask(port))]);
  await Promise.all(answers);
  server.close();
  server.closeAllConnections();
  return times.map((row) => row.join(' ')).join('\n');
}

if (isMainThread) {
  process.stdin.once('data', async () => {
    const worker = new Worker(__filename);
    const [ours, others] = await Promise.all([serve(), new Promise((done) => worker.once('message', done))]);
    console.log(`${ours}\n${others}`);
    process.exit();
  });
} else {
  serve().then((rows) => parentPort.postMessage(rows));
}
