// Slow requests against fast ones, by the values of one request.

/** Returns an answer to slow against fast whose values are those of one request of each side. */
export function perRequest(answer) {
  const { slow, fast, nodes, functions, rest } = answer;
  const divided = (columns) =>
    Object.fromEntries(
      Object.entries(columns).map(([name, column]) => {
        if (!/(self|total|flat|cumulative)$/.test(name)) return [name, column];
        const requests = name.startsWith("baseline_") ? fast.requests : slow.requests;
        return [name, Array.isArray(column) ? column.map((value) => value / requests) : column / requests];
      }),
    );
  return { ...answer, nodes: divided(nodes), functions: divided(functions), rest: divided(rest), scale: 1, baseline_scale: 1 };
}
