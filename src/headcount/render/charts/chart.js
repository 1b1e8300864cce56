"use strict";
// Makes the charts of a page answer: draws them again from the data beside them, at any width.
// html.py is its twin; a test compares the two.
(() => {
  const FULL = 720;
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
  const power = (k) => (Math.abs(k) <= 3 ? shown(10 ** k) : "10" + [...String(k)].map((c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] || "⁻").join(""));

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

  // -- drawing, as in html.py ------
  const SHAPES = {
    circle: (x, y, r) => `M${num(x - r)} ${num(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`,
    square: (x, y, r) => `M${num(x - r)} ${num(y - r)}h${2 * r}v${2 * r}h${-2 * r}z`,
    up: (x, y, r) => `M${num(x)} ${num(y - r)}l${r} ${2 * r}h${-2 * r}z`,
    diamond: (x, y, r) => `M${num(x)} ${num(y - r)}l${r} ${r}l${-r} ${r}l${-r} ${-r}z`,
    down: (x, y, r) => `M${num(x)} ${num(y + r)}l${-r} ${-2 * r}h${2 * r}z`,
  };

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
    return many ? chart.series.filter((s) => s.style === "line" && s.points.length) : [];
  };

  function layout(chart, width) {
    const longest = Math.max(0, ...ends(chart).map((s) => Math.min([...s.name].length, 18)));
    const height = clamp(Math.round(width * 0.58), 290, 420);
    const top = chart.shades.length ? 26 : 12, left = 70, right = 14 + 8 * longest;
    return { width, height, left, top, w: width - left - right, h: height - top - 50 };
  }

  const path = (kind, d) => `<path class="${kind}" d="${d}"/>`;
  const text = (kind, x, y, s) => `<text class="${kind}" x="${num(x)}" y="${num(y)}">${safe(s)}</text>`;
  const rect = (kind, x, y, w, h) =>
    `<rect class="${kind}" x="${num(x)}" y="${num(y)}" width="${num(w)}" height="${num(h)}"/>`;

  function draw(chart, box, x, y, hidden) {
    const X = (v) => box.left + box.w * place(x, v), Y = (v) => box.top + box.h * (1 - place(y, v));
    const { left, top } = box, end = left + box.w, base = top + box.h, clip = `clip-${chart.id}`;
    const across = (v) => `M${num(left)} ${num(Y(v))}H${num(end)}`;
    const out = [`<clipPath id="${clip}">${rect("", left, top - 6, box.w, box.h + 12)}</clipPath>`];
    for (const s of chart.shades) {
      const [a, b] = [clamp(X(s.low), left, end), clamp(X(s.high), left, end)];
      out.push(rect(`${s.tone}-ground`, a, top, b - a, box.h));
      if (b - a > 7 * s.text.length) out.push(text(s.tone, (a + b) / 2, top - 8, s.text));
    }
    for (const [v, s] of y.ticks) out.push(path("grid", across(v)), text("y", left - 8, Y(v) + 4.5, s));
    out.push(path("axis", `M${num(left)} ${num(top)}V${num(base)}H${num(end)}`));
    let last = 0;
    for (const [v, s] of x.ticks) if (X(v) - last > 9 * s.length + 3) out.push(text("x", last = X(v), base + 19, s));
    out.push(text("label", left + box.w / 2, box.height - 8, x.label));
    out.push(`<g transform="translate(15 ${num(top + box.h / 2)}) rotate(-90)">${text("label", 0, 0, y.label)}</g>`);
    out.push(`<g clip-path="url(#${clip})">`);
    for (const l of chart.levels) out.push(path("level", across(l.y)), text("note", end - 4, Y(l.y) - 5, l.text));
    for (const m of chart.marks) {
      const at = X(m.x), tight = end - at < 7 * m.text.length + 8;
      out.push(path("level", `M${num(at)} ${num(top + 30)}V${num(base)}`));
      out.push(text(tight ? "note" : "known", at + (tight ? -5 : 5), top + 42, m.text));
    }
    for (const s of chart.series) {
      if (hidden.has(s.name) || !s.points.length) continue;
      const at = s.points.map((p) => [X(p.x) + s.shift * box.width / FULL, Y(p.y)]), tint = ` c${s.colour}`;
      const joined = (pairs) => "M" + pairs.map(([a, b]) => `${num(a)} ${num(b)}`).join("L");
      const marks = (r) => at.map(([a, b]) => SHAPES[s.shape](a, b, r)).join("");
      const ranged = s.points.map((p, i) => [at[i][0], p]).filter(([, p]) => p.low != null && p.high != null);
      if (s.style === "band") {
        const edge = [...ranged.map(([a, p]) => [a, Y(p.high)]), ...ranged.map(([a, p]) => [a, Y(p.low)]).reverse()];
        out.push(path("band" + tint, joined(edge) + "Z"));
      } else if (s.style === "dots") {
        out.push(path("dots" + tint, marks(3)));
      } else if (s.style === "rings") {
        const whiskers = ranged.map(([a, p]) => `M${num(a)} ${num(Y(p.low))}V${num(Y(p.high))}`).join("");
        out.push(path("whisker" + tint, whiskers), path("ring" + tint, marks(5)));
      } else if (s.style === "dashed") {
        out.push(path("fit" + tint, joined(at)));
      } else {
        out.push(path("line" + tint, joined(at)), path("dot" + tint, marks(4)));
      }
    }
    out.push("</g>");
    const named = x === chart.x && y === chart.y ? ends(chart).filter((s) => !hidden.has(s.name)) : [];
    const heights = apart(named.map((s) => Y(s.points[s.points.length - 1].y)), 17, base);
    named.forEach((s, i) => {
      const name = [...s.name].length > 18 ? [...s.name].slice(0, 17).join("") + "…" : s.name;
      out.push(text(`end c${s.colour}`, end + 8, heights[i] + 4.5, name));
    });
    return out.join("\n");
  }

  // -- one chart that answers ------
  function start(figure) {
    const chart = { shades: [], levels: [], marks: [], ...JSON.parse(figure.querySelector("script").textContent) };
    chart.series = chart.series.map((s) => ({ colour: 0, shape: "circle", shift: 0, ...s })); // defaults are left out
    const svg = figure.querySelector("svg"), hidden = new Set();
    const tip = figure.appendChild(document.createElement("div"));
    const reset = figure.appendChild(document.createElement("button"));
    set(tip, { class: "tip", role: "status", hidden: "" });
    set(reset, { class: "reset", type: "button", hidden: "" });
    set(svg, { tabindex: 0 });
    reset.textContent = "whole chart";
    let x = chart.x, y = chart.y, box, drag = null, seen = null;

    function redraw(width) {
      box = layout(chart, width || clamp(figure.clientWidth, 300, FULL));
      set(svg, { viewBox: `0 0 ${box.width} ${box.height}` });
      svg.innerHTML = draw(chart, box, x, y, hidden);
      reset.hidden = x === chart.x && y === chart.y;
      tell(null);
    }
    const share = (axis, base) => place(base, axis.high) - place(base, axis.low);
    function view(a, b, c, d) { // parts of the present view, from 0 to 1
      const [nx, ny] = [zoomed(x, a, b), zoomed(y, c, d)];
      if (share(nx, chart.x) < 1e-4 || share(ny, chart.y) < 1e-4) return;
      x = nx; y = ny; redraw();
    }
    function whole() { x = chart.x; y = chart.y; redraw(); }
    function scale(factor, px = 0.5, py = 0.5) {
      const held = (axis, base, p) => { // never beyond the whole chart
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
    const spot = (s, p) => [box.left + box.w * place(x, p.x) + s.shift * box.width / FULL, box.top + box.h * (1 - place(y, p.y))];
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
      svg.insertAdjacentHTML("beforeend", `<circle class="here c${s.colour}" cx="${num(px)}" cy="${num(py)}" r="8"/>`);
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
    svg.addEventListener("wheel", (event) => { // only after a click: whoever scrolls the page is left alone
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
    for (const item of figure.querySelectorAll(".legend li")) {
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
