/* What has arrived of a run, and what of it is being looked at.
 *
 * The server sends one growing value: lists of JSON strings to which it only appends, so an update
 * that never came is repaired by the next one. Everything a view draws is read from here; looking
 * back and forth never asks the server.
 *
 *   cursor     number of the step that is shown, -1 before the first
 *   frontier   how many steps the pace has revealed (all of them, once it has caught up)
 *   following  whether the cursor moves along with the frontier
 */
(function (R) {
  "use strict";

  const STATES = { a: "accepted", r: "rejected", u: "unreached" };
  const SUPPLIERS = {
    1: "1", 2: "2", 3: "3", b: "carried-2", c: "carried-3", s: "suffix", r: "runner-up", "-": "bonus",
  };

  class Run {
    constructor() {
      this.about = {};
      this.first = null;
      this.end = null;
      this.status = "empty";
      this.note = "";
      this.caption = "";
      this.steps = [];
      this.vocabulary = new Map();
      this.tokens = [];
      this.predictions = [];
      this.entries = [];
      this.details = [];
      this._raw = [];
      this._taken = { steps: 0, vocabulary: 0 };
    }

    /** {text, hex} of a token id. */
    token(id) {
      return this.vocabulary.get(id) || { text: `#${id}`, hex: "" };
    }

    get finished() {
      return this.status === "done";
    }

    get running() {
      return this.status === "waiting" || this.status === "running";
    }

    /** Stored predictions, hits and weights of a step, or null while they have not arrived. */
    detail(index) {
      while (this.details.length <= index && this.details.length < this._raw.length)
        this.details.push(this._decodeDetail(JSON.parse(this._raw[this.details.length])));
      return this.details[index] || null;
    }

    _decodeDetail(raw) {
      for (const [id, text, hex] of raw.v) this.learn(id, text, hex);
      this.predictions.push(...raw.p.map(([ids, probs]) => ({ ids, probs: probs.map((p) => p / 1e4) })));
      this.entries.push(...raw.e.map(([prediction, concentration, confidence, request, step]) => ({
        ...this.predictions[prediction],
        concentration: concentration / 1e4, confidence: confidence / 1e4, request, step,
      })));
      const lookups = new Map();
      for (const [row, hits, suffix, runner] of raw.l)
        lookups.set(row - 1, {
          hits: hits.map(([order, carried, entry, specificity, weight]) => ({
            order, carried: !!carried, entry: this.entries[entry], specificity, weight: weight / 1e4,
          })),
          misses: (this.about.settings?.orders || [1, 2, 3]).filter(
            (order) => !hits.some((hit) => hit[0] === order)),
          suffix: suffix && { token: suffix[0], match: suffix[1], share: suffix[2], carried: !!suffix[3] }, runner,
        });
      return { rows: raw.r.map((index) => this.predictions[index]), top2: raw.t, lookups };
    }

    /** Remember how a token is spelled. */
    learn(id, text, hex) {
      if (!this.vocabulary.has(id)) this.vocabulary.set(id, { text, hex: hex || "" });
    }

    /** Take what is new in a value of the server. Returns whether anything was. */
    take(value) {
      const before = [this.steps.length, this.status, this.note, this._raw.length, this._taken.vocabulary];
      for (; this._taken.vocabulary < value.vocabulary.length; this._taken.vocabulary++)
        for (const [id, text, hex] of JSON.parse(value.vocabulary[this._taken.vocabulary]))
          this.learn(id, text, hex);
      if (value.first && !this.first) {
        this.first = JSON.parse(value.first);
        if (this.first.token !== null)
          this.tokens.push({ token: this.first.token, source: "prefill", logprob: this.first.logprob, step: -1, place: 0 });
      }
      for (; this.steps.length < value.steps.length; )
        this._addStep(JSON.parse(value.steps[this.steps.length]));
      this._raw = value.details;
      this.status = value.status;
      this.note = value.note || "";
      this.end = value.end ? JSON.parse(value.end) : null;
      return before.join() !== [this.steps.length, this.status, this.note, this._raw.length, this._taken.vocabulary].join();
    }

    _addStep(raw) {
      const step = R.decodeStep(raw);
      step.text = this.tokens.length;
      this.steps.push(step);
      step.emitted.forEach((e, place) => this.tokens.push({ ...e, step: step.i, place }));
    }
  }

  /** A step from its compact form; see app/encoding.py. */
  R.decodeStep = (raw) => {
    const n = raw.n;
    const nodes = n.t.map((token, id) => ({
      id, token, parent: n.p[id], orders: n.o[id], supplier: SUPPLIERS[n.s[id]],
      fused: n.f[id] / 1e3, path: n.a[id] / 1e4, keyLength: +n.k[id],
      weights: [n.w[3 * id] / 1e3, n.w[3 * id + 1] / 1e3, n.w[3 * id + 2] / 1e3],
      state: STATES[n.x[id]], depth: 0, children: [],
    }));
    for (const node of nodes) {
      node.depth = node.parent < 0 ? 1 : nodes[node.parent].depth + 1;
      if (node.parent >= 0) nodes[node.parent].children.push(node.id);
    }
    const emitted = raw.e.map(([token, source, logprob, second]) => ({ token, source, logprob, second }));
    const accepted = nodes.filter((node) => node.state === "accepted");
    const last = accepted.length ? accepted.at(-1).id : -1;
    const bonus = emitted.find((e) => e.source === "bonus");
    let place = 0;
    for (const node of accepted) node.place = place++;
    return {
      i: raw.i, position: raw.q, root: raw.r, before: raw.c, nodes, emitted,
      accepted: accepted.map((node) => node.id),
      roots: nodes.filter((node) => node.parent < 0).map((node) => node.id),
      bonus: bonus ? { token: bonus.token, parent: last, place: emitted.length - 1, logprob: bonus.logprob } : null,
      choice: n.y,
      budget: { k: raw.b[0], expected: raw.b[1], seconds: raw.b[2], reason: raw.b[3] },
      seconds: { draft: raw.s[0] / 1e6, verify: raw.s[1] / 1e6, commit: raw.s[2] / 1e6, observe: raw.s[3] / 1e6 },
      memory: raw.m, writes: raw.w, hits: raw.h, template: !!raw.t,
    };
  };

  /** Whether the target wanted something else where a guess stood. */
  R.erred = (step) =>
    !!step.bonus && step.nodes.some((n) => n.state === "rejected" && n.parent === step.bonus.parent);

  /** The tokens from the one before the root to a node, oldest first. */
  R.pathTo = (step, id) => {
    const path = [];
    for (let node = id; node >= 0; node = step.nodes[node].parent) path.push(step.nodes[node].token);
    return [...step.before, step.root, ...path.reverse()];
  };

  class Store {
    constructor() {
      this.run = new Run();
      this.serial = -1;
      this.id = null;
      this.cursor = -1;
      this.frontier = 0;
      this.following = false;
      this.selected = null;
      this.hover = null;
      this._listeners = new Set();
      this._pending = null;
    }

    /** Call `listener(store, changes)` once a frame in which something changed. */
    subscribe(listener) {
      this._listeners.add(listener);
      return () => this._listeners.delete(listener);
    }

    /** Note a change: run, grow, cursor, select, hover, play. */
    changed(kind) {
      if (!this._pending) {
        this._pending = new Set();
        const frame = globalThis.requestAnimationFrame || ((f) => setTimeout(f, 0));
        // A hidden tab gets no frames; it still has to take in what arrives.
        if (globalThis.document && document.hidden) setTimeout(() => this.flush(), 50);
        else frame(() => this.flush());
      }
      this._pending.add(kind);
    }

    flush() {
      const changes = this._pending;
      this._pending = null;
      if (changes) for (const listener of this._listeners) listener(this, changes);
    }

    /** Take a value of the server; values of runs that are over are left aside. */
    apply(value) {
      if (!value || !value.steps || value.serial < this.serial) return;
      if (value.serial !== this.serial || value.run !== this.id) this._open(value);
      if (value.about && !this.run.about.method) this.run.about = JSON.parse(value.about);
      if (this.run.take(value)) this.changed("grow");
      if (value.show !== null && value.show !== undefined && this._shown !== value.show) {
        if (value.show < this.run.steps.length) {
          this._shown = value.show;
          this.frontier = this.run.steps.length;
          this.go(value.show);
        }
      }
    }

    _open(value) {
      this.run = new Run();
      this.run.caption = value.caption || "";
      this.serial = value.serial;
      this.id = value.run;
      this.cursor = -1;
      this.frontier = 0;
      this.following = true;
      this.selected = null;
      this.hover = null;
      this._shown = null;
      this.changed("run");
    }

    get step() {
      return this.run.steps[this.cursor] || null;
    }

    /** Tokens of the answer that the pace has revealed. */
    get revealed() {
      if (this.frontier >= this.run.steps.length) return this.run.tokens.length;
      return this.run.steps[this.frontier].text;
    }

    /** Look at a step. Looking back never stops the run; it only stops following it. */
    go(index, select = null) {
      const last = this.frontier - 1;
      const next = Math.max(Math.min(index, last), last < 0 ? -1 : 0);
      this.following = false;
      if (next !== this.cursor) this.changed("cursor");
      this.cursor = next;
      this.select(select);
      this.changed("play");
    }

    /** Look at the next revealed step with a rejected guess, from the beginning after the last. */
    goToRejected() {
      const steps = this.run.steps.slice(0, this.frontier);
      const step = steps.find((s) => s.i > this.cursor && R.erred(s)) || steps.find(R.erred);
      if (step) this.go(step.i);
    }

    /** Follow the run again. */
    follow() {
      this.following = true;
      this.cursor = this.frontier - 1;
      this.select(null);
      this.changed("cursor");
      this.changed("play");
    }

    /** Reveal all that has arrived, and follow. */
    skip() {
      this.frontier = this.run.steps.length;
      this.changed("grow");
      this.follow();
    }

    /** Reveal steps up to this many. */
    reveal(count) {
      const next = Math.min(count, this.run.steps.length);
      if (next === this.frontier) return;
      this.frontier = next;
      if (this.following) {
        this.cursor = next - 1;
        this.selected = null;
        this.changed("cursor");
      }
      this.changed("grow");
    }

    /** Select a node of the shown step: its number, -1 for the root, "bonus", or null. */
    select(node) {
      if (this.selected !== node) this.changed("select");
      this.selected = node;
    }

    /** Point at a token of the answer by its step and place in it, or at nothing. */
    point(target) {
      const same = (a, b) => a === b || (a && b && a.step === b.step && a.place === b.place && a.node === b.node);
      if (!same(this.hover, target)) {
        this.hover = target;
        this.changed("hover");
      }
    }
  }

  R.Run = Run;
  R.Store = Store;
})((globalThis.Recap = globalThis.Recap || {}));
