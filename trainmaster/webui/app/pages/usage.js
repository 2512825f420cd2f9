/** Who used the slots, day by day and in all, and which nodes lost jobs lately. */
import { get } from "../api/http.js";
import { reconnects } from "../api/state.js";
import { count, number, percent, visible } from "../lib/format.js";
import { RelativeTime } from "../ui/cells.js";
import { Menu } from "../ui/overlay.js";
import { useLoad, useModule } from "../ui/query.js";
import { dataAddress, href, location, setQuery } from "../ui/router.js";
import { LoadingBar, usePageTitle } from "../ui/shell.js";
import { Table, useRows } from "../ui/table.js";
import { tableExportItems } from "../ui/table_export.js";
import { component, tags } from "../ui/tags.js";

/** @import { NodeTrouble, UsageAnswer, UsageShare } from "../../types/api.d.ts" */
/** @import { Content } from "../../types/tags.d.ts" */

const { a, button, div, h1, h2, input, label, p, section, span } = tags;

const HOUR = 3600;
const MAX_HEIGHT = 300; // pixels of a table
const ROW = 28;
const HEAD = 34;

export const Page = component(() => {
    usePageTitle([{ text: "Usage", to: "usage" }]);
    const { data, error } = useLoad(`${dataAddress.value} ${reconnects.value}`, () => get(dataAddress.peek()));
    const usage = /** @type {UsageAnswer | null} */ (data);
    return div(
        { class: "page" },
        h1({ class: "visually-hidden" }, "Usage"),
        RangeTools({ usage }),
        error ? p({ class: "error-text", role: "alert" }, visible(error, 1000)) : null,
        usage ? UsageTables({ usage }) : error ? null : LoadingBar({}),
    );
});

/** Chooses the days that are shown: a named range, or the first and the last day. */
const RangeTools = component((/** @type {{ usage: UsageAnswer | null }} */ { usage }) => {
    const { query } = location.value;
    const first = query.get("first") ?? "";
    const last = query.get("last") ?? "";
    return div(
        { class: "section-head" },
        ranges().map(([text, from, to]) =>
            button(
                {
                    key: text,
                    type: "button",
                    class: "switch",
                    "aria-pressed": first === from && last === to,
                    onClick: () => setQuery({ first: from || null, last: to || null }),
                },
                text,
            ),
        ),
        DayInput({ text: "From", value: first || (usage?.first ?? ""), set: day => setQuery({ first: day || null }) }),
        DayInput({ text: "to", value: last || (usage?.last ?? ""), set: day => setQuery({ last: day || null }) }),
        span({ class: "muted" }, "days in UTC"),
        span({ class: "gap" }),
        usage ? Menu({ label: "Export usage", text: "Export", items: () => exportItems(usage) }) : null,
    );
});

const DayInput = component((/** @type {{ text: string, value: string, set: (day: string) => void }} */ properties) =>
    label(
        { class: "chart-tool" },
        properties.text,
        input({
            type: "date",
            class: "day",
            value: properties.value,
            onChange: event => properties.set(event.currentTarget.value),
        }),
    ),
);

/** Words, first and last days; the last ones are those of the address without any. */
function ranges() {
    const now = new Date();
    const year = now.getUTCFullYear();
    const month = now.getUTCMonth();
    return /** @type {[string, string, string][]} */ ([
        ["Last 30 days", "", ""],
        ["This month", dayOf(Date.UTC(year, month, 1)), dayOf(Date.UTC(year, month + 1, 0))],
        ["Last month", dayOf(Date.UTC(year, month - 1, 1)), dayOf(Date.UTC(year, month, 0))],
    ]);
}

/** @param {number} moment */
function dayOf(moment) {
    return new Date(moment).toISOString().slice(0, 10);
}

const UsageTables = component((/** @type {{ usage: UsageAnswer }} */ { usage }) =>
    div(
        { class: "tab-columns" },
        section(
            null,
            h2(null, "Users"),
            ShareTable({ shares: usage.users, total: usage.slotSeconds, what: "user", address: filterOf("user") }),
        ),
        section(
            null,
            h2(null, "Pools"),
            ShareTable({ shares: usage.pools, total: usage.slotSeconds, what: "pool", address: filterOf("pool") }),
            usage.labels.length ? h2(null, "Labels") : null,
            usage.labels.length
                ? ShareTable({
                      shares: usage.labels,
                      total: usage.slotSeconds,
                      what: "label",
                      address: filterOf("label"),
                  })
                : null,
        ),
        section({ class: "wide" }, usage.slotSeconds > 0 ? DaysChart({ usage }) : null),
        section({ class: "wide" }, Storage({})),
        section(
            { class: "wide fixed-table" },
            h2(null, "Nodes that lost jobs in the last seven days"),
            usage.nodes.length ? NodeTable({ nodes: usage.nodes }) : p({ class: "muted" }, "None."),
        ),
    ),
);

