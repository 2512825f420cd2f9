/** A chart as a vector graphic for paper: 85 or 170 mm wide, type of 8 pt, its data inside the file. */
import { csv, json } from "./files.js";
import { tick } from "./format.js";
import { areWhole, extent, logTicks, positive, ticks } from "./series.js";

/** @import { ChartData, Values } from "./series.js" */

const MM = 72 / 25.4; // points in a millimetre
const TYPE = 8; // points
// Okabe and Ito's colours; paper is white.
export const PAPER_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a7000", "#000000"];

/** @param {string} text */
export function escaped(text) {
    const clean = text.replace(/[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, "�");
    return clean.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

/**
 * @param {ChartData} data
 * @param {{ millimetres: number, log?: boolean, logX?: boolean }} how
 */
export function svgOf(data, { millimetres, log = false, logX = false }) {
    const width = millimetres * MM;
    const legend = data.series.filter(one => !one.faded).slice(0, PAPER_COLOURS.length);
    const lines = legend.length > 1 ? legend.length : 0;
    const height = width * 0.62 + lines * TYPE * 1.4;
    const box = { left: 44, top: 8, right: width - 14, bottom: width * 0.62 - 28 };
    const series = data.series.map(one => ({ ...one, y: log ? positive(one.y) : one.y }));
    const across = extent([logX ? data.x.filter(value => value > 0) : data.x]) ?? [logX ? 0.1 : 0, 1];
    const [low, high] = widened(extent(series.map(one => one.y)) ?? [log ? 0.1 : 0, 1], log);
    const x = scale(across[0], across[1], box.left, box.right, logX);
    const y = scale(low, high, box.bottom, box.top, log);
    const parts = [];
    for (const value of log ? logTicks(low, high) : ticks(low, high, 6)) {
        const at = y(value).toFixed(2);
        parts.push(`<path d="M${box.left} ${at}H${box.right.toFixed(2)}" stroke="#ddd" stroke-width=".5"/>`);
        parts.push(text(tick(value), box.left - 4, Number(at) + TYPE * 0.35, "end"));
    }
    const marks = logX ? logTicks(...across) : ticks(across[0], across[1], width > 300 ? 8 : 4);
    for (const value of areWhole(data.x) ? marks.filter(Number.isInteger) : marks) {
        const at = x(value);
        parts.push(`<path d="M${at.toFixed(2)} ${box.bottom.toFixed(2)}v3" stroke="#000" stroke-width=".5"/>`);
        parts.push(text(tick(value), at, box.bottom + TYPE + 4, "middle"));
    }
    parts.push(
        `<path d="M${box.left} ${box.top}V${box.bottom.toFixed(2)}H${box.right.toFixed(2)}" fill="none" stroke="#000" stroke-width=".5"/>`,
    );
    parts.push(text(data.xTitle, (box.left + box.right) / 2, box.bottom + TYPE * 2 + 6, "middle"));
    parts.push(
        `<g transform="translate(${TYPE} ${((box.top + box.bottom) / 2).toFixed(2)}) rotate(-90)">${text(data.yTitle, 0, 0, "middle")}</g>`,
    );
    for (const one of [...series].sort((a, b) => Number(b.faded ?? false) - Number(a.faded ?? false))) {
        const colour =
            one.faded || !legend.some(other => other.name === one.name) ? "#bbb" : paperColour(data, one.name);
        parts.push(
            `<path d="${path(data.x, one.y, x, y)}" fill="none" stroke="${colour}" stroke-width="${one.bold ? 1.6 : one.faded ? 0.5 : 1}" stroke-linejoin="round"/>`,
        );
    }
    if (lines) {
        for (const [at, one] of legend.entries()) {
            const top = width * 0.62 + (at + 0.7) * TYPE * 1.4;
            parts.push(
                `<path d="M${box.left} ${(top - TYPE * 0.35).toFixed(2)}h16" stroke="${paperColour(data, one.name)}" stroke-width="1.4"/>`,
            );
            parts.push(text(one.name, box.left + 22, top, "start"));
        }
    }
    const size = `width="${millimetres}mm" height="${(height / MM).toFixed(2)}mm" viewBox="0 0 ${width.toFixed(2)} ${height.toFixed(2)}"`;
    return [
        `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="Helvetica, Arial, sans-serif" font-size="${TYPE}">`,
        `<title>${escaped(data.label)}</title>`,
        `<desc>${escaped(data.source ?? "")}</desc>`,
        `<metadata>${escaped(csvOf(data))}</metadata>`,
        ...parts,
        "</svg>\n",
    ].join("\n");
}

/** As on the screen: by the series' place. @param {ChartData} data @param {string} name */
function paperColour(data, name) {
    return PAPER_COLOURS[data.series.findIndex(one => one.name === name) % PAPER_COLOURS.length];
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
    return [data.xTitle, ...data.series.map(one => one.name)];
}

/** @param {ChartData} data */
function rowsOf(data) {
    return data.x.map((value, at) => [value, ...data.series.map(one => one.y[at] ?? null)]);
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
 * @returns {(value: number) => number}
 */
function scale(low, high, from, to, log) {
    const of = log ? Math.log10 : (/** @type {number} */ value) => value;
    const span = of(high) - of(low) || 1;
    return value => from + ((of(value) - of(low)) / span) * (to - from);
}

/**
 * @param {number[]} xs
 * @param {Values} ys
 * @param {(value: number) => number} x
 * @param {(value: number) => number} y
 */
function path(xs, ys, x, y) {
    const words = [];
    let pen = "M";
    for (const [at, value] of ys.entries()) {
        const along = xs[at];
        if (value === null || along === undefined || !Number.isFinite(value)) continue; // lines go on over gaps
        if (!Number.isFinite(x(along))) continue; // zero on a logarithmic scale
        words.push(`${pen}${x(along).toFixed(2)} ${y(value).toFixed(2)}`);
        pen = "L";
    }
    return words.join("");
}

/**
 * @param {string} words
 * @param {number} x
 * @param {number} y
 * @param {"start" | "middle" | "end"} anchor
 */
function text(words, x, y, anchor) {
    const short = words.length > 60 ? `${words.slice(0, 59)}…` : words;
    return `<text x="${x.toFixed(2)}" y="${y.toFixed(2)}" text-anchor="${anchor}">${escaped(short)}</text>`;
}
