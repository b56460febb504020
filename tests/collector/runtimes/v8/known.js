// Calls whose chains and shares the tests know. PAD becomes code that never runs and makes a function too large to be inlined.
function burn(n) { PAD let s = 0; for (let i = 0; i < n; i++) s += Math.sqrt(i) % 3; return s; }
function sixty(n) { PAD return burn(n * 60); }
function thirty(n) { PAD return burn(n * 30); }
function ten(n) { PAD return burn(n * 10); }
function shares(n) { PAD return sixty(n) + thirty(n) + ten(n); }
function recurse(n, depth) { PAD return depth ? recurse(n, depth - 1) : shares(n); }

class Shop {
  #prices = [3, 1, 2];
  get total() { const n = 1; PAD return this.#prices.map((price) => { const n = price; PAD return burn(5000 * n); }); }
  toJSON() { const n = 1; PAD return String(burn(20000)); }
}
function compare(a, b) { const n = 1; PAD burn(10000); return a - b; }
function replacer(match) { const n = 1; PAD return String(burn(10000)); }
function thrower(n) { PAD burn(10000); throw new Error("known"); }
function catcher(n) { PAD try { thrower(n); } catch { return burn(10000); } }
function callbacks(n) {
  PAD
  [3, 1, 2].sort(compare);
  JSON.stringify({ shop: new Shop() });
  "abc".replace(/[a-c]/g, replacer);
  new Shop().total;
  return Reflect.apply(catcher, undefined, [n]);
}
function main(n) { PAD for (;;) { if (process.argv[2] === "shares") recurse(2000, 60); else callbacks(n); } }
console.log("ready");
setTimeout(main, 1, 1);
