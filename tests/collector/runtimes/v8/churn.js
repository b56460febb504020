// Makes a function, calls it for a while and drops it, until it reads a line. Prints its number, and when it was first and
// last in use, in ns of the monotonic clock.
const vm = require("node:vm");

const template = `
  (function unit000000(x) {
    function inner000000(x) { let s = x; for (let i = 0; i < 200; i++) s = step000000(s, i); return s; }
    function outer000000(depth, x) { return depth ? outer000000(depth - 1, x) + depth : [x].map(inner000000)[0]; }
    function step000000(x, i) { return (x * 31 + i) % 1000003; }
    return outer000000(10, x);
  })`;
let number = 0, ended = false, sink = 0;

function load(number) {
  const text = template.replaceAll("000000", String(number).padStart(6, "0"));
  if (number % 3 === 0) return new vm.Script(text, { filename: `unit${number}.js` }).runInThisContext();
  if (number % 3 === 1) return vm.runInContext(text, vm.createContext());
  return new Function(`return ${text.trim()}`)();
}

function use(unit, until) {
  while (process.hrtime.bigint() < until) sink = unit(sink);
}

function work() {
  number++;
  const begin = process.hrtime.bigint();
  // Short ones are only interpreted, long ones are compiled by all compilers.
  use(load(number), begin + 3_000_000n * (1n << BigInt(number % 7)));
  console.log(`${number} ${begin} ${process.hrtime.bigint()}`);
  if (global.gc && number % 16 === 0) global.gc();
  if (!ended) setImmediate(work);
}

process.stdin.once("data", () => { ended = true; process.stdin.destroy(); });
console.log("ready");
setTimeout(work, 1);
