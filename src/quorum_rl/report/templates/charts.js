// Runs inside the bundle of Vega, Vega-Lite and Vega-Embed: draws every chart of the page.
const muted = "var(--muted)";
const line = "var(--line)";
const config = {
  font: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif",
  view: { stroke: null },
  axis: {
    labelColor: muted,
    titleColor: muted,
    labelFontSize: 12,
    titleFontSize: 12,
    titleFontWeight: "normal",
    titlePadding: 8,
    gridColor: line,
    domainColor: line,
    tickColor: line,
    labelPadding: 5,
  },
  axisX: { grid: false, tickCount: 6 },
  axisY: { domain: false, ticks: false, tickCount: 5 },
  legend: {
    labelColor: "var(--ink)",
    labelFontSize: 12,
    symbolType: "circle",
    symbolStrokeWidth: 2,
    symbolOpacity: 1,
    symbolSize: 90,
    rowPadding: 5,
    columnPadding: 16,
    offset: 10,
  },
};
const options = {
  mode: "vega-lite",
  renderer: "svg", // its colours are the page's CSS variables
  config,
  actions: false,
  ast: true, // expressions are interpreted, so the page needs no eval
  defaultStyle: false,
  tooltip: { disableDefaultStyle: true, theme: "page" },
};
const charts = JSON.parse(document.getElementById("charts").textContent);
const drawn = Object.entries(charts).map(([id, spec]) => {
  const place = document.getElementById(id);
  place.classList.add("live");
  return vegaEmbed(place, spec, options);
});
Promise.all(drawn).then(() => document.documentElement.setAttribute("data-drawn", "yes"));
