// Shows the numbers under the mouse, and the rank that is chosen. The pictures are there without it.
(() => {
  "use strict";
  const tip = document.getElementById("tip");
  const categories = ["parameters", "gradients", "optimizer state", "activations", "communication", "workspace"];
  const element = (tag, text) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const bytes = (n) => n >= 2 ** 30 ? (n / 2 ** 30).toFixed(2) + " GiB"
    : n >= 2 ** 20 ? (n / 2 ** 20).toFixed(2) + " MiB" : (n / 2 ** 10).toFixed(1) + " KiB";
  const short = (n) => n === null ? "–" : Number(n.toPrecision(5)).toString();

  // Rows of [colour class, name, value]; "" where there is none.
  function show(event, title, rows) {
    tip.replaceChildren(element("b", title));
    for (const [colour, name, value] of rows) {
      const row = element("div"), label = element("span", name);
      if (colour) label.prepend(Object.assign(element("i"), { className: colour }));
      row.append(label, element("span", value));
      tip.append(row);
    }
    tip.hidden = false;
    const box = tip.getBoundingClientRect(), gap = 14;
    const left = event.clientX + gap + box.width > innerWidth ? event.clientX - gap - box.width : event.clientX + gap;
    const top = Math.min(event.clientY + gap, innerHeight - box.height - 4);
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = Math.max(4, top) + "px";
  }

  // Index of the last value not above x in a sorted list, and of the nearest one.
  function before(list, x) {
    let low = 0, high = list.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (list[middle] <= x) low = middle; else high = middle - 1;
    }
    return low;
  }
  function nearest(list, x) {
    const i = before(list, x);
    return i + 1 < list.length && Math.abs(list[i + 1] - x) < Math.abs(list[i] - x) ? i + 1 : i;
  }

  function follow(figure, describe) {
    const svg = figure.querySelector("svg"), source = figure.querySelector("script.data");
    if (!svg || !source) return;
    const data = JSON.parse(source.textContent), [left, right, top] = data.plot;
    const bottom = figure.classList.contains("step") ? svg.viewBox.baseVal.height - 36 : data.plot[3];
    const guide = document.createElementNS("http://www.w3.org/2000/svg", "path");
    guide.setAttribute("class", "guide");
    svg.append(guide);
    svg.addEventListener("mousemove", (event) => {
      const matrix = svg.getScreenCTM();
      if (!matrix) return;
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
      if (at.x < left - 4 || at.x > right + 4) return leave();
      const x = data.x[0] + (at.x - left) / (right - left) * (data.x[1] - data.x[0]);
      guide.setAttribute("d", `M${at.x.toFixed(1)} ${top}V${bottom}`);
      describe(event, data, x, at);
    });
    const leave = () => { tip.hidden = true; guide.removeAttribute("d"); };
    svg.addEventListener("mouseleave", leave);
  }

  for (const figure of document.querySelectorAll("figure.chart"))
    follow(figure, (event, data, x) => {
      const rows = [];
      let title = null;
      for (const curve of data.curves) {
        if (!curve.x.length) continue;
        const i = data.steps ? before(curve.x, x) : nearest(curve.x, x);
        if (data.steps && x > curve.x[curve.x.length - 1]) continue;
        title ??= curve.x[i];
        const name = data.steps || curve.x[i] === title ? curve.name : `${curve.name} at ${short(curve.x[i])}`;
        rows.push(["c" + curve.colour, name, data.bytes ? bytes(curve.y[i]) : short(curve.y[i])]);
      }
      show(event, `${data.x_label} ${short(data.steps ? x : title)}`, rows);
    });

  for (const figure of document.querySelectorAll("figure.step")) {
    // The browser's own tooltips would come on top.
    const spans = [...figure.querySelectorAll(".lanes rect")].map((rect) => {
      const title = rect.querySelector("title"), text = title.textContent;
      title.remove();
      rect.dataset.title = text;
      const x = Number(rect.getAttribute("x"));
      return { from: x, to: x + Number(rect.getAttribute("width")), y: Number(rect.getAttribute("y")), text, rect };
    });
    follow(figure, (event, data, x, at) => {
      const rows = [], i = before(data.t, x);
      let sum = 0;
      data.live.forEach((live, c) => {
        if (!data.t.length || !live[i]) return;
        sum += live[i];
        rows.unshift(["m" + c, categories[c], bytes(live[i])]);
      });
      rows.push(["", "all", bytes(sum)]);
      const here = new Map();  // the innermost span of each lane
      for (const span of spans) if (span.from <= at.x && at.x < span.to) here.set(span.y, span);
      for (const y of [...here.keys()].sort((a, b) => a - b)) {
        const [name, rest] = here.get(y).text.split(/: (?=[^:]*$)/);
        rows.push([here.get(y).rect.getAttribute("class"), name, rest.split(",")[0]]);
      }
      show(event, `${x.toFixed(2)} ms`, rows);
    });
  }

  for (const select of document.querySelectorAll("select.rank"))
    select.addEventListener("change", () => {
      for (const panel of select.closest(".run").querySelectorAll(".panel")) panel.hidden = panel.dataset.rank !== select.value;
    });
})();
