/* The replay file: the page's views on data that lies in the file itself. */
(function (R) {
  "use strict";
  const { h } = R;
  const store = new R.Store();
  const view = document.getElementById("view");
  const value = JSON.parse(document.getElementById("data").textContent);
  const dark = globalThis.matchMedia("(prefers-color-scheme: dark)");
  const theme = () => document.documentElement.classList.toggle("dark", dark.matches);
  dark.addEventListener("change", theme);
  theme();
  R.mount(view, store);
  for (const [id, View, title] of [["numbers", R.NumbersView, "Numbers"], ["memory", R.MemoryView, "Memory"]]) {
    const part = new View(store);
    document.getElementById(id).append(h("h2", {}, title), part.root);
  }
  store.apply({ ...value, show: value.show ?? 0 });
})(globalThis.Recap);
