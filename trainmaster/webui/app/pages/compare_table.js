/** What is compared, a column each: values, costs and settings, only what differs unless all is asked for. */
import { useMemo } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { bestColumn, cellsOf, delta, formatValue, moveItem, PARTS, rowsOf } from "../lib/comparison.js";
import { count, plural, visible } from "../lib/format.js";
import { StateLabel } from "../ui/cells.js";
import { Menu } from "../ui/overlay.js";
import { href, location, setQuery } from "../ui/router.js";
import { tableExportItems } from "../ui/table_export.js";
import { component, tags } from "../ui/tags.js";

/** @import { CompareRow } from "../lib/comparison.js" */
/** @import { ComparedThing } from "../../types/api.d.ts" */
/** @import { CompareView } from "./compare.js" */

const { a, button, caption, div, h2, p, small, span, table, tbody, td, th, thead, tr } = tags;

const ROW_LIMIT = 500; // at once; more on demand
const LONGEST = 200; // characters of a cell

export const CompareTable = component((/** @type {{ view: CompareView }} */ { view }) => {
    const { answer } = view;
    const all = location.value.query.get("show") === "all";
    const rowLimit = useSignal(ROW_LIMIT);
    const rows = useMemo(() => rowsOf(answer), [answer]);
    // Values and costs are always there: they are what one compares for.
    const shown = rows.filter(row => all || row.differs || row.part === "values" || row.part === "cost");
    const base = answer.things.findIndex(item => item.id === view.baseline);
    return div(
        { class: "compare-table" },
        div(
            { class: "section-head" },
            h2(null, all ? "All values" : "Differences"),
            button(
                {
                    type: "button",
                    class: "switch",
                    "aria-pressed": all,
                    onClick: () => setQuery({ show: all ? null : "all" }),
                },
                "show identical rows",
            ),
            span(
                { class: "muted" },
                `${count(rows.filter(row => row.differs).length)} of ${plural(rows.length, "row")} differ`,
            ),
            span({ class: "gap" }),
            span({ class: "muted" }, "Drag a column, or move it with Alt ← →"),
            Menu({ label: "Export the comparison", text: "Export", items: () => exports(view, shown) }),
        ),
        div(
            { class: "compare-scroll", tabIndex: 0, role: "region", "aria-label": "Comparison" },
            table(
                null,
                caption({ class: "visually-hidden" }, `${answer.kind} side by side`),
                thead(
                    null,
                    tr(
                        null,
                        th({ scope: "col", class: "compare-name" }, answer.kind === "trials" ? "Trial" : "Experiment"),
                        answer.things.map((item, at) => Head({ key: item.id, view, item, at })),
                    ),
                ),
                PARTS.map(([part, words]) =>
                    Part({
                        key: part,
                        title: words,
                        rows: shown.slice(0, rowLimit.value).filter(row => row.part === part),
                        view,
                        base,
                    }),
                ),
            ),
        ),
        shown.length > rowLimit.value
            ? button(
                  {
                      type: "button",
                      onClick: () => {
                          rowLimit.value += ROW_LIMIT * 4;
                      },
                  },
                  `${plural(shown.length - rowLimit.value, "more row")}: show`,
              )
            : null,
        answer.settingsLeftOut
            ? p({ class: "muted" }, `${plural(answer.settingsLeftOut, "further setting")} are identical or left out.`)
            : null,
    );
});

let dragged = -1; // the column

