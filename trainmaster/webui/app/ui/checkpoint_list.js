/** Checkpoints of an experiment or a trial: how good they are, how large, and where they lie. */
import { useEffect, useMemo } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { bytes, count, number, plural, visible } from "../lib/format.js";
import { Ago, Value } from "../ui/cells.js";
import { Menu } from "../ui/overlay.js";
import { href, place, setQuery } from "../ui/router.js";
import { Waiting } from "../ui/shell.js";
import { Table, useRows } from "../ui/table.js";
import { component, tags } from "../ui/tags.js";
import { tableItems } from "./table_files.js";

/** @import { CheckpointTable } from "../../types/api.d.ts" */
/** @typedef {{ readonly [name: string]: any }} Row */

const { a, button, code, div, p, pre, span } = tags;

/**
 * @typedef {object} CheckpointListProperties
 * @property {string} of `experiments/5` or `trials/7`
 * @property {number} number how many there are: read again when it changes
 * @property {number} size bytes
 * @property {string} metric
 * @property {string} command of `det`
 */
export const CheckpointList = component(
    (/** @type {CheckpointListProperties} */ { of, number: known, size, metric, command }) => {
        const name = `checkpoints-${of.replace("/", "-")}`;
        const found = useSignal(/** @type {Row[] | null} */ (null));
        const said = useSignal("");
        const removed = place.value.query.get("removed") === "yes";
        useEffect(() => {
            get(`api/x1/${of}/checkpoints`).then(
                (/** @type {CheckpointTable} */ answer) => {
                    found.value = answer.rows.map(row =>
                        Object.fromEntries(answer.columns.map((name, at) => [name, row[at]])),
                    );
                },
                error => {
                    said.value = error.message;
                },
            );
        }, [of, known]);
        const all = found.value;
        const shown = useMemo(() => (all ?? []).filter(row => removed || row["state"] !== "DELETED"), [all, removed]);
        const rows = useRows(shown, String(removed));
        if (said.value) return div({ class: "empty", role: "alert" }, p(null, said.value));
        if (!all) return Waiting({});
        if (all.length === 0) {
            return div(
                { class: "empty" },
                p(null, "No checkpoint has been saved yet. In the training:"),
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
                cell: (/** @type {Row} */ row) => Ago({ seconds: row["reported"] }),
            },
            {
                key: "storage",
                title: "Where",
                width: 200,
                unsorted: true,
                cell: (/** @type {Row} */ row) =>
                    span({ title: visible(row["storage"]) }, visible(row["storage"], 200)),
            },
        ];
        const names = columns.map(one => one.key);
        const cells = () => shown.map(row => names.map(name => row[name]));
        return div(
            { class: "table-page" },
            div(
                { class: "section-head" },
                span(null, `${plural(known, "checkpoint")} with ${bytes(size)}`),
                button(
                    {
                        type: "button",
                        class: "switch",
                        "aria-pressed": removed,
                        onClick: () => setQuery({ removed: removed ? null : "yes" }),
                    },
                    `removed ones ${number(all.filter(row => row["state"] === "DELETED").length)}`,
                ),
                span({ class: "gap" }),
                Menu({
                    label: "Export checkpoints",
                    text: "Export",
                    items: () => tableItems({ name, head: names, rows: cells(), command }),
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
