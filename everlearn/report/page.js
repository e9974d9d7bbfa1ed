"use strict";
// Curves drawn from the numbers in the page: no library, no network. Text from run folders only
// ever becomes textContent.
(() => {
  const DASHES = { "-": "", "--": "7 4", "-.": "7 3 2 3", ":": "2 3" };
  const STATISTICS = {
    mean: { words: "mean ± standard error", value: "mean" },
    middle: { words: "IQM, 95 % interval", value: "middle" },
  };
  const HEIGHT = { one: 300, many: 210 };
  const MARGIN = { left: 64, right: 12, top: 8, bottom: 36 };

  const svg = (name, attributes = {}, ...children) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const html = (name, attributes = {}, ...children) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };

  // The marker of a method, the same as in print.
  const marker = (style, x, y, size) =>
    svg("path", { class: "marker", fill: style.color, d: style.outline, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${size})` });

  // What a method looks like: its colour, its dashes and its marker, as in the curves.
  const sample = (style) => {
    const line = svg("line", { x1: 0, y1: 6, x2: 28, y2: 6, stroke: style.color, "stroke-width": 2 });
    line.setAttribute("stroke-dasharray", DASHES[style.dash]);
    return svg("svg", { width: 28, height: 12, "aria-hidden": "true" }, line, marker(style, 14, 6, 9));
  };

  const bounds = (curve, place, statistic) => {
    if (statistic === "middle") return [curve.low[place], curve.high[place]];
    const error = curve.standard_error[place];
    if (error === null) return [null, null];
    return [curve.mean[place] - error, curve.mean[place] + error];
  };

  const shown = (value, figure) => {
    if (value === null) return "-";
    return figure.percent ? `${(100 * value).toFixed(1)} %` : value.toPrecision(3);
  };

  // From values to pixels, and the lines to draw behind them.
  const verticalScale = (figure, curves, statistic, height) => {
    const bottom = height - MARGIN.bottom;
    const span = bottom - MARGIN.top;
    if (figure.percent) {
      const ticks = [0, 0.25, 0.5, 0.75, 1].map((at) => [at, `${100 * at}%`]);
      return { at: (value) => bottom - value * span, ticks };
    }
    const values = [];
    for (const curve of curves)
      curve.x.forEach((_, place) => values.push(curve[STATISTICS[statistic].value][place], ...bounds(curve, place, statistic)));
    if (!figure.logarithmic) {
      const known = values.filter((value) => value !== null);
      let low = Math.min(...known, Infinity), high = Math.max(...known, -Infinity);
      if (!Number.isFinite(low)) [low, high] = [0, 1];
      if (low === high) [low, high] = [low - 1, high + 1];
      const step = niceStep(high - low, 4), first = Math.floor(low / step), last = Math.ceil(high / step);
      const ticks = [];
      for (let tick = first; tick <= last; tick += 1) ticks.push([tick * step, String(Number((tick * step).toPrecision(4)))]);
      return { at: (value) => bottom - ((value / step - first) / (last - first)) * span, ticks };
    }
    const positive = values.filter((value) => value !== null && value > 0);
    let low = Math.min(...positive, Infinity), high = Math.max(...positive, -Infinity);
    if (!Number.isFinite(low)) [low, high] = [1, 10];
    const first = Math.floor(Math.log10(low)), last = Math.max(Math.ceil(Math.log10(high)), first + 1);
    const step = Math.ceil((last - first) / 5);
    const ticks = [];
    for (let power = first; power <= last; power += step) ticks.push([10 ** power, `1e${power}`]);
    const at = (value) => bottom - ((Math.log10(Math.max(value, 10 ** first)) - first) / (last - first)) * span;
    return { at, ticks };
  };

  const niceStep = (length, count) => {
    const raw = length / count, base = 10 ** Math.floor(Math.log10(raw));
    return base * ([1, 2, 5, 10].find((factor) => factor * base >= raw) ?? 10);
  };

  // Runs of neighbours that satisfy a condition, as lists of places.
  const stretches = (count, holds) => {
    const found = [];
    let current = [];
    for (let place = 0; place < count; place += 1) {
      if (holds(place)) current.push(place);
      else if (current.length) { found.push(current); current = []; }
    }
    if (current.length) found.push(current);
    return found;
  };

  const path = (points) => points.map(([x, y], n) => `${n ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

  const drawCurve = (layer, curve, style, scales, statistic) => {
    const value = curve[STATISTICS[statistic].value];
    const point = (place) => [scales.x(curve.x[place]), scales.y.at(value[place])];
    const group = svg("g", { "data-method": curve.method });
    for (const places of stretches(curve.x.length, (n) => bounds(curve, n, statistic)[0] !== null)) {
      const upper = places.map((n) => [scales.x(curve.x[n]), scales.y.at(bounds(curve, n, statistic)[1])]);
      const lower = places.map((n) => [scales.x(curve.x[n]), scales.y.at(bounds(curve, n, statistic)[0])]);
      group.append(svg("path", { class: "band", fill: style.color, d: `${path([...upper, ...lower.reverse()])}Z` }));
    }
    // Dotted where not every seed has a value.
    const whole = (n) => value[n] !== null && curve.runs[n] === curve.seeds;
    const parts = stretches(curve.x.length - 1, (n) => whole(n) && whole(n + 1));
    for (const places of parts) {
      const line = svg("path", { class: "line", stroke: style.color, d: path([...places, places.at(-1) + 1].map(point)) });
      line.setAttribute("stroke-dasharray", DASHES[style.dash]);
      group.append(line);
    }
    const lesser = (n) => value[n] !== null && value[n + 1] !== null && !(whole(n) && whole(n + 1));
    for (const places of stretches(curve.x.length - 1, lesser))
      group.append(svg("path", { class: "line partial", stroke: style.color, d: path([...places, places.at(-1) + 1].map(point)) }));
    const [first, every] = curve.marked;
    for (let place = first; place < curve.x.length; place += every)
      if (value[place] !== null) group.append(marker(style, ...point(place), 7));
    layer.append(group);
  };

  const drawPanel = (panel, study, figure, task, state) => {
    panel.querySelectorAll("svg, .tip, .empty").forEach((node) => node.remove());
    const curves = figure.curves.filter((curve) => curve.task === task && !state.methods.has(curve.method));
    if (!curves.length) {
      panel.append(html("p", { class: "empty" }, "Nothing to show here."));
      return;
    }
    const width = Math.max(240, panel.clientWidth - 16);
    const height = figure.byTask ? HEIGHT.many : HEIGHT.one;
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img" });
    picture.setAttribute("aria-label", `${figure.title}${task === null ? "" : `, ${study.tasks[task].name}`}`);
    const right = width - MARGIN.right, bottom = height - MARGIN.bottom;
    const x = (time) => MARGIN.left + (time / figure.end) * (right - MARGIN.left);
    const y = verticalScale(figure, curves, state.statistic, height);
    if (figure.unit === "episode" && task === null)
      for (const at of study.switches)
        picture.append(svg("line", { class: "switch", x1: x(at), x2: x(at), y1: MARGIN.top, y2: bottom }));
    else if (figure.unit === "episode")
      for (const [start, end] of study.tasks[task].periods)
        picture.append(svg("rect", { class: "period", x: x(start), y: MARGIN.top, width: x(end) - x(start), height: bottom - MARGIN.top }));
    for (const [value, words] of y.ticks) {
      const at = y.at(value);
      picture.append(svg("line", { class: "grid", x1: MARGIN.left, x2: right, y1: at, y2: at }));
      picture.append(svg("text", { x: MARGIN.left - 7, y: at + 4, "text-anchor": "end" }, words));
    }
    const step = niceStep(figure.end, 4);
    for (let at = 0; at <= figure.end; at += step)
      picture.append(svg("text", { x: x(at), y: bottom + 16, "text-anchor": "middle" }, String(at)));
    picture.append(svg("text", { x: (MARGIN.left + right) / 2, y: height - 5, "text-anchor": "middle" }, figure.x));
    const middle = (MARGIN.top + bottom) / 2;
    picture.append(svg("text", { class: "y", transform: `translate(13 ${middle}) rotate(-90)`, "text-anchor": "middle" }, figure.y));
    const layer = svg("g");
    for (const curve of curves) drawCurve(layer, curve, study.methods[curve.method].style, { x, y }, state.statistic);
    picture.append(layer);
    hover(panel, picture, study, figure, curves, { x, y, right, bottom }, state);
    panel.append(picture);
  };

  const hover = (panel, picture, study, figure, curves, scales, state) => {
    const times = [...new Set(curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
    const cross = svg("line", { class: "cross", y1: MARGIN.top, y2: scales.bottom, visibility: "hidden" });
    picture.append(cross);
    let tip = null;
    const hide = () => {
      tip?.remove();
      tip = null;
      cross.setAttribute("visibility", "hidden");
    };
    const show = (event) => {
      const box = picture.getBoundingClientRect();
      const at = ((event.clientX - box.left) / box.width) * picture.viewBox.baseVal.width;
      const time = times.reduce((best, one) => (Math.abs(scales.x(one) - at) < Math.abs(scales.x(best) - at) ? one : best));
      hide();
      cross.setAttribute("x1", scales.x(time));
      cross.setAttribute("x2", scales.x(time));
      cross.setAttribute("visibility", "visible");
      tip = html("div", { class: "tip", role: "status" }, html("b", {}, `after ${figure.unit} ${time}`));
      for (const curve of curves) {
        const place = curve.x.indexOf(time);
        if (place < 0) continue;
        const method = study.methods[curve.method];
        const value = shown(curve[STATISTICS[state.statistic].value][place], figure);
        const [low, high] = bounds(curve, place, state.statistic);
        const band = low === null ? "" : ` [${shown(low, figure)}, ${shown(high, figure)}]`;
        const seeds = ` n=${curve.runs[place]}${curve.runs[place] < curve.seeds ? ` of ${curve.seeds}` : ""}`;
        const dot = svg("svg", { width: 12, height: 12 }, marker(method.style, 6, 6, 10));
        tip.append(html("div", {}, dot, html("span", {}, `${method.label}: ${value}${band}${seeds}`)));
      }
      panel.append(tip);
      const half = panel.clientWidth / 2, inside = event.clientX - panel.getBoundingClientRect().left;
      const left = inside < half ? inside + 16 : inside - tip.offsetWidth - 16;
      tip.style.left = `${Math.max(4, Math.min(left, panel.clientWidth - tip.offsetWidth - 4))}px`;
      tip.style.top = `${Math.max(4, Math.min(40, panel.clientHeight - tip.offsetHeight - 4))}px`;
    };
    picture.addEventListener("pointermove", show);
    picture.addEventListener("pointerdown", show);
    picture.addEventListener("pointerleave", hide);
  };

  const toggles = (words, items, hidden, changed) => {
    const row = html("div", { class: "row" }, html("span", {}, words));
    items.forEach(({ label, style }, place) => {
      const button = html("button", { type: "button", "aria-pressed": String(!hidden.has(place)) }, ...(style ? [sample(style)] : []), label);
      button.addEventListener("click", () => {
        if (!hidden.delete(place)) hidden.add(place);
        button.setAttribute("aria-pressed", String(!hidden.has(place)));
        changed();
      });
      row.append(button);
    });
    return row;
  };

  const choices = (state, changed) => {
    const row = html("div", { class: "row choice" }, html("span", {}, "show"));
    for (const [name, { words }] of Object.entries(STATISTICS)) {
      const button = html("button", { type: "button", "aria-pressed": String(name === state.statistic) }, words);
      button.addEventListener("click", () => {
        state.statistic = name;
        for (const other of row.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
        changed();
      });
      row.append(button);
    }
    return row;
  };

  const build = (section, study, root) => {
    const state = { methods: new Set(), tasks: new Set(), statistic: "mean" };
    // Variations of settings wait for whoever asks for them.
    study.methods.forEach(({ main }, place) => main || state.methods.add(place));
    const redraws = [];
    const changed = () => redraws.forEach((redraw) => redraw());
    const charts = section.querySelector(".charts");
    if (!study.figures.length) {
      charts.append(html("p", { class: "empty" }, "No run has anything to draw over time yet."));
      return;
    }
    section.querySelector(".controls").append(
      toggles("methods", study.methods.map(({ label, seeds, style }) => ({ label: `${label} (${seeds})`, style })), state.methods, changed),
      toggles("tasks", study.tasks.map(({ name }) => ({ label: name })), state.tasks, changed),
      choices(state, changed),
    );
    for (const figure of study.figures) {
      const panels = html("div", { class: figure.byTask ? "panels" : "panels one" });
      const block = html("figure", { id: `${root}${figure.name}` }, html("h3", {}, figure.title), panels);
      const tasks = figure.byTask ? study.tasks.map((_, place) => place) : [null];
      for (const task of tasks) {
        const panel = html("div", { class: "panel" }, html("h4", {}, task === null ? "all tasks" : study.tasks[task].name));
        panels.append(panel);
        const redraw = () => {
          panel.hidden = task !== null && state.tasks.has(task);
          if (!panel.hidden) drawPanel(panel, study, figure, task, state);
        };
        redraws.push(redraw);
        let width = 0;
        new ResizeObserver(() => {
          if (panel.clientWidth === width) return;
          width = panel.clientWidth;
          redraw();
        }).observe(panel);
      }
      const files = html("span", { class: "files" });
      for (const [folder, ending] of [["figures", "png"], ["figures", "pdf"], ["data", "csv"]])
        files.append(" ", html("a", { href: `${root}${folder}/${figure.name}.${ending}` }, ending.toUpperCase()));
      block.append(html("figcaption", {}, `${figure.caption} Dotted where not every seed has a value.`, files));
      charts.append(block);
    }
  };

  // Say that a table goes on beyond the edge, where it does.
  const watchTable = (framed) => {
    const scroll = framed.querySelector(".scroll"), hint = framed.querySelector(".hint");
    const update = () => {
      const beyond = scroll.scrollWidth - scroll.clientWidth;
      hint.hidden = beyond <= 1;
      framed.classList.toggle("left", scroll.scrollLeft > 1);
      framed.classList.toggle("right", scroll.scrollLeft < beyond - 1);
      framed.style.setProperty("--height", `${scroll.offsetHeight - 2}px`);
      framed.style.setProperty("--first", `${scroll.querySelector("th")?.offsetWidth ?? 0}px`);
    };
    scroll.addEventListener("scroll", update, { passive: true });
    new ResizeObserver(update).observe(scroll);
  };
  document.querySelectorAll(".framed").forEach(watchTable);

  const { studies } = JSON.parse(document.getElementById("data").textContent);
  for (const section of document.querySelectorAll(".study")) {
    const place = Number(section.dataset.study);
    build(section, studies[place], place ? `study-${place + 1}/` : "");
  }
})();
