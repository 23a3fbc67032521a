/* Accepted length of each step as bars coloured by source, the running MAT, and the scrubber.
 *
 * The picture is the scrubber: one tab stop with the role of a slider.
 */
(function (R) {
  "use strict";
  const { s, h } = R;
  const HEIGHT = 112;
  const PAD = { left: 26, right: 10, top: 10, bottom: 18 };

  R.TimelineView = class {
    constructor(store, player) {
      this.store = store;
      this.player = player;
      this.svg = s("svg", {
        class: "timeline-svg", tabindex: "0", role: "slider", "aria-label": "Step", height: HEIGHT,
        "aria-valuemin": "1",
        onpointerdown: (event) => this._down(event),
        onpointermove: (event) => this._move(event),
        onpointerup: () => { this.dragging = false; },
        onpointercancel: () => { this.dragging = false; },
        onpointerleave: () => store.point(null),
      });
      this.read = h("div", { class: "readout tabular" });
      this.buttons = {};
      const button = (name, text, title, run) =>
        (this.buttons[name] = h("button", { type: "button", class: "small icon", title, "aria-label": title, onclick: run }, R.icon(text)));
      const choice = (label, title, options, value, change) => h("label", { class: "choice", title }, h("span", {}, label),
        h("select", { "aria-label": label, onchange: (event) => change(event.target.value) },
          options.map(([v, text]) => h("option", { value: v, selected: String(v) === String(value) }, text))));
      this.pace = choice("Pace", "How fast steps are shown; nothing that is measured depends on it", [["real", "real time"], [1, "1 step/s"], [2, "2 steps/s"], [4, "4 steps/s"], [8, "8 steps/s"]],
        player.pace, (value) => player.setPace(value));
      this.speed = choice("Speed", "Times the pace", [[0.25, "¼×"], [0.5, "½×"], [1, "1×"], [2, "2×"], [4, "4×"]], 1, (value) => player.setSpeed(+value));
      this.jump = h("select", { class: "jump", "aria-label": "Jump to a step", onchange: (event) => this._jump(event.target) },
        h("option", { value: "" }, "Jump to…"),
        h("option", { value: "longest" }, "longest step"),
        h("option", { value: "shortest" }, "shortest step"),
        h("option", { value: "rejected" }, "next step with a rejected guess"));
      this.root = h("section", { class: "panel timeline", "aria-label": "Timeline" },
        h("header", {}, h("h2", {}, "Timeline"), this.read),
        h("div", { class: "timeline-box" }, this.svg),
        h("div", { class: "controls", role: "toolbar", "aria-label": "Steps" },
          h("div", {},
            button("first", "first", "First step (Home)", () => store.go(0)),
            button("back", "back", "Previous step (←)", () => store.go(store.cursor - 1)),
            button("play", "play", "Play (space)", () => player.toggle()),
            button("next", "next", "Next step (→)", () => store.go(store.cursor + 1)),
            button("last", "last", "Skip to the end (End)", () => store.skip()),
            (this.buttons.live = h("button", { type: "button", class: "small live", title: "Follow the run (L)", onclick: () => store.follow() }, "Live"))),
          h("div", {}, this.pace, this.speed, this.jump)));
      store.subscribe((_, changes) => this._update(changes));
      if (globalThis.ResizeObserver) new ResizeObserver(() => this.draw()).observe(this.svg.parentNode);
    }

    _update(changes) {
      if (["run", "grow", "cursor"].some((kind) => changes.has(kind))) this.draw();
      else if (changes.has("hover")) this._hover();
      if (changes.has("run")) this.pace.querySelector("select").value = String(this.player.pace);
      this._controls();
    }

    _controls() {
      const { cursor, frontier, following, run } = this.store;
      const b = this.buttons;
      b.first.disabled = b.back.disabled = cursor <= 0;
      b.next.disabled = cursor >= frontier - 1;
      b.last.disabled = frontier >= run.steps.length && following;
      const moving = this.player.playing || (following && this.player.revealing);
      b.play.replaceChildren(R.icon(moving ? "pause" : "play"));
      b.play.title = moving ? "Pause (space)" : "Play (space)";
      b.play.setAttribute("aria-label", b.play.title);
      b.play.disabled = !run.steps.length;
      b.live.disabled = !(run.running || frontier < run.steps.length);
      b.live.classList.toggle("on", following && !b.live.disabled);
      b.live.setAttribute("aria-pressed", String(following));
    }

    draw() {
      const { run, frontier, cursor } = this.store;
      const width = this.svg.parentNode.clientWidth || 400;
      const steps = run.steps.slice(0, frontier);
      const tallest = Math.max(4, ...steps.map((step) => step.emitted.length));
      const plot = { w: width - PAD.left - PAD.right, h: HEIGHT - PAD.top - PAD.bottom };
      const pitch = Math.min(18, plot.w / Math.max(frontier, 12));
      this.pitch = pitch;
      const y = (tokens) => PAD.top + plot.h * (1 - tokens / tallest);
      const parts = [];
      for (const tick of ticks(tallest))
        parts.push(s("line", { class: "grid", x1: PAD.left, x2: width - PAD.right, y1: y(tick), y2: y(tick) }),
          s("text", { class: "axis", x: PAD.left - 6, y: y(tick) + 3.5, "text-anchor": "end" }, tick));
      const gap = pitch > 6 ? 2 : pitch > 3 ? 1 : 0;
      if (cursor >= 0)
        parts.push(s("rect", { class: "here", x: PAD.left + cursor * pitch - 1, y: 2, width: Math.max(pitch, 3) + 2 - gap, height: HEIGHT - PAD.bottom, rx: 3 }));
      let total = 0;
      const line = [];
      steps.forEach((step, index) => {
        const x = PAD.left + index * pitch;
        // The bonus token lies on top: what the drafts added is below it.
        step.emitted.forEach((token, place) => {
          parts.push(s("rect", {
            class: `bar ${R.source(token.source).css}${index === cursor ? " now" : ""}`,
            x, width: Math.max(pitch - gap, 0.8), y: y(place + 1) + 0.5, height: Math.max(plot.h / tallest - 1, 0.8),
          }));
        });
        total += step.emitted.length;
        line.push(`${line.length ? "L" : "M"}${(x + (pitch - gap) / 2).toFixed(1)} ${y(total / (index + 1)).toFixed(1)}`);
      });
      if (line.length > 1) parts.push(s("path", { class: "mat-halo", d: line.join("") }), s("path", { class: "mat", d: line.join("") }));
      if (width > 300) parts.push(s("text", { class: "axis", x: PAD.left, y: HEIGHT - 5 }, "accepted length by step"));
      if (steps.length) {
        const label = s("text", { class: "axis strong", x: width - PAD.right, y: HEIGHT - 5, "text-anchor": "end" },
          `— running MAT ${R.fixed(total / steps.length)}`);
        parts.push(label);
      }
      this.svg.setAttribute("width", width);
      this.svg.replaceChildren(...parts);
      this.svg.setAttribute("aria-valuemax", String(Math.max(frontier, 1)));
      this.svg.setAttribute("aria-valuenow", String(Math.max(cursor + 1, 1)));
      this.svg.setAttribute("aria-valuetext", cursor < 0 ? "no step yet" : `step ${cursor + 1} of ${frontier}, ${R.count(run.steps[cursor].emitted.length, "token")} emitted`);
      this._readout(steps, total);
    }

    _readout(steps, total) {
      const { cursor, run } = this.store;
      const seconds = steps.reduce((sum, step) => sum + R.stepSeconds(step), 0);
      const parts = [];
      if (cursor >= 0) parts.push(["step", `${cursor + 1} / ${run.finished ? run.steps.length : steps.length}`]);
      if (steps.length) parts.push(["MAT", R.fixed(total / steps.length)], ["tokens/s", seconds ? String(Math.round(total / seconds)) : "–"]);
      this.read.replaceChildren(...parts.map(([name, value]) => h("span", { title: R.meaning(name) }, `${name} `, h("strong", {}, value))));
    }

    _hover() {
      for (const old of this.svg.querySelectorAll(".hinted")) old.remove();
      const { hover } = this.store;
      if (!hover || !(hover.step >= 0) || hover.step >= this.store.frontier) return;
      this.svg.append(s("rect", { class: "hinted", x: PAD.left + hover.step * this.pitch - 1, y: 2, width: Math.max(this.pitch, 3), height: HEIGHT - PAD.bottom, rx: 3 }));
    }

    _at(event) {
      const x = event.clientX - this.svg.getBoundingClientRect().left - PAD.left;
      return Math.max(0, Math.min(this.store.frontier - 1, Math.floor(x / this.pitch)));
    }

    _down(event) {
      if (!this.store.frontier) return;
      this.dragging = true;
      this.svg.setPointerCapture(event.pointerId);
      this.player.pause();
      this.store.go(this._at(event));
    }

    _move(event) {
      if (!this.store.frontier) return;
      const index = this._at(event);
      if (this.dragging) this.store.go(index);
      else this.store.point({ step: index, place: 0, token: this.store.run.steps[index].text });
    }

    _jump(select) {
      const { run, frontier } = this.store;
      const steps = run.steps.slice(0, frontier);
      const drafted = steps.filter((step) => step.nodes.length);
      const extreme = (better) => drafted.reduce((best, step) => (!best || better(step.emitted.length, best.emitted.length) ? step : best), null);
      let step = null;
      if (select.value === "longest") step = extreme((a, b) => a > b);
      if (select.value === "shortest") step = extreme((a, b) => a < b);
      if (select.value === "rejected") this.store.goToRejected();
      if (step) this.store.go(step.i);
      select.value = "";
    }
  };

  const ticks = (top) => {
    const pace = top <= 6 ? 2 : top <= 15 ? 5 : 10;
    const result = [];
    for (let tick = pace; tick <= top; tick += pace) result.push(tick);
    return result;
  };

  R.stepSeconds = (step) => step.seconds.draft + step.seconds.verify + step.seconds.commit + step.seconds.observe;
})((globalThis.Recap = globalThis.Recap || {}));
