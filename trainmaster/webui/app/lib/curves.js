/** Curves of many trials over one grid: new points are added, and where rungs lie on its axis. */

/** @import { Curves, ExperimentBoard } from "../../types/api.d.ts" */

const MAX_POINTS = 600; // of a grid that has grown; then the page fetches a new one

/**
 * Curves with those of the trials that have reported more since. Null: the grid has become too fine, all have to be
 * read again.
 * @param {Curves} all
 * @param {Curves} news
 * @returns {Curves | null}
 */
export function mergeCurves(all, news) {
    if (news.whole) return news;
    if (news.group !== all.group || news.metric !== all.metric || news.xName !== all.xName) return null;
    if (news.trials.length === 0) return { ...all, seq: news.seq };
    const x = [...new Set([...all.x, ...news.x])].sort((a, b) => a - b);
    if (x.length > MAX_POINTS) return null;
    const places = new Map(x.map((value, at) => [value, at]));
    const indexes = new Map(news.trials.map((trial, at) => [trial, at]));
    /** @type {number[]} */
    const trials = [];
    /** @type {(number | null)[][]} */
    const y = [];
    /** @type {(number | null)[]} */
    const last = [];
    /** @type {number[][]} */
    const pauses = [];
    for (const [at, trial] of all.trials.entries()) {
        if (indexes.has(trial)) continue;
        trials.push(trial);
        y.push(x.length === all.x.length ? (all.y[at] ?? []) : alignToGrid(all.y[at] ?? [], all.x, places));
        last.push(all.last[at] ?? null);
        pauses.push(all.pauses[at] ?? []);
    }
    for (const [at, trial] of news.trials.entries()) {
        trials.push(trial);
        y.push(alignToGrid(news.y[at] ?? [], news.x, places));
        last.push(news.last[at] ?? null);
        pauses.push(news.pauses[at] ?? []);
    }
    return { ...all, x, trials, y, last, pauses, seq: news.seq };
}

/**
 * @param {(number | null)[]} row
 * @param {number[]} x
 * @param {Map<number, number>} places
 */
function alignToGrid(row, x, places) {
    /** @type {(number | null)[]} */
    const result = [];
    for (const [at, value] of row.entries()) {
        const index = places.get(x[at] ?? Number.NaN);
        if (value === null || index === undefined) continue;
        while (result.length < index) result.push(null);
        result[index] = value;
    }
    return result;
}

/**
 * How many of the axis' units one unit of the search is: 100 where an epoch has 100 batches. Null where that is
 * unknown, as on an axis of seconds.
 * @param {ExperimentBoard} board
 * @param {readonly { readonly [name: string]: unknown }[]} trials
 */
export function unitOnAxis(board, trials) {
    const { curves, experiment } = board;
    if (!curves) return null;
    if (curves.xName === experiment.timeMetric) return 1;
    if (curves.xName !== "batches") return null;
    const ratios = trials
        .filter(row => Number(row["units"]) > 0 && Number(row["steps"]) > 0)
        .map(row => Number(row["steps"]) / Number(row["units"]))
        .sort((a, b) => a - b);
    return ratios[Math.floor(ratios.length / 2)] ?? null;
}
