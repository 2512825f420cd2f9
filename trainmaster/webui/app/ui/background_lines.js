/**
 * A thousand lines behind a chart's series: drawn in few paths, with a mark where each ends and where each was paused.
 * The line nearest to the pointer and those that cross a box are highlighted. Rungs are vertical lines with the value
 * they cut at.
 */

/** @import { Signal } from "../../vendor/signals/signals.js" */
/** @typedef {import("../../vendor/uplot/uPlot.js")} Plot */
/** @typedef {import("../../vendor/uplot/uPlot.js").Options} Options */
/**
 * @typedef {object} Line
 * @property {number} id
 * @property {string} name
 * @property {number[]} x rising
 * @property {number[]} y as many, finite
 * @property {readonly number[]} pauses places where it was paused, and resumed later
 * @property {"ended" | "stopped" | "failed" | "paused" | "live" | "front"} look front: a series of the chart draws it
 */
/**
 * @typedef {object} Rung
 * @property {number} x
 * @property {string} name
 * @property {number[]} cuts values below or above which trials were stopped here
 */
/** @typedef {{ left: number, top: number, width: number, height: number }} Box in CSS pixels inside the axes */
/**
 * @typedef {object} Background what a chart has behind its series
 * @property {BackgroundLines} lines on the same scales
 * @property {Signal<Line | null>} hovered the line nearest to the pointer
 * @property {boolean} boxes whether dragging chooses lines; else it widens a part
 * @property {(line: Line, event: MouseEvent) => void} onPick
 * @property {(lines: Line[]) => void} onBox
 */
/** @typedef {(name: string) => string} Colour of a custom property, as a canvas understands it */

const HOVER_DISTANCE = 30; // CSS pixels
const LINES_PER_STROKE = 60; // lines of one stroke
/** @type {Record<Exclude<Line["look"], "front">, { line: string, width: number, end: string }>} */
const LOOKS = {
    ended: { line: "--faded", width: 1, end: "--faded" },
    stopped: { line: "--faded", width: 1, end: "--over" },
    failed: { line: "--faded", width: 1, end: "--failed" },
    paused: { line: "--faded", width: 1, end: "--waiting" },
    live: { line: "--live", width: 1.2, end: "--running" },
};

export class BackgroundLines {
    /**
     * @param {Line[]} lines
     * @param {Rung[]} [rungs]
     * @param {{ log?: boolean, logX?: boolean }} [how] whether values and places lie on logarithmic scales
     */
    constructor(lines, rungs = [], { log = false, logX = false } = {}) {
        this.lines = log || logX ? lines.map(line => aboveZero(line, log, logX)) : lines;
        this.rungs = rungs;
        this.log = log;
        this.logX = logX;
    }

    /**
     * The smallest and the largest value between two places.
     * @param {number} from
     * @param {number} to
     * @returns {[number, number] | null}
     */
    range(from, to) {
        let low = Infinity;
        let high = -Infinity;
        for (const { x, y } of this.lines) {
            for (let at = 0; at < x.length; at += 1) {
                const along = /** @type {number} */ (x[at]);
                const value = /** @type {number} */ (y[at]);
                if (along < from || along > to) continue;
                if (value < low) low = value;
                if (value > high) high = value;
            }
        }
        return low <= high ? [low, high] : null;
    }

    /**
     * Draws what lies behind the series.
     * @param {Plot} plot
     * @param {Colour} colour
     */
    draw(plot, colour) {
        const pen = plot.ctx;
        const { left, top, width, height } = plot.bbox;
        const sharp = devicePixelRatio || 1;
        const { x, y } = scales(plot, this, true);
        pen.save();
        pen.beginPath();
        pen.rect(left, top, width, height);
        pen.clip();
        pen.lineJoin = "bevel"; // quicker than round, and no difference at this width
        for (const look of /** @type {const} */ (["ended", "stopped", "paused", "failed", "live"])) {
            const group = this.lines.filter(line => line.look === look);
            if (group.length === 0) continue;
            const { line, width: thick, end } = LOOKS[look];
            pen.strokeStyle = colour(line);
            pen.lineWidth = thick * sharp;
            // Several strokes, so that it is darker where many lie above each other.
            pen.globalAlpha = group.length > LINES_PER_STROKE ? 0.5 : 1;
            for (let from = 0; from < group.length; from += LINES_PER_STROKE) {
                pen.beginPath();
                for (const line of group.slice(from, from + LINES_PER_STROKE)) trace(pen, line, x, y);
                pen.stroke();
            }
            pen.globalAlpha = 1;
            pen.strokeStyle = colour(end);
            pen.fillStyle = colour(end);
            pen.lineWidth = 1.5 * sharp;
            pen.beginPath();
            for (const line of group) endMark(pen, line, look, x, y, sharp);
            if (look === "failed" || look === "paused") pen.stroke();
            else pen.fill();
        }
        pen.restore();
    }