const Head = component((/** @type {{ view: CompareView, item: ComparedThing, at: number }} */ { view, item, at }) => {
    const { answer, noun } = view;
    const over = useSignal(false);
    // The address may also name what cannot be shown.
    const placeOf = (/** @type {number} */ column) => view.ids.indexOf(answer.things[column]?.id ?? 0);
    /** @param {number} to a column */
    const move = to => {
        if (to < 0 || to >= answer.things.length || to === at) return;
        view.write(moveItem(view.ids, placeOf(at), placeOf(to)));
        const name = `compare-head-${item.id}`;
        requestAnimationFrame(() => document.getElementById(name)?.focus());
    };
    const is = item.id === view.baseline;
    const path = noun === "trial" ? `trials/${item.id}` : `experiments/${item.id}`;
    return th(
        {
            scope: "col",
            class: `compare-column${over.value ? " over" : ""}`,
            draggable: true,
            onDragStart: event => {
                dragged = at;
                event.dataTransfer?.setData("text/plain", String(item.id));
            },
            onDragOver: event => {
                if (dragged < 0) return;
                event.preventDefault();
                over.value = true;
            },
            onDragLeave: () => {
                over.value = false;
            },
            onDrop: event => {
                event.preventDefault();
                over.value = false;
                if (dragged >= 0 && dragged !== at) view.write(moveItem(view.ids, placeOf(dragged), placeOf(at)));
                dragged = -1;
            },
            onKeyDown: event => {
                if (!event.altKey || (event.key !== "ArrowLeft" && event.key !== "ArrowRight")) return;
                event.preventDefault(); // else it goes back in the browser's history
                move(at + (event.key === "ArrowLeft" ? -1 : 1));
            },
        },
        div(
            { class: "compare-title" },
            a({ href: href(path), id: `compare-head-${item.id}` }, `${noun} ${item.id}`),
            StateLabel({ state: item.state }),
        ),
        div({ class: "compare-subtitle muted", title: visible(item.name) }, visible(item.name, 60)),
        div(
            { class: "compare-tools" },
            button(
                {
                    type: "button",
                    class: "plain",
                    disabled: at === 0,
                    "aria-label": `Move ${noun} ${item.id} to the left`,
                    onClick: () => move(at - 1),
                },
                "◂",
            ),
            button(
                {
                    type: "button",
                    class: "plain",
                    disabled: at === answer.things.length - 1,
                    "aria-label": `Move ${noun} ${item.id} to the right`,
                    onClick: () => move(at + 1),
                },
                "▸",
            ),
            button(
                {
                    type: "button",
                    class: "switch",
                    "aria-pressed": is,
                    "aria-label": `Baseline: ${noun} ${item.id}`,
                    onClick: () => setQuery({ baseline: is ? null : String(item.id) }),
                },
                "baseline",
            ),
            button(
                {
                    type: "button",
                    class: "plain",
                    "aria-label": `Remove ${noun} ${item.id}`,
                    onClick: () => view.write(view.ids.filter(id => id !== item.id)),
                },
                "✕",
            ),
        ),
    );
});

const Part = component(
    (
        /** @type {{ title: string, rows: CompareRow[], view: CompareView, base: number }} */ {
            title: words,
            rows,
            view,
            base,
        },
    ) => {
        const { things, metric, smallerIsBetter } = view.answer;
        if (rows.length === 0) {
            return tbody(
                null,
                tr(
                    { class: "compare-part" },
                    th({ scope: "rowgroup" }, words),
                    td({ class: "muted", colSpan: things.length }, "identical"),
                ),
            );
        }
        return tbody(
            null,
            tr({ class: "compare-part" }, th({ scope: "rowgroup" }, words), td({ colSpan: things.length })),
            rows.map(row => {
                const best = bestColumn(row, metric, smallerIsBetter);
                const wording = row.format ?? formatValue;
                return tr(
                    { key: row.name, class: row.differs ? "differs" : "" },
                    th({ scope: "row", title: visible(row.name) }, visible(row.name, 60)),
                    row.values.map((value, at) => {
                        const difference = base >= 0 && at !== base ? delta(value, row.values[base], row.format) : "";
                        const text = visible(wording(value), LONGEST);
                        return td(
                            {
                                key: at,
                                class: `${typeof value === "number" ? "number" : ""}${at === best ? " best" : ""}`,
                                title: typeof value === "number" ? String(value) : text,
                            },
                            text,
                            difference ? small({ class: "muted" }, ` ${difference}`) : null,
                        );
                    }),
                );
            }),
        );
    },
);

/** @param {CompareView} view @param {CompareRow[]} rows */
function exports({ answer }, rows) {
    const name = `compare-${answer.kind}-${answer.things.map(item => item.id).join("-")}`.slice(0, 80);
    return tableExportItems({ name, ...cellsOf(answer, rows) });
}
