// Runs inside the bundle of Vega, Vega-Lite and Vega-Embed: draws every chart of the page.
const options = {
  mode: "vega-lite",
  renderer: "svg", // its colours are the page's CSS variables
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
