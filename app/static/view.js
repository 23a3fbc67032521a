/* Puts the views of one run together, and handles the keys that work everywhere.
 *
 * `Recap.mount(element, store)` is all that the page and the replay file call.
 */
(function (R) {
  "use strict";
  const { h } = R;

  const KEYS = [
    ["← →", "previous, next step"],
    ["Home", "first step"],
    ["End", "skip to the end"],
    ["Space", "play or pause"],
    ["L", "live: follow the run"],
    ["R", "next step with a rejected guess"],
    ["?", "this help"],
    ["Tab, then arrows", "move inside the answer, the tree, the timeline"],
    ["Enter", "open a token’s step, or a folded branch"],
    ["Esc", "let go of a node"],
  ];

  class StepPanel {
    constructor(store) {
      this.store = store;
      this.tree = new R.TreeView(store);
      this.inspector = new R.InspectorView(store);
      this.sentence = h("p", { class: "sentence" });
      this.live = h("p", { class: "sr-only", role: "status", "aria-live": "polite" });
      this.caption = h("p", { class: "caption" });
      this.root = h("section", { class: "panel step", "aria-label": "Step" },
        h("header", {}, h("h2", {}, "Step"), this.tree.tools),
        this.caption, this.sentence, this.live, this.tree.box,
        h("div", { class: "states", "aria-hidden": "true" },
          ["accepted", "rejected", "unreached", "bonus"].map((state) => h("span", {}, h("i", { class: `mark-${state}` }), state))),
        this.inspector.root, this.inspector.table);
      store.subscribe((_, changes) => this._update(changes));
    }

    _update(changes) {
      if (!["run", "cursor", "grow"].some((kind) => changes.has(kind))) return;
      const { run, step } = this.store;
      const text = step ? R.sentence(run, step)
        : run.running ? (run.note.replace(/: .*/, "…") || "Reading the prompt…") : "No step yet.";
      this.sentence.textContent = text;
      this.caption.textContent = run.caption && this.store.cursor === this.store._shown ? run.caption : "";
      this.caption.hidden = !this.caption.textContent;
      this._announce(text);
    }

    /** For screen readers: what happened, at most once a second. */
    _announce(text) {
      this.latest = text;
      if (this.timer) return;
      this.timer = setTimeout(() => {
        this.timer = null;
        if (this.live.textContent !== this.latest) this.live.textContent = this.latest;
      }, 1000);
    }
  }

  function help() {
    const dialog = h("dialog", { class: "help", "aria-label": "Keys" },
      h("h2", {}, "Keys"),
      h("dl", {}, KEYS.map(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)])),
      h("form", { method: "dialog" }, h("button", { class: "small" }, "Close")));
    return dialog;
  }

  /** Whether a key pressed here belongs to something else. */
  const busy = (target) =>
    target instanceof Element &&
    target.closest("input, textarea, select, button, summary, a, [contenteditable], [role=tab], [role=slider]:not(.timeline-svg), dialog, [role=listbox]:not(.answer-text)");

  function keys(store, player, dialog) {
    return (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented || busy(event.target)) return;
      const actions = {
        ArrowLeft: () => { player.pause(); store.go(store.cursor - 1); },
        ArrowRight: () => { player.pause(); store.go(store.cursor + 1); },
        Home: () => { player.pause(); store.go(0); },
        End: () => { player.pause(); store.skip(); },
        " ": () => player.toggle(),
        l: () => store.follow(),
        r: () => store.goToRejected(),
        "?": () => dialog.showModal(),
      };
      const action = actions[event.key] || actions[event.key.toLowerCase()];
      if (!action || (event.shiftKey && event.key !== "?")) return;
      action();
      event.preventDefault();
    };
  }

  /** Build the views inside an element. Returns the parts, for those who want to add to them. */
  R.mount = (element, store = new R.Store()) => {
    const player = new R.Player(store);
    const answer = new R.AnswerView(store);
    const timeline = new R.TimelineView(store, player);
    const step = new StepPanel(store);
    const dialog = help();
    element.classList.add("recap-view");
    element.replaceChildren(h("div", { class: "grid" },
      h("div", { class: "left" }, answer.root, timeline.root), step.root), dialog);
    const handler = keys(store, player, dialog);
    document.addEventListener("keydown", handler);
    store.changed("run");
    return { store, player, tree: step.tree, help: () => dialog.showModal() };
  };
})((globalThis.Recap = globalThis.Recap || {}));
