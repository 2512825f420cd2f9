/** Tables as CSV and JSON. */

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

/**
 * A text that a spreadsheet would take for a formula gets an apostrophe, as the master's own CSV has it.
 * @param {Cell} value
 */
function csvCell(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "number" || typeof value === "boolean") return String(value);
    const text = Array.isArray(value) ? value.join(";") : value;
    const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
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
