/* Numbers of the run as far as it is revealed, each with its formula. */
(function (R) {
  "use strict";
  const { h, s } = R;
  const PHASES = ["prefill", "draft", "verify", "commit", "observe"];

  /** What the tables and the readout are made of; plain numbers, for one prefix of the steps. */
  R.statistics = (run, count) => {
    const steps = run.steps.slice(0, count);
    const emitted = steps.reduce((sum, step) => sum + step.emitted.length, 0);
    const matched = steps.reduce((sum, step) => sum + step.accepted.length, 0);
    const nodes = steps.reduce((sum, step) => sum + step.nodes.length, 0);
    const seconds = { prefill: (run.first && run.first.seconds) || 0 };
    for (const phase of PHASES.slice(1)) seconds[phase] = steps.reduce((sum, step) => sum + step.seconds[phase], 0);
    const spent = PHASES.slice(1).reduce((sum, phase) => sum + seconds[phase], 0);
    const lengths = [];
    const sources = {};
    const reasons = {};
    for (const step of steps) {
      lengths[step.emitted.length] = (lengths[step.emitted.length] || 0) + 1;
      for (const token of step.emitted) sources[token.source] = (sources[token.source] || 0) + 1;
      if (step.budget.reason) reasons[step.budget.reason] = (reasons[step.budget.reason] || 0) + 1;
    }
    return {
      passes: steps.length, emitted, matched, nodes, seconds, spent,
      mat: steps.length ? emitted / steps.length : null,
      acceptance: nodes ? matched / nodes : null,
      rate: spent ? emitted / spent : null,
      lengths: Array.from(lengths, (n) => n || 0), sources, reasons,
    };
  };

  R.NumbersView = class {
    constructor(store) {
      this.store = store;
      this.body = h("div", { class: "recap-numbers" });
      this.table = h("details", { class: "table", ontoggle: () => this._fill() }, h("summary", {}, "The timeline as a table"));
      this.root = h("div", { class: "recap-tab numbers" }, this.body, this.table);
      store.subscribe((_, changes) => {
        if (["run", "grow", "cursor"].some((kind) => changes.has(kind))) this._later();
      });
    }

    /** Numbers are read, not watched: a few times a second is enough. */
    _later() {
      if (this.timer) return;
      this.timer = setTimeout(() => { this.timer = null; this.draw(); }, 200);
    }

    draw() {
      const { run, frontier } = this.store;
      if (!run.steps.length) {
        this.table.hidden = true;
        this.body.replaceChildren(h("p", { class: "quiet" }, "Numbers come with the first step."));
        return;
      }
      this.table.hidden = false;
      this._fill();
      const n = R.statistics(run, frontier);
      const about = run.about;
      const figures = [
        ["MAT", R.fixed(n.mat), "Mean accepted length: emitted tokens ÷ verification passes. The prefill’s token is not counted."],
        ["Acceptance per node", n.acceptance === null ? "–" : R.percent(n.acceptance), "Accepted nodes ÷ verified nodes."],
        ["Tokens per second", n.rate === null ? "–" : R.fixed(n.rate, 0), "Emitted tokens ÷ (draft + verify + commit + observe) seconds: without the prefill."],
        ["Passes", String(n.passes), "Verification passes; the prefill is not one."],
        ["Emitted", String(n.emitted), "Σ accepted length: all tokens but the prefill’s first."],
        ["Nodes a pass", R.fixed(n.nodes / n.passes, 1), "Verified nodes ÷ passes."],
      ];
      this.body.replaceChildren(
        h("p", { class: "quiet" }, `${about.title} on ${about.model} · ${about.device} · ${about.dtype} · budget ${about.settings.budget}` +
          (frontier < run.steps.length ? ` · the first ${frontier} of ${run.steps.length} steps` : "")),
        h("div", { class: "figures" }, figures.map(([name, value, formula]) =>
          h("div", { class: "figure", title: formula, tabindex: "0", "aria-label": `${name}: ${value}. ${formula}` }, h("strong", { class: "tabular" }, value), h("span", {}, name), h("small", {}, formula)))),
        h("div", { class: "columns" },
          section("Accepted length", "Steps by the tokens they emitted.", histogram(n.lengths)),
          section("Emitted by source", "Share of the emitted tokens by what supplied them.", shares(n.sources, n.emitted)),
          section("Seconds by phase", "Time of each phase, summed over the steps.", phases(n.seconds)),
          section("Why nothing was speculated", "Steps by the reason noted in their budget.", reasons(n.reasons))));
    }

    /** The same as the timeline's bars, for those who cannot see them. */
    _fill() {
      const old = this.table.querySelector(".scroll");
      if (old) old.remove();
      if (!this.table.open) return;
      const { run, frontier } = this.store;
      const head = ["Step", "Nodes", "Matched", "Accepted length", "Running MAT", "Milliseconds", "Sources", "Text"];
      let total = 0;
      const rows = run.steps.slice(0, frontier).map((step) => {
        total += step.emitted.length;
        return h("tr", {}, [step.i + 1, step.nodes.length, step.accepted.length, step.emitted.length, R.fixed(total / (step.i + 1)),
          R.fixed(1000 * R.stepSeconds(step), 1), step.emitted.map((e) => R.source(e.source).glyph).join(" "),
          step.emitted.map((e) => R.visible(run.token(e.token))).join("")].map((cell) => h("td", {}, cell)));
      });
      this.table.append(h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Steps" },
        h("table", {}, h("thead", {}, h("tr", {}, head.map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, rows))));
    }
  };

  const section = (title, formula, content) => h("section", { title: formula }, h("h3", {}, title), content);

  function histogram(lengths) {
    const most = Math.max(1, ...lengths);
    return bars(lengths.map((n, tokens) => ({ name: String(tokens), share: n / most, text: String(n), css: "bo" })).slice(1));
  }
  function shares(sources, total) {
    return bars(R.SOURCE_ORDER.filter((name) => sources[name]).map((name) => ({
      name: R.source(name).name, share: sources[name] / total, text: R.percent(sources[name] / total), css: R.source(name).css, glyph: R.source(name).glyph,
    })));
  }
  function phases(seconds) {
    const total = PHASES.reduce((sum, phase) => sum + seconds[phase], 0);
    return bars(PHASES.map((phase) => ({ name: phase, share: total ? seconds[phase] / total : 0, text: R.time(seconds[phase]), css: "bo" })));
  }
  function reasons(counts) {
    const entries = Object.entries(counts);
    if (!entries.length) return h("p", { class: "quiet" }, "Every step speculated.");
    return h("ul", {}, entries.map(([reason, n]) => h("li", {}, `${R.count(n, "step")}: ${R.REASONS[reason] || reason}`)));
  }
  function bars(rows) {
    return h("div", { class: "bars" }, rows.map((row) => h("div", { class: `bar-row ${row.css}` },
      h("span", { class: "bar-name" }, row.glyph ? h("span", { class: "chip" }, row.glyph) : null, row.name),
      h("span", { class: "meter" }, h("span", { style: `width:${(100 * row.share).toFixed(1)}%` })),
      h("span", { class: "tabular" }, row.text))));
  }
})((globalThis.Recap = globalThis.Recap || {}));
