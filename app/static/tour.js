/* What am I looking at? Five small steps that point at what is really there.
 *
 * A card beside the thing it speaks of, and a frame around that thing. Never in the way: nothing is
 * covered but what lies behind the card, Escape closes it, and the browser remembers that it was seen.
 */
(function (R) {
  "use strict";
  const { h } = R;
  const SEEN = "recap-tour-seen";
  const GAP = 12;

  const STEPS = [
    {
      at: [".recap-view .answer"],
      title: "An answer, token by token",
      text: () => "A language model writes in tokens: words or pieces of words. Ordinarily each one costs a pass, a run of " +
        "the whole model. The coloured tokens came cheaper: they had been guessed, and one pass confirmed several at " +
        "once. Colour and line say which memory made the guess; the plain ones the model added itself.",
    },
    {
      at: [".recap-view .tree-box"],
      title: "A tree of guesses",
      text: () => "Before a pass, RECAP looks up what the model predicted earlier after the same last token, the same last " +
        "two, the same last three. Those predictions become guesses for what comes next, and guesses behind guesses: a " +
        "tree, read from left to right. The model checks all of it in a single pass.",
    },
    {
      at: [".recap-view .node.bonus .shape", ".recap-view .tree-box"],
      above: true, // what it is about stands below it
      title: "The model has the last word",
      text: () => "The thick line on top is what the model agreed to. At its end stands a hexagon: the token that the model " +
        "chose itself, whatever had been guessed there. So the text is exactly what it would have written alone, in " +
        "fewer passes. Click a node to see where a guess came from.",
    },
    {
      at: [".recap-view .timeline-box"],
      title: "One bar a pass",
      text: (store) => {
        const { mat } = R.statistics(store.run, store.frontier);
        return "A bar is as high as the tokens that its pass gave" +
          (mat ? `: ${R.fixed(mat)} on average here. This mean is called MAT` : ". Their mean is called MAT") +
          "; without guesses it is 1. Drag over the bars, or press ← and →, to look at every pass.";
      },
    },
    {
      at: ["#recap-run"],
      title: "Your turn",
      text: () => "Run decodes this picture and prompt for real, on this machine. Then try another method, or let several race, " +
        "further down. The ? at the top explains every word and every key.",
    },
  ];

  const storage = (use) => {
    try { return use(globalThis.localStorage); } catch { return null; } // a browser may refuse it
  };
  /** Whether this browser has seen the tour. */
  R.tourSeen = () => storage((s) => s.getItem(SEEN)) !== null;

  R.Tour = class {
    constructor(store) {
      this.store = store;
      this.title = h("h3", { id: "recap-tour-title" });
      this.text = h("p", { id: "recap-tour-text" });
      this.count = h("span", { class: "quiet tabular" });
      this.back = h("button", { type: "button", class: "small", onclick: () => this._go(this.index - 1) }, "Back");
      this.next = h("button", { type: "button", class: "small next", onclick: () => this._go(this.index + 1) });
      this.frame = h("div", { class: "tour-frame", "aria-hidden": "true" });
      this.card = h("div", {
        class: "tour-card", role: "dialog", tabindex: "-1", "aria-labelledby": "recap-tour-title", "aria-describedby": "recap-tour-text",
        onkeydown: (event) => this._key(event),
      }, this.title, this.text,
      h("footer", {}, this.count, h("button", { type: "button", class: "small", onclick: () => this.close() }, "Close"), this.back, this.next));
      this.root = h("div", { class: "recap-tour", hidden: true }, this.frame, this.card);
      document.body.append(this.root);
      this.place = () => this._place();
    }

    open() {
      this.opener = document.activeElement;
      this.steps = STEPS.filter((step) => find(step));
      if (!this.steps.length) return;
      this.root.hidden = false;
      addEventListener("scroll", this.place, true);
      addEventListener("resize", this.place);
      this._go(0);
      storage((s) => s.setItem(SEEN, "1"));
    }

    close() {
      if (this.root.hidden) return;
      this.root.hidden = true;
      removeEventListener("scroll", this.place, true);
      removeEventListener("resize", this.place);
      if (this.opener && this.opener.isConnected) this.opener.focus({ preventScroll: true });
      if (this.onclose) this.onclose();
    }

    _go(index) {
      if (index >= this.steps.length) return this.close();
      this.index = Math.max(0, index);
      const step = this.steps[this.index];
      this.title.textContent = step.title;
      this.text.textContent = step.text(this.store);
      this.count.textContent = `${this.index + 1} of ${this.steps.length}`;
      this.back.disabled = this.index === 0;
      this.next.textContent = this.index === this.steps.length - 1 ? "Done" : "Next";
      const target = find(step);
      if (target) target.scrollIntoView({ block: "center", inline: "nearest", behavior: "instant" });
      this._place();
      this.card.focus({ preventScroll: true });
    }

    /** The card where there is room beside the thing, else in the corner; the frame around it. */
    _place() {
      const step = this.steps[this.index];
      const target = find(step);
      const width = document.documentElement.clientWidth;
      const height = innerHeight;
      const box = target ? target.getBoundingClientRect() : { left: 0, right: 0, top: 0, bottom: 0, width: 0, height: 0 };
      Object.assign(this.frame.style, { left: `${box.left - 5}px`, top: `${box.top - 5}px`, width: `${box.width + 10}px`, height: `${box.height + 10}px` });
      const w = this.card.offsetWidth;
      const t = this.card.offsetHeight;
      const within = (value, size, limit) => Math.max(GAP, Math.min(value, limit - size - GAP));
      const x = within(box.left, w, width);
      const y = within(box.top, t, height);
      const below = [x, box.bottom + GAP];
      const above = [x, box.top - t - GAP];
      const places = [
        ...(step.above ? [above] : [below, above]), [box.right + GAP, y], [box.left - w - GAP, y],
        [width - w - GAP, height - t - GAP],
      ];
      const fits = ([left, top]) => left >= 0 && top >= 0 && left + w <= width && top + t <= height;
      const [left, top] = places.find(fits) || places.at(-1);
      Object.assign(this.card.style, { left: `${Math.max(0, left)}px`, top: `${Math.max(0, top)}px` });
    }

    _key(event) {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      if (event.key === "Escape") this.close();
      else if (event.key === "ArrowRight") this._go(this.index + 1);
      else if (event.key === "ArrowLeft") this._go(this.index - 1);
      else if (event.key === "Enter" && event.target === this.card) this._go(this.index + 1);
      else return;
      event.preventDefault();
      event.stopPropagation();
    }
  };

  function find(step) {
    for (const selector of step.at) {
      const found = document.querySelector(selector);
      if (found && found.getClientRects().length) return found;
    }
    return null;
  }
})((globalThis.Recap = globalThis.Recap || {}));
