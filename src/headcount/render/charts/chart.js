"use strict";
// Interactive charts. The page has a still picture of each chart; this script replaces it with the same data, at any
// width, with a legend that hides and shows series. Labels are placed as in labels.py.
(() => {
  const FULL = 720, ARROW_OFFSET = 32, MAX_ARROW_DISTANCE = 8, CLEARANCE_STEP = 6;
  const num = (v) => v.toFixed(1).replace(/\.0$/, "");
  const safe = (s) => s.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
  const set = (element, pairs) => Object.entries(pairs).forEach(([k, v]) => element.setAttribute(k, v));
  const clamp = (v, low, high) => Math.max(low, Math.min(high, v));

  const shown = (v) => {
    if (v === 0) return "0";
    if (Math.abs(v) < 1e-3) return v.toExponential(1);
    if (Math.abs(v) >= 100) return v.toLocaleString("en-US", { maximumFractionDigits: 0 });
    return String(Number(v.toPrecision(3)));
  };
  const power = (k) => (Math.abs(k) > 4 ? "10" + [...String(k)].map((c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] || "⁻").join("")
    : k < 0 ? (10 ** k).toFixed(-k) : shown(10 ** k));

  // -- axes: a value's place from 0 to 1, and back ------
  const place = (axis, v) => axis.scale === "log"
    ? Math.log(v / axis.low) / Math.log(axis.high / axis.low) : (v - axis.low) / (axis.high - axis.low);
  const value = (axis, p) => axis.scale === "log"
    ? axis.low * (axis.high / axis.low) ** p : axis.low + p * (axis.high - axis.low);
  const zoomed = (axis, p, q) => {
    const [low, high] = [value(axis, p), value(axis, q)];
    return { ...axis, low, high, ticks: ticks(axis.scale, low, high) };
  };

  function ticks(scale, low, high) {
    const decades = scale === "log" ? Math.log10(high / low) : 0;
    const found = [];
    if (decades > 3) {
      for (let k = Math.ceil(Math.log10(low)); k <= Math.log10(high); k += Math.ceil(decades / 8)) {
        found.push([10 ** k, power(k)]);
      }
    } else if (decades > 0.7) {
      for (let k = Math.floor(Math.log10(low)); k <= Math.log10(high); k += 1) {
        for (const v of [1, 2, 5].map((m) => m * 10 ** k)) if (v >= low && v <= high) found.push([v, shown(v)]);
      }
    } else {
      const raw = (high - low) / 6, unit = 10 ** Math.floor(Math.log10(raw));
      const step = unit * [1, 2, 5, 10].find((m) => m * unit >= raw);
      for (let v = Math.ceil(low / step) * step; v <= high; v += step) found.push([v, shown(Number(v.toPrecision(12)))]);
    }
    return found;
  }

  // -- pieces of a drawing ------
  const SHAPES = {
    circle: (x, y, r) => `M${num(x - r)} ${num(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`,
    square: (x, y, r) => `M${num(x - r)} ${num(y - r)}h${2 * r}v${2 * r}h${-2 * r}z`,
    up: (x, y, r) => `M${num(x)} ${num(y - r)}l${r} ${2 * r}h${-2 * r}z`,
    diamond: (x, y, r) => `M${num(x)} ${num(y - r)}l${r} ${r}l${-r} ${r}l${-r} ${-r}z`,
    down: (x, y, r) => `M${num(x)} ${num(y + r)}l${-r} ${-2 * r}h${2 * r}z`,
  };
  const path = (kind, d) => `<path class="${kind}" d="${d}"/>`;
  const text = (kind, x, y, s) => `<text class="${kind}" x="${num(x)}" y="${num(y)}">${safe(s)}</text>`;
  const rect = (kind, x, y, w, h) =>
    `<rect class="${kind}" x="${num(x)}" y="${num(y)}" width="${num(w)}" height="${num(h)}"/>`;
  const tinted = (s) => `c-${s.tone || `c${s.colour}`}`;
  const joined = (pairs) => "M" + pairs.map(([a, b]) => `${num(a)} ${num(b)}`).join("L");
  const lines = (kind, x, y, s) => `<text class="${kind}" x="${num(x)}" y="${num(y)}">` + s.split("\n").map(
    (line, i) => `<tspan x="${num(x)}"${i ? ' dy="1.25em"' : ""}>${safe(line)}</tspan>`).join("") + "</text>";

  function apart(places, gap, most) {
    const order = places.map((_, i) => i).sort((a, b) => places[a] - places[b] || a - b);
    const moved = [...places];
    let last = -Infinity;
    for (const i of order) moved[i] = last = Math.max(moved[i], last + gap);
    last = most + gap;
    for (const i of order.reverse()) moved[i] = last = Math.min(moved[i], last - gap);
    return moved;
  }

  const ends = (chart) => {
    const many = new Set(chart.series.map((s) => s.name)).size > 1;
    return many ? chart.series.filter((s) => s.style === "line" && s.marks !== "none" && s.points.length) : [];
  };

  function layout(chart, width) {
    const longest = Math.max(0, ...ends(chart).map((s) => Math.min([...s.name].length, 18)));
    const height = clamp(Math.round(width * 0.58), 290, 420);
    const top = chart.shades.length ? 26 : 12, right = 14 + 8 * longest;
    const left = Math.max(70, 24 + 8 * Math.max(0, ...chart.y.ticks.map(([, s]) => s.length)));
    return { width, height, left, top, w: width - left - right, h: height - top - 50, k: width / FULL };
  }

  // -- labels, as in labels.py ------
  const around = (x, y, r) => [x - r, y - r, x + r, y + r];
  const meet = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

  function* occupied(chart, box, X, Y, hidden) {
    const end = box.left + box.w, base = box.top + box.h;
    for (const s of chart.series) {
      if (hidden.has(s.name) || s.style === "band") continue;
      const at = s.points.map((p) => [X(p.x) + s.shift * box.k, Y(p.y)]);
      const marked = { all: at, last: at.slice(-1), none: [] }[s.marks];
      const radius = { line: 4.5, rings: 6, dots: s.radius + 1 }[s.style];
      if (radius) for (const [x, y] of marked) yield around(x, y, radius);
      if (["line", "thin", "dashed"].includes(s.style)) {
        for (let i = 1; i < at.length; i += 1) {
          const [[x, y], [to, down]] = [at[i - 1], at[i]], n = Math.max(1, Math.ceil(Math.hypot(to - x, down - y) / CLEARANCE_STEP));
          for (let k = 0; k <= n; k += 1) yield around(x + (to - x) * k / n, y + (down - y) * k / n, 2);
        }
      }
      if (s.style === "rings") {
        for (const [i, p] of s.points.entries()) {
          const reach = [p.y, p.low ?? p.y, p.high ?? p.y].map(Y);
          yield [at[i][0] - 1, Math.min(...reach), at[i][0] + 1, Math.max(...reach)];
        }
      }
    }
    for (const l of chart.levels) yield [box.left, Y(l.y) - 0.5, end, Y(l.y) + 0.5];
    for (const m of chart.marks) yield [X(m.x) - 0.5, box.top, X(m.x) + 0.5, base];
    if (chart.fall) {
      const f = chart.fall, a = arrow(f, box, X, Y);
      yield a;
      for (const [x, y] of [[f.x_from, a[1]], [f.x_to, a[3]]]) yield [X(x), y - 1, a[2], y + 1];
    }
  }
  const arrow = (f, box, X, Y) => [X(f.x_to) + ARROW_OFFSET * box.k - 5, Y(f.y_from), X(f.x_to) + ARROW_OFFSET * box.k + 5, Y(f.y_to)];

  function* alongLine(box, y, w, h) {
    const room = box.w - 8 - w;
    for (const top of [y - 2 - h, y + 2]) {
      if (room < 0 || top < box.top || top + h > box.top + box.h) continue;
      for (const k of [8, 0, 7, 6, 5, 4, 3, 2, 1]) yield [box.left + 4 + room * k / 8, top];
    }
  }
  function* besideLine(box, x, w, h) {
    for (let top = box.top + 4; top + h <= box.top + box.h; top += h + 2) {
      for (const left of [x + 5, x - 5 - w]) if (left >= box.left && left + w <= box.left + box.w) yield [left, top];
    }
  }
  function* besideArrow(box, a, w, h) {
    for (const left of [a[2] + 4, a[0] - 4 - w]) {
      if (left < box.left || left + w > box.left + box.w) continue;
      for (let k = 0; k < box.h / CLEARANCE_STEP; k += 1) for (const sign of [1, -1]) {
        const top = (a[1] + a[3] - h) / 2 - sign * k * CLEARANCE_STEP;
        if (top + h < a[1] - MAX_ARROW_DISTANCE || top > a[3] + MAX_ARROW_DISTANCE) continue;
        if (top >= box.top && top + h <= box.top + box.h) yield [left, top];
      }
    }
  }

  // Return every label with its drawing, or with "" if it has no place and goes to the legend.
  function labels(chart, box, X, Y, hidden, measure) {
    const taken = [...occupied(chart, box, X, Y, hidden)], end = box.left + box.w, base = box.top + box.h;
    const wanted = [];
    if (chart.fall) {
      const a = arrow(chart.fall, box, X, Y);
      const seen = a[2] > box.left && a[0] < end && a[3] > box.top && a[1] < base;
      wanted.push(["fall", chart.fall.text, seen, (w, h) => besideArrow(box, a, w, h)]);
    }
    for (const m of chart.marks) {
      wanted.push(["known", m.text, X(m.x) >= box.left && X(m.x) <= end, (w, h) => besideLine(box, X(m.x), w, h)]);
    }
    for (const l of chart.levels) {
      wanted.push(["note", l.text, Y(l.y) >= box.top && Y(l.y) <= base, (w, h) => alongLine(box, Y(l.y), w, h)]);
    }
    return wanted.filter(([, s]) => s).map(([kind, s, seen, places]) => {
      if (!seen) return { kind, s, drawn: " " };
      const { w, h, up } = measure(kind, s);
      for (const [left, top] of places(w, h)) {
        const here = [left, top, left + w, top + h];
        if (taken.some((other) => meet(here, other))) continue;
        taken.push(here);
        return { kind, s, drawn: lines(kind, left, top + up, s) };
      }
      return { kind, s, drawn: "" };
    });
  }

  function draw(chart, box, x, y, hidden, measure) {
    const X = (v) => box.left + box.w * place(x, v), Y = (v) => box.top + box.h * (1 - place(y, v));
    const { left, top } = box, end = left + box.w, base = top + box.h, clip = `clip-${chart.id}`;
    const across = (v) => `M${num(left)} ${num(Y(v))}H${num(end)}`, unplaced = [];
    const out = [`<clipPath id="${clip}">${rect("", left, top - 6, box.w, box.h + 12)}</clipPath>`];
    for (const s of chart.shades) {
      const [a, b] = [clamp(X(s.low), left, end), clamp(X(s.high), left, end)];
      out.push(rect(`${s.tone}-ground`, a, top, b - a, box.h));
      if (!s.text) continue;
      if (b - a > measure(s.tone, s.text).w) out.push(text(s.tone, (a + b) / 2, top - 8, s.text));
      else if (b > a) unplaced.push(s.text);
    }
    for (const [v, s] of y.ticks) out.push(path("grid", across(v)), text("y", left - 8, Y(v) + 4.5, s));
    out.push(path("axis", `M${num(left)} ${num(top)}V${num(base)}H${num(end)}`));
    let last = 0;
    for (const [v, s] of x.ticks) if (X(v) - last > 9 * s.length + 3) out.push(text("x", last = X(v), base + 19, s));
    out.push(text("label", left + box.w / 2, box.height - 8, x.label));
    out.push(`<g transform="translate(15 ${num(top + box.h / 2)}) rotate(-90)">${text("label", 0, 0, y.label)}</g>`);
    out.push(`<g class="inside" clip-path="url(#${clip})">`);
    for (const l of chart.levels) out.push(path("level", across(l.y)));
    for (const m of chart.marks) out.push(path("level", `M${num(X(m.x))} ${num(top)}V${num(base)}`));
    for (const s of chart.series) if (!hidden.has(s.name) && s.points.length) out.push(...series(s, box, X, Y));
    if (chart.fall) {
      const [a, high, b, low] = arrow(chart.fall, box, X, Y), middle = num((a + b) / 2);
      const guide = (v, height) => `M${num(X(v))} ${num(height)}H${num(b)}`;
      out.push(path("guide", guide(chart.fall.x_from, high) + guide(chart.fall.x_to, low)));
      out.push(path("arrow", `M${middle} ${num(high)}V${num(low - 8)}`));
      out.push(path("head", `M${middle} ${num(low)}l-5 -11h10z`));
    }
    out.push("</g>");
    const found = labels(chart, box, X, Y, hidden, measure);
    out.push(...found.map((one) => one.drawn));
    unplaced.push(...found.filter((one) => !one.drawn).map((one) => one.s));
    const named = x === chart.x && y === chart.y ? ends(chart).filter((s) => !hidden.has(s.name)) : [];
    const heights = apart(named.map((s) => Y(s.points[s.points.length - 1].y)), 17, base);
    named.forEach((s, i) => {
      const name = [...s.name].length > 18 ? [...s.name].slice(0, 17).join("") + "…" : s.name;
      out.push(text(`end ${tinted(s)}`, end + 8, heights[i] + 4.5, name));
    });
    return { drawn: out.join("\n"), unplaced };
  }

  function series(s, box, X, Y) {
    const at = s.points.map((p) => [X(p.x) + s.shift * box.k, Y(p.y)]), tint = ` ${tinted(s)}`;
    const marks = (r, some = at) => some.map(([a, b]) => SHAPES[s.shape](a, b, r)).join("");
    const ranged = s.points.map((p, i) => [at[i][0], p]).filter(([, p]) => p.low != null && p.high != null);
    if (s.style === "band") {
      const edge = [...ranged.map(([a, p]) => [a, Y(p.high)]), ...ranged.map(([a, p]) => [a, Y(p.low)]).reverse()];
      return edge.length ? [path("band" + tint, joined(edge) + "Z")] : [];
    }
    if (s.style === "dots") return [path(`dots${s.radius > 3 ? " large" : ""}${tint}`, marks(s.radius))];
    if (s.style === "rings") {
      const whiskers = ranged.map(([a, p]) => `M${num(a)} ${num(Y(p.low))}V${num(Y(p.high))}`).join("");
      return [path("whisker" + tint, whiskers), path("ring" + tint, marks(5))];
    }
    if (s.style === "dashed") return [path("fit" + tint, joined(at))];
    if (s.style === "thin") return [path("thin" + tint, joined(at))];
    const marked = { all: at, last: at.slice(-1), none: [] }[s.marks];
    return [path("line" + tint, joined(at)), ...(marked.length ? [path("dot" + tint, marks(4, marked))] : [])];
  }

  // -- the legend ------
  function legend(chart) {
    const list = document.createElement("ul"), names = [...new Set(chart.series.map((s) => s.name))];
    set(list, { class: "legend", "aria-label": "Series" });
    const item = (drawn, name, more) => {
      const one = list.appendChild(document.createElement("li"));
      one.innerHTML = `<svg viewBox="0 0 26 14" aria-hidden="true">${drawn}</svg>${safe(name)}`;
      set(one, more);
    };
    if (names.length > 1) for (const name of names) item(key(chart.series.filter((s) => s.name === name)), name, { "data-name": name });
    for (const s of chart.shades) if (s.text) item(rect(`${s.tone}-ground`, 1, 1, 24, 12), s.text, { "data-label": s.text });
    const down = path("arrow", "M13 0V9") + path("head", "M13 14l-4 -8h8z");
    if (chart.fall) item(down, chart.fall.text.replace("\n", " "), { "data-label": chart.fall.text });
    for (const { text: s } of [...chart.marks, ...chart.levels]) if (s) item(path("level", "M1 7H25"), s, { "data-label": s });
    return list;
  }
  const ORDER = ["line", "dashed", "rings", "dots", "thin", "band"];
  function key(same) { // a line rather than dots, dots rather than a band; no colour if several have a meaning
    const first = ORDER.map((style) => same.filter((s) => s.style === style)).find((some) => some.length);
    const tint = first.every((s) => s.tone === first[0].tone) ? tinted(first[0]) : "c-muted", { style, shape, marks } = first[0];
    const kind = { line: "line", dashed: "fit", thin: "thin", band: "band" }[style];
    const mark = { line: marks !== "none" && "dot", rings: "ring", dots: "dots large" }[style];
    const line = kind === "band" ? "M1 2H25V12H1z" : "M1 7H25";
    return (kind ? path(`${kind} ${tint}`, line) : "") + (mark ? path(`${mark} ${tint}`, SHAPES[shape](13, 7, 4)) : "");
  }

  // -- one interactive chart ------
  function start(figure) {
    const chart = { shades: [], levels: [], marks: [], fall: null, ...JSON.parse(figure.querySelector("script").textContent) };
    const usual = { colour: 0, tone: null, shape: "circle", marks: "all", radius: 3, shift: 0 }; // defaults are left out
    chart.series = chart.series.map((s) => ({ ...usual, ...s }));
    const svg = figure.querySelector("svg"), hidden = new Set(), sizes = new Map(), list = legend(chart);
    const tip = figure.appendChild(document.createElement("div"));
    const reset = figure.appendChild(document.createElement("button"));
    set(tip, { class: "tip", role: "status", hidden: "" });
    set(reset, { class: "reset", type: "button", hidden: "" });
    set(svg, { tabindex: 0, class: "live" });
    svg.removeAttribute("style");
    svg.after(list);
    reset.textContent = "reset zoom";
    let x = chart.x, y = chart.y, box, drag = null, seen = null;

    function measure(kind, s) { // in the chart's own pixels; up: how far the first line reaches above its baseline
      if (!sizes.has(kind + s)) {
        svg.insertAdjacentHTML("beforeend", lines(kind, 0, 0, s));
        const r = svg.lastElementChild.getBBox();
        svg.lastElementChild.remove();
        if (!r.width) return { w: 9 * s.length, h: 18, up: 14 }; // not shown yet
        sizes.set(kind + s, { w: r.width, h: r.height, up: -r.y });
      }
      return sizes.get(kind + s);
    }
    function redraw(width) {
      box = layout(chart, width || clamp(figure.clientWidth, 300, FULL));
      set(svg, { viewBox: `0 0 ${box.width} ${box.height}` });
      const { drawn, unplaced } = draw(chart, box, x, y, hidden, measure);
      svg.innerHTML = drawn;
      for (const item of list.querySelectorAll("[data-label]")) item.hidden = !unplaced.includes(item.dataset.label);
      list.hidden = !list.querySelector("li:not([hidden])");
      reset.hidden = x === chart.x && y === chart.y;
      tell(null);
    }
    const share = (axis, base) => place(base, axis.high) - place(base, axis.low);
    function view(a, b, c, d) { // parts of the current view, from 0 to 1
      const [nx, ny] = [zoomed(x, a, b), zoomed(y, c, d)];
      if (share(nx, chart.x) < 1e-4 || share(ny, chart.y) < 1e-4) return;
      x = nx; y = ny; redraw();
    }
    function whole() { x = chart.x; y = chart.y; redraw(); }
    function scale(factor, px = 0.5, py = 0.5) {
      const held = (axis, base, p) => { // never beyond the full chart
        const low = Math.max(place(base, value(axis, p - p * factor)), 0);
        const high = Math.min(place(base, value(axis, p + (1 - p) * factor)), 1);
        return [place(axis, value(base, low)), place(axis, value(base, high))];
      };
      view(...held(x, chart.x, px), ...held(y, chart.y, py));
      if (share(x, chart.x) > 0.999 && share(y, chart.y) > 0.999) whole();
    }
    const at = (event) => {
      const r = svg.getBoundingClientRect();
      return [(event.clientX - r.left) * box.width / r.width, (event.clientY - r.top) * box.height / r.height];
    };
    const part = ([px, py]) => [clamp((px - box.left) / box.w, 0, 1), clamp(1 - (py - box.top) / box.h, 0, 1)];
    const spot = (s, p) => [box.left + box.w * place(x, p.x) + s.shift * box.k, box.top + box.h * (1 - place(y, p.y))];
    const open = () => chart.series.filter((s) => !hidden.has(s.name) && s.style !== "band" && s.style !== "dashed" && s.points.length);

    function tell(found) {
      seen = found;
      svg.querySelector(".here")?.remove();
      tip.hidden = !found;
      if (!found) return;
      const { s, p } = found, [px, py] = spot(s, p);
      const range = p.low != null && p.high != null ? ` (${shown(p.low)} to ${shown(p.high)})` : "";
      const lines = [s.name, `${x.label}: ${shown(p.x)}`, `${y.label}: ${shown(p.y)}${range}`, p.text].filter(Boolean);
      tip.innerHTML = lines.map(safe).join("<br>");
      svg.insertAdjacentHTML("beforeend", `<circle class="here ${tinted(s)}" cx="${num(px)}" cy="${num(py)}" r="8"/>`);
      const r = svg.getBoundingClientRect(), down = r.top - figure.getBoundingClientRect().top;
      const k = r.width / box.width, room = Math.max(figure.clientWidth - tip.offsetWidth, 0);
      tip.style.left = `${clamp(px * k + (px > box.width / 2 ? -tip.offsetWidth - 14 : 14), 0, room)}px`;
      tip.style.top = `${down + Math.max(py * k - tip.offsetHeight - 10, 0)}px`;
    }
    function nearest([px, py], reach) {
      let best = null, least = reach * reach;
      for (const s of open()) for (const p of s.points) {
        const [a, b] = spot(s, p), far = (a - px) ** 2 + (b - py) ** 2;
        const inside = Math.abs(place(x, p.x) - 0.5) <= 0.505 && Math.abs(place(y, p.y) - 0.5) <= 0.505;
        if (inside && far < least) { least = far; best = { s, p }; }
      }
      return best;
    }

    svg.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch" || event.button) { tell(nearest(at(event), 44)); return; }
      drag = at(event);
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      const here = at(event);
      if (!drag) { tell(nearest(here, 36)); return; }
      svg.querySelector(".drag")?.remove();
      const [a, b] = [Math.min(drag[0], here[0]), Math.min(drag[1], here[1])];
      const [w, h] = [Math.abs(here[0] - drag[0]), Math.abs(here[1] - drag[1])];
      svg.insertAdjacentHTML("beforeend", rect("drag", a, b, w, h));
    });
    svg.addEventListener("pointerup", (event) => {
      if (!drag) return;
      const from = drag, to = at(event), wide = Math.abs(from[0] - to[0]) > 10, tall = Math.abs(from[1] - to[1]) > 10;
      drag = null;
      svg.querySelector(".drag")?.remove();
      if (!wide && !tall) return;
      const [[a, b], [c, d]] = [part(from), part(to)];
      view(wide ? Math.min(a, c) : 0, wide ? Math.max(a, c) : 1, tall ? Math.min(b, d) : 0, tall ? Math.max(b, d) : 1);
    });
    svg.addEventListener("pointercancel", () => { drag = null; svg.querySelector(".drag")?.remove(); });
    svg.addEventListener("pointerleave", () => { if (!drag) tell(null); });
    svg.addEventListener("dblclick", whole);
    reset.addEventListener("click", () => { whole(); svg.focus(); });
    svg.addEventListener("wheel", (event) => { // only after a click, so that scrolling the page does not zoom
      if (document.activeElement !== svg || (event.deltaY > 0 && reset.hidden)) return;
      event.preventDefault();
      scale(event.deltaY > 0 ? 1.25 : 0.8, ...part(at(event)));
    }, { passive: false });
    svg.addEventListener("keydown", (event) => {
      const lines = open(), i = seen ? lines.indexOf(seen.s) : -1, s = lines[Math.max(i, 0)];
      const step = (n) => {
        const order = [...s.points].sort((p, q) => p.x - q.x || p.y - q.y), k = seen ? order.indexOf(seen.p) : -1;
        tell({ s, p: order[clamp(k + n, 0, order.length - 1)] });
      };
      const line = (n) => {
        const other = lines[clamp(i + n, 0, lines.length - 1)], px = seen ? seen.p.x : -Infinity;
        tell({ s: other, p: other.points.reduce((p, q) => (Math.abs(q.x - px) < Math.abs(p.x - px) ? q : p)) });
      };
      const keys = {
        ArrowRight: () => step(1), ArrowLeft: () => step(-1), ArrowDown: () => line(1), ArrowUp: () => line(-1),
        "+": () => scale(0.7), "-": () => scale(1 / 0.7), 0: whole, Escape: whole,
      };
      if (!keys[event.key] || event.ctrlKey || event.metaKey || !lines.length) return;
      event.preventDefault();
      keys[event.key]();
    });
    for (const item of list.querySelectorAll("[data-name]")) {
      const flip = () => {
        const name = item.dataset.name;
        if (!hidden.delete(name)) hidden.add(name);
        set(item, { "aria-pressed": !hidden.has(name) });
        redraw();
      };
      set(item.parentElement, { role: "group" });
      set(item, { role: "button", tabindex: 0, "aria-pressed": true });
      item.addEventListener("click", flip);
      item.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); flip(); }
      });
    }
    let last = 0;
    new ResizeObserver(() => { if (figure.clientWidth !== last) { last = figure.clientWidth; redraw(); } }).observe(figure);
    addEventListener("beforeprint", () => redraw(FULL));
    addEventListener("afterprint", () => redraw());
    redraw();
  }

  document.querySelectorAll("figure.chart").forEach(start);
  document.querySelectorAll(".hint").forEach((hint) => { hint.hidden = false; });
})();
