/** The strip beside a log: where its warnings, errors and matches are; a click leads there. */
import { useMemo } from "../../vendor/preact/hooks.js";
import { csv } from "../lib/files.js";
import { count, plural } from "../lib/format.js";
import { LINE_HEIGHT, stripRows } from "../lib/log_window.js";
import { Drawing } from "./canvas.js";
import { saveFile } from "./download.js";
import { openDialog } from "./overlay.js";
import { component, tags } from "./tags.js";

/** @import { LogRows } from "../api/log_rows.js" */
/** @import { LogBins } from "../../types/api.d.ts" */
/** @import { Signal } from "../../vendor/signals/signals.js" */

const { button, div, p, table, tbody, td, th, thead, tr } = tags;

/**
 * @typedef {object} LogStripProperties
 * @property {LogRows} rows
 * @property {number} top
 * @property {Signal<number>} view
 * @property {(share: number) => void} onShare
 */
export const LogStrip = component((/** @type {LogStripProperties} */ { rows, top, view, onShare }) => {
    const bins = rows.bins.value;
    const total = rows.total.value;
    const height = view.value;
    const draw = useMemo(
        () =>
            (
                /** @type {CanvasRenderingContext2D} */ pen,
                /** @type {import("./canvas.js").Sheet} */ { width, colour },
            ) => {
                const share = total ? Math.min(1, height / LINE_HEIGHT / total) : 1;
                const from = total ? (top / total) * height : 0;
                pen.fillStyle = colour("--sunken");
                pen.fillRect(0, 0, width, height);
                pen.fillStyle = colour("--faded");
                pen.fillRect(0, Math.min(from, height - 3), width, Math.max(3, share * height));
                if (!bins) return;
                const half = width / 2;
                for (const [kind, name, x] of /** @type {const} */ ([
                    ["warnings", "--waiting", 0],
                    ["errors", "--failed", 0],
                    ["matches", "--series-1", half],
                ])) {
                    pen.fillStyle = colour(name);
                    for (const [row, value] of stripRows(bins[kind] ?? [], height).entries())
                        if (value)
                            pen.fillRect(x + 1, row, kind === "warnings" ? 4 : half - 2, kind === "warnings" ? 1 : 3);
                }
            },
        [bins, total, top, height],
    );
    return div(
        { class: "log-strip" },
        Drawing({
            label: bins ? describe(bins) : "Counting errors in the log",
            height,
            draw,
            onPointer: (_, y, what, event) => {
                if (what === "down" || (what === "move" && event.buttons === 1))
                    onShare(Math.min(1, Math.max(0, y / height)));
            },
        }),
    );
});

/** @param {readonly number[] | null} values */
const sum = values => (values ?? []).reduce((all, value) => all + value, 0);

/** @param {LogBins} bins */
function describe(bins) {
    const parts = [plural(sum(bins.errors), "error"), plural(sum(bins.warnings), "warning")];
    if (bins.matches) parts.push(plural(sum(bins.matches), "match", "matches"));
    return `In the log: ${parts.join(", ")}`;
}

/**
 * The strip as a table, whose rows lead to their lines.
 * @param {LogBins} bins
 * @param {(share: number) => void} onShare
 */
export function showCounts(bins, onShare) {
    let position = 0;
    const rows = bins.lines.map((lines, at) => {
        const from = position;
        position += lines;
        return { at, from, lines, warnings: bins.warnings[at], errors: bins.errors[at], matches: bins.matches?.[at] };
    });
    const names = /** @type {const} */ (["lines", "warnings", "errors", "matches"]);
    const worth = rows.filter(bin => bin.warnings || bin.errors || bin.matches);
    const file = () =>
        saveFile(
            "log-counts.csv",
            csv(
                ["from", ...names],
                rows.map(bin => [bin.from + 1, ...names.map(name => bin[name])]),
            ),
            "text/csv",
        );
    return openDialog({
        title: "Errors, warnings and matches by position",
        body: close =>
            div(
                null,
                worth.length === 0
                    ? p(null, "None.")
                    : table(
                          { class: "log-counts" },
                          thead(
                              null,
                              tr(
                                  null,
                                  ["From line", ...names].map(name => th({ key: name, scope: "col" }, name)),
                              ),
                          ),
                          tbody(
                              null,
                              worth.map(bin =>
                                  tr(
                                      { key: bin.at },
                                      td(
                                          null,
                                          button(
                                              {
                                                  type: "button",
                                                  class: "plain",
                                                  onClick: () => {
                                                      close();
                                                      onShare(bin.from / Math.max(1, position - 1));
                                                  },
                                              },
                                              count(bin.from + 1),
                                          ),
                                      ),
                                      names.map(name => td({ key: name, class: "number" }, count(bin[name] ?? null))),
                                  ),
                              ),
                          ),
                      ),
                button({ type: "button", onClick: file }, "CSV"),
            ),
    });
}
