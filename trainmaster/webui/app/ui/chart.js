/**
 * A chart of lines over uPlot, which is loaded when the first one is shown: logarithmic scale, smoothing, a cursor that
 * charts share, files for a paper (PNG, SVG, CSV), and its values as a table for who cannot see it.
 */
import { useEffect, useMemo, useRef } from "../../vendor/preact/hooks.js";
import { signal, useSignal } from "../../vendor/signals/signals.js";
import { number, tick, visible } from "../lib/format.js";
import { areIntegers, positive, smoothed } from "../lib/series.js";
import { colours, themes } from "./canvas.js";
import { saveFile, savePng } from "./download.js";
import { Menu, toastError } from "./overlay.js";
import { Table, useRows } from "./table.js";
import { component, tags } from "./tags.js";

/** @import { ChartData } from "../lib/series.js" */
/** @import { Content } from "../../types/tags.d.ts" */
/** @import { Background, Line } from "./background_lines.js" */
/** @typedef {import("../../vendor/uplot/uPlot.js")} Plot */
/** @typedef {import("../../vendor/uplot/uPlot.js").Options} Options */

const { button, div, figcaption, figure, input, label, li, span, ul } = tags;

const COLOUR_COUNT = 8;
const MAX_LEGEND = 12; // series that a legend can name; beyond, the nearest line is named

/** @type {Promise<typeof import("../../vendor/uplot/uPlot.js")> | null} */
let library = null;

function loadLibrary() {
    library ??= (async () => {
        const link = document.createElement("link");
        link.rel = "stylesheet";
        link.href = new URL("../../vendor/uplot/uPlot.css", import.meta.url).href;
        document.head.append(link);
        /** @type {any} its types are of a CommonJS module */
        const module = await import("../../vendor/uplot/uPlot.js");
        return module.default;
    })();
    return library;
}

/**
 * @typedef {object} Settings what its tools change, where that is kept elsewhere, as in the address
 * @property {boolean} log
 * @property {boolean} [logX]
 * @property {number} smooth from 0 to below 1
 * @property {boolean} table
 * @property {(changes: { log?: boolean, logX?: boolean, smooth?: number, table?: boolean }) => void} set
 */
/**
 * @typedef {object} ChartProperties
 * @property {ChartData} data
 * @property {number} [height] pixels
 * @property {string} [cursor] charts with the same word share their cursor
 * @property {boolean} [log] whether it begins with a logarithmic scale
 * @property {Settings} [settings]
 * @property {Background} [background]
 * @property {() => ChartData} [exportData] all of it, for files; default: `data`
 * @property {Content} [table] in the place of the table of its values
 * @property {Content} [children] further tools
 */
export const Chart = component((/** @type {ChartProperties} */ properties) => {
    const {
        data,
        height = 260,
        cursor,
        log = false,
        settings,
        background: behind,
        exportData,
        table,
        children,
    } = properties;
    const logarithmic = useControlled(log, settings?.log, value => settings?.set({ log: value }));
    const weight = useControlled(0, settings?.smooth, value => settings?.set({ smooth: value }));
    const asTable = useControlled(false, settings?.table, value => settings?.set({ table: value }));
    const at = useSignal(/** @type {number | null} */ (null));
    const nearest = useSignal(/** @type {number | null} */ (null));
    const shown = useMemo(
        () => ({ ...data, series: data.series.map(series => ({ ...series, y: smoothed(series.y, weight.value) })) }),
        [data, weight.value],
    );
    return figure(
        { class: "chart" },
        figcaption(
            null,
            span({ class: "chart-title" }, visible(data.label, 120)),
            children,
            label(
                { class: "chart-tool" },
                "Smooth",
                input({
                    type: "range",
                    min: 0,
                    max: 0.99,
                    step: 0.01,
                    value: weight.value,
                    onInput: event => {
                        weight.value = Number(event.currentTarget.value);
                    },
                }),
            ),
            button(
                {
                    type: "button",
                    class: "plain",
                    "aria-pressed": logarithmic.value,
                    onClick: () => {
                        logarithmic.value = !logarithmic.value;
                    },
                },
                "log",
            ),
            settings?.logX === undefined
                ? null
                : button(
                      {
                          type: "button",
                          class: "plain",
                          "aria-pressed": settings.logX,
                          onClick: () => settings.set({ logX: !settings.logX }),
                      },
                      "log x",
                  ),
            button(
                {
                    type: "button",
                    class: "plain",
                    "aria-pressed": asTable.value,
                    onClick: () => {
                        asTable.value = !asTable.value;
                    },
                },
                "Table",
            ),
            Menu({
                label: `Save ${visible(data.label, 60)}`,
                class: "plain",
                text: "Save",
                items: () =>
                    saveItems(exportData?.() ?? shown, { log: logarithmic.value, logX: settings?.logX ?? false }),
            }),
        ),
        asTable.value
            ? (table ?? ValueTable({ data: shown }))
            : Canvas({
                  data: shown,
                  height,
                  cursor,
                  log: logarithmic.value,
                  logX: settings?.logX ?? false,
                  at,
                  nearest,
                  background: behind,
              }),
        asTable.value ? null : Legend({ data: shown, at, nearest, beside: behind?.hovered }),
    );
});

