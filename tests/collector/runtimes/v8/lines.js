// Lines within a function, and functions that compilers inline, whose shares the tests know.
function work(x) { return Math.sqrt(x) % 3; }
function seven(x) {
  let s = 0;
  for (let i = 0; i < 7; i++)
    s += work(x + i);
  return s;
}
function three(x) {
  let s = 0;
  for (let i = 0; i < 3; i++)
    s += work(x + i);
  return s;
}
function calls(n) {
  let s = 0;
  for (let i = 0; i < n; i++) {
    s += seven(i);
    s += three(i + 1);
  }
  return s;
}
function loops(n) {
  let s = 0;
  for (let i = 0; i < 7 * n; i++)
    s += Math.sqrt(i) % 3;
  for (let i = 0; i < 3 * n; i++)
    s += Math.sqrt(i) % 3;
  return s;
}
function main() {
  for (;;) {
    loops(1000);
    calls(1000);
    if (Date.now() > ready) {
      console.log("ready");
      ready = Infinity;
    }
  }
}
let ready = Date.now() + 1000;
setTimeout(main, 1);
