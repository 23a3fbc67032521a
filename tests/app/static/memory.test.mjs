import assert from "node:assert/strict";
import { test } from "node:test";
import { load, rawStep } from "./load.mjs";

const R = load("words.js", "store.js", "memory.js");

/** A run of one step behind the token 7; row n predicts "row n". Nodes are as in `rawStep`. */
const runOf = (nodes, { template = 0, settings = {}, writes = { 1: [1, []] }, memory = { 1: 3 } } = {}) => {
  const step = { ...R.decodeStep({ ...rawStep(nodes), t: template, w: writes, m: memory }), text: 1 };
  const detail = { rows: ["root", ...nodes.map((_, id) => `row ${id}`)], lookups: new Map() };
  return { about: { request: 2, settings }, steps: [step], detail: () => detail, tokens: [{ token: 7 }] };
};

test("of the rows of a step the accepted one is what a searched tree leaves", () => {
  const run = runOf([[-1, "a", 0.9], [-1, "r", 0.1]]);
  run.steps[0].nodes[1].token = run.steps[0].nodes[0].token;
  assert.equal(R.lookUp(run, [1], 0).entry, "row 0");
  assert.equal(R.lookUp(run, [7], 0).entry, "root");
});

test("where a fixed shape placed the nodes, the last row wins", () => {
  const run = runOf([[-1, "a", 0.9], [-1, "r", 0.1]], { template: 1 });
  run.steps[0].nodes[1].token = run.steps[0].nodes[0].token;
  assert.equal(R.lookUp(run, [1], 0).entry, "row 1");
});

test("keys that a method does not keep are not found", () => {
  const run = runOf([[-1, "a", 0.9]]);
  assert.equal(R.lookUp(run, [7, 1], 0), null);
  assert.equal(R.lookUp(runOf([[-1, "a", 0.9]], { memory: {} }), [1], 0), null);
  assert.equal(R.lookUp(runOf([[-1, "a", 0.9]], { memory: { 1: 3, 2: 3 } }), [7, 1], 0).entry, "row 0");
});

test("a key that was there before is blended, and said to be", () => {
  const known = { settings: { blend: 0.3 }, writes: { 1: [0, [1]] } };
  assert.equal(R.lookUp(runOf([[-1, "a", 0.9]], known), [1], 0).blended, true);
  assert.equal(R.lookUp(runOf([[-1, "a", 0.9]], known), [7], 0).blended, false);
  assert.equal(R.lookUp(runOf([[-1, "a", 0.9]], { ...known, settings: { blend: 0 } }), [1], 0).blended, false);
});