/**
 * A value that a tool changes: kept here, or where `given` comes from.
 * @template T
 * @param {T} first
 * @param {T | undefined} controlled
 * @param {(value: T) => void} set
 */
function useControlled(first, controlled, set) {
    const local = useSignal(first);
    return {
        get value() {
            return controlled ?? local.value;
        },
        set value(next) {
            if (controlled === undefined) local.value = next;
            else set(next);
        },
    };
}

/** @import { Signal } from "../../vendor/signals/signals.js" */
/** The height of the window, for charts that take what room there is. */
export const windowHeight = signal(innerHeight);
addEventListener("resize", () => {
    windowHeight.value = innerHeight;
});

/** @typedef {{ data: ChartData, height: number, cursor?: string, log: boolean, logX: boolean, at: Signal<number | null>, nearest: Signal<number | null>, background?: Background }} CanvasProperties */

const Canvas = component(
    (/** @type {CanvasProperties} */ { data, height, cursor, log, logX, at, nearest, background: behind }) => {
        const host = useRef(/** @type {HTMLDivElement | null} */ (null));
        const plot = useRef(/** @type {Plot | null} */ (null));
        const theme = themes.value;
        const kinds = data.series.map(series => `${series.name} ${series.faded} ${series.bold}`).join("\n");
        const values = useMemo(
            () =>
                /** @type {import("../../vendor/uplot/uPlot.js").AlignedData} */ ([
                    data.x,
                    ...data.series.map(series => (log ? positive(series.y) : series.y)),
                ]),
            [data, log],
        );
        const latest = useRef(values);
        latest.current = values;
        const back = useRef(behind);
        back.current = behind;
        useEffect(() => {
            let gone = false;
            const element = host.current;
            if (!element) return undefined;
            const watcher = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height }));
            loadLibrary().then(Library => {
                if (gone) return;
                const colour = colours(element);
                /** @param {Options} plain */
                const around = plain => back.current?.lines.plotOptions(plain, back, colour, Library) ?? plain;
                plot.current = new Library(
                    around(options(element, data, height, { log, logX }, cursor, at, nearest)),
                    latest.current,
                    element,
                );
                watcher.observe(element);
            }, toastError);
            return () => {
                gone = true;
                watcher.disconnect();
                plot.current?.destroy();
                plot.current = null;
            };
        }, [kinds, log, logX, theme, height, cursor, data.xTitle, data.yTitle, behind?.boxes]);
        useEffect(() => plot.current?.setData(values), [values, behind?.lines]);
        const lines = data.series.length + (behind?.lines.lines.length ?? 0);
        const words = `${data.label}: ${lines} lines over ${data.xTitle}. Use "Table" for its values.`;
        return div({
            class: "chart-canvas",
            ref: host,
            role: "img",
            "aria-label": words,
            style: { height: `${height}px` },
        });
    },
);

/**
 * @param {HTMLElement} element
 * @param {ChartData} data
 * @param {number} height
 * @param {{ log: boolean, logX: boolean }} how
 * @param {string | undefined} cursor
 * @param {Signal<number | null>} at
 * @param {Signal<number | null>} nearest
 * @returns {Options}
 */
function options(element, data, height, { log, logX }, cursor, at, nearest) {
    const colour = colours(element);
    const axis = {
        stroke: colour("--muted"),
        grid: { stroke: colour("--line"), width: 1 },
        ticks: { stroke: colour("--line"), width: 1 },
        font: "12px system-ui, DejaVu Sans, sans-serif",
    };
    const isMulti = data.series.length > 1;
    return {
        width: element.clientWidth,
        height,
        scales: { x: { time: false, ...(logX ? { distr: 3 } : {}) }, y: log ? { distr: 3 } : {} },
        legend: { show: false },
        cursor: {
            sync: cursor ? { key: cursor } : undefined,
            focus: { prox: isMulti ? 24 : -1 },
            points: data.series.length > MAX_LEGEND ? { show: false } : { size: 6 },
        },
        focus: { alpha: data.series.length > MAX_LEGEND ? 0.35 : 0.6 },
        axes: [
            {
                ...axis,
                label: data.xTitle,
                labelSize: 20,
                labelFont: axis.font,
                size: 34,
                // Steps and epochs are counted: there is no mark between two of them.
                splits:
                    logX || !areIntegers(data.x)
                        ? undefined
                        : (_u, _axis, low, high, step) => integerTicks(low, high, step),
                values: (_, marks) => marks.map(mark => (mark === null ? "" : tick(mark))),
            },
            {
                ...axis,
                label: data.yTitle,
                labelSize: 20,
                labelFont: axis.font,
                size: 62,
                values: (_, marks) => marks.map(mark => (mark === null ? "" : tick(mark))),
            },
        ],
        series: [
            {},
            ...data.series.map((series, place) => ({
                label: series.name,
                stroke: series.faded ? colour("--faded") : colour(`--series-${(place % COLOUR_COUNT) + 1}`),
                width: series.bold ? 2.5 : series.faded ? 1 : 1.5,
                spanGaps: true,
                points: { show: false },
            })),
        ],
        hooks: {
            setCursor: [
                plot => {
                    at.value = plot.cursor.idx ?? null;
                },
            ],
            setSeries: [
                (_, index) => {
                    nearest.value = index === null ? null : index - 1;
                },
            ],
        },
    };
}

