/* Everything about one node of the shown step, and the same for all of them as a table. */
(function (R) {
  "use strict";
  const { h } = R;

  R.InspectorView = class {
    constructor(store) {
      this.store = store;
      this.root = h("div", { class: "inspector", "aria-label": "Node" });
      this.table = h("details", { class: "table", ontoggle: () => this._fillTable() },
        h("summary", {}, "The same as a table"));
      store.subscribe((_, changes) => this._update(changes));
    }

    _update(changes) {
      if (["run", "cursor", "select"].some((kind) => changes.has(kind)) ||
          (changes.has("grow") && this.incomplete)) {
        this.draw();
        if (!changes.has("select")) this._fillTable();
      }
    }

    draw() {
      const { run, step, selected } = this.store;
      this.incomplete = false;
      if (!step) {
        this.incomplete = true;
        this.root.replaceChildren(h("p", { class: "quiet" }, run.running ? "The first step is on its way." : "No step to look into."));
        return;
      }
      if (selected === null) {
        this.root.replaceChildren(this._overview(run, step));
        return;
      }
      const detail = run.detail(step.i);
      this.incomplete = !detail;
      if (selected === "bonus" && step.bonus) R.put(this.root, this._bonus(run, step, detail));
      else if (selected === -1) R.put(this.root, this._rootNode(run, step, detail));
      else if (step.nodes[selected]) R.put(this.root, this._node(run, step, step.nodes[selected], detail));
      else this.root.replaceChildren(this._overview(run, step));
    }

    _overview(run, step) {
      const budget = step.budget;
      const rows = [
        ["Nodes", `${step.nodes.length}`],
        ["Accepted length", `${step.emitted.length}`],
        ["Expected", budget.expected === null ? "–" : `${R.fixed(budget.expected)} tokens`],
        ["Draft", R.time(step.seconds.draft)],
        ["Verify", R.time(step.seconds.verify)],
      ];
      return h("div", { class: "overview" },
        h("p", { class: "quiet" }, step.nodes.length ? "Choose a node to see where it came from." : "This step has only its root: the last emitted token."),
        facts(rows),
        R.decision(step) ? h("p", { class: "quiet" }, R.decision(step)) : null);
    }

    _node(run, step, node, detail) {
      const source = R.source(node.supplier);
      const title = h("h3", {}, word(run, node.token), h("span", { class: `key ${source.css}` }, h("span", { class: "chip" }, source.glyph), source.name), h("span", { class: `badge ${node.state}` }, node.state));
      const parts = [title, facts([
        ["Matched key", node.keyLength ? words(run, R.pathTo(step, node.parent).slice(-node.keyLength)) : "none"],
        ["Fused score", R.share(node.fused)],
        ["Path score", node.path >= 0.01 ? R.share(node.path) : node.path.toExponential(1)],
        ["Popped", `${ordinal(node.id + 1)} of ${step.nodes.length}`],
        ["Depth", String(node.depth)],
      ])];
      if (!detail) return [...parts, h("p", { class: "quiet" }, "Stored predictions are on their way.")];
      const lookup = detail.lookups.get(node.parent);
      if (lookup) parts.push(...this._lookup(run, lookup, node.token));
      parts.push(h("div", { class: "two" },
        this._target(run, "The target at its parent", detail.rows[node.parent + 1], node.token,
          node.state === "unreached" ? "Its parent was not accepted, so this row did not count."
            : node.state === "accepted" ? "It said this token, so the node was accepted."
              : "It wanted another token, so the node was rejected."),
        this._target(run, "The target at this node", detail.rows[node.id + 1], null, "Stored as the prediction of this row.")));
      return parts;
    }

    _bonus(run, step, detail) {
      const parts = [
        h("h3", {}, word(run, step.bonus.token), h("span", { class: "key bo" }, h("span", { class: "chip" }, "★"), "bonus"), h("span", { class: "badge bonus" }, "what the target wanted")),
        facts([
          ["Probability", R.percent(Math.exp(step.bonus.logprob))],
          ["Behind", words(run, R.pathTo(step, step.bonus.parent).slice(-3))],
        ]),
      ];
      if (!detail) return [...parts, h("p", { class: "quiet" }, "Stored predictions are on their way.")];
      const lookup = detail.lookups.get(step.bonus.parent);
      if (lookup) parts.push(...this._lookup(run, lookup, step.bonus.token, "here"));
      parts.push(this._target(run, "The target here", detail.rows[step.bonus.parent + 1], step.bonus.token, "Its first choice is always emitted."));
      return parts;
    }

    _rootNode(run, step, detail) {
      const parts = [
        h("h3", {}, word(run, step.root), h("span", { class: "key bo" }, "root: the last emitted token")),
      ];
      if (!detail) return parts;
      const lookup = detail.lookups.get(-1);
      if (lookup) parts.push(...this._lookup(run, lookup, null, "here"));
      parts.push(this._target(run, "The target here", detail.rows[0], null, ""));
      return parts;
    }

    /** What the memory held under the keys of one row, and how much each order weighed. */
    _lookup(run, lookup, token, where = "at its parent") {
      const parts = [];
      if (lookup.hits.length) {
        parts.push(h("h4", {}, `What the memory said ${where}`));
        const bar = h("div", { class: "stack", role: "img", "aria-label": lookup.hits.map((hit) => `${hit.order}-token weight ${R.share(hit.weight)}`).join(", ") });
        for (const hit of lookup.hits)
          bar.append(h("span", { class: `part ${hitSource(hit).css}`, style: `flex-grow:${Math.max(hit.weight, 0.001)}`, title: `weight ${R.share(hit.weight)}` },
            hit.weight > 0.09 ? R.share(hit.weight) : ""));
        parts.push(bar);
        const hits = h("div", { class: "hits" });
        for (const hit of lookup.hits) hits.append(this._hit(run, hit, token));
        parts.push(hits);
      }
      if (lookup.hits.length && lookup.misses.length)
        parts.push(h("p", { class: "quiet" }, `Nothing under the ${lookup.misses.map((o) => `${o}-token`).join(" and ")} key.`));
      if (lookup.suffix)
        parts.push(h("p", {}, chip("suffix"), " The text’s last ", R.count(lookup.suffix.match, "token"), ` occurred before${lookup.suffix.carried ? " in an earlier request" : ""}; then came `, word(run, lookup.suffix.token), `, share ${R.share(lookup.suffix.share)}.`));
      if (lookup.runner)
        parts.push(h("p", {}, chip("runner-up"), " The row that chose the root also considered ", words(run, lookup.runner.ids.slice(0, 4)), `, share ${R.share(lookup.runner.share)}.`));
      return parts;
    }

    _hit(run, hit, token) {
      const { entry } = hit;
      const source = hitSource(hit);
      const { request } = run.about;
      const own = !request || entry.request === request;
      const when = entry.step < 0 ? "written by the prompt" : `written in step ${entry.step + 1}`;
      // What this run wrote itself can be gone to.
      const origin = own && entry.step >= 0
        ? h("button", { type: "button", class: "link", title: "Go to that step", onclick: () => this.store.go(entry.step) }, when)
        : h("span", { class: "quiet" }, own ? when : `${when} of request ${entry.request}`);
      return h("div", { class: `hit ${source.css}` },
        h("div", { class: "hit-head" }, h("span", { class: "chip" }, source.glyph), h("span", {}, source.name), origin),
        predictions(run, entry, token),
        facts([
          ["specificity", String(hit.specificity)],
          ["concentration", R.fixed(entry.concentration)],
          ["confidence", R.fixed(entry.confidence)],
          ["weight", R.fixed(hit.weight)],
        ]));
    }

    _target(run, title, row, token, note) {
      if (!row) return null;
      return h("div", { class: "target-said" }, h("h4", {}, title), predictions(run, row, token),
        note ? h("p", { class: "quiet" }, note) : null);
    }

    _fillTable() {
      const { run, step } = this.store;
      const old = this.table.querySelector(".table-scroll");
      if (old) old.remove();
      if (!this.table.open || !step) return;
      const head = ["#", "Token", "Parent", "Depth", "State", "Source", "Matched key", "Fused", "Path", "1", "2", "3", "Target said"];
      const body = step.nodes.map((node) => h("tr", { onclick: () => this.store.select(node.id) },
        [node.id + 1, word(run, node.token), node.parent < 0 ? "root" : node.parent + 1, node.depth, node.state,
          R.source(node.supplier).name, node.keyLength ? words(run, R.pathTo(step, node.parent).slice(-node.keyLength)) : "",
          R.fixed(node.fused, 3), R.fixed(node.path, 4), ...node.weights.map((w) => (w ? R.fixed(w, 3) : "")),
          step.choice ? word(run, step.choice[node.parent + 1]) : ""].map((cell) => h("td", {}, cell))));
      this.table.append(h("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Nodes of the step" },
        h("table", {}, h("caption", {}, R.sentence(run, step)), h("thead", {}, h("tr", {}, head.map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, body))));
    }
  };

  const hitSource = (hit) => R.source(hit.carried ? `carried-${hit.order}` : String(hit.order));
  const chip = (name) => h("span", { class: R.source(name).css }, h("span", { class: "chip" }, R.source(name).glyph));
  const word = (run, token) => h("span", { class: "mono word" }, R.visible(run.token(token)));
  const words = (run, tokens) => tokens.map((token) => [word(run, token), " "]);
  const facts = (rows) => h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", { title: R.meaning(name) }, name), h("dd", {}, value))));
  const ordinal = (n) => `${n}${n % 100 > 10 && n % 100 < 14 ? "th" : ["th", "st", "nd", "rd"][n % 10] || "th"}`;

  /** Top predictions with a bar each; the token in question stands out. */
  R.predictions = predictions;
  R.word = word;
  function predictions(run, entry, token) {
    const rows = entry.ids.map((id, k) => h("li", { class: id === token ? "this" : null },
      word(run, id),
      h("span", { class: "meter" }, h("span", { style: `width:${Math.max(1, 100 * entry.probs[k]).toFixed(1)}%` })),
      h("span", { class: "tabular" }, R.share(Math.max(entry.probs[k], 1e-9)))));
    return h("ol", { class: "predictions" }, rows.slice(0, 8));
  }
})((globalThis.Recap = globalThis.Recap || {}));
