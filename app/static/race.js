/* The race: one lane under the other, the same time axis, and two trees of one position.
 *
 * A lane advances by its own compute time only, so each shows what it would show if it had the
 * device alone. Lanes are replayed here by their clocks; the position that is compared is chosen
 * with one slider.
 */
(function (R) {
  "use strict";
  const { h, s } = R;
  const REFERENCE = "autoregressive";

  class Lane {
    constructor(name) {
      this.name = name;
      this.run = new R.Run();
      this.clocks = []; // clock after each step
      this.read = 0;
    }

    take(raw) {
      if (raw.about && !this.run.about.method) this.run.about = JSON.parse(raw.about);
      this.run.take({ ...raw, details: [], status: "running", end: null });
      let clock = this.clocks.length ? this.clocks.at(-1) : this.run.first ? this.run.first.seconds : 0;
      for (; this.clocks.length < this.run.steps.length; ) {
        clock += R.stepSeconds(this.run.steps[this.clocks.length]);
        this.clocks.push(clock);
      }
    }

    /** Steps done at a moment of its own clock. */
    stepsAt(clock) {
      let count = 0;
      while (count < this.clocks.length && this.clocks[count] <= clock) count++;
      return count;
    }

    get clock() {
      return this.clocks.length ? this.clocks.at(-1) : this.run.first ? this.run.first.seconds : 0;
    }

    /** The step that emitted a position of the answer. */
    stepOf(position) {
      const token = this.run.tokens[position];
      return token ? this.run.steps[token.step] || null : null;
    }
  }

  R.RaceView = class {
    constructor() {
      this.serial = -1;
      this.root = h("div", { class: "recap-view race" });
      this._empty();
    }

    _empty() {
      this.root.replaceChildren(h("p", { class: "quiet race-empty" },
        "Choose who races, then press Race: the picture, prompt and settings are those of the form above."));
    }

    apply(value) {
      if (!value || value.serial < this.serial) return;
      if (value.serial !== this.serial) this._open(value.serial);
      this.status = value.status;
      this.note = value.note;
      this.unequal = value.unequal;
      for (const raw of value.lanes) {
        if (!this.lanes.has(raw.name)) this._addLane(raw.name);
        this.lanes.get(raw.name).take(raw);
      }
      if (value.end && !this.end) {
        this.end = JSON.parse(value.end);
      }
      this.target = Math.max(0, ...[...this.lanes.values()].map((lane) => lane.clock));
      this._wake();
    }

    _open(serial) {
      this.serial = serial;
      this.lanes = new Map();
      this.parts = new Map();
      this.end = null;
      this.judged = false;
      this.now = 0;
      this.target = 0;
      this.message = h("p", { class: "race-note", role: "status" });
      this.skipper = h("button", { type: "button", class: "small", hidden: true, onclick: () => this.skip() }, "Skip to the end");
      this.list = h("div", { class: "lanes" });
      this.compare = h("section", { class: "panel compare", hidden: true });
      this.legend = h("div", { class: "legend" });
      this.root.replaceChildren(h("div", { class: "race-head" }, this.message, this.skipper, this.legend), this.list, this.compare);
    }

    _addLane(name) {
      const lane = new Lane(name);
      const parts = {
        title: h("h3", {}), clock: h("strong", { class: "tabular" }), speed: h("span", { class: "tabular" }),
        mat: h("span", { class: "tabular quiet" }), badge: h("span", { class: "race-badge" }),
        text: h("div", { class: "race-text", tabindex: "0", role: "region", "aria-label": `Answer of ${name}` }),
        bars: s("svg", { class: "race-bars", height: 34, "aria-hidden": "true" }), drawn: 0, tokens: 0,
      };
      this.lanes.set(name, lane);
      this.parts.set(name, parts);
      this.list.append(h("section", { class: "panel lane", "data-lane": name, "aria-label": `Lane ${name}` },
        h("header", {}, parts.title, parts.clock, parts.speed, parts.mat, parts.badge), parts.bars, parts.text));
    }

    _wake() {
      if (this.timer) return;
      this.last = performance.now();
      this._draw();
      this.timer = setInterval(() => this._tick(), 50);
    }

    /** Show compute time at its own speed, but never a race of less than about four seconds. */
    _tick() {
      const passed = Math.min(0.5, (performance.now() - this.last) / 1000);
      this.last = performance.now();
      const stretch = Math.min(1, Math.max(this.target, 0.05) / 4);
      this.now = Math.min(this.target, this.now + passed * stretch);
      this._draw();
      if (this.end && this.now >= this.target) {
        clearInterval(this.timer);
        this.timer = null;
      }
    }

    /** Show the end at once. */
    skip() {
      this.now = this.target; // the next tick draws it
    }

    _draw() {
      const over = this.end && this.now >= this.target;
      let words = this.note || "";
      if (!words && !this.end) words = "Racing: whichever lane has used the least compute time steps next.";
      if (this.end) words = this.end.message || (over ? (this.end.finished ? "Finished." : "Stopped.") : "Showing the race by the lanes’ own clocks.");
      if (this.unequal) words += " The lanes’ memories have unequal histories; start all cold for an equal race.";
      this.message.textContent = words;
      this.skipper.hidden = !this.end || over;
      this.listed = R.listSources(this.legend, [...this.lanes.values()].flatMap((lane) => lane.run.tokens.map((t) => t.source)), this.listed);
      const reference = this.lanes.get(REFERENCE);
      for (const [name, lane] of this.lanes) this._drawLane(name, lane, reference);
      if (over && !this.judged) {
        this.judged = true;
        this._finish();
      }
      if (over && this.compare.hidden && [...this.lanes.values()].some((lane) => lane.run.steps.length)) this._openCompare();
    }

    _drawLane(name, lane, reference) {
      const parts = this.parts.get(name);
      const { run } = lane;
      parts.title.textContent = run.about.title || name;
      const count = lane.stepsAt(this.now);
      const shownTokens = count >= run.steps.length ? run.tokens.length : run.steps[count].text;
      const mine = Math.min(this.now, lane.clock);
      parts.clock.textContent = R.time(mine);
      const rate = mine ? shownTokens / mine : 0;
      const other = reference && reference !== lane ? reference : null;
      if (other && mine) {
        const theirs = other.stepsAt(this.now);
        const tokens = theirs >= other.run.steps.length ? other.run.tokens.length : other.run.steps[theirs].text;
        const ended = this.end && this.now >= this.target;
        const measured = ended && this.end.comparison[name] ? this.end.comparison[name].speedup : null;
        const so = measured ?? (tokens ? rate / (tokens / Math.min(this.now, other.clock)) : null);
        parts.speed.textContent = so ? `${R.fixed(so)}× autoregressive${ended ? "" : " so far"}` : "";
      } else parts.speed.textContent = name === REFERENCE ? "1.00×: the yardstick" : "";
      const emitted = run.steps.slice(0, count).reduce((sum, step) => sum + step.emitted.length, 0);
      parts.mat.textContent = count ? `${shownTokens} tokens · ${count} passes · MAT ${R.fixed(emitted / count)}` : "";
      if (parts.tokens > shownTokens) { parts.text.replaceChildren(); parts.tokens = 0; }
      for (; parts.tokens < shownTokens; parts.tokens++) {
        const token = run.tokens[parts.tokens];
        const entry = run.token(token.token);
        const index = parts.tokens;
        const end = index === run.tokens.length - 1 && this.end && this.end.finish[name] === "eos";
        parts.text.append(h("span", { class: `tok ${R.source(token.source).css}${end ? " end" : ""}`, onclick: () => this._goTo(index) },
          end ? "■" : entry.hex ? R.visible(entry) : entry.text));
      }
      this._bars(lane, parts, count);
    }

    /** Accepted length of each pass over the lane's own clock; all lanes share the axis. */
    _bars(lane, parts, count) {
      const width = parts.bars.parentNode.clientWidth - 24 || 600;
      const scale = (width - 2) / Math.max(this.target, 1e-6);
      if (parts.drawn === count && parts.scale === scale) return;
      parts.bars.setAttribute("width", width);
      if (parts.scale !== scale || parts.drawn > count) {
        parts.bars.replaceChildren();
        parts.drawn = 0;
        parts.scale = scale;
        const first = lane.run.first ? lane.run.first.seconds : 0;
        parts.bars.append(s("rect", { class: "prefill", x: 0, y: 30, width: Math.max(1, first * scale), height: 3 }));
      }
      for (; parts.drawn < count; parts.drawn++) {
        const step = lane.run.steps[parts.drawn];
        const x1 = lane.clocks[parts.drawn] * scale;
        const x0 = x1 - R.stepSeconds(step) * scale;
        step.emitted.forEach((token, place) => parts.bars.append(s("rect", {
          class: `bar ${R.source(token.source).css}`, x: x0 + 0.25, width: Math.max(0.5, x1 - x0 - 0.75),
          y: 33 - 3 * (place + 1), height: 2.6,
        })));
      }
    }

    // The end ------------------------------------------------------------------------------------

    _finish() {
      for (const [name, row] of Object.entries(this.end.comparison)) {
        const parts = this.parts.get(name);
        if (!parts || !row.identical || !this.end.finished) continue;
        const word = (lane) => (id) => (lane || this.lanes.get(name)).run.token(id);
        const verdict = R.verdict(row.identical, word(), word(this.lanes.get(row.identical.with)));
        if (!verdict) continue;
        parts.badge.textContent = verdict.text;
        parts.badge.className = `race-badge ${verdict.good ? "good" : "bad"}`;
        parts.badge.title = verdict.title;
      }
    }

    _openCompare() {
      const names = [...this.lanes.keys()].filter((name) => this.lanes.get(name).run.steps.length);
      const longest = Math.max(...names.map((name) => this.lanes.get(name).run.tokens.length));
      const choose = (at) => h("select", { "aria-label": `Tree ${at + 1}`, onchange: () => this._trees() },
        names.map((name, index) => h("option", { value: name, selected: index === Math.min(at, names.length - 1) }, this.lanes.get(name).run.about.title)));
      this.slider = h("input", { type: "range", min: 1, max: longest - 1, value: this._telling(names, longest), "aria-label": "Position in the answer", oninput: () => this._trees() });
      this.position = h("strong", { class: "tabular" });
      this.choices = [choose(0), choose(1)];
      this.trees = [0, 1].map(() => ({ words: h("p", {}), box: h("div", { class: "tree-box" }) }));
      this.compare.replaceChildren(
        h("header", {}, h("h2", {}, "The same position in two lanes"), h("label", { class: "position" }, this.slider, this.position)),
        h("div", { class: "pair" }, this.trees.map((part, at) => h("div", {}, this.choices[at], part.words, part.box))));
      this.compare.hidden = false;
      this._trees();
    }

    /** A position that is worth a look: both lanes had guesses there, as near the middle as can be. */
    _telling(names, longest) {
      const middle = Math.floor(longest / 2);
      const guessed = (name, position) => (this.lanes.get(name).stepOf(position)?.nodes.length ?? 0) > 4;
      for (let away = 0; away < longest; away++)
        for (const position of [middle + away, middle - away])
          if (position > 0 && names.slice(0, 2).every((name) => guessed(name, position))) return position;
      return middle;
    }

    _goTo(index) {
      if (!this.slider) return;
      this.slider.value = index;
      this._trees();
    }

    _trees() {
      const position = +this.slider.value;
      let shown = null;
      this.trees.forEach((part, at) => {
        const lane = this.lanes.get(this.choices[at].value);
        const step = lane.stepOf(position);
        shown = shown ?? (lane.run.tokens[position] && lane.run.token(lane.run.tokens[position].token));
        part.box.replaceChildren();
        if (!step) {
          part.words.textContent = "This lane has no token there.";
          return;
        }
        part.words.textContent = R.sentence(lane.run, step);
        const store = new R.Store();
        store.run = lane.run;
        store.frontier = lane.run.steps.length;
        store.cursor = step.i;
        const tree = new R.TreeView(store);
        part.box.replaceWith(tree.box);
        part.box = tree.box;
        tree.draw();
        const place = position - step.text;
        store.point({ step: step.i, place });
      });
      this.position.textContent = `token ${position + 1}: ${shown ? R.visible(shown) : "–"}`;
    }
  };

  R.mountRace = (element, props, watch) => {
    const view = new R.RaceView();
    R.page.race = view;
    element.querySelector(".recap-root").append(view.root);
    watch("value", () => view.apply(props.value));
    view.apply(props.value);
  };
})((globalThis.Recap = globalThis.Recap || {}));
