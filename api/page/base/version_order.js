// Versions, such as 2.3, v1.10 and 2.4-rc1: which texts look like one, and their order.

const NUMBERS = /^v?(\d+(?:\.\d+)*)(?=$|[-+_.])/;
const collator = new Intl.Collator("en", { numeric: true });

export const isVersion = (text) => NUMBERS.test(text ?? "");

/** Compares number by number: 1.9 < 1.10-rc1 < 1.10. */
export function compareVersions(a, b) {
  const [[wholeA, numbersA], [wholeB, numbersB]] = [a, b].map((text) => NUMBERS.exec(text));
  const isFinal = (text, whole) => !/^-?[a-z]/i.test(text.slice(whole.length));
  return collator.compare(numbersA, numbersB) || isFinal(a, wholeA) - isFinal(b, wholeB) || collator.compare(a, b);
}
