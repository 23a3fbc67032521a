import assert from "node:assert/strict";
import { test } from "node:test";
import { load, rawStep } from "./load.mjs";

const R = load("words.js", "store.js", "tree_layout.js", "timeline.js", "player.js");

const value = (count, extra = {}) => ({
  run: "a", serial: 1, status: "running", note: "", about: JSON.stringify({ method: "recap", pace: 4 }),
  first: JSON.stringify({ token: 0, logprob: -0.1, seconds: 0.01 }), vocabulary: ['[[0,"a"],[7," b"]]'],
  steps: Array.from({ length: count }, (_, i) => JSON.stringify(rawStep([[-1, "a", 0.9]], { i }))),
  details: [], end: null, show: null, caption: "", ...extra,
});

test("a lost update is repaired by the next one", () => {
  const store = new R.Store();
  store.apply(value(2));
  store.apply(value(7)); // the ones between never came
  assert.equal(store.run.steps.length, 7);
  assert.deepEqual(store.run.steps.map((step) => step.i), [0, 1, 2, 3, 4, 5, 6]);
  assert.equal(store.run.tokens.length, 1 + 14);
});

test("values of a run that is over are left aside", () => {
  const store = new R.Store();
  store.apply(value(3, { serial: 2, run: "b" }));
  store.apply(value(9));
  assert.equal(store.id, "b");
  assert.equal(store.run.steps.length, 3);
});

test("looking back stops the following, not the run", () => {
  const store = new R.Store();
  store.apply(value(5));
  store.reveal(5);
  assert.equal(store.cursor, 4);
  store.go(1);
  store.apply(value(8));
  store.reveal(8);
  assert.equal(store.cursor, 1);
  assert.equal(store.run.steps.length, 8);
  store.follow();
  assert.equal(store.cursor, 7);
});

test("the pace delays what is shown, and skipping shows it all", () => {
  const store = new R.Store();
  store.apply(value(5));
  assert.equal(store.frontier, 0);
  assert.equal(store.revealed, 1); // the prefill's token
  store.reveal(2);
  assert.equal(store.revealed, 5);
  store.skip();
  assert.equal(store.revealed, store.run.tokens.length);
});

test("a trace opens at the step it names", () => {
  const store = new R.Store();
  store.apply(value(9, { status: "done", show: 4, end: "{}" }));
  assert.equal(store.cursor, 4);
  assert.equal(store.frontier, 9);
  assert.equal(store.following, false);
});

test("a step can emit nothing", () => {
  const step = R.decodeStep(rawStep([[-1, "r", 0.5]], { emitted: [] }));
  assert.equal(step.bonus, null);
  assert.equal(R.sentence({ token: () => ({ text: "x", hex: "" }) }, step), "Step 1: 1 node from 1-token memory; 0 matched, 0 emitted.");
});

test("the sentence says what the target wanted where the memory erred", () => {
  const words = new Map([[7, { text: " blue", hex: "" }], [2, { text: " red", hex: "" }]]);
  const step = R.decodeStep(rawStep([[-1, "a", 0.9], [0, "r", 0.8]], { i: 11 }));
  const text = R.sentence({ token: (id) => words.get(id) ?? { text: "?", hex: "" } }, step);
  assert.match(text, /^Step 12: 2 nodes from 1-token memory; 1 matched, 2 emitted; /);
  assert.match(text, /the target wanted ‘blue’ where the memory said ‘red’\.$/);
});

test("an adaptive budget says what it decided, a number says nothing", () => {
  const decide = (b) => R.decision(R.decodeStep({ ...rawStep([[-1, "a", 0.9]]), b }));
  assert.equal(decide([7, 1.834, 0.0054, null]), "The budget took 7 nodes: 1.83 tokens expected from a pass of about 5.4 ms.");
  assert.equal(decide([0, 1, 0.003, "does-not-pay"]),
    "The budget took no node, since a larger pass would not have paid for itself: a pass of about 3.0 ms for one token.");
  assert.equal(decide([63, 2.5, null, null]), "");
});

test("a verdict names the first difference, and malformed ones say nothing", () => {
  const { verdict } = load("words.js");
  const word = (id) => ({ text: ` w${id}`, hex: "" });
  assert.equal(verdict(null, word), null);
  assert.equal(verdict({ compared: "many" }, word), null);
  assert.equal(verdict({ compared: 7, first_difference: true }, word), null);
  assert.deepEqual(
    [verdict({ compared: 7, with: "autoregressive", first_difference: null }, word)].map((v) => [v.good, v.text]),
    [[true, "✓ identical 7/7"]]);
  const side = (token, p) => ({ token, top2: [p, -9] });
  const differs = { compared: 7, with: "autoregressive", first_difference: { position: 3, this: side(1, -0.5), reference: side(2, -0.25) } };
  assert.equal(verdict(differs, word).text,
    "≠ first difference at token 4: ‘w1’ at log-probability -0.5000 here, ‘w2’ at log-probability -0.2500 in autoregressive");
  differs.first_difference.this = { token: null, top2: null };
  assert.match(verdict(differs, word).text, /the end here/);
});

test("every source and state on the page has a meaning", () => {
  const { SOURCES, meaning } = load("words.js");
  for (const [name, source] of Object.entries(SOURCES)) {
    const word = name.startsWith("carried") ? "carried" : meaning(name) ? name : source.name;
    assert.ok(meaning(word), name);
  }
  for (const state of ["accepted", "rejected", "unreached", "bonus", "root"]) assert.ok(meaning(state), state);
});
