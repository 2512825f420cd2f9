/** The lines of a log, of which only those in sight are elements; a scroll bar leads through all of them. */
import { useEffect, useLayoutEffect, useRef } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { clock } from "../api/state.js";
import { paletteColour, pieces } from "../lib/ansi.js";
import { exact, visible } from "../lib/format.js";
import { matchesIn, splitAtMatches, stamp } from "../lib/log_text.js";
import { LINE_HEIGHT, lastTop, scrollHeight, scrollOffset, topAfter, visibleRange } from "../lib/log_window.js";
import { component, tags } from "./tags.js";

/** @import { Signal } from "../../vendor/signals/signals.js" */
/** @import { WindowLine } from "../../types/api.d.ts" */
/** @import { LogRows } from "../api/log_rows.js" */
/** @import { Times } from "../lib/log_text.js" */

const { button, div, mark, span } = tags;

const FOLLOW_DISTANCE = 1.5; // lines from the end within which a reader follows
const SETTLE_DELAY = 150; // ms after the last move of the scroll bar
const MAX_LINE_LENGTH = 4000; // characters of a line, until all of them are asked for

/**
 * @typedef {object} LogLook how lines are shown
 * @property {string} marked the text that a search marks; empty without one, or for a regular expression
 * @property {boolean} wrap
 * @property {Times} times
 * @property {readonly string[]} side ranks that stand side by side; empty for one column
 */
/**
 * @typedef {object} LogLinesProperties
 * @property {LogRows} rows
 * @property {LogLook} look
 * @property {Signal<number>} top the position of the first visible line
 * @property {Signal<number>} view the height of what is visible
 * @property {Signal<boolean>} following
 * @property {number | null} chosen a line's id
 * @property {(line: WindowLine) => void} onChoose
 */
export const LogLines = component((/** @type {LogLinesProperties} */ properties) => {
    const { rows, look, top, view, following, chosen, onChoose } = properties;
    const scroller = useRef(/** @type {HTMLDivElement | null} */ (null));
    const shift = useRef(/** @type {HTMLDivElement | null} */ (null));
    const bar = useRef(0); // where the scroll bar was
    const frame = useRef(0);
    const busy = useRef(0); // a timer while the reader scrolls
    const width = useSignal(0);
    const total = rows.total.value;
    const scale = { total, view: view.value, wraps: look.wrap };
    const wraps = useRef(look.wrap);
    wraps.current = look.wrap;
    const layout = useRef({ first: 0, offset: 0 }); // the first drawn line, and the pixels of it and others above the edge
    void rows.version.value;
    // The last line of all is at the lower edge for who follows, and nothing else moves by what comes.
    const at = following.value ? lastTop(scale) : Math.min(top.value, Math.max(0, total - 1));

    useEffect(() => {
        const element = scroller.current;
        if (!element) return undefined;
        const watcher = new ResizeObserver(() => {
            view.value = Math.max(LINE_HEIGHT, element.clientHeight);
            width.value = element.clientWidth;
        });
        watcher.observe(element);
        return () => {
            watcher.disconnect();
            cancelAnimationFrame(frame.current);
            clearTimeout(busy.current);
        };
    }, []);

    // The scroll bar goes where the lines are, once nobody moves it; its own event then changes nothing.
    const settle = () => {
        const element = scroller.current;
        if (!element || busy.current || frame.current) return;
        const now = { total: rows.total.peek(), view: view.peek(), wraps: wraps.current };
        const target = Math.round(scrollOffset(now, following.peek() ? lastTop(now) : top.peek()));
        if (Math.abs(element.scrollTop - target) > 1) element.scrollTop = target;
        bar.current = element.scrollTop;
    };
    useLayoutEffect(settle);
    const [first, end] = visibleRange(scale, at);
    useEffect(() => rows.ensureLoaded(first, end), [first, end, rows, rows.version.value]);
    useLayoutEffect(() => {
        const element = shift.current;
        if (!element) return;
        let offset = (at - first) * LINE_HEIGHT;
        if (look.wrap) {
            const line = /** @type {HTMLElement | undefined} */ (element.children[Math.floor(at) - first]);
            const target = line ? line.offsetTop + (at % 1) * line.offsetHeight : 0;
            const maxOffset = Math.max(0, element.offsetHeight - view.value); // at which the last line is at the lower edge
            offset = following.value ? maxOffset : Math.min(target, end === total ? maxOffset : target);
            if (busy.current && !following.value && end === total && target >= maxOffset) following.value = true;
        }
        layout.current = { first, offset };
        element.style.transform = `translateY(${Math.round(-offset)}px)`;
    });
    /** The position that is so many pixels further than what is seen, by the heights that lines have. @param {number} pixels */
    const moved = pixels => {
        const lines = /** @type {HTMLElement[]} */ ([...(shift.current?.children ?? [])]);
        const to = layout.current.offset + pixels;
        const index = lines.findLastIndex(line => line.offsetTop <= to);
        const line = lines[index];
        if (!line) return layout.current.first + to / LINE_HEIGHT;
        return layout.current.first + index + Math.min(1, (to - line.offsetTop) / line.offsetHeight);
    };

    const scrolled = () => {
        if (frame.current) return;
        frame.current = requestAnimationFrame(() => {
            frame.current = 0;
            const element = scroller.current;
            if (!element) return;
            const to = element.scrollTop;
            if (Math.abs(to - bar.current) < 1) return;
            const now = { total: rows.total.peek(), view: view.peek(), wraps: wraps.current };
            const next = topAfter(now, following.peek() ? lastTop(now) : top.peek(), bar.current, to, moved);
            bar.current = to;
            clearTimeout(busy.current);
            busy.current = setTimeout(() => {
                busy.current = 0;
                settle();
            }, SETTLE_DELAY);
            top.value = next;
            following.value = next >= lastTop(now) - FOLLOW_DISTANCE;
        });
    };

    const lines = [];
    for (let position = first; position < end; position += 1) {
        const line = rows.at(position);
        lines.push(
            line
                ? LogLine({
                      key: position,
                      line,
                      position,
                      look,
                      began: rows.began.value,
                      matched: rows.matched.has(line.id),
                      chosen: line.id === chosen,
                      onWhole: () => void rows.loadFullLine(line.id),
                  })
                : div(
                      { key: position, class: "log-line" },
                      span({ class: "log-gutter" }, span({ class: "log-number" }, String(position + 1))),
                  ),
        );
    }
    return div(
        {
            ref: scroller,
            class: `log-scroller${look.wrap ? " wraps" : ""}`,
            tabIndex: 0,
            role: "log",
            "aria-live": "off",
            "aria-label": "Lines of the log",
            id: "log-lines",
            onScroll: scrolled,
            onClick: event => {
                const element = event.target instanceof Element ? event.target.closest("[data-position]") : null;
                const line = rows.at(Number(element?.getAttribute("data-position") ?? -1));
                // What is selected is to be copied.
                if (line && !getSelection()?.toString() && !(event.target instanceof HTMLButtonElement)) onChoose(line);
            },
        },
        div(
            { class: "log-height", style: { height: `${scrollHeight(scale)}px` } },
            div(
                { class: "log-lines", style: { height: `${view.value}px` } },
                div({ ref: shift, class: "log-shift" }, lines),
            ),
        ),
    );
});

