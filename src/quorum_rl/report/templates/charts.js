// Runs inside the bundle of Vega, Vega-Lite and Vega-Embed: draws every chart of the page.
// Colours are CSS variables of the page, so a chart follows it into the dark and onto paper.
const [ink, muted, line, blue, orange, green, purple] = [
  "ink", "muted", "line", "blue", "orange", "green", "purple",
].map((name) => `var(--${name})`);

const quantity = (field, more) => ({ field, type: "quantitative", ...more });
const category = (field, more) => ({ field, type: "nominal", ...more });
const unique = (rows, field) => [...new Set(rows.map((row) => row[field]))];
const only = (kind) => ({ filter: `datum.kind == '${kind}'` });

// A legend in which each entry can be clicked away and back; all are there at first. With its
// domain fixed, it keeps the entries that are clicked away.
function legendSwitch(field, names, colours) {
  const param = `shown_${field}`;
  return {
    param: {
      name: param,
      bind: "legend",
      select: { type: "point", fields: [field], toggle: "true" },
      value: names.map((name) => ({ [field]: name })),
    },
    colour: category(field, {
      scale: { domain: names, range: colours },
      legend: { orient: "top", title: null, columns: 2 }, // a phone has no room for 3
    }),
    shown: { filter: { param, empty: false } },
  };
}

const partColours = {
  "release, alone": blue,
  "private steps, alone": orange,
  "spent, both stages": purple,
  release: blue,
  "private steps": orange,
  unspent: line,
};

// ε by stage: each alone and added up, against what both cost together.
function budget({ rows }) {
  const accounts = unique(rows, "account");
  const parts = rows.map((row) => row.part);
  const { param, colour, shown } = legendSwitch("part", parts, parts.map((part) => partColours[part]));
  return {
    height: 48 * accounts.length,
    data: { values: rows.map((row, order) => ({ ...row, order })) },
    params: [param],
    transform: [shown],
    mark: { type: "bar", height: 26, cornerRadius: 2 },
    encoding: {
      x: quantity("epsilon", { title: "ε", stack: "zero" }),
      y: category("account", { title: null, sort: accounts }),
      color: colour,
      order: quantity("order"),
      tooltip: [
        category("part", { title: "part" }),
        quantity("epsilon", { title: "ε", format: ".4f" }),
      ],
    },
  };
}

// An interval for each question, and a point where that tells something.
function intervals({ rows, axis, bounds }) {
  const lines = rows.map((row) => ({ ...row, what: row.what.replace(/(.{17,}?) /g, "$1\n") }));
  const labelExpr = "split(datum.label, '\\n')";
  const at = {
    y: category("what", { title: null, sort: unique(lines, "what"), axis: { labelExpr } }),
    color: { condition: { test: "datum.estimate === null", value: muted }, value: blue },
    tooltip: [
      category("what", { title: "asked" }),
      quantity("estimate", { title: "estimate", format: ".4g" }),
      quantity("low", { title: "95% from", format: ".4g" }),
      quantity("high", { title: "95% to", format: ".4g" }),
    ],
  };
  const scale = { domain: bounds, nice: false, zero: false };
  return {
    height: 48 * rows.length,
    data: { values: lines },
    layer: [
      {
        mark: { type: "rule", strokeWidth: 2.5 },
        encoding: { ...at, x: quantity("low", { title: axis, scale }), x2: { field: "high" } },
      },
      {
        transform: [{ filter: "datum.estimate !== null" }],
        mark: { type: "point", size: 110, filled: true, opacity: 1 },
        encoding: { ...at, x: quantity("estimate", { title: axis }) },
      },
    ],
  };
}

const methodColours = new Map([["selective", blue], ["dp-sgd", orange], ["non-private", green]]);

