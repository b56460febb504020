// Two profiles, by the values of one request of each side.

/** Returns an answer with two sides, whose values are multiplied by these factors. */
export function scaled(answer, now, before) {
  const { nodes, functions, rest } = answer;
  const multiplied = (columns) =>
    Object.fromEntries(
      Object.entries(columns).map(([name, column]) => {
        if (!/(self|total|flat|cumulative)$/.test(name)) return [name, column];
        const factor = name.startsWith("baseline_") ? before : now;
        return [name, Array.isArray(column) ? column.map((value) => value * factor) : column * factor];
      }),
    );
  return { ...answer, nodes: multiplied(nodes), functions: multiplied(functions), rest: multiplied(rest), scale: 1, baseline_scale: 1 };
}

/** Slow requests against fast ones: of how many requests a value is, is known. */
export const perRequest = (answer) => scaled(answer, 1 / answer.slow.requests, 1 / answer.fast.requests);
