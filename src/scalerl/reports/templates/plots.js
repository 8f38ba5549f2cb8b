// Draws the report's plots from the data in #plots. Everything that comes from a log passes through `plain` before Plotly
// sees it, because Plotly reads a little HTML in names and titles.
(() => {
  "use strict";
  const plots = JSON.parse(document.getElementById("plots").textContent);
  const compared = plots.slice(0, Number(document.getElementById("plots").dataset.compared)); // the rest are forecasts of these again
  const runs = JSON.parse(document.getElementById("runs")?.textContent ?? "[]");
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const short = (name) => (name.length > 40 ? `${name.slice(0, 24)}…${name.slice(-15)}` : name);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const isTouch = matchMedia("(pointer: coarse)").matches; // dragging must scroll the page there
  const hues = { light: ["#1f5fbf", "#d9660b", "#0d8a6a", "#b3387e", "#7c4dbd", "#8a6d00", "#0089a8", "#6b7480"],
                 dark: ["#7fb2ff", "#ffa04d", "#4cd0a9", "#f58fc4", "#c0a0f5", "#e3c75a", "#5cd3ef", "#aab4c0"] };
  const LEGEND_ENTRY_PX = 350; // a name of 40 characters
  const LEGEND_ROW_PX = 30;
  const dashes = ["solid", "dash", "dot", "dashdot"];
  const darkness = matchMedia("(prefers-color-scheme: dark)");

  // d3 formats: metric prefixes from one on; below one they would read as milli and micro.
  const amount = (data) => (Math.min(...data.fitted.x.filter((x) => x > 0), ...data.later.x) >= 1 ? "~s" : "~g");
  const hover = (data, reward) => `%{fullData.name}<br>%{x:.4${amount(data)}}: ${reward}<extra></extra>`;

  function points(data, part, name, style) {
    return { ...data[part], name, mode: "markers", type: "scatter", hovertemplate: hover(data, "%{y:.4~g}"), marker: { size: 7, ...style } };
  }

  function curve(data) {
    const { law, ceiling } = data;
    const traces = [];
    for (const [i, other] of data.beside.entries()) {
      traces.push({ x: data.grid, y: other.mean, name: plain(other.name), type: "scatter", mode: "lines", hovertemplate: hover(data, "%{y:.4~g}"),
                    line: { color: colour("beside"), width: 2, dash: dashes[1 + i % 3] } });
    }
    if (law && data.level) {
      const edge = { x: data.grid, type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "skip", legendgroup: "band" };
      traces.push({ ...edge, y: law.low, showlegend: false });
      traces.push({ ...edge, y: law.high, fill: "tonexty", fillcolor: colour("band"), name: `${data.level} band` });
    }
    if (law) {
      const interval = data.level ? " (%{customdata[0]:.4~g} to %{customdata[1]:.4~g})" : "";
      traces.push({ x: data.grid, y: law.mean, name: plain(data.law_name), type: "scatter", mode: "lines", customdata: law.low.map((low, i) => [low, law.high[i]]),
                    hovertemplate: hover(data, `%{y:.4~g}${interval}`), line: { color: colour("law"), width: 2.5 } });
    }
    if (data.earlier.x.length) traces.push(points(data, "earlier", "before the window", { color: colour("panel"), line: { color: colour("earlier"), width: 1.5 } }));
    traces.push(points(data, "fitted", "fitted", { color: colour("fitted") }));
    if (data.later.x.length) traces.push(points(data, "later", "after the window", { color: colour("later"), symbol: "diamond", size: 8 }));
    const across = { xref: "paper", x0: 0, x1: 1, layer: "below" };
    const shapes = ceiling ? [
      { ...across, type: "rect", y0: ceiling.low, y1: ceiling.high, line: { width: 0 }, fillcolor: colour("ceiling-band") },
      { ...across, type: "line", y0: ceiling.value, y1: ceiling.value, line: { color: colour("ceiling"), width: 1.5, dash: "dot" } },
    ] : [];
    const label = (name, value, above) => ({ xref: "paper", x: 0, xanchor: "left", y: value, yanchor: above ? "bottom" : "top", showarrow: false,
                                             text: `${name} ${+value.toPrecision(3)}`, font: { color: colour(name === "ceiling" ? "ceiling" : "proved") } });
    const provedIsAbove = data.proved !== null && ceiling && data.proved > ceiling.value; // neither line may cross the other's label
    const annotations = ceiling ? [label("ceiling", ceiling.value, !provedIsAbove)] : [];
    if (data.proved !== null) {
      shapes.push({ ...across, type: "line", y0: data.proved, y1: data.proved, line: { color: colour("proved"), width: 1.5, dash: "longdash" } });
      annotations.push(label("proved ceiling", data.proved, provedIsAbove));
    }
    return { traces, layout: { shapes, annotations, yaxis: { title: { text: plain(data.metric) }, range: data.rewards } }, data };
  }

  function comparison() {
    const palette = hues[darkness.matches ? "dark" : "light"];
    const traces = compared.flatMap((data, i) => {
      const color = palette[i % palette.length];
      const shared = { name: plain(short(data.name)), legendgroup: i, type: "scatter", hovertemplate: hover(data, "%{y:.4~g}") };
      const seen = { x: data.fitted.x.concat(data.later.x), y: data.fitted.y.concat(data.later.y) };
      const dots = { ...shared, ...seen, mode: "markers", showlegend: !data.law, marker: { color, size: 5, opacity: 0.7 } };
      const dash = dashes[Math.floor(i / palette.length) % dashes.length];
      return data.law ? [dots, { ...shared, x: data.grid, y: data.law.mean, mode: "lines", line: { color, width: 2.5, dash } }] : [dots];
    });
    const rewards = [Math.min(...compared.map((p) => p.rewards[0])), Math.max(...compared.map((p) => p.rewards[1]))];
    const metrics = [...new Set(compared.map((data) => data.metric))];
    return { traces, layout: { yaxis: { title: { text: plain(metrics.join(" / ")) }, range: rewards } }, data: plots[0] };
  }

  function residuals(data) {
    const trace = { x: data.fitted.x, y: data.residuals, mode: "markers", type: "scatter", name: "residual", marker: { color: colour("fitted"), size: 6 },
                    hovertemplate: hover(data, "%{y:+.2~g}") };
    return { traces: [trace], layout: { showlegend: false, yaxis: { title: { text: "reward minus law" }, zerolinecolor: colour("law") } }, data };
  }

  function linear(data) {
    if (!data.linear || !data.linear.x.length) return null;
    const { x, y, slope } = data.linear;
    const ends = [Math.min(...x), Math.max(...x)];
    const traces = [
      { x: ends, y: ends.map((c) => c ** slope), mode: "lines", type: "scatter", name: `slope ${slope.toPrecision(3)}`, line: { color: colour("law"), width: 2 }, hoverinfo: "skip" },
      { x, y, mode: "markers", type: "scatter", name: "F", marker: { color: colour("fitted"), size: 6 }, hovertemplate: hover(data, "F = %{y:.3~g}") },
    ];
    return { traces, layout: { yaxis: { type: "log", title: { text: "F" }, exponentformat: "power" } }, data };
  }

  function ceilings(data) {
    if (!data.ceilings) return null;
    const { share, low, high, value } = data.ceilings;
    const edge = { x: share, type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "skip", legendgroup: "band" };
    const said = { x: share, y: value, name: "ceiling A", type: "scatter", mode: "lines+markers", customdata: low.map((least, i) => [least, high[i]]),
                   hovertemplate: "%{x:.0%} of the compute: %{y:.4~g} (%{customdata[0]:.4~g} to %{customdata[1]:.4~g})<extra></extra>", line: { color: colour("ceiling"), width: 2 } };
    const traces = [{ ...edge, y: low, showlegend: false }, { ...edge, y: high, fill: "tonexty", fillcolor: colour("ceiling-band"), name: `${data.level} interval` }, said];
    return { traces, layout: { xaxis: { type: "linear", range: [0, 1], tickformat: ".0%", title: { text: "share of the compute", standoff: 8 } }, yaxis: { title: { text: "ceiling A" } } } };
  }

  const counted = (title) => ({ type: "linear", tickformat: "~g", title: { text: title, standoff: 8 } });

  function step(run, index) {
    const { x, y } = run.steps[index];
    const trace = { x, y, mode: "lines", type: "scatter", line: { color: colour("law"), width: 1.5 }, hovertemplate: "step %{x}: %{y:.4~g}<extra></extra>" };
    return { traces: [trace], layout: { showlegend: false, xaxis: { ...counted(""), nticks: 6 }, yaxis: { nticks: 4, exponentformat: "e", rangemode: Math.min(...y) >= 0 ? "tozero" : "normal" } } };
  }

  function ages(run) {
    const trace = { ...run.ages, type: "bar", marker: { color: colour("law") }, hovertemplate: "age %{x}: %{y} groups<extra></extra>" };
    return { traces: [trace], layout: { showlegend: false, bargap: 0.15, xaxis: { ...counted(""), dtick: run.ages.x.length > 12 ? undefined : 1 }, yaxis: { nticks: 4 } } };
  }

  function drift(run, index) {
    const { x, y } = run.drift[index];
    const trace = { x, y, type: "bar", marker: { color: colour("law") }, hovertemplate: "%{x}: %{y:.3~g} nats a token<extra></extra>" };
    return { traces: [trace], layout: { showlegend: false, bargap: 0.15, xaxis: { type: "category" }, yaxis: { nticks: 4, exponentformat: "e", rangemode: "tozero" } } };
  }

  function costs(run) {
    const kind = (name) => (name.startsWith("idle") ? "earlier" : name === "unbooked" ? "bad" : "law");
    const trace = { x: run.costs.x, y: run.costs.y.map(plain), type: "bar", orientation: "h", marker: { color: run.costs.y.map((name) => colour(kind(name))) },
                    hovertemplate: "%{y}: %{x:.4~g} device-seconds<extra></extra>" };
    return { traces: [trace], layout: { showlegend: false, bargap: 0.25, xaxis: counted("device-seconds"), yaxis: { autorange: "reversed", ticksuffix: " ", dtick: 1 } } };
  }

  const ofRuns = { step, ages, costs, drift };
  const kinds = { curve: (i) => curve(plots[i]), comparison, residuals: (i) => residuals(plots[i]), linear: (i) => linear(plots[i]), ceilings: (i) => ceilings(plots[i]) };

  function draw(frame) {
    const { plot, run, index } = frame.dataset;
    const drawing = run === undefined ? kinds[plot](Number(index)) : ofRuns[plot](runs[run], Number(index));
    if (!drawing) { frame.hidden = true; return; }
    const { traces, layout, data } = drawing;
    const numNamed = traces.filter((trace) => trace.name && trace.showlegend !== false).length;
    const numRows = Math.ceil(numNamed / Math.max(1, Math.floor(frame.clientWidth / LEGEND_ENTRY_PX)));
    // The legend takes its rows from below the plot: more of them make the frame higher, not the plot lower.
    if (frame.dataset.plot === "comparison") frame.style.height = `calc(25rem + ${numRows * LEGEND_ROW_PX}px)`;
    if (frame.dataset.plot === "costs") frame.style.height = `${4 + 1.4 * traces[0].y.length}rem`; // every bar has its name
    const axis = { gridcolor: colour("grid"), linecolor: colour("rule"), zeroline: false, automargin: true };
    const type = frame.dataset.axis || "log";
    const nticks = type === "log" || frame.clientWidth < 500 ? 4 : 8; // on a log axis Plotly then labels 1, 2 and 5
    const compute = data && { type, nticks, title: { text: plain(data.compute), standoff: 8 }, tickformat: amount(data) };
    const xaxis = { ...axis, ...compute, ...layout.xaxis };
    Plotly.react(frame, traces, {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colour("ink"), family: getComputedStyle(document.body).fontFamily, size: 13 },
      margin: { l: 10, r: 12, t: 12, b: 10 }, hoverlabel: { namelength: -1, bgcolor: colour("panel"), bordercolor: colour("rule"), font: { color: colour("ink") } }, dragmode: isTouch ? false : "zoom", hovermode: "closest",
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("quiet"), activecolor: colour("accent") },
      legend: { orientation: "h", x: 0, yref: "container", y: 0, yanchor: "bottom" },
      ...layout, xaxis, yaxis: { ...axis, zeroline: frame.dataset.plot === "residuals", ...layout.yaxis },
    }, {
      responsive: true, displaylogo: false, displayModeBar: run !== undefined ? false : isTouch ? true : "hover",
      showSendToCloud: false, plotlyServerURL: "", topojsonURL: "/", modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    });
  }

  const drawn = () => document.querySelectorAll(".plot.js-plotly-plot");
  document.querySelectorAll(".plot-frame .plot, .run .plot, details[open] .plot").forEach(draw);
  document.querySelectorAll("details").forEach((details) => { // a closed one has no width to draw for
    details.addEventListener("toggle", () => details.querySelectorAll(".plot:not(.js-plotly-plot)").forEach(draw));
  });
  document.querySelectorAll(".axis-switch").forEach((buttons) => {
    buttons.hidden = false;
    buttons.addEventListener("click", (event) => {
      const choice = event.target.closest("button");
      if (!choice) return;
      buttons.querySelectorAll("button").forEach((button) => button.setAttribute("aria-pressed", String(button === choice)));
      const frame = buttons.parentElement.querySelector(".plot");
      frame.dataset.axis = choice.dataset.axis;
      draw(frame);
    });
  });
  for (const query of [darkness, matchMedia("print")]) query.addEventListener("change", () => drawn().forEach(draw));
})();