    /**
     * Draws a ring where a line was paused and resumed later.
     * @param {Plot} plot
     * @param {Colour} colour
     */
    drawPauses(plot, colour) {
        const pen = plot.ctx;
        const { left, top, width, height } = plot.bbox;
        const sharp = devicePixelRatio || 1;
        const { x, y } = scales(plot, this, true);
        pen.save();
        pen.beginPath();
        pen.rect(left, top, width, height);
        pen.clip();
        pen.strokeStyle = colour("--waiting");
        pen.lineWidth = 1.5 * sharp;
        pen.beginPath();
        for (const line of this.lines) {
            for (const place of line.pauses) {
                const value = valueAt(line, place);
                if (value === null) continue;
                pen.moveTo(x(place) + 3.5 * sharp, y(value));
                pen.arc(x(place), y(value), 3.5 * sharp, 0, 7);
            }
        }
        pen.stroke();
        pen.restore();
    }

    /**
     * Draws the rungs, above the lines and below the series.
     * @param {Plot} plot
     * @param {Colour} colour
     */
    drawRungs(plot, colour) {
        const pen = plot.ctx;
        const { left, top, width, height } = plot.bbox;
        const sharp = devicePixelRatio || 1;
        const { x, y } = scales(plot, this, true);
        pen.save();
        pen.font = `${11 * sharp}px system-ui, DejaVu Sans, sans-serif`;
        pen.textAlign = "left";
        pen.textBaseline = "top";
        let free = -Infinity; // where the last name ends
        for (const rung of this.rungs) {
            const at = Math.round(x(rung.x)) + 0.5;
            if (at < left || at > left + width) continue;
            pen.strokeStyle = colour("--strong-line");
            pen.lineWidth = sharp;
            pen.setLineDash([4 * sharp, 4 * sharp]);
            pen.beginPath();
            pen.moveTo(at, top);
            pen.lineTo(at, top + height);
            pen.stroke();
            pen.setLineDash([]);
            pen.strokeStyle = colour("--text");
            pen.lineWidth = 2 * sharp;
            pen.beginPath();
            for (const cut of rung.cuts) {
                const level = y(cut);
                if (!(level >= top && level <= top + height)) continue;
                pen.moveTo(at - 7 * sharp, level);
                pen.lineTo(at + 7 * sharp, level);
            }
            pen.stroke();
            const room = pen.measureText(rung.name).width + 6 * sharp;
            if (at < free || at + room > left + width) continue;
            pen.fillStyle = colour("--muted");
            pen.fillText(rung.name, at + 3 * sharp, top + 2 * sharp);
            free = at + room;
        }
        pen.restore();
    }

    /**
     * The line nearest to a place; null where none is near.
     * @param {Plot} plot
     * @param {number} left CSS pixels inside the axes
     * @param {number} top
     */
    nearest(plot, left, top) {
        const { x, y } = scales(plot, this, false);
        const along = plot.posToVal(left, "x");
        let best = HOVER_DISTANCE;
        /** @type {Line | null} */
        let closest = null;
        for (const line of this.lines) {
            const end = line.x.length - 1;
            if (end < 0) continue;
            const last = /** @type {number} */ (line.x[end]);
            const clamped = Math.min(along, last);
            const value = valueAt(line, clamped);
            if (value === null) continue;
            const distance = Math.hypot(Math.max(0, left - x(last)), y(value) - top);
            if (distance < best) {
                best = distance;
                closest = line;
            }
        }
        return closest;
    }