/** The chart, which is loaded behind the tables. */
const DaysChart = component((/** @type {{ usage: UsageAnswer }} */ { usage }) => {
    return useModule("days", () => import("./usage_days.js"))?.UsageChart({ usage }) ?? null;
});

/** What checkpoints take, which is loaded behind the tables. */
const Storage = component(() => useModule("storage", () => import("./usage_storage.js"))?.StorageSection({}) ?? null);

/** @param {string} key @returns {(name: string) => string} */
function filterOf(key) {
    return name => href("experiments", { filter: `${key}:${/[\s",]/.test(name) ? JSON.stringify(name) : name}` });
}

const ShareTable = component(
    (
        /** @type {{ shares: UsageShare[], total: number, what: string, address: (name: string) => string }} */ {
            shares,
            total,
            what,
            address,
        },
    ) => {
        const rows = useRows(shares);
        if (shares.length === 0) return p({ class: "muted" }, "No slots were used in these days.");
        return div(
            { class: "share-table", style: { height: `${Math.min(MAX_HEIGHT, shares.length * ROW + HEAD)}px` } },
            Table({
                label: `Slot-hours by ${what}`,
                rows,
                rowKey: (/** @type {UsageShare} */ share) => share.name,
                address: (/** @type {UsageShare} */ share) => address(share.name),
                columns: [
                    column("name", what[0]?.toUpperCase() + what.slice(1), 200, (/** @type {UsageShare} */ share) =>
                        a({ href: address(share.name), tabIndex: -1 }, visible(share.name, 80)),
                    ),
                    column("share", "Share", 160, (/** @type {UsageShare} */ share) =>
                        span(
                            { class: "bar", "aria-hidden": "true" },
                            span({ style: { width: `${total ? (100 * share.slotSeconds) / total : 0}%` } }),
                        ),
                    ),
                    figures("percent", "%", 70, (/** @type {UsageShare} */ share) =>
                        percent(total ? share.slotSeconds / total : 0),
                    ),
                    figures("hours", "Slot-hours", 110, (/** @type {UsageShare} */ share) =>
                        number(share.slotSeconds / HOUR),
                    ),
                ],
            }),
        );
    },
);

const NodeTable = component((/** @type {{ nodes: NodeTrouble[] }} */ { nodes }) => {
    const rows = useRows(nodes);
    return Table({
        label: "Nodes that lost jobs",
        rows,
        rowKey: (/** @type {NodeTrouble} */ node) => `${node.cluster} ${node.node}`,
        columns: [
            column("node", "Node", 220, (/** @type {NodeTrouble} */ node) =>
                span({ title: visible(node.cluster, 60) }, visible(node.node, 60)),
            ),
            figures("jobs", "Jobs lost", 90, (/** @type {NodeTrouble} */ node) => count(node.jobs)),
            figures("trials", "Of trials", 90, (/** @type {NodeTrouble} */ node) => count(node.trials)),
            column("at", "Last", 110, (/** @type {NodeTrouble} */ node) => RelativeTime({ seconds: node.at })),
            column("trial", "Trial", 100, (/** @type {NodeTrouble} */ node) =>
                a({ href: href(`trials/${node.trial}/attempts`) }, `trial ${node.trial}`),
            ),
            column("why", "Last failure", 420, (/** @type {NodeTrouble} */ node) =>
                span({ title: visible(node.why, 1000) }, visible(node.why, 200)),
            ),
        ],
    });
});

/**
 * @template R
 * @param {string} key
 * @param {string} title
 * @param {number} width
 * @param {(row: R) => Content} cell
 */
function column(key, title, width, cell) {
    return { key, title, width, cell, unsorted: true };
}

/**
 * @template R
 * @param {string} key
 * @param {string} title
 * @param {number} width
 * @param {(row: R) => Content} cell
 */
function figures(key, title, width, cell) {
    return { ...column(key, title, width, cell), align: /** @type {const} */ ("right") };
}

/** @param {UsageAnswer} usage */
function exportItems(usage) {
    const kinds = /** @type {[string, UsageShare[]][]} */ ([
        ["user", usage.users],
        ["pool", usage.pools],
        ["label", usage.labels],
    ]);
    return tableExportItems({
        name: `usage-${usage.first}-${usage.last}`,
        head: ["kind", "name", "slotSeconds"],
        rows: kinds.flatMap(([kind, shares]) => shares.map(share => [kind, share.name, share.slotSeconds])),
        command: `det resources aggregated ${usage.first} ${usage.last}`,
    });
}
