/** Who used the slots, day by day and in all, and which nodes lost jobs lately. */
import { useEffect } from "../../vendor/preact/hooks.js";
import { comebacks } from "../api/http.js";
import { count, number, percent, visible } from "../lib/format.js";
import { Ago } from "../ui/cells.js";
import { Menu } from "../ui/overlay.js";
import { dataAddress, href, place, setQuery } from "../ui/router.js";
import { useAnswer, useModule, usePlace, Waiting } from "../ui/shell.js";
import { Table, useRows } from "../ui/table.js";
import { tableItems } from "../ui/table_files.js";
import { component, tags } from "../ui/tags.js";

/** @import { NodeTrouble, UsageAnswer, UsageShare } from "../../types/api.d.ts" */
/** @import { Content } from "../../types/tags.d.ts" */

const { a, button, div, h1, h2, input, label, p, section, span } = tags;

const HOUR = 3600;
const HIGHEST = 300; // pixels of a table
const ROW = 28;
const HEAD = 34;

export const Page = component(() => {
    usePlace([{ text: "Usage", to: "usage" }]);
    const { answer, said, read } = useAnswer(dataAddress.value);
    const usage = /** @type {UsageAnswer | null} */ (answer);
    const back = comebacks.value;
    useEffect(() => {
        if (back) void read();
    }, [back]);
    return div(
        { class: "page" },
        h1({ class: "unseen" }, "Usage"),
        Range({ usage }),
        said ? p({ class: "said", role: "alert" }, visible(said, 1000)) : null,
        usage ? Shown({ usage }) : said ? null : Waiting({}),
    );
});

/** The days that are shown: chosen by a word, or one by one. */
const Range = component((/** @type {{ usage: UsageAnswer | null }} */ { usage }) => {
    const { query } = place.value;
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
        Day({ text: "From", value: first || (usage?.first ?? ""), set: day => setQuery({ first: day || null }) }),
        Day({ text: "to", value: last || (usage?.last ?? ""), set: day => setQuery({ last: day || null }) }),
        span({ class: "muted" }, "days in UTC"),
        span({ class: "gap" }),
        usage ? Menu({ label: "Export usage", text: "Export", items: () => files(usage) }) : null,
    );
});

const Day = component((/** @type {{ text: string, value: string, set: (day: string) => void }} */ one) =>
    label(
        { class: "chart-tool" },
        one.text,
        input({ type: "date", class: "day", value: one.value, onChange: event => one.set(event.currentTarget.value) }),
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

const Shown = component((/** @type {{ usage: UsageAnswer }} */ { usage }) =>
    div(
        { class: "tab-columns" },
        section(
            null,
            h2(null, "Users"),
            Shares({ shares: usage.users, whole: usage.slotSeconds, what: "user", address: filterOf("user") }),
        ),
        section(
            null,
            h2(null, "Pools"),
            Shares({ shares: usage.pools, whole: usage.slotSeconds, what: "pool", address: filterOf("pool") }),
            usage.labels.length ? h2(null, "Labels") : null,
            usage.labels.length
                ? Shares({
                      shares: usage.labels,
                      whole: usage.slotSeconds,
                      what: "label",
                      address: filterOf("label"),
                  })
                : null,
        ),
        section({ class: "wide" }, usage.slotSeconds > 0 ? Chart({ usage }) : null),
        section(
            { class: "wide fixed-table" },
            h2(null, "Nodes that lost jobs in the last seven days"),
            usage.nodes.length ? Nodes({ nodes: usage.nodes }) : p({ class: "muted" }, "None."),
        ),
    ),
);

/** The chart, which is loaded behind the tables. */
const Chart = component((/** @type {{ usage: UsageAnswer }} */ { usage }) => {
    return useModule("days", () => import("./usage_days.js"))?.Days({ usage }) ?? null;
});

/** @param {string} key @returns {(name: string) => string} */
function filterOf(key) {
    return name => href("experiments", { filter: `${key}:${/[\s",]/.test(name) ? JSON.stringify(name) : name}` });
}

const Shares = component(
    (
        /** @type {{ shares: UsageShare[], whole: number, what: string, address: (name: string) => string }} */ {
            shares,
            whole,
            what,
            address,
        },
    ) => {
        const rows = useRows(shares);
        if (shares.length === 0) return p({ class: "muted" }, "Nobody used a slot in these days.");
        return div(
            { class: "usage-shares", style: { height: `${Math.min(HIGHEST, shares.length * ROW + HEAD)}px` } },
            Table({
                label: `Slot-hours by ${what}`,
                rows,
                rowKey: (/** @type {UsageShare} */ one) => one.name,
                address: (/** @type {UsageShare} */ one) => address(one.name),
                columns: [
                    column("name", what[0]?.toUpperCase() + what.slice(1), 200, (/** @type {UsageShare} */ one) =>
                        a({ href: address(one.name), tabIndex: -1 }, visible(one.name, 80)),
                    ),
                    column("share", "Share", 160, (/** @type {UsageShare} */ one) =>
                        span(
                            { class: "bar", "aria-hidden": "true" },
                            span({ style: { width: `${whole ? (100 * one.slotSeconds) / whole : 0}%` } }),
                        ),
                    ),
                    figures("percent", "%", 70, (/** @type {UsageShare} */ one) =>
                        percent(whole ? one.slotSeconds / whole : 0),
                    ),
                    figures("hours", "Slot-hours", 110, (/** @type {UsageShare} */ one) =>
                        number(one.slotSeconds / HOUR),
                    ),
                ],
            }),
        );
    },
);

const Nodes = component((/** @type {{ nodes: NodeTrouble[] }} */ { nodes }) => {
    const rows = useRows(nodes);
    return Table({
        label: "Nodes that lost jobs",
        rows,
        rowKey: (/** @type {NodeTrouble} */ one) => `${one.cluster} ${one.node}`,
        columns: [
            column("node", "Node", 220, (/** @type {NodeTrouble} */ one) =>
                span({ title: visible(one.cluster, 60) }, visible(one.node, 60)),
            ),
            figures("jobs", "Jobs lost", 90, (/** @type {NodeTrouble} */ one) => count(one.jobs)),
            figures("trials", "Of trials", 90, (/** @type {NodeTrouble} */ one) => count(one.trials)),
            column("at", "Last", 110, (/** @type {NodeTrouble} */ one) => Ago({ seconds: one.at })),
            column("trial", "Trial", 100, (/** @type {NodeTrouble} */ one) =>
                a({ href: href(`trials/${one.trial}/attempts`) }, `trial ${one.trial}`),
            ),
            column("why", "How the last one was lost", 420, (/** @type {NodeTrouble} */ one) =>
                span({ title: visible(one.why, 1000) }, visible(one.why, 200)),
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
function files(usage) {
    const kinds = /** @type {[string, UsageShare[]][]} */ ([
        ["user", usage.users],
        ["pool", usage.pools],
        ["label", usage.labels],
    ]);
    return tableItems({
        name: `usage-${usage.first}-${usage.last}`,
        head: ["kind", "name", "slotSeconds"],
        rows: kinds.flatMap(([kind, shares]) => shares.map(one => [kind, one.name, one.slotSeconds])),
        command: `det resources aggregated ${usage.first} ${usage.last}`,
    });
}