    /**
     * The lines that cross a box.
     * @param {Plot} plot
     * @param {Box} box
     */
    crossing(plot, box) {
        const from = plot.posToVal(box.left, "x");
        const to = plot.posToVal(box.left + box.width, "x");
        const { y } = scales(plot, this, false);
        const inside = (/** @type {number} */ value) => y(value) >= box.top && y(value) <= box.top + box.height;
        return this.lines.filter(line => {
            const places = line.x.map((place, at) => (place >= from && place <= to ? line.y[at] : undefined));
            const ends = [valueAt(line, from), valueAt(line, to)].filter(value => value !== null);
            return [...places.filter(value => value !== undefined), ...ends].some(inside);
        });
    }

    /**
     * Draws one line on a canvas of its own above the plot.
     * @param {Plot} plot
     * @param {HTMLCanvasElement} sheet
     * @param {Line | null} line
     * @param {Colour} colour
     */
    highlight(plot, sheet, line, colour) {
        const sharp = devicePixelRatio || 1;
        const { width, height } = plot.over.getBoundingClientRect();
        if (sheet.width !== Math.round(width * sharp) || sheet.height !== Math.round(height * sharp)) {
            sheet.width = Math.round(width * sharp);
            sheet.height = Math.round(height * sharp);
        }
        const pen = sheet.getContext("2d");
        if (!pen) return;
        pen.clearRect(0, 0, sheet.width, sheet.height);
        if (!line) return;
        const { x, y } = scales(plot, this, false);
        pen.save();
        pen.scale(sharp, sharp);
        pen.strokeStyle = colour("--text");
        pen.fillStyle = colour("--text");
        pen.lineWidth = 2;
        pen.beginPath();
        trace(pen, line, x, y);
        pen.stroke();
        pen.beginPath();
        endMark(pen, line, "live", x, y, 1);
        pen.fill();
        pen.restore();
    }

    /**
     * The options of a plot with these lines behind its series.
     * @param {Options} options
     * @param {{ current: Background | undefined }} back as it is at any time
     * @param {Colour} colour
     * @param {any} Library
     * @returns {Options}
     */
    plotOptions(options, back, colour, Library) {
        const log = this.log;
        const boxes = back.current?.boxes ?? false;
        const sheet = document.createElement("canvas");
        sheet.className = "chart-above";
        /** @param {Plot} plot @param {Line | null} line */
        const point = (plot, line) => {
            const behind = back.current;
            if (!behind || (behind.hovered.peek() === line && line === null)) return;
            behind.hovered.value = line;
            behind.lines.highlight(plot, sheet, line, colour);
        };
        return {
            ...options,
            focus: { alpha: 1 },
            cursor: {
                ...options.cursor,
                focus: { prox: -1 },
                drag: boxes ? { x: true, y: true, setScale: false } : { x: true, y: false },
            },
            scales: {
                ...options.scales,
                y: {
                    ...options.scales?.["y"],
                    range: (plot, low, high) => {
                        const { min, max } = plot.scales["x"] ?? {};
                        const extent = back.current?.lines.range(min ?? -Infinity, max ?? Infinity) ?? null;
                        const from = Math.min(low ?? Infinity, extent?.[0] ?? Infinity);
                        const to = Math.max(high ?? -Infinity, extent?.[1] ?? -Infinity);
                        if (!(from <= to)) return log ? [0.1, 1] : [0, 1];
                        return log ? Library.rangeLog(from, to, 10, false) : Library.rangeNum(from, to, 0.05, true);
                    },
                },
            },
            hooks: {
                ...options.hooks,
                ready: [
                    plot => {
                        plot.over.append(sheet);
                        plot.over.addEventListener("click", event => {
                            const line = back.current?.hovered.peek();
                            if (line) back.current?.onPick(line, event);
                        });
                        plot.over.addEventListener("mouseleave", () => point(plot, null));
                    },
                ],
                drawAxes: [
                    plot => {
                        back.current?.lines.draw(plot, colour);
                        back.current?.lines.drawRungs(plot, colour);
                        back.current?.lines.drawPauses(plot, colour);
                    },
                ],
                setCursor: [
                    ...(options.hooks?.setCursor ?? []),
                    plot => {
                        const { left = -1, top = -1 } = plot.cursor;
                        if (left >= 0) point(plot, back.current?.lines.nearest(plot, left, top) ?? null);
                    },
                ],
                setSelect: [
                    plot => {
                        const box = plot.select;
                        if (!boxes || box.width < 3 || !back.current) return;
                        back.current.onBox(back.current.lines.crossing(plot, box));
                        plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
                    },
                ],
            },
        };
    }
}

