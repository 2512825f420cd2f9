/** What a menu offers to take of a table: all its rows as CSV and JSON, and the command that prints the same. */
import { csv, json } from "../lib/files.js";
import { plural } from "../lib/format.js";
import { saveFile } from "./download.js";
import { copyText } from "./overlay.js";

/** @import { Cell } from "../lib/files.js" */

/**
 * @param {object} table
 * @param {string} table.name of the files, without an ending
 * @param {string[]} table.head
 * @param {Cell[][]} table.rows all of them, not only those in sight
 * @param {string} [table.command] of `det`
 */
export function tableExportItems({ name, head, rows, command }) {
    const hint = plural(rows.length, "row");
    return [
        { text: "CSV", hint, action: () => saveFile(`${name}.csv`, csv(head, rows), "text/csv") },
        { text: "JSON", hint, action: () => saveFile(`${name}.json`, json(head, rows), "application/json") },
        ...(command ? [{ text: "Copy as det", hint: "command", action: () => copyText(command) }] : []),
    ];
}
