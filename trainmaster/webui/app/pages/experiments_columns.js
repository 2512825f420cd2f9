/** The columns of the list of experiments: those that are known by name, and any metric or hyperparameter. */
import { count, visible } from "../lib/format.js";
import { Duration, Labels, Progress, RelativeTime, StateLabel, Value } from "../ui/cells.js";
import { href } from "../ui/router.js";
import { tags } from "../ui/tags.js";

/** @import { Row } from "../api/rows.js" */
/** @import { Column } from "../ui/table.js" */

const { a, span } = tags;

export const DEFAULT_COLUMNS = [
    "name",
    "state",
    "progress",
    "trials",
    "metric",
    "best",
    "user",
    "started",
    "duration",
    "labels",
];

/** @type {Record<string, Omit<Column<Row>, "key">>} */
export const KNOWN_COLUMNS = {
    name: {
        title: "Experiment",
        width: 260,
        cell: row => [
            a(
                { href: href(`experiments/${row.id}`), title: visible(String(row["name"])), tabIndex: -1 },
                span({ class: "muted id" }, String(row.id)),
                visible(String(row["name"]), 120),
            ),
        ],
    },
    state: { title: "State", width: 110, unsorted: true, cell: row => StateLabel({ state: row["state"] }) },
    progress: { title: "Progress", width: 120, falling: true, cell: row => Progress({ share: row["progress"] }) },
    trials: { title: "Trials", width: 80, align: "right", falling: true, cell: row => count(row["trials"]) },
    metric: { title: "Metric", width: 130, cell: row => plainText(row["metric"]) },
    best: { title: "Best", width: 90, align: "right", cell: row => Value({ value: row["best"] }) },
    user: { title: "Owner", width: 110, cell: row => plainText(row["user"]) },
    started: {
        title: "Started",
        width: 100,
        align: "right",
        falling: true,
        cell: row => RelativeTime({ seconds: row["started"] }),
    },
    ended: {
        title: "Ended",
        width: 100,
        align: "right",
        falling: true,
        cell: row => RelativeTime({ seconds: row["ended"] }),
    },
    duration: {
        title: "Duration",
        width: 100,
        align: "right",
        falling: true,
        cell: row => Duration({ seconds: row["duration"] }),
    },
    labels: { title: "Labels", width: 160, unsorted: true, cell: row => Labels({ labels: row["labels"] ?? [] }) },
    pool: { title: "Pool", width: 110, cell: row => plainText(row["pool"]) },
    searcher: { title: "Search", width: 110, cell: row => plainText(row["searcher"]) },
    project: { title: "Project", width: 130, cell: row => plainText(row["project"]) },
    workspace: { title: "Workspace", width: 130, cell: row => plainText(row["workspace"]) },
    description: { title: "Description", width: 200, cell: row => plainText(row["description"]) },
    reason: { title: "Why", width: 240, cell: row => plainText(row["reason"]) },
    checkpoints: {
        title: "Checkpoints",
        width: 100,
        align: "right",
        falling: true,
        cell: row => count(row["checkpoints"]),
    },
    size: { title: "Size", width: 100, align: "right", falling: true, cell: row => Value({ value: row["size"] }) },
    parent: {
        title: "Forked from",
        width: 90,
        align: "right",
        cell: row =>
            row["parent"]
                ? a({ href: href(`experiments/${row["parent"]}`), tabIndex: -1 }, String(row["parent"]))
                : "–",
    },
};

/** @param {unknown} value */
function plainText(value) {
    const text = visible(String(value ?? ""));
    return span({ title: text }, text);
}

/**
 * @param {string} key
 * @returns {Column<Row>}
 */
export function columnOf(key) {
    const column = KNOWN_COLUMNS[key];
    if (column) return { key, ...column };
    // A hyperparameter or a metric.
    return {
        key,
        title: visible(key.replace(/^hp\./, ""), 40),
        width: 100,
        align: "right",
        cell: row => Value({ value: row[key] }),
    };
}
