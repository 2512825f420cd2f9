/** Things side by side: their order, the rows of their table, and how each differs from the baseline. */
import { count, duration, number } from "./format.js";

/** @import { Comparison, ComparedThing } from "../../types/api.d.ts" */
/**
 * @typedef {object} CompareRow
 * @property {string} part
 * @property {string} name
 * @property {unknown[]} values one for each thing
 * @property {boolean} differs
 * @property {(value: unknown) => string} [words] how a value is told; default: as it is
 */

export const PARTS = /** @type {const} */ ([
    ["values", "Values"],
    ["cost", "Cost"],
    ["hyperparameters", "Hyperparameters"],
    ["configuration", "Configuration"],
    ["environment", "Environment"],
]);

/**
 * A list with one entry moved.
 * @template T
 * @param {readonly T[]} list
 * @param {number} from
 * @param {number} to
 * @returns {T[]}
 */
export function moved(list, from, to) {
    const found = [...list];
    const [one] = found.splice(from, 1);
    if (one !== undefined) found.splice(Math.max(0, Math.min(list.length - 1, to)), 0, one);
    return found;
}

/**
 * All rows, part by part.
 * @param {Comparison} answer
 * @returns {CompareRow[]}
 */
export function rowsOf(answer) {
    const { things, metric, xName, budget } = answer;
    const experiments = answer.kind === "experiments";
    /** @param {string} part @param {string} name @param {(one: ComparedThing) => unknown} of @param {(value: unknown) => string} [words] */
    const row = (part, name, of, words) => {
        const values = things.map(of);
        return { part, name, values, differs: differ(values), ...(words ? { words } : {}) };
    };
    const slotHours = (/** @type {unknown} */ value) => number(Number(value) / 3600);
    const time = (/** @type {unknown} */ value) => (typeof value === "number" ? duration(value) : "–");
    return [
        row("values", `best ${metric}`, one => one.best),
        row("values", `last ${metric}`, one => one.last),
        ...(budget === null ? [] : [row("values", `${metric} at ${number(budget)} ${xName}`, one => one.atBudget)]),
        row("values", `trained to (${xName})`, one => one.end),
        row("cost", "slot-hours", one => one.slotSeconds, slotHours),
        row("cost", "time in queues", one => one.queueSeconds, time),
        row("cost", "from start to end", one => (one.ended === null ? null : one.ended - one.started), time),
        row("cost", "jobs", one => one.attempts),
        ...(experiments ? [row("cost", "trials", one => one.trials)] : []),
        row("cost", "restarts", one => one.restarts),
        ...answer.settings.map(one => ({
            part: one.part,
            name: one.name,
            values: one.values.length === 1 ? things.map(() => one.values[0]) : one.values,
            differs: one.values.length > 1,
        })),
        row("environment", "pool", one => one.pool),
        row("environment", "nodes of the last job", one => one.nodes.join(" ")),
    ];
}

/** @param {readonly unknown[]} values */
function differ(values) {
    return new Set(values.map(one => JSON.stringify(one ?? null))).size > 1;
}

/**
 * How far a number is from the baseline's, as `+0.02 (+3 %)`; empty where there is nothing to tell.
 * @param {unknown} value
 * @param {unknown} base
 * @param {(value: unknown) => string} [words]
 */
export function delta(value, base, words = told) {
    if (typeof value !== "number" || typeof base !== "number" || value === base) return "";
    const away = value - base;
    const sign = away > 0 ? "+" : "−";
    const share = base === 0 ? "" : ` (${sign}${rounded(Math.abs(away / base) * 100)}\u2009%)`;
    return `${sign}${words(Math.abs(away))}${share}`;
}

/** @param {number} share per cent */
function rounded(share) {
    return share < 10 ? String(Number(share.toPrecision(2))) : count(Math.round(share));
}

/**
 * A value in words.
 * @param {unknown} value
 */
export function told(value) {
    if (value === null || value === undefined || value === "") return "–";
    if (typeof value === "number") return Number.isInteger(value) ? count(value) : number(value);
    return Array.isArray(value) ? value.join(", ") : String(value);
}

/**
 * Which of a row's values is the best; -1 where that cannot be told or all are the same.
 * @param {CompareRow} row
 * @param {string} metric
 * @param {boolean} smaller
 */
export function bestPlace(row, metric, smaller) {
    if (row.part !== "values" || !row.differs || !row.name.includes(metric) || row.name.startsWith("trained"))
        return -1;
    let found = -1;
    for (const [at, value] of row.values.entries()) {
        const best = found < 0 ? null : row.values[found];
        if (typeof value !== "number") continue;
        if (typeof best !== "number" || (smaller ? value < best : value > best)) found = at;
    }
    return found;
}

/**
 * The table as cells: its head and its rows.
 * @param {Comparison} answer
 * @param {readonly CompareRow[]} rows
 */
export function cellsOf(answer, rows) {
    const one = answer.kind === "trials" ? "trial" : "experiment";
    return {
        head: ["part", "name", ...answer.things.map(thing => `${one} ${thing.id}`)],
        rows: rows.map(row => [row.part, row.name, ...row.values.map(plain)]),
    };
}

/** @param {unknown} value @returns {import("./files.js").Cell} */
function plain(value) {
    if (value === null || value === undefined) return null;
    return typeof value === "number" || typeof value === "boolean" || typeof value === "string"
        ? value
        : Array.isArray(value)
          ? value.map(String)
          : JSON.stringify(value);
}
