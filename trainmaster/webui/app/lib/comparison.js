/** Things side by side: their order, the rows of their table, and how each differs from the baseline. */
import { count, duration, number } from "./format.js";

/** @import { Comparison, ComparedThing } from "../../types/api.d.ts" */
/**
 * @typedef {object} CompareRow
 * @property {string} part
 * @property {string} name
 * @property {unknown[]} values in the order of the compared things
 * @property {boolean} differs
 * @property {((value: unknown) => string) | undefined} format returns the text of a value; default: `formatValue`
 */

export const PARTS = /** @type {const} */ ([
    ["values", "Values"],
    ["cost", "Cost"],
    ["hyperparameters", "Hyperparameters"],
    ["code", "Code"],
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
export function moveItem(list, from, to) {
    const result = [...list];
    const [item] = result.splice(from, 1);
    if (item !== undefined) result.splice(Math.max(0, Math.min(list.length - 1, to)), 0, item);
    return result;
}

/**
 * All rows, part by part.
 * @param {Comparison} answer
 * @returns {CompareRow[]}
 */
export function rowsOf(answer) {
    const { things, metric, xName, budget } = answer;
    const experiments = answer.kind === "experiments";
    /**
     * @param {string} part
     * @param {string} name
     * @param {(item: ComparedThing) => unknown} of
     * @param {CompareRow["format"]} [format]
     * @returns {CompareRow}
     */
    const row = (part, name, of, format) => {
        const values = things.map(of);
        return { part, name, values, differs: differ(values), format };
    };
    const slotHours = (/** @type {unknown} */ value) => number(Number(value) / 3600);
    const time = (/** @type {unknown} */ value) => (typeof value === "number" ? duration(value) : "–");
    return [
        row("values", `best ${metric}`, item => item.best),
        row("values", `last ${metric}`, item => item.last),
        ...(budget === null ? [] : [row("values", `${metric} at ${number(budget)} ${xName}`, item => item.atBudget)]),
        row("values", `trained to (${xName})`, item => item.end),
        row("cost", "slot-hours", item => item.slotSeconds, slotHours),
        row("cost", "queue time", item => item.queueSeconds, time),
        row("cost", "duration", item => (item.ended === null ? null : item.ended - item.started), time),
        row("cost", "jobs", item => item.attempts),
        ...(experiments ? [row("cost", "trials", item => item.trials)] : []),
        row("cost", "restarts", item => item.restarts),
        ...answer.settings.map(setting => ({
            part: setting.part,
            name: setting.name,
            values: setting.values.length === 1 ? things.map(() => setting.values[0]) : setting.values,
            differs: setting.values.length > 1,
            format: undefined,
        })),
        row("environment", "pool", item => item.pool),
        row("environment", "nodes of the last job", item => item.nodes.join(" ")),
    ];
}

/** @param {readonly unknown[]} values */
function differ(values) {
    return new Set(values.map(value => JSON.stringify(value ?? null))).size > 1;
}

/**
 * How far a number is from the baseline's, as `+0.02 (+3 %)`; empty where they are equal or no numbers.
 * @param {unknown} value
 * @param {unknown} base
 * @param {(value: unknown) => string} [format]
 */
export function delta(value, base, format = formatValue) {
    if (typeof value !== "number" || typeof base !== "number" || value === base) return "";
    const difference = value - base;
    const sign = difference > 0 ? "+" : "−";
    const share = base === 0 ? "" : ` (${sign}${roundedPercent(Math.abs(difference / base) * 100)}\u2009%)`;
    return `${sign}${format(Math.abs(difference))}${share}`;
}

/** @param {number} share per cent */
function roundedPercent(share) {
    return share < 10 ? String(Number(share.toPrecision(2))) : count(Math.round(share));
}

/**
 * A value in words.
 * @param {unknown} value
 */
export function formatValue(value) {
    if (value === null || value === undefined || value === "") return "–";
    if (typeof value === "number") return Number.isInteger(value) ? count(value) : number(value);
    return Array.isArray(value) ? value.join(", ") : String(value);
}

/**
 * Which of a row's values is the best; -1 where that is unknown or all are the same.
 * @param {CompareRow} row
 * @param {string} metric
 * @param {boolean} smaller
 */
export function bestColumn(row, metric, smaller) {
    if (row.part !== "values" || !row.differs || !row.name.includes(metric) || row.name.startsWith("trained"))
        return -1;
    let bestIndex = -1;
    for (const [at, value] of row.values.entries()) {
        const best = bestIndex < 0 ? null : row.values[bestIndex];
        if (typeof value !== "number") continue;
        if (typeof best !== "number" || (smaller ? value < best : value > best)) bestIndex = at;
    }
    return bestIndex;
}

/**
 * The table as cells: its head and its rows.
 * @param {Comparison} answer
 * @param {readonly CompareRow[]} rows
 */
export function cellsOf(answer, rows) {
    const noun = answer.kind === "trials" ? "trial" : "experiment";
    return {
        head: ["part", "name", ...answer.things.map(item => `${noun} ${item.id}`)],
        rows: rows.map(row => [row.part, row.name, ...row.values.map(cellOf)]),
    };
}

/** @param {unknown} value @returns {import("./files.js").Cell} */
function cellOf(value) {
    if (value === null || value === undefined) return null;
    return typeof value === "number" || typeof value === "boolean" || typeof value === "string"
        ? value
        : Array.isArray(value)
          ? value.map(String)
          : JSON.stringify(value);
}
