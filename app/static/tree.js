/* The candidate tree of the shown step, as SVG.
 *
 * Colour is the source and nothing else; state is stroke and shape: accepted nodes are bold, rejected
 * ones dashed, unreached ones thin and faded, the bonus token a hexagon. One tab stop; arrow keys move
 * through the nodes, Enter opens a fold.
 */
(function (R) {
  "use strict";
  const { s, h } = R;
  const ZOOMS = [0.4, 0.5, 0.65, 0.8, 1, 1.25, 1.6, 2];

  const STYLED = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity",
    "font-family", "font-size", "font-weight", "text-anchor", "white-space"];

  /** A drawn tree as the text of an SVG file: styles written out, and what it shows as its title. */
  R.standalone = (svg, store) => {
    const copy = svg.cloneNode(true);
    const originals = svg.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((element, index) => {
      const style = getComputedStyle(originals[index]);
      const words = STYLED.map((name) => `${name}:${style.getPropertyValue(name)}`);
      if (originals[index].ownerSVGElement) element.setAttribute("style", words.join(";"));
      for (const name of ["class", "role", "aria-label", "aria-selected", "id"]) element.removeAttribute(name);
    });
    const { about } = store.run;
    const versions = Object.entries(about.versions || {}).map(([name, version]) => `${name} ${version}`).join(", ");
    copy.prepend(
      s("title", {}, R.sentence(store.run, store.step)),
      s("desc", {}, `${about.title} on ${about.model}, ${about.device}, ${about.dtype}; ${versions}`),
      s("rect", { width: "100%", height: "100%", fill: getComputedStyle(svg.parentNode).backgroundColor }));
    for (const name of ["class", "tabindex", "role", "aria-activedescendant"]) copy.removeAttribute(name);
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(copy)}\n`;
  };

  R.TreeView = class {
    constructor(store) {
      this.store = store;
      this.zoom = null; // null: fit
      this.all = false;
      this.open = new Set();
      this.svg = s("svg", {
        class: "tree-svg", tabindex: "0", role: "tree", "aria-label": "Candidate tree of the shown step",
        onkeydown: (event) => this._key(event),
        onfocus: () => this._focus(),
      });
      this.box = h("div", { class: "tree-box" }, this.svg);
      this.zoomText = h("span", { class: "quiet tabular zoom-text" });
      this.foldButton = h("button", { type: "button", class: "small", onclick: () => this._toggleFolds() });
      this.tools = h("div", { class: "tools", role: "toolbar", "aria-label": "Tree" },
        this.foldButton,
        h("button", { type: "button", class: "small icon", title: "Smaller", "aria-label": "Smaller", onclick: () => this._step(-1) }, "−"),
        this.zoomText,
        h("button", { type: "button", class: "small icon", title: "Larger", "aria-label": "Larger", onclick: () => this._step(1) }, "+"),
        h("button", { type: "button", class: "small", title: "Fit the whole tree into its box", onclick: () => this._setZoom(null) }, "Fit"),
      );
      store.subscribe((_, changes) => this._update(changes));
      if (globalThis.ResizeObserver) new ResizeObserver(() => this._scale()).observe(this.box);
    }

    _update(changes) {
      if (changes.has("run") || changes.has("cursor")) {
        this.open.clear();
        this.all = false;
      }
      // The words of a token may come with its details.
      if (changes.has("run") || changes.has("cursor") || (changes.has("grow") && this.drawn !== this.store.step))
        this.draw();
      if (changes.has("select") || changes.has("hover") || changes.has("cursor")) this._mark();
    }

    draw() {
      const { step, run } = this.store;
      this.drawn = step;
      this.svg.replaceChildren();
      this.tools.hidden = !step;
      this.svg.classList.toggle("empty", !step);
      if (!step) {
        this.layout = null;
        this.svg.setAttribute("width", "0");
        this.svg.setAttribute("height", "0");
        return;
      }
      const layout = R.layoutTree(step, {
        label: (token) => R.visible(run.token(token)), level: this.all ? 0 : null, open: this.open,
      });
      this.layout = layout;
      this.elements = new Map();
      const edges = s("g", { class: "edges", "aria-hidden": "true" });
      // Fat, faint ones first, so that the path stays on top.
      const rank = { fold: 0, unreached: 1, rejected: 2, bonus: 3, accepted: 4 };
      for (const edge of [...layout.edges].sort((a, b) => rank[a.to.kind] - rank[b.to.kind]))
        edges.append(this._edge(edge));
      const nodes = s("g", { class: "nodes" });
      for (const box of layout.boxes) {
        const element = this._node(box);
        this.elements.set(box.id, element);
        nodes.append(element);
      }
      this.svg.append(edges, nodes);
      const hiddenCount = layout.boxes.reduce((sum, box) => sum + (box.count || 0), 0);
      this.foldButton.hidden = !hiddenCount && !this.all && !this.open.size;
      this.foldButton.textContent = hiddenCount ? `Show all ${step.nodes.length} nodes` : "Fold branches";
      this._scale();
      this._mark();
      this._scrollToEnd();
    }

    _edge({ from, to, score }) {
      const x0 = from.x + from.width;
      const y0 = from.y + from.height / 2;
      const x1 = to.x;
      const y1 = to.y + to.height / 2;
      const bend = x0 + 10;
      const r = 5;
      const d = y0 === y1 ? `M${x0} ${y0}H${x1}`
        : `M${x0} ${y0}H${bend - r}Q${bend} ${y0} ${bend} ${y0 + r}V${y1 - r}Q${bend} ${y1} ${bend + r} ${y1}H${x1}`;
      const source = to.kind === "fold" || to.kind === "bonus" ? "bo" : R.source(to.node.supplier).css;
      const width = to.kind === "bonus" ? 1.5 : to.kind === "fold" ? 1 : 0.8 + 3.8 * score;
      return s("path", { class: `edge ${to.kind} ${source}`, d, "stroke-width": width.toFixed(2) });
    }

    _node(box) {
      const m = R.TREE_METRICS;
      const { x, y, width, height, kind } = box;
      if (kind === "fold") {
        const group = s("g", {
          class: "node fold", role: "treeitem", "aria-label": `${box.count} more nodes, folded. Enter opens them.`,
          onclick: () => this._openFold(box),
        });
        group.append(
          s("rect", { x, y: y + 2, width, height: height - 4, rx: (height - 4) / 2 }),
          s("text", { x: x + width / 2, y: y + 15, "text-anchor": "middle" }, box.label),
          s("title", {}, `${box.count} more; click to unfold`),
        );
        return group;
      }
      const source = kind === "root" || kind === "bonus" ? R.source("bonus") : R.source(box.node.supplier);
      const group = s("g", {
        class: `node ${kind} ${source.css}`, role: "treeitem", "aria-selected": "false",
        "aria-label": this._speak(box, source),
        onclick: () => { this.store.select(box.id); this.svg.focus({ preventScroll: true }); },
        onpointerenter: () => this.store.point(this._pointer(box)),
        onpointerleave: () => this.store.point(null),
      });
      let text = x + m.pad;
      if (kind === "bonus") {
        const t = 8;
        group.append(s("path", {
          class: "shape",
          d: `M${x + t} ${y}H${x + width - t}L${x + width} ${y + height / 2}L${x + width - t} ${y + height}H${x + t}L${x} ${y + height / 2}Z`,
        }));
        text += 5;
      } else {
        const rx = kind === "root" ? height / 2 : 4;
        group.append(s("rect", { class: "shape", x, y, width, height, rx }));
        if (kind === "root") text += 4;
        else {
          group.append(
            s("path", { class: "tab", d: `M${x + m.tab} ${y}H${x + 4}Q${x} ${y} ${x} ${y + 4}V${y + height - 4}Q${x} ${y + height} ${x + 4} ${y + height}H${x + m.tab}Z` }),
            s("text", { class: "glyph", x: x + m.tab / 2, y: y + 15, "text-anchor": "middle" }, source.glyph),
          );
          text += m.tab - 2;
        }
      }
      group.append(this._label(box, text, y + 15.5));
      if (box.scored)
        group.append(s("text", { class: "score", x: x + width - 6, y: y + 15, "text-anchor": "end" }, R.brief(box.node.fused)));
      group.append(s("title", {}, R.visible(this.store.run.token(box.token))));
      return group;
    }

    /** The label with the marks of white space set back. */
    _label(box, x, y) {
      const label = s("text", { class: "label", x, y });
      for (const part of box.label.split(/([·⏎→]+)/)) {
        if (part) label.append(/^[·⏎→]/.test(part) ? s("tspan", { class: "mark" }, part) : part);
      }
      return label;
    }

    _speak(box, source) {
      const word = R.quoted(this.store.run.token(box.token));
      if (box.kind === "root") return `Root ${word}`;
      if (box.kind === "bonus") return `Bonus token ${word}: what the target wanted`;
      return `${word}, ${box.kind}, ${source.name}, fused score ${R.share(box.node.fused)}, depth ${box.depth}`;
    }

    _pointer(box) {
      const step = this.store.step;
      if (box.kind === "root") return { step: null, node: -1 };
      const place = box.kind === "bonus" ? step.bonus.place : box.node.place;
      return { step: step.i, place: place ?? null, node: box.id };
    }

    /** Show selection and hover on what is drawn. */
    _mark() {
      if (!this.layout) return;
      const { selected, hover, step } = this.store;
      let pointed = null;
      if (hover && step && hover.node !== undefined) pointed = hover.node;
      else if (hover && step && hover.step === step.i)
        pointed = hover.place < step.accepted.length ? step.accepted[hover.place] : "bonus";
      for (const [id, element] of this.elements) {
        element.classList.toggle("selected", id === selected);
        element.classList.toggle("pointed", id === pointed);
        element.setAttribute("aria-selected", String(id === selected));
        if (id === selected) element.id = "recap-tree-selected";
        else element.removeAttribute("id");
      }
      if (selected !== null) this.svg.setAttribute("aria-activedescendant", "recap-tree-selected");
      else this.svg.removeAttribute("aria-activedescendant");
    }

    _focus() {
      if (this.layout && this.store.selected === null && this.svg.matches(":focus-visible"))
        this.store.select(-1);
    }

    _key(event) {
      if (event.altKey || event.ctrlKey || event.metaKey || !this.layout) return;
      const current = this.store.selected;
      if (event.key === "Enter" || event.key === "+") {
        const box = this.layout.by.get(current);
        if (box && box.kind === "fold") this._openFold(box);
      } else if (event.key === "Escape") {
        this.store.select(null);
      } else {
        const next = R.neighbour(this.layout, current, event.key);
        if (!next && !/^(Arrow|Home|End)/.test(event.key)) return;
        if (next) this._goTo(next);
      }
      event.preventDefault();
      event.stopPropagation();
    }

    _goTo(box) {
      this.store.select(box.id);
      this._intoView(box);
    }

    _openFold(box) {
      this.open.add(box.fold);
      this.draw();
      if (this.store.selected === box.id) this.store.select(box.fold);
    }

    _toggleFolds() {
      const folded = this.layout.boxes.some((box) => box.kind === "fold");
      this.all = folded;
      this.open.clear();
      this.draw();
    }

    // Size ---------------------------------------------------------------------------------------

    _setZoom(zoom) {
      this.zoom = zoom;
      this._scale();
    }

    _step(direction) {
      const at = this._shownScale || 1;
      const next = direction > 0 ? ZOOMS.find((z) => z > at + 0.01) : ZOOMS.filter((z) => z < at - 0.01).at(-1);
      if (next) this._setZoom(next);
    }

    _scale() {
      if (!this.layout) return;
      const room = this.box.clientWidth || 800;
      // Fitting stops where labels would no longer be readable; then the box scrolls.
      const fit = Math.max(0.8, Math.min(1, room / this.layout.width));
      const scale = this.zoom === null ? fit : this.zoom;
      this._shownScale = scale;
      this.svg.setAttribute("viewBox", `0 0 ${this.layout.width} ${this.layout.height}`);
      this.svg.setAttribute("width", Math.round(this.layout.width * scale));
      this.svg.setAttribute("height", Math.round(this.layout.height * scale));
      this.zoomText.textContent = `${Math.round(100 * scale)} %`;
    }

    /** Bring the end of the accepted path into view: that is where the story is. */
    _scrollToEnd() {
      const { step } = this.store;
      const last = this.layout.by.get("bonus") || this.layout.by.get(step.accepted.at(-1) ?? -1);
      const right = (last.x + last.width + 40) * this._shownScale;
      this.box.scrollLeft = right > this.box.clientWidth ? right - this.box.clientWidth : 0;
      this.box.scrollTop = 0;
    }

    _intoView(box) {
      const k = this._shownScale;
      const pad = 20;
      const view = this.box;
      if (box.x * k < view.scrollLeft + pad) view.scrollLeft = box.x * k - pad;
      if ((box.x + box.width) * k > view.scrollLeft + view.clientWidth - pad)
        view.scrollLeft = (box.x + box.width) * k - view.clientWidth + pad;
      if (box.y * k < view.scrollTop) view.scrollTop = box.y * k - pad;
      if ((box.y + box.height) * k > view.scrollTop + view.clientHeight)
        view.scrollTop = (box.y + box.height) * k - view.clientHeight + pad;
    }
  };
})((globalThis.Recap = globalThis.Recap || {}));