/**
 * @param {Line} line
 * @param {boolean} values
 * @param {boolean} places
 * @returns {Line}
 */
function aboveZero(line, values, places) {
    const indexes = line.y
        .map((value, at) => ((!values || value > 0) && (!places || Number(line.x[at]) > 0) ? at : -1))
        .filter(at => at >= 0);
    if (indexes.length === line.y.length) return line;
    const of = (/** @type {number[]} */ values) => indexes.map(at => /** @type {number} */ (values[at]));
    return { ...line, x: of(line.x), y: of(line.y) };
}

/**
 * From values to pixels, of the canvas or inside the axes: uPlot's own function looks its scales up for each point.
 * @param {Plot} plot
 * @param {{ log: boolean, logX: boolean }} how
 * @param {boolean} canvas
 */
function scales(plot, { log, logX }, canvas) {
    const sharp = canvas ? 1 : devicePixelRatio || 1;
    const { left, top, width, height } = plot.bbox;
    const same = (/** @type {number} */ value) => value;
    const of = log ? Math.log10 : same;
    const along = logX ? Math.log10 : same;
    const fromX = along(plot.scales["x"]?.min ?? (logX ? 1 : 0));
    const spanX = along(plot.scales["x"]?.max ?? 10) - fromX || 1;
    const fromY = of(plot.scales["y"]?.min ?? (log ? 0.1 : 0));
    const spanY = of(plot.scales["y"]?.max ?? 1) - fromY || 1;
    const beginX = canvas ? left : 0;
    const endY = (canvas ? top : 0) + height / sharp;
    return {
        x: (/** @type {number} */ value) => beginX + (((along(value) - fromX) / spanX) * width) / sharp,
        y: (/** @type {number} */ value) => endY - (((of(value) - fromY) / spanY) * height) / sharp,
    };
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Line} line
 * @param {(value: number) => number} x
 * @param {(value: number) => number} y
 */
function trace(pen, line, x, y) {
    for (let at = 0; at < line.x.length; at += 1) {
        const across = x(/** @type {number} */ (line.x[at]));
        const up = y(/** @type {number} */ (line.y[at]));
        if (at === 0) pen.moveTo(across, up);
        else pen.lineTo(across, up);
    }
}

/**
 * A dot where a line ends, a cross where it failed, two bars where it is paused.
 * @param {CanvasRenderingContext2D} pen
 * @param {Line} line
 * @param {Line["look"]} look
 * @param {(value: number) => number} x
 * @param {(value: number) => number} y
 * @param {number} sharp
 */
function endMark(pen, line, look, x, y, sharp) {
    const end = line.x.length - 1;
    if (end < 0) return;
    const across = x(/** @type {number} */ (line.x[end]));
    const up = y(/** @type {number} */ (line.y[end]));
    if (look === "paused") {
        for (const beside of [-2, 2]) {
            pen.moveTo(across + beside * sharp, up - 4 * sharp);
            pen.lineTo(across + beside * sharp, up + 4 * sharp);
        }
        return;
    }
    const size = (look === "live" ? 2.5 : look === "failed" ? 4 : 1.6) * sharp;
    if (look === "failed") {
        pen.moveTo(across - size, up - size);
        pen.lineTo(across + size, up + size);
        pen.moveTo(across - size, up + size);
        pen.lineTo(across + size, up - size);
        return;
    }
    pen.moveTo(across + size, up);
    pen.arc(across, up, size, 0, 7);
}

/**
 * A line's value at a place, on the straight way between its points; null before its first and behind its last.
 * @param {{ x: number[], y: number[] }} line
 * @param {number} position
 */
export function valueAt(line, position) {
    const { x, y } = line;
    let low = 0;
    let high = x.length - 1;
    if (high < 0 || position < /** @type {number} */ (x[0]) || position > /** @type {number} */ (x[high])) return null;
    while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (/** @type {number} */ (x[middle]) <= position) low = middle;
        else high = middle;
    }
    const from = /** @type {number} */ (x[low]);
    const to = /** @type {number} */ (x[high]);
    const before = /** @type {number} */ (y[low]);
    const after = /** @type {number} */ (y[high]);
    return to > from ? before + ((after - before) * (position - from)) / (to - from) : before;
}
