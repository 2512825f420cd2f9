/**
 * Which hyperparameters matter: PED-ANOVA (Watanabe, Bansal, Hutter 2023, arXiv:2304.10255), over a search's trials.
 *
 * The values of the best trials are compared with those of all: the more the two distributions differ (Pearson's
 * divergence), the more that hyperparameter decides who is among the best.
 */

import { scaleOf } from "./axes.js";

/** @import { Axis } from "./axes.js" */

export const MIN_TRIALS = 10; // trials with a value: below, chance decides
const BEST = 0.1; // share of the trials that count as the best
const BINS = 20;
const PRIOR = 0.5; // counts added to each bin, so that few trials do not look certain

/**
 * @param {readonly { readonly [name: string]: unknown }[]} rows
 * @param {readonly string[]} names columns of hyperparameters
 * @param {(row: { readonly [name: string]: unknown }) => number | null} goal smaller is better; null: no value
 * @param {import("./axes.js").Kinds} [kinds]
 * @returns {{ name: string, share: number }[]} shares add to 1, the largest first; empty for too few trials
 */
export function importance(rows, names, goal, kinds = {}) {
    const judged = rows
        .map(row => ({ row, value: goal(row) }))
        .filter(entry => entry.value !== null && Number.isFinite(entry.value))
        .sort((a, b) => Number(a.value) - Number(b.value));
    if (judged.length < MIN_TRIALS) return [];
    const best = judged.slice(0, Math.max(3, Math.round(judged.length * BEST))).map(entry => entry.row);
    const all = judged.map(entry => entry.row);
    const divergences = names.map(name => {
        const axis = scaleOf(name, all, kinds);
        return { name, share: axis === null ? 0 : divergence(axis, best, all) };
    });
    const sum = divergences.reduce((total, entry) => total + entry.share, 0);
    return divergences
        .map(entry => ({ name: entry.name, share: sum > 0 ? entry.share / sum : 0 }))
        .sort((a, b) => b.share - a.share || a.name.localeCompare(b.name));
}

/**
 * @param {Axis} axis
 * @param {readonly { readonly [name: string]: unknown }[]} best
 * @param {readonly { readonly [name: string]: unknown }[]} all
 */
function divergence(axis, best, all) {
    const bins = axis.categories ? axis.categories.length : BINS;
    const p = shares(axis, best, bins);
    const q = shares(axis, all, bins);
    return p.reduce((sum, density, at) => sum + (q[at] ?? 1) * (density / (q[at] ?? 1) - 1) ** 2, 0);
}

/**
 * @param {Axis} axis
 * @param {readonly { readonly [name: string]: unknown }[]} rows
 * @param {number} bins
 */
function shares(axis, rows, bins) {
    const counts = new Array(bins).fill(PRIOR / bins);
    for (const row of rows) {
        const position = axis.position(row[axis.name]);
        if (position !== null) counts[Math.min(bins - 1, Math.floor(position * bins))] += 1;
    }
    const sum = counts.reduce((total, count) => total + count, 0);
    return counts.map(count => count / sum);
}
