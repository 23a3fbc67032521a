import assert from "node:assert/strict";
import { test } from "node:test";
import { load, randomTree, rawStep } from "./load.mjs";

const R = load("words.js", "store.js", "tree_layout.js");
const label = (token) => `token${token}`;
const layout = (raw, options = {}) => R.layoutTree(R.decodeStep(raw), { label, ...options });

test("no two boxes overlap, whatever the tree", () => {
  for (let seed = 1; seed <= 60; seed++) {
    const { boxes } = layout(randomTree(4 + 2 * seed, seed), { level: 0 });
    for (const a of boxes)
      for (const b of boxes)
        if (a !== b)
          assert.ok(
            a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y,
            `seed ${seed}: ${a.id} and ${b.id} overlap`,
          );
  }
});

test("the accepted path and the bonus token are one straight line on top", () => {
  for (let seed = 1; seed <= 30; seed++) {
    const step = R.decodeStep(randomTree(63, seed));
    const { by } = R.layoutTree(step, { label });
    const line = [-1, ...step.accepted, "bonus"].map((id) => by.get(id));
    for (const [place, box] of line.entries()) {
      assert.equal(box.y, line[0].y);
      assert.equal(box.depth, place);
    }
  }
});

test("without a bonus token, what was rejected stands below the line", () => {
  const step = R.decodeStep(rawStep([[-1, "a", 0.9], [0, "r", 0.5], [1, "u", 0.5]], { emitted: [[1, "1", -0.1, -3]] }));
  const { by } = R.layoutTree(step, { label });
  assert.equal(by.get(0).y, by.get(-1).y);
  assert.ok(by.get(1).y > by.get(0).y);
  assert.equal(by.get(2).y, by.get(1).y);
});

test("edges go right, and a vertical never passes through a box", () => {
  for (let seed = 1; seed <= 30; seed++) {
    const { boxes, edges } = layout(randomTree(100, seed), { level: 0 });
    for (const { from, to } of edges) {
      assert.ok(from.x + from.width < to.x);
      const bend = from.x + from.width + 10;
      for (const box of boxes) assert.ok(bend < box.x || bend > box.x + box.width);
    }
  }
});

test("siblings stand below each other in score order", () => {
  const { by } = layout(rawStep([[-1, "r", 0.2], [-1, "a", 0.1], [-1, "r", 0.6], [-1, "r", 0.4]]));
  assert.ok(by.get(1).y < by.get(2).y);
  assert.ok(by.get(2).y < by.get(3).y);
  assert.ok(by.get(3).y < by.get(0).y);
});

test("folding counts what it hides, and opening a fold shows it", () => {
  const raw = randomTree(120, 5);
  const folded = layout(raw, { rows: 10 });
  assert.ok(folded.level > 0);
  const count = (l) => l.boxes.reduce((sum, box) => sum + (box.count ?? (typeof box.id === "number" && box.id >= 0 ? 1 : 0)), 0);
  assert.equal(count(folded), 120);
  const fold = folded.boxes.find((box) => box.kind === "fold");
  const opened = layout(raw, { level: folded.level, open: new Set([fold.fold]) });
  assert.ok(!opened.by.has(fold.id));
  assert.equal(count(opened), 120);
  assert.equal(layout(raw, { level: 0 }).boxes.length, 122);
});

test("every box can be reached with the arrow keys", () => {
  const all = layout(randomTree(63, 3));
  const seen = new Set([-1]);
  const queue = [-1];
  while (queue.length) {
    const id = queue.pop();
    for (const key of ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"]) {
      const next = R.neighbour(all, id, key);
      if (next && !seen.has(next.id)) {
        seen.add(next.id);
        queue.push(next.id);
      }
    }
  }
  assert.equal(seen.size, all.boxes.length);
});

test("wide scripts take two columns, and long labels end in an ellipsis", () => {
  assert.equal(R.columns("ab"), 2);
  assert.equal(R.columns("日本"), 4);
  assert.equal(R.clip("abcdefgh", 4), "abc…");
  assert.equal(R.visible({ text: " a\n", hex: "" }), "·a⏎");
  assert.equal(R.visible({ text: "\ufffd", hex: "e282" }), "⟨E2⟩⟨82⟩");
});
