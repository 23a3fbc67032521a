/* Words, numbers and marks that every view shares, and the two ways to make an element.
 *
 * A token's text only ever becomes a text node: nothing here or elsewhere parses it as markup.
 */
(function (R) {
  "use strict";

  const SVG = "http://www.w3.org/2000/svg";

  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat(Infinity)) {
      if (child === null || child === undefined || child === false) continue;
      element.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return element;
  }

  /** An HTML element; strings among the children become text nodes. */
  R.h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  /** An SVG element; strings among the children become text nodes. */
  R.s = (tag, attributes, ...children) =>
    fill(document.createElementNS(SVG, tag), attributes, children);

  /** Replace what an element holds; nothing stands for nothing. */
  R.put = (element, ...children) => element.replaceChildren(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));

  const ICONS = {
    first: "M3 3v10M13 3v10L6 8z", back: "M11 3v10L5 8z", play: "M4 2.5v11l9-5.5z", pause: "M4 3h3v10H4zM9 3h3v10H9z",
    next: "M5 3v10l6-5z", last: "M13 3v10M3 3v10l7-5z",
  };
  /** A small picture for a button; its words are in the button's label. */
  R.icon = (name) => R.s("svg", { class: "icon-svg", viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" },
    R.s("path", { d: ICONS[name], fill: "currentColor", stroke: "currentColor", "stroke-width": 1.6, "stroke-linejoin": "round" }));

  /** What supplied a token: its glyph (the mark that is not a colour), class and name. */
  R.SOURCES = {
    1: { glyph: "1", css: "o1", name: "1-token memory" },
    2: { glyph: "2", css: "o2", name: "2-token memory" },
    3: { glyph: "3", css: "o3", name: "3-token memory" },
    "carried-2": { glyph: "2", css: "o2 hollow", name: "2-token memory, carried" },
    "carried-3": { glyph: "3", css: "o3 hollow", name: "3-token memory, carried" },
    suffix: { glyph: "S", css: "sx", name: "suffix" },
    "runner-up": { glyph: "R", css: "ru", name: "runner-up" },
    bonus: { glyph: "★", css: "bo", name: "bonus: the target itself" },
    prefill: { glyph: "★", css: "bo", name: "prefill: the target itself" },
  };
  R.source = (name) => R.SOURCES[name] || R.SOURCES.bonus;

  /** Order in which sources are stacked and listed. */
  R.SOURCE_ORDER = ["3", "carried-3", "2", "carried-2", "1", "suffix", "runner-up", "bonus"];

  const WHITE = { " ": "·", "\n": "⏎", "\t": "→", "\r": "␍" };

  /** Characters that change how others are drawn, or that are not drawn at all. */
  const UNSEEN = /[\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/;
  const shown = (c) =>
    WHITE[c] || (c < " " || UNSEEN.test(c) ? `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩` : c);

  /** A token's text with white space made visible, and bytes of incomplete characters as ⟨E2⟩. */
  R.visible = (entry) => {
    if (!entry) return "?";
    if (entry.hex) return (entry.hex.match(/../g) || []).map((b) => `⟨${b.toUpperCase()}⟩`).join("");
    if (entry.text === "") return "∅";
    return Array.from(entry.text, shown).join("");
  };

  /** A token's text in quotes, for sentences. */
  R.quoted = (entry) => {
    if (!entry) return "‘?’";
    const text = entry.hex ? R.visible(entry) : entry.text.trim() || R.visible(entry);
    return `‘${R.clip(text, 24)}’`;
  };

  /** At most `count` characters, the last an ellipsis where some were left off. */
  R.clip = (text, count) => {
    const characters = Array.from(text);
    return characters.length > count ? characters.slice(0, count - 1).join("") + "…" : text;
  };

  /** Width of a text in columns of a monospace font: wide scripts take two. */
  R.columns = (text) => {
    let columns = 0;
    for (const character of text) columns += character.codePointAt(0) >= 0x1100 ? wide(character) : 1;
    return columns;
  };
  const wide = (c) => {
    const p = c.codePointAt(0);
    return (p <= 0x115f || (p >= 0x2e80 && p <= 0xa4cf) || (p >= 0xac00 && p <= 0xd7a3) ||
      (p >= 0xf900 && p <= 0xfaff) || (p >= 0xfe30 && p <= 0xfe6f) ||
      (p >= 0xff00 && p <= 0xff60) || p >= 0x1f300) ? 2 : 1;
  };

  /** A probability as the tree shows it: .98, 1.0, and <.01 for what is not nothing. */
  R.share = (p) => {
    if (p >= 0.995) return "1.0";
    if (p > 0 && p < 0.005) return "<.01";
    return p.toFixed(2).replace(/^0/, "");
  };
  /** A score in a node: nothing where it would only say that it is nearly nothing. */
  R.brief = (p) => (p < 0.005 ? "" : R.share(p));
  R.percent = (p) => `${(100 * p).toFixed(p > 0 && p < 0.1 ? 1 : 0)} %`;
  R.fixed = (value, digits = 2) =>
    value === null || value === undefined || Number.isNaN(value) ? "–" : value.toFixed(digits);
  R.time = (seconds) =>
    seconds >= 100 ? `${Math.round(seconds)} s`
      : seconds >= 1 ? `${seconds.toFixed(2)} s` : `${(1000 * seconds).toFixed(1)} ms`;
  R.count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
  R.bytes = (n) => (n >= 1e6 ? `${(n / 1e6).toFixed(1)} MB` : `${(n / 1e3).toFixed(1)} kB`);

  /** Why a step speculated nothing, in words. */
  R.REASONS = {
    cold: "the memory is still empty",
    "no-hit": "no key in the memory matched",
    "does-not-pay": "a larger pass would not have paid for itself",
    limit: "the limit of new tokens is reached",
    context: "the model’s context is full",
    off: "this method does not speculate",
  };
  /** What an adaptive budget decided, in a sentence; nothing where a number was given. */
  R.decision = (step) => {
    const { k, expected, seconds, reason } = step.budget;
    if (seconds === null || seconds === undefined) return "";
    const pass = `a pass of about ${R.time(seconds)}`;
    return k
      ? `The budget took ${R.count(k, "node")}: ${R.fixed(expected)} tokens expected from ${pass}.`
      : `The budget took no node, since ${R.REASONS[reason] || "nothing was proposed"}: ${pass} for one token.`;
  };
  /** How a run ended, in words. */
  R.FINISHES = {
    eos: "the model ended its answer",
    length: "the limit of new tokens was reached",
    stop: "a stop string appeared",
    context: "the context is full",
    cancelled: "stopped by you",
    error: "it failed",
  };

  /** One sentence on what happened in a step. */
  R.sentence = (run, step) => {
    if (!step) return "No step yet.";
    const head = `Step ${step.i + 1}: `;
    const emitted = `${R.count(step.emitted.length, "token")} emitted`;
    if (!step.nodes.length) {
      const why = R.REASONS[step.budget.reason] || "nothing was proposed";
      return `${head}no candidates, since ${why}; ${emitted}.`;
    }
    const matched = step.emitted.filter((e) => e.source !== "bonus").length;
    let text = `${head}${R.count(step.nodes.length, "node")} from ${sourcesOf(step)}; ` +
      `${matched} matched, ${step.emitted.length} emitted`;
    const bonus = step.bonus;
    if (bonus) {
      const said = step.nodes.filter((n) => n.parent === bonus.parent && n.state === "rejected")
        .sort((a, b) => b.fused - a.fused)[0];
      text += said
        ? `; the target wanted ${R.quoted(run.token(bonus.token))} where ` +
          `${saidBy(said)} said ${R.quoted(run.token(said.token))}`
        : `; the target went on with ${R.quoted(run.token(bonus.token))}`;
    }
    return text + ".";
  };

  const saidBy = (node) =>
    node.supplier === "suffix" ? "the suffix"
      : node.supplier === "runner-up" ? "a runner-up"
        : node.supplier.startsWith("carried") ? "an earlier request’s memory" : "the memory";

  function sourcesOf(step) {
    const orders = new Set();
    const others = new Set();
    for (const node of step.nodes) {
      const order = /\d/.exec(node.supplier);
      if (order) orders.add(order[0]);
      else others.add(node.supplier === "runner-up" ? "runners-up" : node.supplier);
    }
    const parts = [...orders].sort().reverse().map((o) => `${o}-token`);
    let text = parts.length ? `${list(parts)} memory` : "";
    const rest = [...others].filter((o) => R.SOURCES[o] || o === "runners-up");
    if (rest.length) text += (text ? " and " : "") + list(rest);
    return text || "the memory";
  }

  R.capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

  const list = (words) =>
    words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
})((globalThis.Recap = globalThis.Recap || {}));
