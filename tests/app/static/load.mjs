// The scripts are plain files that share one namespace; the parts without a page run here as well.
import { readFileSync } from "node:fs";
import { runInThisContext } from "node:vm";

export function load(...names) {
  for (const name of names) {
    const url = new URL(`../../../app/static/${name}`, import.meta.url);
    runInThisContext(readFileSync(url, "utf8"), { filename: name });
  }
  return globalThis.Recap;
}

/** A compact step: nodes as [parent, state, fused], in the order of popping. */
export function rawStep(nodes, { i = 0, emitted = null } = {}) {
  const accepted = nodes.filter(([, state]) => state === "a").length;
  return {
    i, q: 1, r: 0, c: [],
    n: {
      t: nodes.map((_, id) => id + 1), p: nodes.map(([parent]) => parent), o: nodes.map(() => 1),
      s: "1".repeat(nodes.length), x: nodes.map(([, state]) => state).join(""), k: "1".repeat(nodes.length),
      f: nodes.map(([, , fused]) => 1000 * fused), a: nodes.map(() => 5000),
      w: nodes.flatMap(() => [500, 0, 0]), y: [...nodes, 0].map(() => 7),
    },
    e: emitted ?? [...Array(accepted).fill([1, "1", -0.1, -3]), [7, "bonus", -0.2, -2]],
    b: [nodes.length, 1.5, null, null], s: [1000, 5000, 10, 100], m: { 1: 3 }, w: { 1: [1, 0] }, h: { 1: [1, 2] },
  };
}

/** A random tree of so many nodes, whose accepted path is a chain from the root. */
export function randomTree(count, seed) {
  let state = seed;
  const random = () => (state = (state * 1103515245 + 12345) % 2147483648) / 2147483648;
  const nodes = [];
  let last = -1;
  for (let id = 0; id < count; id++) {
    if (random() < 0.12) {
      nodes.push([last, "a", random()]);
      last = id;
    } else {
      const parent = Math.floor(random() * (id + 1)) - 1;
      nodes.push([parent, parent < 0 || nodes[parent][1] === "a" ? "r" : "u", random()]);
    }
  }
  // Only one child of a node can be accepted, and the chain made above has just one each.
  return rawStep(nodes);
}
