/**
 * A table of any length: only the rows in sight are elements. It is a grid to screen readers and to the keyboard:
 * `j k` and the arrows move, `x` marks, `Enter` opens.
 */

import { useEffect, useLayoutEffect, useMemo, useRef } from "../../vendor/preact/hooks.js";
import { Component, createElement } from "../../vendor/preact/preact.js";
import { signal, useComputed, useSignal } from "../../vendor/signals/signals.js";
import { toast } from "./overlay.js";
import { go, href } from "./router.js";
import { isTyping } from "./shell.js";
import { component, tags } from "./tags.js";

/** @import { Content } from "../../types/tags.d.ts" */
/** @import { Signal, ReadonlySignal } from "../../vendor/signals/signals.js" */

const { a, button, col, colgroup, div, input, table, tbody, td, th, thead, tr } = tags;

/**
 * @template R
 * @typedef {object} Column
 * @property {string} key the name by which it is sorted
 * @property {string} title
 * @property {number} width in pixels; the first one takes what is left
 * @property {"right"} [align]
 * @property {boolean} [unsorted] whether it cannot be sorted by
 * @property {boolean} [falling] whether its first sort is the falling one
 * @property {(row: R) => Content} cell
 */
/**
 * @template R
 * @typedef {object} Rows what lies behind a table: all of it in memory (`fixedRows`), or on the master
 * @property {{ readonly value: number }} total
 * @property {{ readonly value: number }} version counts changes
 * @property {(index: number) => R | undefined} at undefined for a row that is still on its way
 * @property {(from: number, to: number) => void} want
 */
/**
 * @template R
 * @typedef {object} TableProperties
 * @property {string} label
 * @property {Column<R>[]} columns
 * @property {Rows<R>} rows
 * @property {(row: R) => string | number} rowKey
 * @property {(row: R) => string} [address] where Enter leads
 * @property {Signal<Map<string | number, R>>} [marks]
 * @property {string} [sort] columns with commas, a minus before a falling one
 * @property {(sort: string) => void} [onSort]
 * @property {Signal<number>} [first] is told the first row in sight
 */

const ROW = 28; // pixels, as --row in the style
const HEAD = 30;
const OVERSCAN = 6; // rows beyond the edges
const STEP = 4; // rows by which the drawn ones move at once
const MARKS = 32; // pixels of the column of marks

/**
 * Rows that are all there.
 * @template R
 * @param {ReadonlySignal<R[]>} list
 * @returns {Rows<R>}
 */
export function fixedRows(list) {
    let version = 0;
    return {
        total: {
            get value() {
                return list.value.length;
            },
        },
        version: {
            get value() {
                void list.value;
                version += 1;
                return version;
            },
        },
        at: index => list.value[index],
        want: () => undefined,
    };
}

/**
 * Rows that are in memory and change while they are shown: the table stays where it is, unless they answer another
 * question, as a filter or an order.
 * @template R
 * @param {R[]} list
 * @param {string} [question]
 * @returns {Rows<R>}
 */
export function useRows(list, question = "") {
    const { kept, rows } = useMemo(() => {
        const kept = signal(list);
        return { kept, rows: fixedRows(kept) };
    }, [question]);
    useEffect(() => {
        kept.value = list;
    }, [kept, list]);
    return rows;
}

/**
 * @template R
 * @param {TableProperties<R>} properties
 */
export function Table(properties) {
    return createElement(/** @type {any} */ (Grid), properties);
}

