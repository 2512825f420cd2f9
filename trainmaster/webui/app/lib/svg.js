/** A chart as a vector graphic for paper: 85 or 170 mm wide, type of 8 pt, its data inside the file. */
import { csv, json } from "./files.js";
import { tick } from "./format.js";
import { areIntegers, extent, logTicks, positive, ticks } from "./series.js";
import { paperWidth, SvgPen } from "./svg_pen.js";

/** @import { ChartData, Series, Values } from "./series.js" */
/** @typedef {(value: number) => number} Scale from a value to pixels */

// Okabe and Ito's colours; paper is white.
const PAPER_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a7000", "#000000"];
const RATIO = 0.62; // height of the plot to its width
const LEGEND_LINE = 17;
const MARGIN = { left: 66, top: 12, right: 21, bottom: 42 };
const MAX_NAME_LENGTH = 60;

/**
 * Return a chart as the text of an SVG file.
 * @param {ChartData} data
 * @param {{ millimetres: number, log?: boolean, logX?: boolean }} how
 */
export function svgOf(data, { millimetres, log = false, logX = false }) {
    const width = paperWidth(millimetres);
    const plotHeight = Math.round(width * RATIO);
    const colours = coloursOf(data.series);
    const legend = colours.size > 1 ? colours : new Map();
    const pen = new SvgPen(width, plotHeight + legend.size * LEGEND_LINE);
    const series = data.series.map(({ y, ...rest }) => ({ ...rest, y: log ? positive(y) : y }));
    const range = extent([logX ? data.x.filter(value => value > 0) : data.x]) ?? [logX ? 0.1 : 0, 1];
    const [low, high] = widened(extent(series.map(({ y }) => y)) ?? [log ? 0.1 : 0, 1], log);
    const bottom = plotHeight - MARGIN.bottom;
    const x = scale(range[0], range[1], MARGIN.left, width - MARGIN.right, logX);
    const y = scale(low, high, bottom, MARGIN.top, log);
    for (const value of log ? logTicks(low, high) : ticks(low, high, 6)) {
        line(pen, [MARGIN.left, y(value)], [width - MARGIN.right, y(value)], "#ddd", 0.75);
        text(pen, tick(value), MARGIN.left - 6, y(value) + 4, "end");
    }
    const marks = logX ? logTicks(...range) : ticks(range[0], range[1], width > 450 ? 8 : 4);
    for (const value of areIntegers(data.x) ? marks.filter(Number.isInteger) : marks) {
        line(pen, [x(value), bottom], [x(value), bottom + 5], "#000", 0.75);
        text(pen, tick(value), x(value), bottom + 18, "center");
    }
    line(pen, [MARGIN.left, MARGIN.top], [MARGIN.left, bottom], "#000", 0.75);
    line(pen, [MARGIN.left, bottom], [width - MARGIN.right, bottom], "#000", 0.75);
    text(pen, data.xTitle, (MARGIN.left + width - MARGIN.right) / 2, bottom + 33, "center");
    pen.save();
    pen.translate(12, (MARGIN.top + bottom) / 2);
    pen.rotate(-Math.PI / 2);
    text(pen, data.yTitle, 0, 0, "center");
    pen.restore();
    for (const curve of [...series].sort((a, b) => Number(b.faded ?? false) - Number(a.faded ?? false))) {
        pen.strokeStyle = colours.get(curve.name) ?? "#bbb";
        pen.lineWidth = curve.bold ? 2.4 : curve.faded ? 0.75 : 1.5;
        drawCurve(pen, data.x, curve.y, x, y);
    }
    for (const [index, [name, colour]] of [...legend].entries()) {
        const baseline = plotHeight + (index + 0.7) * LEGEND_LINE;
        line(pen, [MARGIN.left, baseline - 4], [MARGIN.left + 24, baseline - 4], colour, 2.1);
        text(pen, name, MARGIN.left + 33, baseline, "start");
    }
    return pen.file({ millimetres, title: data.label, source: data.source ?? "", metadata: csvOf(data) });
}

/**
 * Return the colours of the series that the legend names, as on the screen: by their place.
 * @param {Series[]} series
 * @returns {Map<string, string>}
 */
function coloursOf(series) {
    const named = series
        .map(({ name, faded }, index) => ({
            name,
            faded,
            colour: PAPER_COLOURS[index % PAPER_COLOURS.length] ?? "#000",
        }))
        .filter(({ faded }) => !faded)
        .slice(0, PAPER_COLOURS.length);
    return new Map(named.map(({ name, colour }) => [name, colour]));
}

/** The chart's values as CSV. @param {ChartData} data */
export function csvOf(data) {
    return csv(headOf(data), rowsOf(data));
}

/** The same as JSON. @param {ChartData} data */
export function jsonOf(data) {
    return json(headOf(data), rowsOf(data));
}

/** @param {ChartData} data */
function headOf(data) {
    return [data.xTitle, ...data.series.map(series => series.name)];
}

/** @param {ChartData} data */
function rowsOf(data) {
    return data.x.map((value, at) => [value, ...data.series.map(series => series.y[at] ?? null)]);
}

/**
 * @param {[number, number]} range
 * @param {boolean} log
 * @returns {[number, number]}
 */
function widened([low, high], log) {
    if (low === high) return log ? [low / 2, high * 2] : [low - 1, high + 1];
    if (log) return [low, high];
    const more = (high - low) * 0.04;
    return [low - more, high + more];
}

/**
 * @param {number} low
 * @param {number} high
 * @param {number} from
 * @param {number} to
 * @param {boolean} log
 * @returns {Scale}
 */
function scale(low, high, from, to, log) {
    const of = log ? Math.log10 : (/** @type {number} */ value) => value;
    const span = of(high) - of(low) || 1;
    return value => from + ((of(value) - of(low)) / span) * (to - from);
}

/**
 * @param {SvgPen} pen
 * @param {[number, number]} from
 * @param {[number, number]} to
 * @param {string} colour
 * @param {number} width
 */
function line(pen, from, to, colour, width) {
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.beginPath();
    pen.moveTo(...from);
    pen.lineTo(...to);
    pen.stroke();
}

/**
 * @param {SvgPen} pen
 * @param {number[]} xs
 * @param {Values} ys
 * @param {Scale} x
 * @param {Scale} y
 */
function drawCurve(pen, xs, ys, x, y) {
    pen.beginPath();
    for (const [index, value] of ys.entries()) {
        const along = xs[index];
        if (value === null || along === undefined || !Number.isFinite(value)) continue; // lines continue over gaps
        if (Number.isFinite(x(along))) pen.lineTo(x(along), y(value)); // zero has no place on a logarithmic scale
    }
    pen.stroke();
}

/**
 * @param {SvgPen} pen
 * @param {string} words
 * @param {number} x
 * @param {number} y
 * @param {"start" | "center" | "end"} align
 */
function text(pen, words, x, y, align) {
    pen.textAlign = align;
    pen.fillText(words.length > MAX_NAME_LENGTH ? `${words.slice(0, MAX_NAME_LENGTH - 1)}…` : words, x, y);
}