/**
 * @typedef {object} LineProperties
 * @property {WindowLine} line
 * @property {number} position
 * @property {LogLook} look
 * @property {number} began
 * @property {boolean} matched
 * @property {boolean} chosen
 * @property {() => void} onWhole
 */
const LogLine = component((/** @type {LineProperties} */ { line, position, look, began, matched, chosen, onWhole }) => {
    const level = line.level.toLowerCase();
    const time = stamp(line.at, look.times, began, look.times === "ago" ? clock.value / 1000 : 0);
    const column = look.side.indexOf(String(line.rank ?? "none"));
    const classes = ["log-line", `log-${level}`];
    if (matched) classes.push("matched");
    if (chosen) classes.push("chosen");
    return div(
        {
            class: classes.join(" "),
            .../** @type {{}} */ ({ "data-position": position }),
            "aria-current": chosen ? "true" : undefined,
        },
        span(
            { class: "log-gutter" },
            span({ class: "log-number" }, String(position + 1)),
            time ? span({ class: "log-time", title: exact(line.at * 1000) }, time) : null,
            look.side.length
                ? null
                : span(
                      { class: "log-rank", title: line.node ? visible(line.node, 80) : undefined },
                      line.rank === null ? "" : `r${line.rank}`,
                  ),
            span({ class: "log-level" }, MARKS[line.level] ?? ""),
        ),
        span(
            {
                class: "log-text",
                style: look.side.length ? { gridColumn: String(Math.max(0, column) + 2) } : undefined,
            },
            renderText(line.text, matched ? look.marked : ""),
            line.cut
                ? button(
                      { type: "button", class: "log-more", onClick: onWhole },
                      `… ${line.cut} more characters: show all`,
                  )
                : null,
        ),
    );
});

/** Levels are told by a letter too. */
const MARKS = /** @type {Record<string, string>} */ ({ WARNING: "W", ERROR: "E", CRITICAL: "C" });

/**
 * @param {string} text
 * @param {string} term
 */
function renderText(text, term) {
    const parts = pieces(text);
    const places = term ? matchesIn(parts.map(piece => piece.text).join(""), term) : [];
    return splitAtMatches(parts, places).map((piece, at) => {
        const content = visibleText(piece.text);
        if (!piece.style && !piece.isMatch) return content;
        const tag = piece.isMatch ? mark : span;
        return tag({ key: at, class: piece.style || undefined, style: colours(piece.style) }, content);
    });
}

/** The colours of the palette of 256, which are the same in both themes. @param {string} style @returns {Record<string, string> | undefined} */
function colours(style) {
    /** @type {Record<string, string>} */
    const css = {};
    for (const [, on, number] of style.matchAll(/ansi-(on-)?(\d+)/g))
        if (Number(number) >= 16) css[on ? "backgroundColor" : "color"] = paletteColour(Number(number));
    return Object.keys(css).length ? css : undefined;
}

/** @param {string} text */
function visibleText(text) {
    const longest = Math.max(MAX_LINE_LENGTH, text.length);
    // A tab is no hidden character here.
    return text.includes("\t")
        ? text
              .split("\t")
              .map(part => visible(part, longest))
              .join("    ")
        : visible(text, longest);
}
