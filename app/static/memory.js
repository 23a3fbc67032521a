/* The memory at the shown step: sizes, hits, what was overwritten, and any key that one types. */
(function (R) {
  "use strict";
  const { h } = R;
  /** Keys of an order that are listed as overwritten; the rest is counted. */
  const SHOWN_KEYS = 40;

  /** Tokens of a typed text: from the left the longest word that the run knows. */
  R.tokenize = (run, text) => {
    const ids = new Map();
    let longest = 1;
    for (const [id, entry] of run.vocabulary) {
      if (entry.hex || !entry.text || ids.has(entry.text)) continue;
      ids.set(entry.text, id);
      longest = Math.max(longest, entry.text.length);
    }
    const tokens = [];
    for (let at = 0; at < text.length; ) {
      let length = Math.min(longest, text.length - at);
      while (length && !ids.has(text.slice(at, at + length))) length--;
      if (!length) return null;
      tokens.push(ids.get(text.slice(at, at + length)));
      at += length;
    }
    return tokens;
  };

  /**
   * What the memory held under a key after a step, as far as this run wrote or read it: the latest
   * row written under the key, else the latest hit on an entry that an earlier request left.
   * Returns {entry, step, request, blended} or null; request is null for what this run wrote, and
   * `blended` says that the memory holds a mean of that row and what was there before.
   */
  R.lookUp = (run, key, upto) => {
    const { request: own, settings } = run.about;
    const order = key.length;
    for (let index = upto; index >= 0; index--) {
      const step = run.steps[index];
      const detail = run.detail(index);
      if (!detail) continue;
      if (!(order in step.memory)) return null; // the method keeps no such keys
      for (const row of writing(step).reverse())
        if (ends(run, step, row, key)) {
          const blended = order === 1 && !step.template && settings?.blend > 0 && (step.writes[order]?.[1] ?? []).some((r) => ends(run, step, r - 1, key));
          return { entry: detail.rows[row + 1], step: index, request: null, blended };
        }
      for (const [row, lookup] of detail.lookups)
        if (ends(run, step, row, key))
          for (const hit of lookup.hits)
            if (hit.order === order && (hit.carried || hit.entry.request !== own))
              return { entry: hit.entry, step: hit.entry.step, request: hit.entry.request };
    }
    return null;
  };

  /** A step's rows as they are written: in a tree that was searched the accepted ones last, so that they win. */
  function writing(step) {
    const ids = step.nodes.map((n) => n.id);
    if (step.template) return [-1, ...ids];
    return [...ids.filter((id) => step.nodes[id].state !== "accepted"), -1, ...step.accepted];
  }

  function ends(run, step, row, key) {
    let at = key.length - 1;
    for (let node = row; node >= 0 && at >= 0; node = step.nodes[node].parent)
      if (step.nodes[node].token !== key[at--]) return false;
    for (let place = step.text - 1; at >= 0; place--, at--)
      if (place < 0 || run.tokens[place].token !== key[at]) return false;
    return true;
  }

  /** Bytes that one entry takes, in any order, by a memory's sizes; null where it is empty. */
  R.bytesEach = (sizes) => {
    for (const [name, count] of Object.entries((sizes && sizes.entries) || {}))
      if (count && sizes.bytes && sizes.bytes[name]) return sizes.bytes[name] / count;
    return null;
  };

  R.MemoryView = class {
    /** `send({tokens})` asks the session's memory; without it only what the run saw is known. */
    constructor(store, send = null) {
      this.store = store;
      this.send = send;
      this.kept = new Map();
      this.table = h("div", { class: "scroll" });
      this.words = h("p", { class: "quiet" });
      this.changed = h("div", { class: "overwritten" });
      this.earlier = h("p", {});
      this.input = h("input", { type: "text", "aria-label": "Key to look up", placeholder: " of the picture", spellcheck: "false", oninput: () => this._typed() });
      this.found = h("div", { class: "hits" });
      this.said = h("p", { class: "sr-only", role: "status" });
      this.root = h("div", { class: "recap-tab memory" }, this.words, this.table, this.changed, this.earlier,
        h("label", { class: "lookup" }, "Look a key up: ", this.input,
          h("span", { class: "quiet" }, "its last one, two and three tokens; most words begin with their space")),
        this.found, this.said);
      store.subscribe((_, changes) => {
        if (["run", "grow", "cursor"].some((kind) => changes.has(kind))) this._later();
      });
    }

    /** Read rather than watched: a few times a second is enough, and not while it is hidden. */
    _later() {
      if (this.timer) return;
      this.timer = setTimeout(() => { this.timer = null; if (this.root.offsetParent) this.draw(); else this._wait(); }, 200);
    }

    _wait() {
      if (this.watcher || !globalThis.IntersectionObserver) return;
      this.watcher = new IntersectionObserver((seen) => { if (seen.some((s) => s.isIntersecting)) this.draw(); });
      this.watcher.observe(this.root);
    }

    draw() {
      const { run, step, cursor } = this.store;
      const names = step ? Object.keys(step.memory) : [];
      this.words.textContent = !step ? "The memory shows with the first step."
        : !names.length ? "This method keeps no memory."
          : `After step ${cursor + 1}; hits are counted from step 1. ${this._lifetime(run)}`;
      R.put(this.table, names.length ? this._table(run, step, cursor, names) : null);
      const details = this.changed.querySelector("details");
      if (details) this.open = details.open;
      R.put(this.changed, names.length ? this._overwritten(run, step) : null);
      this.earlier.textContent = names.length ? this._origin(run, cursor) : "";
      this._find();
    }

    _lifetime(run) {
      return run.about.settings?.persist === false ? "All of it lives for this request."
        : "The 1-token memory persists across requests, and so do carried entries; the others live for one.";
    }

    _table(run, step, cursor, names) {
      const upto = run.steps.slice(0, cursor + 1);
      const { start } = run.about;
      const each = R.bytesEach(run.end && run.end.memory && run.end.memory.end) || R.bytesEach(start);
      const rows = names.map((name) => {
        const carried = name.startsWith("carried");
        const order = name.replace("carried-", "");
        const source = R.source(name);
        const sum = (place) => upto.reduce((total, st) => total + (st.hits[order] || [0, 0])[place], 0);
        const [hits, asked] = [sum(0), sum(1)];
        const writes = step.writes[order] || [0, []];
        const size = each ? R.bytes(each * step.memory[name]) : "–";
        return h("tr", {}, [
          h("span", { class: `key ${source.css}` }, h("span", { class: "chip" }, source.glyph), source.name),
          step.memory[name], start && start.entries ? start.entries[name] ?? 0 : "–", size,
          carried ? "–" : `${hits} / ${asked}`, carried || !asked ? "–" : R.percent(hits / asked),
          carried ? "–" : writes[0], carried ? "–" : writes[1].length,
        ].map((cell) => h("td", {}, cell)));
      });
      const head = ["Memory", "Entries", "At the start", "Bytes", "Hits / lookups", "Hit rate", "New this step", "Overwritten this step"];
      return h("table", {}, h("thead", {}, h("tr", {}, head.map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, rows));
    }

    /** The keys whose predictions the shown step replaced, or blended with, by order. */
    _overwritten(run, step) {
      const orders = Object.keys(step.writes).filter((order) => step.writes[order][1].length);
      if (!orders.length) return null;
      return h("details", this.open ? { open: "" } : {}, h("summary", {}, "What was overwritten this step"),
        orders.map((order) => {
          const source = R.source(order);
          const keys = step.writes[order][1].map((row) => R.pathTo(step, row - 1).slice(-order));
          return h("p", { class: source.css }, h("span", { class: "chip" }, source.glyph),
            keys.slice(0, SHOWN_KEYS).map((key) => h("span", { class: "key-words" }, key.map((token) => [R.word(run, token), " "]))),
            keys.length > SHOWN_KEYS ? h("span", { class: "quiet" }, `and ${keys.length - SHOWN_KEYS} more`) : null);
        }));
    }

    /** How much of what was hit came from earlier requests. */
    _origin(run, cursor) {
      const { request } = run.about;
      if (!request) return "";
      let own = 0;
      const earlier = new Map();
      for (let index = 0; index <= cursor; index++) {
        const detail = run.detail(index);
        if (!detail) return "Details are on their way.";
        for (const lookup of detail.lookups.values())
          for (const hit of lookup.hits)
            if (hit.entry.request === request) own++;
            else earlier.set(hit.entry.request, (earlier.get(hit.entry.request) || 0) + 1);
      }
      const count = [...earlier.values()].reduce((a, b) => a + b, 0);
      if (!count) return `All ${own} hits so far are on entries that this request wrote.`;
      const which = [...earlier].sort((a, b) => b[1] - a[1]).slice(0, 6).map(([number, n]) => `${n} by request ${number}`).join(", ");
      return `${count} of ${own + count} hits so far are on entries that earlier requests left: ${which}. This is request ${request}.`;
    }

    /** Show what the run knows at once, and ask the session's memory when typing pauses. */
    _typed() {
      this._find();
      this._say();
      clearTimeout(this.asking);
      const tokens = this.send && this.input.value ? R.tokenize(this.store.run, this.input.value) : null;
      if (tokens) this.asking = setTimeout(() => this.send({ tokens: tokens.slice(-3) }), 300);
    }

    /** What the session's memory holds, from the server. */
    answer(value) {
      this.kept.clear();
      for (const found of (value && value.found) || []) {
        for (const [id, text] of found.words) this.store.run.learn(id, text);
        this.kept.set(found.key.join(), { entry: found, step: found.step, request: found.request });
      }
      this._find();
      this._say();
    }

    /** For screen readers: said when something was asked, not whenever a run moves on. */
    _say() {
      const found = this.found.querySelectorAll(".predictions").length;
      this.said.textContent = this.input.value ? `Found under ${R.count(found, "key")}.` : "";
    }

    _find() {
      const { run, cursor } = this.store;
      const text = this.input.value;
      if (!text || cursor < 0) return R.put(this.found);
      const tokens = R.tokenize(run, text);
      if (!tokens) return R.put(this.found, h("p", { class: "quiet" }, "This run has not seen a word of it."));
      const results = [];
      for (let order = 1; order <= Math.min(3, tokens.length); order++) {
        const key = tokens.slice(-order);
        const kept = this.kept.get(key.join());
        const earlier = kept && kept.request !== run.about.request ? kept : null;
        const found = R.lookUp(run, key, cursor) || earlier;
        const source = R.source(String(order));
        results.push(h("div", { class: `hit ${source.css}` },
          h("div", { class: "hit-head" }, h("span", { class: "chip" }, source.glyph), key.map((token) => [R.word(run, token), " "]),
            h("span", { class: "quiet" }, !found ? "" : found.request === null ? `written in step ${found.step + 1}${found.blended ? ", before blending with what was there" : ""}` : `left by request ${found.request}`)),
          found ? R.predictions(run, found.entry, null) : h("p", { class: "quiet" }, "Nothing is kept under this key.")));
      }
      R.put(this.found, results);
    }
  };
})((globalThis.Recap = globalThis.Recap || {}));
