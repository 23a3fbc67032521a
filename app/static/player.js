/* Time on the screen: the pace at which arrived steps are revealed, and replay of revealed ones.
 *
 * A small model finishes an answer before an eye has moved. So the display has a pace of its own: it
 * delays what is shown and never what is measured.
 */
(function (R) {
  "use strict";

  R.Player = class {
    constructor(store) {
      this.store = store;
      this.pace = 4;
      this.speed = 1;
      this.playing = false;
      this._held = false;
      this._credit = 0;
      this._last = null;
      this._timer = null;
      store.subscribe((_, changes) => {
        if (changes.has("run")) this._open();
        if (changes.has("grow") || changes.has("run") || changes.has("play")) this._wake();
      });
    }

    /** Whether steps have arrived that are not revealed yet, or may still arrive. */
    get revealing() {
      const { run, frontier } = this.store;
      return !this._held && (run.running || frontier < run.steps.length);
    }

    setPace(value) {
      this.chosen = true;
      this.pace = value === "real" ? "real" : +value;
      this.store.changed("play");
    }

    setSpeed(value) {
      this.speed = value;
      this.store.changed("play");
    }

    toggle() {
      const { store } = this;
      if (this.playing) this.pause();
      else if (store.following && this.revealing) {
        this._held = true;
        store.following = false;
      } else if (this._held) {
        this._held = false;
        store.follow();
      } else {
        if (store.cursor >= store.frontier - 1) store.go(0);
        store.following = false;
        this.playing = true;
        this._credit = 0;
      }
      store.changed("play");
    }

    pause() {
      this.playing = false;
      this.store.changed("play");
    }

    _open() {
      this.playing = false;
      this._held = false;
      this._credit = 0;
      const { about } = this.store.run;
      if (about && about.pace && !this.chosen) this.pace = about.pace;
    }

    _wake() {
      if (this.store.following) this._held = false;
      if (this._timer || !(this.playing || this._behind())) return;
      this._last = performance.now();
      this._timer = setInterval(() => this._tick(), 40);
    }

    _behind() {
      return !this._held && this.store.frontier < this.store.run.steps.length;
    }

    _tick() {
      const now = performance.now();
      // After a pause of the page (a hidden tab) do not jump ahead.
      const passed = Math.min(0.5, (now - this._last) / 1000) * this.speed;
      this._last = now;
      const { store } = this;
      if (this._behind()) {
        if (this.pace === "real" && store.run.running) store.reveal(store.run.steps.length);
        else this._advance(passed, store.frontier, (count) => store.reveal(count));
      } else if (this.playing) {
        this._advance(passed, store.cursor, (index) => {
          const last = index >= store.frontier - 1;
          store.go(index);
          if (last) this.pause();
        });
      } else {
        clearInterval(this._timer);
        this._timer = null;
      }
    }

    /** Spend time on whole steps: at the pace, or for as long as each really took. */
    _advance(passed, at, move) {
      this._credit += passed;
      let count = 0;
      const steps = this.store.run.steps;
      const cost = (index) => this.pace === "real" ? (steps[index] ? R.stepSeconds(steps[index]) : 0.01) : 1 / this.pace;
      while (at + count < steps.length && this._credit >= cost(at + count) && count < 1000) {
        this._credit -= cost(at + count);
        count++;
      }
      if (count) move(at + count);
    }
  };
})((globalThis.Recap = globalThis.Recap || {}));
