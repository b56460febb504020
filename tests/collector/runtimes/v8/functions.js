// Functions of every kind. The tests know their names and lines.
class Área {
  static #hidden() { return 1; }
  #own() { return Área.#hidden(); }
  get total() { return this.#own(); }
  static make() { return new Área().total; }
}
class Derived extends Área {
  constructor() { super(); this.x = 1; }
}
const arrow = (n) => n + 1;
const named = function inner(n) { return n ? inner(n - 1) : 0; };
const Имя = function () { return 2; };
const object = { method() { return 3; }, ["comp" + "uted"]() { return 4; } };
async function* generator() { yield 1; }
(async () => { for await (const each of generator()) arrow(each); })();
new Derived(); Área.make(); named(3); Имя(); object.method(); object.computed();
new Function("a", "return a + 1")(1);
[3, 1, 2].sort(function compare(a, b) { return a - b; });
JSON.stringify({ toJSON() { return "x"; } });
setTimeout(() => console.log(process.pid), 20);
setInterval(() => {}, 1000);
