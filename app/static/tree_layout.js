/* Where the nodes of a candidate tree go. No drawing here: plain numbers in, plain numbers out.
 *
 * Left to right by depth. The accepted path is the straight top line, and the bonus token ends it.
 * Below a node's first child come its siblings in score order, each subtree as high up as the
 * columns it needs are free. A subtree keeps its shape while it moves, so nothing ever overlaps,
 * and no edge crosses another.
 */
(function (R) {
  "use strict";

  const M = { unit: 7.25, tab: 14, pad: 6, height: 22, pitch: 27, gap: 24, score: 24, chip: 36, margin: 10 };
  R.TREE_METRICS = M;
  const LABEL = 12;

  /** Nodes hidden below each parent: Map(parent -> [ids of hidden children]). */
  function folds(step, level, open) {
    const hidden = new Map();
    if (!level) return hidden;
    for (const parent of [-1, ...step.nodes.map((n) => n.id)]) {
      if (open.has(parent)) continue;
      const children = ordered(step, parent).filter((c) => step.nodes[c].state !== "accepted");
      const outside = parent >= 0 && step.nodes[parent].state !== "accepted";
      // 1: beside the path keep each branch's best line. 2: keep only where branches begin.
      // 3: of many beginnings keep the first three.
      let keep = Infinity;
      if (outside) keep = level >= 2 ? 0 : 1;
      else if (level >= 3) keep = 3;
      if (children.length > keep) hidden.set(parent, children.slice(keep));
    }
    return hidden;
  }

  function ordered(step, parent) {
    const children = parent < 0 ? step.roots : step.nodes[parent].children;
    const rank = (id) => (step.nodes[id].state === "accepted" ? 1 : 0);
    return [...children].sort(
      (a, b) => rank(b) - rank(a) || step.nodes[b].fused - step.nodes[a].fused || a - b,
    );
  }

  const size = (step, id) => 1 + step.nodes[id].children.reduce((sum, c) => sum + size(step, c), 0);

  /** Boxes below one parent with their rows, relative to the parent's row. */
  function place(step, id, depth, hidden) {
    const boxes = [{ id, depth, row: 0 }];
    const floor = new Map([[depth, 1]]); // first free row by column
    const add = (part, first) => {
      let base = first ? 0 : 1;
      for (const box of part.boxes) base = Math.max(base, (floor.get(box.depth) || 0) - box.row);
      for (const box of part.boxes) {
        boxes.push({ ...box, row: box.row + base });
        floor.set(box.depth, Math.max(floor.get(box.depth) || 0, box.row + base + 1));
      }
    };
    const bonus = step.bonus && step.bonus.parent === id;
    const accepted = (node) => node < 0 || step.nodes[node].state === "accepted";
    // The top line is the accepted path's alone: what was rejected behind its end stands below it.
    let first = true;
    if (bonus) {
      add({ boxes: [{ id: "bonus", depth: depth + 1, row: 0 }] }, true);
      first = false;
    }
    const gone = hidden.get(id) || [];
    for (const child of ordered(step, id)) {
      if (gone.includes(child)) continue;
      add(place(step, child, depth + 1, hidden), first && (accepted(child) || !accepted(id)));
      first = false;
    }
    if (gone.length) {
      const count = gone.reduce((sum, child) => sum + size(step, child), 0);
      add({ boxes: [{ id: `fold${id}`, fold: id, count, depth: depth + 1, row: 0 }] }, first && !accepted(id));
    }
    return { boxes };
  }

  const rowsOf = (boxes) => 1 + Math.max(...boxes.map((box) => box.row));

  /**
   * Lay out a step's tree.
   *
   * `label(token)` is a token's text; `rows` the most rows before branches fold; `level` forces a
   * fold level (0: nothing is folded); `open` holds parents whose fold was opened.
   * Returns boxes, edges, width, height, and the fold level that was chosen.
   */
  R.layoutTree = (step, { label, rows = 15, level = null, open = new Set() }) => {
    let chosen = level === null ? 0 : level;
    let boxes = place(step, -1, 0, folds(step, chosen, open)).boxes;
    while (level === null && chosen < 3 && rowsOf(boxes) > rows)
      boxes = place(step, -1, 0, folds(step, ++chosen, open)).boxes;

    const columns = [];
    for (const box of boxes) {
      if (box.fold !== undefined) {
        box.kind = "fold";
        box.label = `+${box.count}`;
        box.width = M.chip;
      } else {
        const node = box.id === -1 ? { token: step.root, state: "root" }
          : box.id === "bonus" ? { ...step.bonus, state: "bonus" } : step.nodes[box.id];
        box.kind = node.state;
        box.token = node.token;
        box.node = node;
        box.label = R.clip(label(node.token), LABEL);
        box.scored = node.state === "accepted" || node.state === "rejected";
        box.width = 2 * M.pad + M.unit * Math.max(2, R.columns(box.label)) +
          (box.scored ? M.score : 0) + (box.kind === "root" || box.kind === "bonus" ? 6 : M.tab);
      }
      columns[box.depth] = Math.max(columns[box.depth] || 0, box.width);
    }
    let x = M.margin;
    const left = columns.map((width) => {
      const here = x;
      x += width + M.gap;
      return here;
    });
    const by = new Map();
    for (const box of boxes) {
      box.x = left[box.depth];
      box.y = M.margin + box.row * M.pitch;
      box.height = M.height;
      // On the line every column is filled, so that it reads as one line.
      if (box.kind !== "fold") box.width = columns[box.depth];
      by.set(box.id, box);
    }
    const edges = [];
    for (const box of boxes) {
      if (box.id === -1) continue;
      const parent = by.get(box.fold !== undefined ? box.fold : box.node.parent);
      edges.push({ from: parent, to: box, score: box.kind === "fold" ? 0 : box.node.fused ?? 1 });
    }
    return {
      boxes, edges, by, level: chosen,
      width: x - M.gap + M.margin,
      height: 2 * M.margin + (rowsOf(boxes) - 1) * M.pitch + M.height,
    };
  };

  /** The box to go to with an arrow key, or null. */
  R.neighbour = (layout, id, key) => {
    const here = layout.by.get(id);
    if (!here) return layout.by.get(-1);
    const all = layout.boxes.filter((box) => box !== here);
    if (key === "Home") return layout.by.get(-1);
    if (key === "End") return layout.by.get("bonus") || all.filter((b) => b.row === 0).at(-1) || null;
    if (key === "ArrowLeft") return (layout.edges.find((e) => e.to === here) || {}).from || null;
    if (key === "ArrowRight") {
      const children = layout.edges.filter((e) => e.from === here).map((e) => e.to);
      return children.sort((a, b) => a.row - b.row)[0] || null;
    }
    const column = all.filter((box) => box.depth === here.depth).sort((a, b) => a.row - b.row);
    if (key === "ArrowDown") return column.find((box) => box.row > here.row) || null;
    if (key === "ArrowUp") return column.filter((box) => box.row < here.row).at(-1) || null;
    return null;
  };
})((globalThis.Recap = globalThis.Recap || {}));
