// Draws the plots of a report into their empty <svg>, at the width that there is. What a plot consists of is told in
// harness/report/drawn.py, which writes the data. Nothing is loaded, and nothing is kept.
"use strict";
(() => {
  const ROW = 26, ROW_BELOW_NAME = 42, NARROW = 560, LETTER = 6.8;
  const BOTTOM = 24, TOP = 10, RIGHT = 16, NEAR = 30, DRAG_LEAST = 8;

  const forward = (axis, v) => (axis.log ? Math.log10(v) : v);
  const backward = (axis, v) => (axis.log ? 10 ** v : v);
  const whole = (axis) => [forward(axis, axis.low), forward(axis, axis.high)];

  function short(v) {
    for (const [size, letter] of [[1e9, " G"], [1e6, " M"], [1e3, " k"]]) {
      if (Math.abs(v) >= size) return `${+(v / size).toPrecision(4)}${letter}`;
    }
    return `${+v.toPrecision(4)}`;
  }

  function unit(label) {
    const found = /\(([^()]*)\)\s*$/.exec(label);
    return found ? ` ${found[1]}` : "";
  }

  function evenTicks(low, high, most) {
    const rough = (high - low) / Math.max(most, 1);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) ?? 10 * power;
    const out = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) out.push(i * step);
    return out.length >= 2 || most > 8 ? out : evenTicks(low, high, 2 * Math.max(most, 1)); // two make a scale
  }

  function ticks(axis, view, most) {
    const [low, high] = [Math.min(...view), Math.max(...view)];
    if (!axis.log) return evenTicks(low, high, most);
    const marks = high - low > 2.5 ? [1] : high - low > 1.2 ? [1, 3] : [1, 2, 5];
    const out = [];
    const stride = Math.max(1, Math.ceil((high - low) / Math.max(most, 1)));
    for (let e = Math.floor(low); e <= Math.ceil(high); e++) {
      if (e % stride) continue;
      for (const m of marks) {
        const at = e + Math.log10(m);
        if (at >= low - 1e-9 && at <= high + 1e-9) out.push(m * 10 ** e);
      }
    }
    return out.length >= 2 ? out : evenTicks(10 ** low, 10 ** high, most).filter((v) => v > 0);
  }

  const SHAPES = {
    s: (x, y) => `M${x - 3} ${y - 3}h6v6h-6Z`,
    "^": (x, y) => `M${x} ${y - 4}L${x + 4} ${y + 3}H${x - 4}Z`,
    v: (x, y) => `M${x} ${y + 4}L${x + 4} ${y - 3}H${x - 4}Z`,
    D: (x, y) => `M${x} ${y - 4}L${x + 4} ${y}L${x} ${y + 4}L${x - 4} ${y}Z`,
    P: (x, y) => `M${x - 1.5} ${y - 4}h3v2.5h2.5v3h-2.5v2.5h-3v-2.5h-2.5v-3h2.5Z`,
    X: (x, y) => `M${x - 4} ${y - 2}l2-2l2 2l2-2l2 2l-2 2l2 2l-2 2l-2-2l-2 2l-2-2l2-2Z`,
    "|": (x, y) => `M${x - 1} ${y - 6}h2v12h-2Z`,
  };
  const circle = (x, y) => `M${x - 3.5} ${y}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0Z`;

  class Plot {
    constructor(root) {
      this.root = root;
      this.svg = root.querySelector(".view svg");
      this.told = root.querySelector("output");
      this.data = JSON.parse(root.querySelector("script").textContent);
      this.hidden = new Set();
      this.named = this.data.y.names.length > 0;
      this.shapes();
      this.all();
      this.listen();
    }

    // In the legend what the series has in the drawing: without colours they are told apart by it.
    shapes() {
      for (const button of this.root.querySelectorAll("[data-series]")) {
        const mark = this.data.marks.find((m) => m.marker && m.series === Number(button.dataset.series));
        if (!mark) continue;
        const d = (SHAPES[mark.marker] ?? circle)(14, 6), look = mark.marker === "hollow" ? "hollow" : "fill";
        button.querySelector("circle")?.replaceWith(this.element("path", { d, class: look }));
      }
    }

    all() {
      this.view = { x: whole(this.data.x), y: whole(this.data.y) };
      this.draw();
    }

    element(name, attributes, text) {
      const made = document.createElementNS(this.svg.namespaceURI, name);
      for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
      if (text !== undefined) made.textContent = text;
      return made;
    }

    // Where the panel lies in the drawing, in pixels.
    layout() {
      const width = Math.max(this.svg.parentElement.clientWidth, 200);
      const names = this.data.y.names;
      this.below = this.named && width < NARROW;
      const height = this.named
        ? names.length * (this.below ? ROW_BELOW_NAME : ROW) + TOP + BOTTOM
        : Math.round(Math.min(Math.max(width * 0.55, 260), 440));
      this.yTicks = this.named ? [] : ticks(this.data.y, this.view.y, (height - TOP - BOTTOM) / 36);
      const letters = this.named ? names.map((n) => n[1].length) : this.yTicks.map((v) => short(v).length);
      const wanted = Math.max(...letters, 1) * LETTER + 10;
      const left = this.below ? 6 : Math.min(wanted, width * 0.42);
      this.box = { left, top: TOP, right: width - RIGHT, bottom: height - BOTTOM, width, height };
      const { right, top, bottom } = this.box;
      const [x0, x1] = this.view.x, [y0, y1] = this.view.y;
      this.x = (v) => left + ((forward(this.data.x, v) - x0) / (x1 - x0)) * (right - left);
      this.y = (v) => bottom - ((forward(this.data.y, v) - y0) / (y1 - y0)) * (bottom - top);
    }

    draw() {
      this.layout();
      const { left, top, right, bottom, width, height } = this.box;
      this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      this.svg.setAttribute("height", height);
      const clip = `clip-${[...document.querySelectorAll(".plot")].indexOf(this.root)}`;
      const defs = this.element("clipPath", { id: clip });
      const room = { x: left - 5, y: top - 5, width: right - left + 10, height: bottom - top + 10 };
      defs.append(this.element("rect", room));
      this.inside = this.element("g", { "clip-path": `url(#${clip})` });
      this.svg.replaceChildren(defs, ...this.axes(), this.inside);
      for (const mark of this.data.marks) {
        if (!this.hidden.has(mark.series)) this.mark(mark);
      }
      this.notes();
    }

    axes() {
      const { left, top, right, bottom } = this.box;
      const out = [];
      const line = (d) => out.push(this.element("path", { d, class: "grid" }));
      const text = (x, y, anchor, words) => out.push(this.element("text", { x, y, "text-anchor": anchor }, words));
      let free = -Infinity;
      for (const v of ticks(this.data.x, this.view.x, (right - left) / 72)) {
        const at = this.x(v), half = (short(v).length * LETTER) / 2;
        line(`M${at} ${top}V${bottom}`);
        if (at - half < free || at + half > right + RIGHT) continue;
        free = at + half + 6;
        text(at, bottom + 16, "middle", short(v));
      }
      for (const v of this.yTicks) {
        line(`M${left} ${this.y(v)}H${right}`);
        text(left - 6, this.y(v) + 4, "end", short(v));
      }
      for (const [at, name] of this.data.y.names) {
        const letters = Math.floor((this.below ? right - left : left - 8) / LETTER);
        const words = name.length > letters ? `${name.slice(0, letters - 1)}\u2026` : name;
        if (this.below) text(left, this.y(at) - 6, "start", words);
        else text(left - 8, this.y(at) + 4, "end", words);
      }
      return out;
    }

    // A place in pixels; null: it has none on these axes.
    place([x, y]) {
      if (x === null || y === null) return null;
      const at = [this.x(x), this.y(y)];
      return at.every(Number.isFinite) ? at.map((v) => Math.round(100 * Math.max(-1e5, Math.min(1e5, v))) / 100) : null;
    }

    path(d, mark, look, more = {}) {
      this.inside.append(this.element("path", { d, class: `${mark.paint} ${look}`, ...more }));
    }

    mark(mark) {
      const places = mark.points.map((p) => this.place(p)).filter(Boolean);
      const dash = mark.dash ? { "stroke-dasharray": mark.dash } : {};
      if (mark.kind === "rule") return this.rule(mark, { "stroke-width": 1.3, ...dash });
      if (mark.kind === "bars") return this.bars(mark);
      if (mark.kind === "errors") return this.errors(mark);
      if (!places.length) return undefined;
      if (mark.kind === "band") return this.path(`M${places.join("L")}Z`, mark, "band");
      if (mark.kind === "line") this.path(`M${places.join("L")}`, mark, "stroke", { "stroke-width": 1.8, ...dash });
      if (!mark.marker) return undefined;
      const shape = SHAPES[mark.marker] ?? circle;
      const look = mark.marker === "hollow" ? "hollow" : "fill";
      return this.path(places.map((p) => shape(...this.lowered(p))).join(""), mark, look);
    }

    // Below its name, where the names have lines of their own.
    lowered([x, y]) {
      return this.below ? [x, y + 6] : [x, y];
    }

    rule(mark, look) {
      const { left, right, top, bottom } = this.box;
      for (const [x, y] of mark.points) {
        const d = x === null ? `M${left} ${this.y(y)}H${right}` : `M${this.x(x)} ${top}V${bottom}`;
        this.path(d, mark, "stroke", look);
      }
    }

    bars(mark) {
      mark.points.forEach((from, i) => {
        const start = this.data.x.log && from[0] <= 0 ? [this.data.x.low, from[1]] : from;
        const [a, b] = [this.place(start), this.place(mark.ends[i])];
        if (!a || !b) return;
        const high = this.below ? 12 : Math.abs(b[1] - a[1]);
        const middle = this.lowered([0, (a[1] + b[1]) / 2])[1];
        this.path(`M${a[0]} ${middle - high / 2}H${b[0]}v${high}H${a[0]}Z`, mark, "fill");
      });
    }

    errors(mark) {
      const strokes = mark.points.map((from, i) => [this.place(from), this.place(mark.ends[i])]);
      const known = strokes.filter(([a, b]) => a && b);
      const d = known.map(([a, b]) => `M${this.lowered(a)}L${this.lowered(b)}`).join("");
      if (d) this.path(d, mark, "stroke", { "stroke-width": 1.2 });
    }

    // Words at points, moved up and down until they lie on no other words. Where there is little room only numbers.
    notes() {
      const { left, right, top, bottom, width } = this.box, taken = [];
      for (const note of this.data.notes) {
        if (width < NARROW && !/[\d\u00d7]/.test(note.text)) continue;
        const at = this.place([note.x, note.y]);
        if (!at || at[0] < left - 1 || at[0] > right + 1 || at[1] < top - 1 || at[1] > bottom + 1) continue;
        const [x, y] = this.lowered(at), long = note.text.length * LETTER;
        if (note.text === "\u00d7") {
          this.svg.append(this.element("text", { x, y: y + 4, class: "note", "text-anchor": "middle" }, note.text));
          continue;
        }
        const after = x + 8 + long <= right + RIGHT;
        const from = after ? x + 8 : Math.max(x - 8 - long, 0);
        const free = (dy) => !taken.some(([u, v, w]) => from < u + w && u < from + long && Math.abs(y + dy - v) < 13);
        const fits = (dy) => y + dy > top && y + dy < bottom;
        const moved = [0, -14, 14, -28, 28, -42, 42, -56, 56].find((dy) => free(dy) && fits(dy)) ?? 0;
        taken.push([from, y + moved, long]);
        this.svg.append(this.element("text", { x: from, y: y + moved + 4, class: "note" }, note.text));
      }
    }

    zoom(factor, middle = { x: 0.5, y: 0.5 }) {
      for (const side of this.named ? ["x"] : ["x", "y"]) {
        const [low, high] = this.view[side], at = low + (high - low) * middle[side];
        this.look(side, at + (low - at) * factor, at + (high - at) * factor);
      }
      this.draw();
    }

    // Nothing beyond the whole, and nothing closer than a thousandth of it.
    look(side, low, high) {
      const [first, last] = whole(this.data[side]), way = Math.sign(last - first);
      const all = Math.abs(last - first), wide = Math.min(Math.max(Math.abs(high - low), all / 1000), all);
      const from = Math.min(Math.max((low - first) * way, 0), all - wide);
      this.view[side] = [first + way * from, first + way * (from + wide)];
    }

    move(x, y) {
      for (const [side, by] of this.named ? [["x", x]] : [["x", x], ["y", y]]) {
        const [low, high] = this.view[side];
        this.look(side, low + (high - low) * by, high + (high - low) * by);
      }
      this.draw();
    }

    // Pixels of a pointer in the drawing.
    pixels(event) {
      const box = this.svg.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    }

    tell(x, y) {
      let best = NEAR ** 2, said = "";
      for (const mark of this.data.marks) {
        if (this.hidden.has(mark.series)) continue;
        const heard = { bars: mark.ends, line: mark.points, dots: mark.points }[mark.kind] ?? [];
        for (const point of heard) {
          const at = this.place(point);
          if (!at) continue;
          const far = (this.named ? 0 : (at[0] - x) ** 2) + (at[1] - y) ** 2;
          if (far < best) [best, said] = [far, this.words(mark, point)];
        }
      }
      this.told.textContent = said || "\u00a0";
    }

    words(mark, [x, y]) {
      const across = `${short(x)}${unit(this.data.x.label)}`;
      if (!this.named) return `${mark.label}: ${across}, ${short(y)}${unit(this.data.y.label)}`;
      const [, name] = this.data.y.names.reduce((a, b) => (Math.abs(b[0] - y) < Math.abs(a[0] - y) ? b : a));
      return `${name}${mark.label ? `, ${mark.label}` : ""}: ${across}`;
    }

    listen() {
      const does = { in: () => this.zoom(0.5), out: () => this.zoom(2), all: () => this.all() };
      const keys = {
        "+": does.in, "=": does.in, "-": does.out, 0: does.all, Escape: does.all,
        ArrowLeft: () => this.move(-0.2, 0), ArrowRight: () => this.move(0.2, 0),
        ArrowDown: () => this.move(0, -0.2), ArrowUp: () => this.move(0, 0.2),
      };
      for (const button of this.root.querySelectorAll("[data-do]")) {
        button.addEventListener("click", does[button.dataset.do]);
      }
      for (const button of this.root.querySelectorAll("[data-series]")) {
        button.addEventListener("click", () => this.toggle(button));
      }
      this.svg.parentElement.addEventListener("keydown", (event) => {
        const act = keys[event.key];
        if (!act || event.ctrlKey || event.altKey || event.metaKey) return;
        event.preventDefault();
        act();
      });
      this.svg.addEventListener("dblclick", does.all);
      this.svg.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
      this.svg.addEventListener("pointermove", (event) => this.tell(...this.pixels(event)));
      this.svg.addEventListener("pointerdown", (event) => this.drag(event));
    }

    toggle(button) {
      const series = Number(button.dataset.series), shown = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!shown));
      if (shown) this.hidden.add(series);
      else this.hidden.delete(series);
      this.draw();
    }

    // Only with Ctrl: a page is scrolled over its plots.
    wheel(event) {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const [x, y] = this.pixels(event), { left, right, top, bottom } = this.box;
      this.zoom(event.deltaY < 0 ? 0.8 : 1.25, { x: (x - left) / (right - left), y: (bottom - y) / (bottom - top) });
    }

    // A rectangle with the mouse becomes the view.
    drag(event) {
      if (event.button || event.pointerType === "touch") return;
      const [x0, y0] = this.pixels(event), { left, right, top, bottom } = this.box;
      const frame = this.element("rect", { class: "drag" });
      const within = (v, low, high) => Math.min(Math.max(v, low), high);
      let area = null;
      const moved = (next) => {
        const [x1, y1] = this.pixels(next);
        const xs = [x0, x1].map((v) => within(v, left, right)).sort((a, b) => a - b);
        const ys = this.named ? [top, bottom] : [y0, y1].map((v) => within(v, top, bottom)).sort((a, b) => a - b);
        area = { xs, ys };
        for (const [key, value] of [["x", xs[0]], ["y", ys[0]], ["width", xs[1] - xs[0]], ["height", ys[1] - ys[0]]]) {
          frame.setAttribute(key, value);
        }
      };
      const done = () => {
        this.svg.removeEventListener("pointermove", moved);
        frame.remove();
        if (!area || area.xs[1] - area.xs[0] < DRAG_LEAST || area.ys[1] - area.ys[0] < DRAG_LEAST) return;
        const part = (v, low, high, [from, to]) => from + ((v - low) / (high - low)) * (to - from);
        const [x, y] = [this.view.x, this.view.y];
        this.look("x", ...area.xs.map((v) => part(v, left, right, x)));
        if (!this.named) this.look("y", ...area.ys.reverse().map((v) => part(v, bottom, top, y)));
        this.draw();
      };
      this.svg.append(frame);
      this.svg.setPointerCapture(event.pointerId);
      this.svg.addEventListener("pointermove", moved);
      this.svg.addEventListener("pointerup", done, { once: true });
      this.svg.addEventListener("pointercancel", done, { once: true });
    }
  }

  const plots = [...document.querySelectorAll(".plot")].map((root) => new Plot(root));
  const widths = new Map(plots.map((plot) => [plot.svg.parentElement, plot]));
  const watcher = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const plot = widths.get(target);
      if (Math.max(target.clientWidth, 200) !== plot.box.width) plot.draw();
    }
  });
  for (const place of widths.keys()) watcher.observe(place);

  for (const button of document.querySelectorAll("[data-save]")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const text = document.getElementById(button.dataset.save).textContent;
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
      link.download = button.dataset.name;
      link.click();
      URL.revokeObjectURL(link.href);
    });
  }
})();
