/* The answer as it streams: one element a token, coloured and marked by what supplied it.
 *
 * One tab stop; arrow keys move from token to token, Enter opens the token's step. Bytes of one
 * character that came in several tokens are shown with the token that completes it.
 */
(function (R) {
  "use strict";
  const { h } = R;

  R.AnswerView = class {
    constructor(store) {
      this.store = store;
      this.elements = [];
      this.active = 0;
      this.marks = false;
      this.text = h("div", {
        class: "answer-text", tabindex: "0", role: "listbox", "aria-label": "Answer, token by token",
        "aria-orientation": "horizontal",
        onkeydown: (event) => this._key(event),
        onfocus: () => this._point(),
        onblur: () => this._leave(),
        onpointerover: (event) => this._over(event),
        onpointerleave: () => this._leave(),
        onclick: (event) => this._click(event),
      });
      this.toggle = h("label", { class: "check" },
        h("input", { type: "checkbox", onchange: (event) => this._toggleMarks(event.target.checked) }),
        "Spaces and bytes");
      this.tip = h("div", { class: "tip", role: "tooltip", id: "recap-token-tip", hidden: true });
      this.legend = h("div", { class: "legend", "aria-label": "What supplied a token" });
      this.root = h("section", { class: "panel answer", "aria-label": "Answer" },
        h("header", {}, h("h2", {}, "Answer"), this.state = h("span", { class: "state" }), this.toggle),
        this.text, this.tip, this.legend);
      store.subscribe((_, changes) => this._update(changes));
    }

    _update(changes) {
      if (changes.has("run")) {
        this.text.replaceChildren();
        this.elements = [];
        this.decoder = new TextDecoder("utf-8");
        this.active = 0;
      }
      if (changes.has("run") || changes.has("grow") || changes.has("cursor")) this._extend();
      if (changes.has("run") || changes.has("grow")) this._state();
      if (changes.has("cursor") || changes.has("grow") || changes.has("run")) this._dim();
      if (changes.has("hover")) this._mark();
    }

    _extend() {
      const { run, revealed } = this.store;
      while (this.elements.length > revealed) this.elements.pop().remove();
      const fresh = document.createDocumentFragment();
      for (let index = this.elements.length; index < revealed; index++) {
        const token = run.tokens[index];
        const source = R.source(token.source);
        const last = index === run.tokens.length - 1 && run.end && run.end.finish === "eos";
        const element = h("span", {
          class: `tok ${source.css}`, role: "option", id: `recap-token-${index}`, "data-index": String(index),
          "aria-selected": "false",
          "aria-label": `${R.visible(run.token(token.token))}, ${source.name}`,
        });
        this._write(element, token, last);
        this.elements.push(element);
        fresh.append(element);
        if (this.marks && run.token(token.token).text.includes("\n")) fresh.append(h("br"));
      }
      if (fresh.childNodes.length) {
        const atEnd = this.text.scrollHeight - this.text.scrollTop - this.text.clientHeight < 40;
        this.text.append(fresh);
        if (atEnd && this.store.following) this.text.scrollTop = this.text.scrollHeight;
      }
      this._legend();
    }

    /** A token's text node. The end-of-answer token shows as a mark, not as its spelling. */
    _write(element, token, last) {
      const entry = this.store.run.token(token.token);
      if (last) {
        element.classList.add("end");
        element.textContent = this.marks ? entry.text : "■";
        element.title = "End of the answer";
      } else if (this.marks) {
        element.textContent = R.visible(entry);
      } else if (entry.hex) {
        const bytes = Uint8Array.from(entry.hex.match(/../g) || [], (b) => parseInt(b, 16));
        element.textContent = this.decoder.decode(bytes, { stream: true });
      } else {
        element.textContent = entry.text;
      }
      // What has no width still wants to be pointed at.
      element.classList.toggle("thin", /^[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]*$/.test(element.textContent));
    }

    _legend() {
      const seen = new Set(this.elements.map((_, i) => this.store.run.tokens[i].source));
      const names = R.SOURCE_ORDER.filter((name) => seen.has(name));
      if (names.join() === this.listed) return;
      this.listed = names.join();
      this.legend.replaceChildren(...names.map((name) => {
        const source = R.source(name);
        return h("span", { class: `key ${source.css}` }, h("span", { class: "chip" }, source.glyph),
          name === "bonus" ? "the target itself" : source.name);
      }));
    }

    _state() {
      const { run, frontier } = this.store;
      const behind = run.steps.length - frontier;
      let text = "";
      let look = run.status;
      if (run.status === "waiting") text = run.note || "Waiting";
      else if (run.status === "running") text = run.note || "Decoding";
      else if (run.status === "done" && run.end) {
        look = { cancelled: "stopped", error: "failed", context: "stopped" }[run.end.finish] || "finished";
        text = { stopped: "Stopped", failed: "Failed", finished: "Finished" }[look];
        if (behind > 0) [text, look] = ["Showing", "showing"];
      }
      // A note of several sentences stands in the answer; its first word says which state it is.
      const [title, ...rest] = text.split(": ");
      this.state.textContent = title;
      this.state.className = `state ${look}`;
      this.root.dataset.state = look;
      if (run.status === "empty") this.text.replaceChildren(h("p", { class: "empty" }, "Ask something, and the answer appears here."));
      const words = run.end && run.end.message && behind <= 0 ? run.end.message : "";
      this._say("alert", words);
      this._say("status", rest.length ? R.capital(rest.join(": ")) : "");
    }

    /** What went wrong (an alert), or what is being waited for (a status), below the tokens. */
    _say(role, words) {
      let message = this.text.querySelector(`.message[role=${role}]`);
      if (!words || !message) {
        if (message) message.remove();
        if (!words) return;
        message = h("p", { class: role === "alert" ? "message" : "message waits", role });
      }
      message.textContent = words;
      this.text.append(message);
    }

    _dim() {
      const { cursor, run } = this.store;
      for (let index = 0; index < this.elements.length; index++) {
        const step = run.tokens[index].step;
        const list = this.elements[index].classList;
        list.toggle("now", step === cursor && step >= 0);
        list.toggle("later", step > cursor && cursor >= 0);
      }
      const now = this.elements.find((e) => e.classList.contains("now"));
      if (now && !this.store.following) this._intoView(now);
    }

    _intoView(element) {
      const box = this.text;
      const top = element.offsetTop - box.offsetTop;
      if (top < box.scrollTop || top + 24 > box.scrollTop + box.clientHeight)
        box.scrollTop = top - box.clientHeight / 3;
    }

    _mark() {
      const { hover, step } = this.store;
      for (const old of this.text.querySelectorAll(".pointed")) old.classList.remove("pointed");
      if (!hover) return;
      const index = this._indexOf(hover, step);
      if (this.elements[index]) this.elements[index].classList.add("pointed");
    }

    _indexOf(hover, step) {
      if (hover.token !== undefined) return hover.token;
      if (hover.node === -1 && step) return step.text - 1;
      if (hover.place === null || hover.place === undefined || !this.store.run.steps[hover.step]) return -1;
      return this.store.run.steps[hover.step].text + hover.place;
    }

    // Pointing and choosing ----------------------------------------------------------------------

    _over(event) {
      const element = event.target.closest(".tok");
      if (element) this._show(+element.dataset.index);
    }

    _leave() {
      this.tip.hidden = true;
      this.text.removeAttribute("aria-activedescendant");
      for (const old of this.text.querySelectorAll(".focused")) old.classList.remove("focused");
      this.store.point(null);
    }

    _show(index) {
      const { run } = this.store;
      const token = run.tokens[index];
      const element = this.elements[index];
      if (!token || !element) return;
      const step = run.steps[token.step];
      const source = R.source(token.source);
      const node = step ? step.nodes[step.accepted[token.place]] : null;
      const rows = [
        ["Step", step ? String(step.i + 1) : "prefill"],
        ["Source", source.name],
        ["Weight", node ? `${R.share(node.fused)} fused score` : "none: no node held it"],
        ["Probability", token.logprob === null || token.logprob === undefined ? "–" : R.percent(Math.exp(token.logprob))],
      ];
      this.tip.replaceChildren(
        h("strong", { class: "mono" }, R.visible(run.token(token.token))),
        h("dl", {}, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
      this.tip.hidden = false;
      const host = this.root.getBoundingClientRect();
      const box = element.getBoundingClientRect();
      const left = Math.max(8, Math.min(box.left - host.left, host.width - this.tip.offsetWidth - 8));
      this.tip.style.left = `${left}px`;
      this.tip.style.top = `${box.bottom - host.top + 6}px`;
      this.store.point({ step: token.step, place: token.place, token: index });
    }

    _click(event) {
      const element = event.target.closest(".tok");
      if (!element) return;
      this.active = +element.dataset.index;
      this._openStep(this.active);
    }

    _openStep(index) {
      const token = this.store.run.tokens[index];
      const step = token && this.store.run.steps[token.step];
      if (!step) return;
      const node = token.source === "bonus" ? "bonus" : step.accepted[token.place];
      this.store.go(step.i, node ?? null);
    }

    _point() {
      if (!this.text.matches(":focus-visible")) return;
      this.active = Math.min(this.active, this.elements.length - 1);
      this._focusToken();
    }

    _focusToken() {
      for (const old of this.text.querySelectorAll(".focused")) old.classList.remove("focused");
      const element = this.elements[this.active];
      if (!element) return;
      element.classList.add("focused");
      this.text.setAttribute("aria-activedescendant", element.id);
      this._intoView(element);
      this._show(this.active);
    }

    _key(event) {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const last = this.elements.length - 1;
      const line = 8;
      const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: line, ArrowUp: -line, Home: -Infinity, End: Infinity };
      if (event.key in moves) {
        this.active = Math.max(0, Math.min(last, this.active + moves[event.key]));
        this._focusToken();
      } else if (event.key === "Enter") {
        this._openStep(this.active);
      } else if (event.key === "Escape") {
        this.tip.hidden = true;
      } else return;
      event.preventDefault();
      event.stopPropagation();
    }

    _toggleMarks(on) {
      this.marks = on;
      this.text.classList.toggle("marks", on);
      this.text.replaceChildren();
      this.elements = [];
      this.decoder = new TextDecoder("utf-8");
      this._extend();
      this._state();
      this._dim();
    }
  };
})((globalThis.Recap = globalThis.Recap || {}));