const Grid = component((/** @type {TableProperties<any>} */ properties) => {
    const { label, columns, rows, rowKey, address, marks, sort = "", onSort, first } = properties;
    const scroller = useRef(/** @type {HTMLDivElement | null} */ (null));
    const top = useSignal(0); // the first drawn row
    const room = useSignal(30); // rows that fit
    const cursor = useSignal(-1);
    const total = rows.total.value;
    const bottom = useComputed(() => top.value + room.value + 2 * OVERSCAN + STEP);
    void rows.version.value;

    const look = () => {
        const element = scroller.current;
        if (!element) return;
        const seen = Math.floor(element.scrollTop / ROW);
        room.value = Math.ceil((element.clientHeight - HEAD) / ROW);
        top.value = Math.max(0, Math.floor((seen - OVERSCAN) / STEP) * STEP);
        if (first) first.value = seen;
        rows.want(top.value, bottom.value);
    };
    useEffect(() => {
        const element = scroller.current;
        if (!element) return undefined;
        const watcher = new ResizeObserver(look);
        watcher.observe(element);
        return () => watcher.disconnect();
    }, [rows]);
    useEffect(look, [rows, total]);
    useRememberedScroll(scroller, rows, total);

    /** @param {number} index */
    const move = index => {
        const at = Math.max(0, Math.min(index, rows.total.value - 1));
        cursor.value = at;
        const element = scroller.current;
        if (!element) return;
        const y = at * ROW;
        const seen = element.clientHeight - HEAD;
        if (y < element.scrollTop) element.scrollTop = y;
        else if (y + ROW > element.scrollTop + seen) element.scrollTop = y + ROW - seen;
    };
    /** @param {number} index */
    const mark = index => {
        const row = rows.at(index);
        if (!row || !marks) return;
        const key = rowKey(row);
        const next = new Map(marks.value);
        if (!next.delete(key)) next.set(key, row);
        marks.value = next;
    };
    /** @param {number} index marks everything from the cursor to it */
    const markTo = index => {
        if (!marks) return;
        const next = new Map(marks.value);
        const from = Math.max(0, cursor.value);
        for (let at = Math.min(from, index); at <= Math.max(from, index); at += 1) {
            const row = rows.at(at);
            if (row) next.set(rowKey(row), row);
        }
        marks.value = next;
    };
    useEffect(() => {
        /** @param {KeyboardEvent} event */
        const pressed = event => {
            if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
            if (isTyping(event.target) || document.querySelector("dialog[open], .menu-list")) return;
            const page = Math.max(1, room.value - 2);
            const inside = scroller.current?.contains(/** @type {Node} */ (event.target));
            const onControl = event.target instanceof Element && event.target.closest("a, button, input");
            const here = cursor.value;
            /** @type {Record<string, () => void>} */
            const anywhere = { j: () => move(here + 1), k: () => move(here - 1), x: () => mark(here) };
            /** @type {Record<string, () => void>} */
            const within = {
                ArrowDown: () => move(here + 1),
                ArrowUp: () => move(here - 1),
                PageDown: () => move(here + page),
                PageUp: () => move(here - page),
                Home: () => move(0),
                End: () => move(rows.total.value - 1),
                " ": () => mark(here),
            };
            const act = anywhere[event.key] ?? (inside && !onControl ? within[event.key] : undefined);
            if (act) act();
            else if (event.key === "Enter" && here >= 0 && !onControl) {
                const row = rows.at(here);
                if (!row || !address) return;
                go(address(row));
            } else return;
            event.preventDefault();
        };
        document.addEventListener("keydown", pressed);
        return () => document.removeEventListener("keydown", pressed);
    }, [rows, address, marks]);

    const drawn = [];
    const end = Math.min(total, bottom.value);
    for (let at = top.value; at < end; at += 1) {
        const row = rows.at(at);
        const marked = row !== undefined && (marks?.value.has(rowKey(row)) ?? false);
        drawn.push(
            createElement(/** @type {any} */ (Line), {
                key: at,
                at,
                row,
                columns,
                marked,
                markable: Boolean(marks),
                current: at === cursor.value,
                mark,
                markTo,
                move,
                version: rows.version.value,
            }),
        );
    }
    // Narrower than this, it scrolls sideways.
    const least = columns.reduce((sum, one) => sum + one.width, marks ? MARKS : 0);
    return div(
        { class: "table", ref: scroller, onScroll: look },
        table(
            {
                role: "grid",
                style: { minWidth: `${least}px` },
                "aria-label": label,
                "aria-rowcount": total + 1,
                "aria-multiselectable": marks ? true : undefined,
                "aria-activedescendant": cursor.value >= 0 ? `row-${cursor.value}` : undefined,
                tabIndex: 0,
                onFocus: event => {
                    if (event.target === event.currentTarget && cursor.value < 0) move(0);
                },
            },
            colgroup(
                null,
                marks ? col({ style: { width: `${MARKS}px` } }) : null,
                columns.map((one, at) => col({ key: one.key, style: { width: at === 0 ? "auto" : `${one.width}px` } })),
            ),
            thead(
                null,
                tr(
                    { "aria-rowindex": 1 },
                    marks ? th({ class: "mark" }, MarkAll({ marks })) : null,
                    columns.map(column => Head({ key: column.key, column, sort, onSort })),
                ),
            ),
            tbody(
                null,
                tr({ key: "above", class: "spacer", "aria-hidden": "true", style: { height: `${top.value * ROW}px` } }),
                drawn,
                tr({
                    key: "below",
                    class: "spacer",
                    "aria-hidden": "true",
                    style: { height: `${Math.max(0, total - end) * ROW}px` },
                }),
            ),
        ),
    );
});

const Head = component(
    (
        /** @type {{ column: Column<any>, sort: string, onSort?: (sort: string) => void }} */ { column, sort, onSort },
    ) => {
        const parts = sort.split(",").filter(Boolean);
        const mine = parts.find(part => part.replace(/^-/, "") === column.key);
        const way = mine === undefined ? "none" : mine.startsWith("-") ? "descending" : "ascending";
        /** @param {MouseEvent} event */
        const clicked = event => {
            const up = column.key;
            const down = `-${column.key}`;
            const [one, two] = column.falling ? [down, up] : [up, down];
            const next = mine === undefined ? one : mine === one ? two : "";
            const others = event.shiftKey ? parts.filter(part => part !== mine) : [];
            onSort?.([...others, next].filter(Boolean).join(","));
        };
        const arrow = way === "none" ? "" : way === "ascending" ? " ↑" : " ↓";
        return th(
            { scope: "col", class: column.align ?? "", "aria-sort": way },
            column.unsorted || !onSort
                ? column.title
                : button(
                      {
                          type: "button",
                          class: "plain",
                          title: `${column.title}: sort; with Shift by several`,
                          onClick: clicked,
                      },
                      column.title,
                      arrow,
                  ),
        );
    },
);