const Legend = component(
    (
        /** @type {{ data: ChartData, at: Signal<number | null>, nearest: Signal<number | null>, beside?: Signal<Line | null> }} */ {
            data,
            at,
            nearest,
            beside,
        },
    ) => {
        const hovered = beside?.value;
        const index = at.value;
        const x = index === null ? undefined : data.x[index];
        const nearestSeries = data.series[nearest.value ?? -1];
        const many = data.series.length > MAX_LEGEND;
        /** @param {{ y: (number | null)[] }} series */
        const value = series => (index === null ? "" : number(series.y[index] ?? null));
        return ul(
            { class: "legend", "aria-hidden": "true" },
            li(
                { key: "x" },
                span({ class: "muted" }, `${visible(data.xTitle, 30)} `),
                x === undefined ? "–" : number(x),
            ),
            many
                ? li(
                      { key: "one" },
                      nearestSeries
                          ? `${visible(nearestSeries.name, 60)} ${value(nearestSeries)}`
                          : span({ class: "muted" }, `${data.series.length} lines`),
                  )
                : data.series.map((series, place) =>
                      li(
                          { key: series.name },
                          span({
                              class: series.faded ? "swatch faded" : `swatch series-${(place % COLOUR_COUNT) + 1}`,
                          }),
                          visible(series.name, 40),
                          " ",
                          span({ class: "legend-value" }, value(series)),
                      ),
                  ),
            beside ? li({ key: "hovered", class: "legend-hovered" }, hovered ? visible(hovered.name, 80) : "") : null,
        );
    },
);

/** The values in rows: what the canvas shows to those who see it. */
const ValueTable = component((/** @type {{ data: ChartData }} */ { data }) => {
    const places = useMemo(() => data.x.map((x, at) => ({ at, x })), [data]);
    const rows = useRows(places);
    const columns = useMemo(
        () => [
            {
                key: "x",
                title: visible(data.xTitle, 40),
                width: 110,
                unsorted: true,
                cell: (/** @type {{ x: number }} */ row) => number(row.x),
            },
            ...data.series.map((series, place) => ({
                key: `${place}`,
                title: visible(series.name, 40),
                width: 110,
                align: /** @type {const} */ ("right"),
                unsorted: true,
                cell: (/** @type {{ at: number }} */ row) => number(series.y[row.at] ?? null),
            })),
        ],
        [data],
    );
    return div(
        { class: "chart-table" },
        Table({ label: data.label, columns, rows, rowKey: (/** @type {{ at: number }} */ row) => row.at }),
    );
});

/**
 * @param {ChartData} data
 * @param {{ log: boolean, logX: boolean }} how
 */
function saveItems(data, how) {
    const name = data.label.replace(/[^\w.-]+/g, "-").slice(0, 60) || "chart";
    const withSource = { ...data, source: `${data.source ?? data.label} ${window.location.href}` };
    /** @param {(svg: typeof import("../lib/svg.js")) => unknown} save with a module that is seldom needed */
    const lazily = save => () => {
        import("../lib/svg.js").then(save).catch(toastError);
    };
    /** @param {number} millimetres */
    const saveSvg = millimetres =>
        lazily(svg => saveFile(`${name}.svg`, svg.svgOf(withSource, { millimetres, ...how }), "image/svg+xml"));
    return [
        {
            text: "PNG",
            hint: "twice the size",
            action: lazily(svg => savePng(svg.svgOf(withSource, { millimetres: 170, ...how }), `${name}.png`)),
        },
        { text: "SVG, one column", hint: "85 mm", action: saveSvg(85) },
        { text: "SVG, two columns", hint: "170 mm", action: saveSvg(170) },
        {
            text: "CSV",
            hint: "its values",
            action: lazily(svg => saveFile(`${name}.csv`, svg.csvOf(data), "text/csv")),
        },
        {
            text: "JSON",
            hint: "its values",
            action: lazily(svg => saveFile(`${name}.json`, svg.jsonOf(data), "application/json")),
        },
    ];
}

/**
 * Whole numbers of a range, as far apart as uPlot wants its marks, and by one at least.
 * @param {number} low
 * @param {number} high
 * @param {number} step
 * @returns {number[]}
 */
function integerTicks(low, high, step) {
    const by = Math.max(1, Math.ceil(step));
    const marks = [];
    for (let at = Math.ceil(low / by) * by; at <= high; at += by) marks.push(at);
    return marks;
}
