/** Tables as CSV and JSON. */
import { HIDDEN } from "./format.js";

/** @typedef {string | number | boolean | null | undefined | string[]} Cell */

/**
 * @param {string[]} head
 * @param {Iterable<Cell[]>} rows
 */
export function csv(head, rows) {
    const lines = [head.map(csvCell).join(",")];
    for (const row of rows) lines.push(row.map(csvCell).join(","));
    return `${lines.join("\r\n")}\r\n`;
}

/** @param {Cell} value */
function csvCell(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "number" || typeof value === "boolean") return String(value);
    return textCell(Array.isArray(value) ? value.join(";") : value);
}

// What spreadsheets take for the beginning of a formula, also in full width; blanks before it do not matter.
const FORMULA = /^[=+\-@\uff1d\uff0b\uff0d\uff20]/;
const NUMBER = /^[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$/;

/**
 * A text as a cell that no spreadsheet takes for a formula, quoted where a separator of any language is in it. The same
 * as in `trainmaster/texts.py`.
 * @param {string} text
 */
export function textCell(text) {
    const formula = FORMULA.test(text.replace(HIDDEN, "").trimStart()) && !NUMBER.test(text);
    const safe = formula || /^[\t\r\n]/.test(text) ? `'${text}` : text;
    return /[",;\t\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/**
 * @param {string[]} head
 * @param {Iterable<Cell[]>} rows
 */
export function json(head, rows) {
    const entries = [];
    for (const row of rows) entries.push(Object.fromEntries(head.map((name, at) => [name, row[at] ?? null])));
    return `${JSON.stringify(entries, null, 1)}\n`;
}

/**
 * A word for a POSIX shell.
 * @param {string} word
 */
export function shellWord(word) {
    return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}
