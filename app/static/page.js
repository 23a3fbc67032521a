/* The page's side of the views: one store, fed by Gradio. */
(function (R) {
  "use strict";
  const page = (R.page = { store: new R.Store(), parts: null });

  /** The main component: answer, timeline and step. */
  R.mountPage = (element, props, watch) => {
    page.parts = R.mount(element.querySelector(".recap-root"), page.store);
    const feed = () => page.store.apply(props.value);
    watch("value", feed);
    feed();
  };

  /* Runs and races that this page has started and that go on. A newer one may begin before the one
   * that it ends has said so, hence the counting. */
  const going = { run: 0, race: 0 };
  const stop = (interactive) => ({ __type__: "update", interactive });

  /** A run or race was started: what its notice, the Run button and Stop become. */
  R.began = (kind) => {
    going[kind]++;
    const nothing = { text: "" };
    return kind === "run" ? [nothing, "Run", stop(true)] : [nothing, stop(true)];
  };

  /** One is over: what Stop becomes. */
  R.ended = (kind) => stop(--going[kind] > 0);

  /**
   * What a link puts into the form: its values, but only where the form still holds what was served.
   * What the visitor has changed while the page was loading stays as it is.
   */
  R.openForm = (link, now, served) => {
    const content = (value) => JSON.stringify(value && value.path ? value.path : value);
    return now.map((value, at) =>
      link && content(value) === content(served[at]) ? link[at] : { __type__: "update" });
  };

  /** A message beside the form. Its text only becomes a text node. */
  R.mountNotice = (element, props, watch) => {
    const box = element.querySelector(".recap-notice");
    const show = () => {
      box.textContent = (props.value && props.value.text) || "";
      box.classList.toggle("info", !!(props.value && props.value.info));
    };
    watch("value", show);
    show();
  };

  /** Something to save or to copy: {name, media, text} or {query}. */
  R.mountParcel = (element, props, watch) => {
    const words = element.querySelector(".recap-copied");
    watch("value", () => {
      const value = props.value;
      if (!value) return;
      if (value.text !== undefined) R.save(value.name, value.media, value.text);
      else if (value.query !== undefined) {
        const step = page.store.cursor >= 0 ? `&step=${page.store.cursor}` : "";
        const link = `${location.origin}${location.pathname}?${value.query}${step}`;
        words.textContent = `${value.note || ""} ${link}`.trim();
        if (navigator.clipboard) navigator.clipboard.writeText(link).catch(() => {});
      }
    });
  };

  R.save = (name, media, text) => {
    const url = URL.createObjectURL(new Blob([text], { type: media }));
    R.h("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  };

  /** A picture that is pasted anywhere on the page becomes the request's. */
  R.pastePicture = (event) => {
    const file = [...(event.clipboardData?.files || [])].find((f) => f.type.startsWith("image/"));
    const box = document.querySelector("#recap-picture");
    if (!file || !box) return;
    event.preventDefault();
    const remove = box.querySelector("button[aria-label='Remove Image']");
    if (remove) remove.click();
    const put = (tries) => {
      const input = box.querySelector("input[type=file]");
      if (!input) { if (tries) setTimeout(() => put(tries - 1), 50); return; }
      const files = new DataTransfer();
      files.items.add(file);
      input.files = files.files;
      input.dispatchEvent(new Event("change", { bubbles: true }));
    };
    put(40);
  };

  /** The shown step's tree as an SVG file that looks the same anywhere. */
  R.saveSvg = () => {
    const { store, parts } = page;
    if (!store.step) return;
    R.save(`recap-${store.run.about.method}-step-${store.cursor + 1}.svg`, "image/svg+xml", R.standalone(parts.tree.svg, store));
  };

  const tab = (View) => (element) => {
    const part = new View(page.store);
    element.querySelector(".recap-root").append(part.root);
    part.draw();
  };
  R.mountNumbers = tab(R.NumbersView);
  R.mountMemory = (element, props, watch, send) => {
    const part = new R.MemoryView(page.store, send);
    element.querySelector(".recap-root").append(part.root);
    watch("value", () => part.answer(props.value));
    part.draw();
  };

  document.addEventListener("paste", (event) => R.pastePicture(event));

  /** Name, model and theme. */
  R.mountHeader = (element) => {
    const { h } = R;
    const model = h("span", { class: "tabular" });
    const theme = h("button", { type: "button", onclick: () => {
      document.body.classList.toggle("dark");
      label();
    } });
    const label = () => {
      theme.textContent = document.body.classList.contains("dark") ? "Light" : "Dark";
      theme.setAttribute("aria-label", `Switch to the ${theme.textContent.toLowerCase()} theme`);
    };
    label();
    const guide = h("button", { type: "button", class: "guide", onclick: () => {
      if (!page.parts) return;
      page.parts.tour.onclose = fresh;
      page.parts.tour.open();
    } }, "What am I looking at?");
    const fresh = () => guide.classList.toggle("fresh", !R.tourSeen());
    fresh();
    element.querySelector(".right").append(model, guide, h("button", { type: "button", "aria-label": "Help: words and keys", title: "Words and keys", onclick: () => page.parts && page.parts.help() }, "?"), theme);
    page.store.subscribe((store) => {
      const { about } = store.run;
      model.textContent = about.model ? `${about.model} · ${about.device} · ${about.dtype}` : "";
    });
    page.store.changed("run");
  };
})((globalThis.Recap = globalThis.Recap || {}));
