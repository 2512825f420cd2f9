/** Checkpoints of an experiment or a trial: how good they are, how large, and where they lie. */
import { useMemo } from "../../vendor/preact/hooks.js";
import { get, send } from "../api/http.js";
import { bytes, count, number, plural, visible } from "../lib/format.js";
import { RelativeTime, Value } from "../ui/cells.js";
import { act, Menu } from "../ui/overlay.js";
import { href, location, setQuery } from "../ui/router.js";
import { LoadingBar } from "../ui/shell.js";
import { Table, useRows } from "../ui/table.js";
import { component, tags } from "../ui/tags.js";
import { PartError, useLoad } from "./query.js";
import { tableExportItems } from "./table_export.js";

/** @import { CheckpointTable } from "../../types/api.d.ts" */
/** @import { Content } from "../../types/tags.d.ts" */
/** @typedef {{ readonly [name: string]: any }} Row */

const { a, button, code, div, p, pre, span } = tags;

const PINNABLE = ["COMPLETED", "PARTIALLY_DELETED"];

/**
 * @typedef {object} CheckpointListProperties
 * @property {string} of `experiments/5` or `trials/7`
 * @property {number} number how many there are: read again when it changes
 * @property {number} size bytes
 * @property {string} metric
 * @property {string} command of `det`
 * @property {boolean} changeable whether the user may pin them
 * @property {Content} [tools] more buttons above them
 */
export const CheckpointList = component(
    (
        /** @type {CheckpointListProperties} */ { of, number: total, size, metric, command, changeable, tools = null },
    ) => {
        const name = `checkpoints-${of.replace("/", "-")}`;
        const removed = location.value.query.get("removed") === "yes";
        const { data: all, error, refetch } = useLoad(`${of} ${total}`, () => loadRows(`api/x1/${of}/checkpoints`));
        const shown = useMemo(() => (all ?? []).filter(row => removed || row["state"] !== "DELETED"), [all, removed]);
        const rows = useRows(shown, String(removed));
        if (error) return PartError({ error });
        if (!all) return LoadingBar({});
        if (all.length === 0) {
            return div(
                { class: "empty" },
                p(null, "No checkpoints yet. Save one in your training code:"),
                pre(
                    null,
                    code(null, "with core_context.checkpoint.store_path({'steps_completed': n}) as (path, uuid): ..."),
                ),
            );
        }
        const columns = [
            {
                key: "uuid",
                title: "Checkpoint",
                width: 300,
                unsorted: true,
                cell: (/** @type {Row} */ row) => code({ title: row["uuid"] }, String(row["uuid"])),
            },
            {
                key: "trial",
                title: "Trial",
                width: 90,
                unsorted: true,
                cell: (/** @type {Row} */ row) =>
                    a({ href: href(`trials/${row["trial"]}`), tabIndex: -1 }, String(row["trial"])),
            },
            {
                key: "steps",
                title: "Batches",
                width: 90,
                align: /** @type {const} */ ("right"),
                unsorted: true,
                cell: (/** @type {Row} */ row) => count(row["steps"]),
            },
            {
                key: "metric",
                title: visible(metric, 40),
                width: 100,
                align: /** @type {const} */ ("right"),
                unsorted: true,
                cell: (/** @type {Row} */ row) => Value({ value: row["metric"] }),
            },
            {
                key: "size",
                title: "Size",
                width: 90,
                align: /** @type {const} */ ("right"),
                unsorted: true,
                cell: (/** @type {Row} */ row) => bytes(row["size"]),
            },
            {
                key: "state",
                title: "State",
                width: 120,
                unsorted: true,
                cell: (/** @type {Row} */ row) => String(row["state"]).toLowerCase().replaceAll("_", " "),
            },
            {
                key: "reported",
                title: "Saved",
                width: 100,
                align: /** @type {const} */ ("right"),
                unsorted: true,
                cell: (/** @type {Row} */ row) => RelativeTime({ seconds: row["reported"] }),
            },
            {
                key: "storage",
                title: "Storage",
                width: 200,
                unsorted: true,
                cell: (/** @type {Row} */ row) =>
                    span({ title: visible(row["storage"]) }, visible(row["storage"], 200)),
            },
            {
                key: "pinned",
                title: "Pinned",
                width: 90,
                unsorted: true,
                cell: (/** @type {Row} */ row) =>
                    changeable && (row["pinned"] || PINNABLE.includes(row["state"]))
                        ? button(
                              {
                                  type: "button",
                                  class: "switch",
                                  "aria-pressed": row["pinned"],
                                  "aria-label": `Pin checkpoint ${row["uuid"]}`,
                                  title: "A pinned checkpoint is never removed",
                                  onClick: () => pin(row).then(refetch),
                              },
                              row["pinned"] ? "pinned" : "pin",
                          )
                        : row["pinned"]
                          ? "pinned"
                          : "",
            },
        ];
        const names = columns.map(column => column.key);
        const cells = () => shown.map(row => names.map(name => row[name]));
        return div(
            { class: "table-page" },
            div(
                { class: "section-head" },
                span(null, `${plural(total, "checkpoint")} with ${bytes(size)}`),
                button(
                    {
                        type: "button",
                        class: "switch",
                        "aria-pressed": removed,
                        onClick: () => setQuery({ removed: removed ? null : "yes" }),
                    },
                    `deleted ${number(all.filter(row => row["state"] === "DELETED").length)}`,
                ),
                span({ class: "gap" }),
                tools,
                Menu({
                    label: "Export checkpoints",
                    text: "Export",
                    items: () => tableExportItems({ name, head: names, rows: cells(), command }),
                }),
            ),
            Table({
                label: "Checkpoints",
                columns,
                rows,
                rowKey: (/** @type {Row} */ row) => row["uuid"],
                address: (/** @type {Row} */ row) => href(`trials/${row["trial"]}`),
            }),
        );
    },
);

/** @param {Row} row */
function pin(row) {
    const body = { checkpointUuids: [row["uuid"]], pinned: !row["pinned"] };
    return act(send("POST", "api/x1/checkpoints/pins", body), row["pinned"] ? "Unpinned." : "Pinned.");
}

/** @param {string} address @returns {Promise<Row[]>} */
async function loadRows(address) {
    /** @type {CheckpointTable} */
    const { columns, rows } = await get(address);
    return rows.map(row => Object.fromEntries(columns.map((name, at) => [name, row[at]])));
}
