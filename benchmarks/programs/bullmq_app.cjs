// The same tasks on BullMQ with ioredis: bullmq_app.cjs HOME worker | produce TASK MODE COUNT SIZE
// HOME is where its packages are. Modes as in produce.py; a hundred jobs at once.
"use strict";

const fs = require("node:fs");
const [home, role, task, mode, count, size] = process.argv.slice(2);
const load = (name) => require(require.resolve(name, { paths: [home] }));
const { Queue, Worker } = load("bullmq");
const { Redis } = load("ioredis");

const CONCURRENCY = 100;
const WARM_UP = 20;
const PRODUCERS = 50;
const connect = () => new Redis(process.env.BENCH_STORE, { maxRetriesPerRequest: null });

function record(sent) {
  const out = Buffer.alloc(16);
  out.writeBigInt64LE(BigInt(sent), 0);
  out.writeBigInt64LE(process.hrtime.bigint(), 8); // the machine's monotonic clock, as Python's
  fs.appendFileSync(process.env.BENCH_OUT, out);
}

async function run(job) {
  if (job.name === "stamp") record(job.data.n);
}

async function one(queue, count) {
  for (let n = 0; n < count; n++) await queue.add(task, { n });
}

async function many(queue, count, size) {
  for (let start = 0; start < count; start += size) {
    const numbers = Array.from({ length: Math.min(size, count - start) }, (_, i) => start + i);
    await queue.addBulk(numbers.map((n) => ({ name: task, data: { n } })));
  }
}

async function probe(queue, count) {
  for (let i = 0; i < count; i++) {
    await new Promise((done) => setTimeout(done, 20 + Math.random() * 40));
    await queue.add(task, { n: process.hrtime.bigint().toString() });
  }
}

async function together(queue, count) {
  await Promise.all(Array.from({ length: PRODUCERS }, () => one(queue, Math.floor(count / PRODUCERS))));
}

async function produce() {
  const modes = { one, many, fill: many, probe, together };
  const queue = new Queue("bench", { connection: connect() });
  if (mode === "one" || mode === "many" || mode === "together") await modes[mode](queue, PRODUCERS, WARM_UP);
  const began = process.hrtime.bigint();
  const used = process.cpuUsage();
  await modes[mode](queue, Number(count), Number(size));
  const seconds = Number(process.hrtime.bigint() - began) / 1e9;
  const { user, system } = process.cpuUsage(used);
  console.log(JSON.stringify({ seconds, cpu: (user + system) / 1e6 }));
  process.exit(0);
}

if (role === "worker") {
  const worker = new Worker("bench", run, { connection: connect(), concurrency: CONCURRENCY });
  process.on("SIGTERM", () => worker.close().then(() => process.exit(0)));
} else {
  produce();
}