// Scores by ε: means with intervals and single seeds; what is not private as a band behind.
function comparison({ rows }) {
  const names = unique(rows, "method");
  const others = names.filter((name) => !methodColours.has(name));
  const more = (name) => [purple, muted, ink][others.indexOf(name) % 3];
  const colours = names.map((name) => methodColours.get(name) ?? more(name));
  const { param, colour, shown } = legendSwitch("method", names, colours);
  const means = rows.filter((row) => row.kind === "mean");
  const methods = unique(means, "method");
  const at = {
    x: category("epsilon", {
      title: "ε of the whole run",
      sort: unique(means, "epsilon").sort((one, other) => one - other),
      axis: { labelAngle: 0 },
      scale: { paddingInner: 0.45, paddingOuter: 0.3 },
    }),
    xOffset: category("method", { sort: methods, scale: { domain: methods } }),
    color: colour,
  };
  const low = quantity("low", { title: "score" });
  const score = quantity("score", { title: "score" });
  const own = [
    category("method", { title: "method" }),
    category("epsilon", { title: "ε" }),
    quantity("score", { title: "score", format: ".3f" }),
  ];
  const tooltip = [
    ...own,
    quantity("low", { title: "95% from", format: ".3f" }),
    quantity("high", { title: "95% to", format: ".3f" }),
  ];
  const data = { values: rows };
  const layer = (kind, mark, encoding) => ({ data, transform: [shown, only(kind)], mark, encoding });
  return {
    height: 280,
    layer: [
      level(1, "reference policy"),
      level(0, "random policy"),
      layer("bound", { type: "rect", opacity: 0.16 }, { y: low, y2: { field: "high" }, color: colour, tooltip }),
      layer("bound", { type: "rule", strokeWidth: 2 }, { y: score, color: colour, tooltip }),
      layer("mean", { type: "rule", strokeWidth: 2.5 }, { ...at, y: low, y2: { field: "high" } }),
      layer(
        "seed",
        { type: "tick", orient: "horizontal", size: 15, thickness: 1.5, opacity: 0.75 },
        { ...at, y: score, tooltip: [...own, { field: "seed", type: "ordinal", title: "seed" }] },
      ),
      {
        ...layer("mean", { type: "point", size: 110, filled: true, opacity: 1 }, { ...at, y: score, tooltip }),
        params: [param],
      },
    ],
  };
}

// A dashed line with its name.
function level(score, name) {
  const label = { type: "text", align: "left", dy: -6, dx: 3, color: muted, fontSize: 11 };
  const y = quantity("level");
  return {
    data: { values: [{ level: score, name }] },
    layer: [
      { mark: { type: "rule", strokeDash: [4, 4], color: muted, opacity: 0.7 }, encoding: { y } },
      { mark: label, encoding: { y, x: { value: 0 }, text: category("name") } },
    ],
  };
}

// How many prefixes have how many steps.
function prefixes({ rows, width }) {
  const most = Math.max(...rows.map((row) => row.count));
  const every = { values: [...Array(most + 1).keys()], format: "d" };
  return {
    height: 200,
    data: { values: rows },
    mark: { type: "bar", color: blue, cornerRadiusEnd: 2 },
    encoding: {
      x: {
        field: "first",
        type: "ordinal",
        title: `steps in the prefix${width > 1 ? `, ${width} to a bar` : ""}`,
        axis: { labelAngle: 0, labelOverlap: "greedy" },
      },
      y: quantity("count", { title: "prefixes", axis: most <= 5 ? every : { format: ",d" } }),
      tooltip: [category("steps", { title: "steps" }), quantity("count", { title: "prefixes" })],
    },
  };
}

// The loss on released data by training step.
function learning({ rows }) {
  const at = {
    x: quantity("step", { title: "training step", axis: { format: ",d" } }),
    y: quantity("loss", { title: "loss on released data", scale: { zero: false } }),
  };
  const near = { type: "point", nearest: true, on: "pointerover", fields: ["step"] };
  return {
    height: 220,
    data: { values: rows },
    layer: [
      { mark: { type: "line", color: blue, strokeWidth: 1.6, point: rows.length < 30 }, encoding: at },
      {
        params: [{ name: "near", select: near }],
        mark: { type: "point", size: 60, filled: true, color: blue },
        encoding: {
          ...at,
          opacity: { condition: { param: "near", empty: false, value: 1 }, value: 0 },
          tooltip: [
            quantity("step", { title: "step", format: ",.0f" }),
            quantity("loss", { title: "loss", format: ".4g" }),
          ],
        },
      },
    ],
  };
}

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
    labelColor: ink,
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
  actions: false,
  ast: true, // expressions are interpreted, so the page needs no eval
  defaultStyle: false,
  tooltip: { disableDefaultStyle: true, theme: "page" },
};
const common = {
  width: "container",
  background: "transparent",
  autosize: { type: "fit-x", contains: "padding" },
  config,
};

const specifications = { budget, earned: intervals, shares: intervals, comparison, prefixes, learning };
const charts = JSON.parse(document.getElementById("charts").textContent);
const drawn = Object.entries(charts).map(([id, data]) => {
  const place = document.getElementById(id);
  place.classList.add("live");
  const specification = specifications[id.replace("-chart", "")](data);
  return vegaEmbed(place, { ...common, ...specification }, options);
});
Promise.all(drawn).then(() => document.documentElement.setAttribute("data-drawn", "yes"));