const MarkAll = component((/** @type {{ marks: Signal<Map<string | number, any>> }} */ { marks }) =>
    input({
        type: "checkbox",
        "aria-label": "Remove all marks",
        checked: marks.value.size > 0,
        disabled: marks.value.size === 0,
        onChange: () => {
            marks.value = new Map();
        },
    }),
);

/** @typedef {{ at: number, row: any, columns: Column<any>[], marked: boolean, markable: boolean, current: boolean, mark: (at: number) => void, markTo: (at: number) => void, move: (at: number) => void, version: number }} LineProperties */

/** One row; drawn again only when it has changed. @extends {Component<LineProperties>} */
class Line extends Component {
    /** @param {LineProperties} next */
    shouldComponentUpdate(next) {
        const now = this.props;
        return (
            next.row !== now.row ||
            next.columns !== now.columns ||
            next.marked !== now.marked ||
            next.current !== now.current
        );
    }

    render() {
        const { at, row, columns, marked, markable, current, mark, markTo, move } = this.props;
        if (row === undefined) {
            return tr(
                { class: "pending", "aria-rowindex": at + 2 },
                markable ? td(null) : null,
                columns.map(one => td({ key: one.key }, "…")),
            );
        }
        return tr(
            {
                id: `row-${at}`,
                class: current ? "current" : "",
                "aria-rowindex": at + 2,
                "aria-selected": markable ? marked : undefined,
                onClick: event => {
                    if (event.shiftKey && markable) markTo(at);
                    move(at);
                },
            },
            markable
                ? td(
                      { class: "mark" },
                      input({
                          type: "checkbox",
                          "aria-label": "Mark",
                          tabIndex: -1,
                          checked: marked,
                          onClick: event => event.stopPropagation(),
                          onChange: () => {
                              mark(at);
                              move(at);
                          },
                      }),
                  )
                : null,
            columns.map(one => td({ key: one.key, class: one.align ?? "" }, one.cell(row))),
        );
    }
}

/**
 * Keeps the place in the browser's history, so that back and reload lead to the same rows.
 * @param {{ current: HTMLDivElement | null }} scroller
 * @param {unknown} rows
 * @param {number} total
 */
function useRememberedScroll(scroller, rows, total) {
    const restored = useRef(false);
    const before = useRef(rows);
    useEffect(() => {
        if (before.current !== rows && scroller.current) scroller.current.scrollTop = 0; // another question
        before.current = rows;
    }, [rows]);
    useEffect(() => {
        const element = scroller.current;
        if (!element || total === 0 || restored.current) return;
        restored.current = true;
        const left = Number(history.state?.scroll) || 0;
        if (left > 0) element.scrollTop = left;
    }, [total]);
    useEffect(() => {
        const element = scroller.current;
        if (!element) return undefined;
        let timer = 0;
        const scrolled = () => {
            clearTimeout(timer);
            timer = setTimeout(() => history.replaceState({ ...history.state, scroll: element.scrollTop }, ""), 200);
        };
        element.addEventListener("scroll", scrolled, { passive: true });
        return () => {
            clearTimeout(timer);
            element.removeEventListener("scroll", scrolled);
        };
    }, []);
}

// -- what is marked ------------------------------------------------------------------------------------------------

const FEWEST_COMPARED = 2;
const MOST_COMPARED = 20;
const AFTER_G = 1500; // ms

/**
 * The way to the page that compares what is marked: a link where 2 to 20 are, and the key `c`.
 * @typedef {object} CompareLinkProperties
 * @property {"trials" | "experiments"} kind
 * @property {readonly number[]} ids of the marked ones
 */
export const CompareLink = component((/** @type {CompareLinkProperties} */ { kind, ids }) => {
    const to = href("compare", { [kind]: ids.join(",") });
    const fits = ids.length >= FEWEST_COMPARED && ids.length <= MOST_COMPARED;
    useLayoutEffect(() => {
        let afterG = -Infinity; // `g c` goes elsewhere
        const pressed = (/** @type {KeyboardEvent} */ event) => {
            if (event.key === "g") afterG = event.timeStamp;
            if (event.timeStamp - afterG < AFTER_G) return;
            if (event.key !== "c" || event.ctrlKey || event.metaKey || event.altKey) return;
            const box = event.target instanceof HTMLInputElement && event.target.type === "checkbox";
            if (isTyping(event.target) && !box) return;
            if (document.querySelector("dialog[open]")) return;
            if (fits) go(to);
            else toast(`Mark ${FEWEST_COMPARED} to ${MOST_COMPARED} ${kind} to compare them; ${ids.length} are marked`);
        };
        document.addEventListener("keydown", pressed);
        return () => document.removeEventListener("keydown", pressed);
    }, [to, fits]);
    return fits ? a({ class: "button", href: to, title: "c" }, "Compare") : null;
});
