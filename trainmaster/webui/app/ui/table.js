/**
 * A table of any length: only the rows in sight are elements. It is a grid to screen readers and to the keyboard:
 * `j k` and the arrows move, `x` marks, `Enter` opens.
 */

import { useEffect, useLayoutEffect, useMemo, useRef } from "../../vendor/preact/hooks.js";
import { Component, createElement } from "../../vendor/preact/preact.js";
import { signal, useComputed, useSignal } from "../../vendor/signals/signals.js";
import { toast } from "./overlay.js";
import { href, navigate } from "./router.js";
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
 * @property {(from: number, to: number) => void} ensureLoaded
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

const ROW_HEIGHT = 28; // pixels, as --row in the style
const HEAD_HEIGHT = 30;
const OVERSCAN = 6; // rows beyond the edges
const ROW_STEP = 4; // rows by which the drawn ones move at once
const MARK_WIDTH = 32; // pixels of the column of marks

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
        ensureLoaded: () => undefined,
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
    const { kept: source, rows } = useMemo(() => {
        const source = signal(list);
        return { kept: source, rows: fixedRows(source) };
    }, [question]);
    useEffect(() => {
        source.value = list;
    }, [source, list]);
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
    const bottom = useComputed(() => top.value + room.value + 2 * OVERSCAN + ROW_STEP);
    void rows.version.value;

    const measure = () => {
        const element = scroller.current;
        if (!element) return;
        const firstVisible = Math.floor(element.scrollTop / ROW_HEIGHT);
        room.value = Math.ceil((element.clientHeight - HEAD_HEIGHT) / ROW_HEIGHT);
        top.value = Math.max(0, Math.floor((firstVisible - OVERSCAN) / ROW_STEP) * ROW_STEP);
        if (first) first.value = firstVisible;
        rows.ensureLoaded(top.value, bottom.value);
    };
    useEffect(() => {
        const element = scroller.current;
        if (!element) return undefined;
        const watcher = new ResizeObserver(measure);
        watcher.observe(element);
        return () => watcher.disconnect();
    }, [rows]);
    useEffect(measure, [rows, total]);
    useRememberedScroll(scroller, rows, total);

    /** @param {number} index */
    const move = index => {
        const at = Math.max(0, Math.min(index, rows.total.value - 1));
        cursor.value = at;
        const element = scroller.current;
        if (!element) return;
        const y = at * ROW_HEIGHT;
        const viewHeight = element.clientHeight - HEAD_HEIGHT;
        if (y < element.scrollTop) element.scrollTop = y;
        else if (y + ROW_HEIGHT > element.scrollTop + viewHeight) element.scrollTop = y + ROW_HEIGHT - viewHeight;
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
            const index = cursor.value;
            /** @type {Record<string, () => void>} */
            const anywhere = { j: () => move(index + 1), k: () => move(index - 1), x: () => mark(index) };
            /** @type {Record<string, () => void>} */
            const within = {
                ArrowDown: () => move(index + 1),
                ArrowUp: () => move(index - 1),
                PageDown: () => move(index + page),
                PageUp: () => move(index - page),
                Home: () => move(0),
                End: () => move(rows.total.value - 1),
                " ": () => mark(index),
            };
            const act = anywhere[event.key] ?? (inside && !onControl ? within[event.key] : undefined);
            if (act) act();
            else if (event.key === "Enter" && index >= 0 && !onControl) {
                const row = rows.at(index);
                if (!row || !address) return;
                navigate(address(row));
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
            createElement(/** @type {any} */ (TableRow), {
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
    const least = columns.reduce((sum, column) => sum + column.width, marks ? MARK_WIDTH : 0);
    return div(
        { class: "table", ref: scroller, onScroll: measure },
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
                marks ? col({ style: { width: `${MARK_WIDTH}px` } }) : null,
                columns.map((column, at) =>
                    col({ key: column.key, style: { width: at === 0 ? "auto" : `${column.width}px` } }),
                ),
            ),
            thead(
                null,
                tr(
                    { "aria-rowindex": 1 },
                    marks ? th({ class: "mark" }, MarkAll({ marks })) : null,
                    columns.map(column => ColumnHead({ key: column.key, column, sort, onSort })),
                ),
            ),
            tbody(
                null,
                tr({
                    key: "above",
                    class: "spacer",
                    "aria-hidden": "true",
                    style: { height: `${top.value * ROW_HEIGHT}px` },
                }),
                drawn,
                tr({
                    key: "below",
                    class: "spacer",
                    "aria-hidden": "true",
                    style: { height: `${Math.max(0, total - end) * ROW_HEIGHT}px` },
                }),
            ),
        ),
    );
});

const ColumnHead = component(
    (
        /** @type {{ column: Column<any>, sort: string, onSort?: (sort: string) => void }} */ { column, sort, onSort },
    ) => {
        const parts = sort.split(",").filter(Boolean);
        const term = parts.find(part => part.replace(/^-/, "") === column.key);
        const direction = term === undefined ? "none" : term.startsWith("-") ? "descending" : "ascending";
        /** @param {MouseEvent} event */
        const clicked = event => {
            const up = column.key;
            const down = `-${column.key}`;
            const [firstSort, two] = column.falling ? [down, up] : [up, down];
            const next = term === undefined ? firstSort : term === firstSort ? two : "";
            const others = event.shiftKey ? parts.filter(part => part !== term) : [];
            onSort?.([...others, next].filter(Boolean).join(","));
        };
        const arrow = direction === "none" ? "" : direction === "ascending" ? " ↑" : " ↓";
        return th(
            { scope: "col", class: column.align ?? "", "aria-sort": direction },
            column.unsorted || !onSort
                ? column.title
                : button(
                      {
                          type: "button",
                          class: "plain",
                          title: `${column.title}: sort, Shift adds a column`,
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

/** @typedef {{ at: number, row: any, columns: Column<any>[], marked: boolean, markable: boolean, current: boolean, mark: (at: number) => void, markTo: (at: number) => void, move: (at: number) => void, version: number }} TableRowProperties */

/** One row; drawn again only when it has changed. @extends {Component<TableRowProperties>} */
class TableRow extends Component {
    /** @param {TableRowProperties} next */
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
                columns.map(column => td({ key: column.key }, "…")),
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
            columns.map(column => td({ key: column.key, class: column.align ?? "" }, column.cell(row))),
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
const CHORD_TIMEOUT = 1500; // ms

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
            if (event.timeStamp - afterG < CHORD_TIMEOUT) return;
            if (event.key !== "c" || event.ctrlKey || event.metaKey || event.altKey) return;
            const box = event.target instanceof HTMLInputElement && event.target.type === "checkbox";
            if (isTyping(event.target) && !box) return;
            if (document.querySelector("dialog[open]")) return;
            if (fits) navigate(to);
            else toast(`Mark ${FEWEST_COMPARED} to ${MOST_COMPARED} ${kind} to compare them; ${ids.length} are marked`);
        };
        document.addEventListener("keydown", pressed);
        return () => document.removeEventListener("keydown", pressed);
    }, [to, fits]);
    return fits ? a({ class: "button", href: to, title: "c" }, "Compare") : null;
});
