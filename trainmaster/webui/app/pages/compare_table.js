/** What is compared, a column each: values, costs and settings, only what differs unless all is asked for. */
import { useMemo } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { bestPlace, cellsOf, delta, moved, PARTS, rowsOf, told } from "../lib/comparison.js";
import { count, plural, visible } from "../lib/format.js";
import { State } from "../ui/cells.js";
import { Menu } from "../ui/overlay.js";
import { href, place, setQuery } from "../ui/router.js";
import { tableItems } from "../ui/table_files.js";
import { component, tags } from "../ui/tags.js";

/** @import { CompareRow } from "../lib/comparison.js" */
/** @import { ComparedThing } from "../../types/api.d.ts" */
/** @import { CompareView } from "./compare.js" */

const { a, button, caption, div, h2, p, small, span, table, tbody, td, th, thead, tr } = tags;

const MOST_ROWS = 500; // at once; more on demand
const LONGEST = 200; // characters of a cell

export const CompareTable = component((/** @type {{ view: CompareView }} */ { view }) => {
    const { answer } = view;
    const all = place.value.query.get("show") === "all";
    const most = useSignal(MOST_ROWS);
    const rows = useMemo(() => rowsOf(answer), [answer]);
    // Values and costs are always there: they are what one compares for.
    const shown = rows.filter(row => all || row.differs || row.part === "values" || row.part === "cost");
    const base = answer.things.findIndex(one => one.id === view.baseline);
    return div(
        { class: "compare-table" },
        div(
            { class: "section-head" },
            h2(null, all ? "Everything" : "What differs"),
            button(
                {
                    type: "button",
                    class: "switch",
                    "aria-pressed": all,
                    onClick: () => setQuery({ show: all ? null : "all" }),
                },
                "also what is the same",
            ),
            span(
                { class: "muted" },
                `${count(rows.filter(row => row.differs).length)} of ${plural(rows.length, "row")} differ`,
            ),
            span({ class: "gap" }),
            span({ class: "muted" }, "Alt ← → moves a column, or drag its head"),
            Menu({ label: "Export the comparison", text: "Export", items: () => exports(view, shown) }),
        ),
        div(
            { class: "compare-scroll", tabIndex: 0, role: "region", "aria-label": "Comparison" },
            table(
                null,
                caption({ class: "unseen" }, `${answer.kind} side by side`),
                thead(
                    null,
                    tr(
                        null,
                        th({ scope: "col", class: "compare-name" }, answer.kind === "trials" ? "Trial" : "Experiment"),
                        answer.things.map((thing, at) => Head({ key: thing.id, view, thing, at })),
                    ),
                ),
                PARTS.map(([part, words]) =>
                    Part({
                        key: part,
                        words,
                        rows: shown.slice(0, most.value).filter(row => row.part === part),
                        view,
                        base,
                    }),
                ),
            ),
        ),
        shown.length > most.value
            ? button(
                  {
                      type: "button",
                      onClick: () => {
                          most.value += MOST_ROWS * 4;
                      },
                  },
                  `${plural(shown.length - most.value, "more row")}: show`,
              )
            : null,
        answer.settingsLeftOut
            ? p({ class: "muted" }, `${plural(answer.settingsLeftOut, "further setting")} are the same or left out.`)
            : null,
    );
});

let dragged = -1; // the column

const Head = component((/** @type {{ view: CompareView, thing: ComparedThing, at: number }} */ { view, thing, at }) => {
    const { answer, one } = view;
    const over = useSignal(false);
    // The address may also name what cannot be shown.
    const placeOf = (/** @type {number} */ column) => view.ids.indexOf(answer.things[column]?.id ?? 0);
    /** @param {number} to a column */
    const move = to => {
        if (to < 0 || to >= answer.things.length || to === at) return;
        view.write(moved(view.ids, placeOf(at), placeOf(to)));
        const name = `compare-head-${thing.id}`;
        requestAnimationFrame(() => document.getElementById(name)?.focus());
    };
    const is = thing.id === view.baseline;
    const path = one === "trial" ? `trials/${thing.id}` : `experiments/${thing.id}`;
    return th(
        {
            scope: "col",
            class: `compare-thing${over.value ? " over" : ""}`,
            draggable: true,
            onDragStart: event => {
                dragged = at;
                event.dataTransfer?.setData("text/plain", String(thing.id));
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
                if (dragged >= 0 && dragged !== at) view.write(moved(view.ids, placeOf(dragged), placeOf(at)));
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
            a({ href: href(path), id: `compare-head-${thing.id}` }, `${one} ${thing.id}`),
            State({ state: thing.state }),
        ),
        div({ class: "compare-of muted", title: visible(thing.name) }, visible(thing.name, 60)),
        div(
            { class: "compare-tools" },
            button(
                {
                    type: "button",
                    class: "plain",
                    disabled: at === 0,
                    "aria-label": `Move ${one} ${thing.id} to the left`,
                    onClick: () => move(at - 1),
                },
                "◂",
            ),
            button(
                {
                    type: "button",
                    class: "plain",
                    disabled: at === answer.things.length - 1,
                    "aria-label": `Move ${one} ${thing.id} to the right`,
                    onClick: () => move(at + 1),
                },
                "▸",
            ),
            button(
                {
                    type: "button",
                    class: "switch",
                    "aria-pressed": is,
                    "aria-label": `Baseline: ${one} ${thing.id}`,
                    onClick: () => setQuery({ baseline: is ? null : String(thing.id) }),
                },
                "baseline",
            ),
            button(
                {
                    type: "button",
                    class: "plain",
                    "aria-label": `Remove ${one} ${thing.id}`,
                    onClick: () => view.write(view.ids.filter(id => id !== thing.id)),
                },
                "✕",
            ),
        ),
    );
});

const Part = component(
    (
        /** @type {{ words: string, rows: CompareRow[], view: CompareView, base: number }} */ {
            words,
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
                    td({ class: "muted", colSpan: things.length }, "no difference"),
                ),
            );
        }
        return tbody(
            null,
            tr({ class: "compare-part" }, th({ scope: "rowgroup" }, words), td({ colSpan: things.length })),
            rows.map(row => {
                const best = bestPlace(row, metric, smallerIsBetter);
                const wording = row.words ?? told;
                return tr(
                    { key: row.name, class: row.differs ? "differs" : "" },
                    th({ scope: "row", title: visible(row.name) }, visible(row.name, 60)),
                    row.values.map((value, at) => {
                        const away = base >= 0 && at !== base ? delta(value, row.values[base], row.words) : "";
                        const text = visible(wording(value), LONGEST);
                        return td(
                            {
                                key: at,
                                class: `${typeof value === "number" ? "number" : ""}${at === best ? " best" : ""}`,
                                title: typeof value === "number" ? String(value) : text,
                            },
                            text,
                            away ? small({ class: "muted" }, ` ${away}`) : null,
                        );
                    }),
                );
            }),
        );
    },
);

/** @param {CompareView} view @param {CompareRow[]} rows */
function exports({ answer }, rows) {
    const name = `compare-${answer.kind}-${answer.things.map(one => one.id).join("-")}`.slice(0, 80);
    return tableItems({ name, ...cellsOf(answer, rows) });
}
