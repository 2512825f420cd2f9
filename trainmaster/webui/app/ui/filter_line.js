/** One line that filters, with its terms as chips below it; `/` leads there from anywhere. */
import { useEffect, useRef } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { terms, without } from "../lib/filter.js";
import { visible } from "../lib/format.js";
import { isTyping } from "./shell.js";
import { component, tags } from "./tags.js";

/** @import { Content } from "../../types/tags.d.ts" */
/** @import { Term } from "../lib/filter.js" */

const { button, div, input, span } = tags;

const DEBOUNCE = 350; // ms of no typing after which it is applied

/**
 * @typedef {object} FilterLineProperties
 * @property {string} line as it is in force
 * @property {(line: string, how: { replace: boolean }) => void} onChange
 * @property {string} label
 * @property {string} placeholder
 * @property {string} error what the master says of the line, if it cannot be read
 * @property {(term: Term) => boolean} [hidesChip] terms that have a switch of their own, and so no chip
 * @property {Content} [children] before the chips
 */
export const FilterLine = component((/** @type {FilterLineProperties} */ properties) => {
    const { line, onChange, label, placeholder, error, hidesChip: hides, children } = properties;
    const field = useRef(/** @type {HTMLInputElement | null} */ (null));
    const timer = useRef(0);
    const typed = useSignal(line);
    const sent = useRef(line);
    useEffect(() => {
        if (line !== sent.current) {
            // changed elsewhere: by a chip, or the browser's back
            typed.value = line;
            sent.current = line;
        }
    }, [line]);
    useEffect(() => {
        /** @param {KeyboardEvent} event */
        const pressed = event => {
            if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
            if (document.querySelector("dialog[open]")) return;
            event.preventDefault();
            field.current?.focus();
            field.current?.select();
        };
        document.addEventListener("keydown", pressed);
        return () => {
            clearTimeout(timer.current);
            document.removeEventListener("keydown", pressed);
        };
    }, []);
    /**
     * @param {string} text
     * @param {boolean} replace
     */
    const apply = (text, replace) => {
        clearTimeout(timer.current);
        sent.current = text.trim();
        if (sent.current !== line) onChange(sent.current, { replace });
    };
    const chips = terms(line)
        .map((term, at) => ({ term, at }))
        .filter(({ term }) => !hides?.(term));
    return div(
        { class: "filter" },
        input({
            ref: field,
            type: "search",
            "aria-label": label,
            "aria-invalid": error ? true : undefined,
            "aria-describedby": error ? "filter-error" : undefined,
            placeholder,
            spellcheck: false,
            autocomplete: "off",
            value: typed.value,
            onInput: event => {
                const text = event.currentTarget.value;
                typed.value = text;
                clearTimeout(timer.current);
                timer.current = setTimeout(() => apply(text, true), DEBOUNCE);
            },
            onKeyDown: event => {
                if (event.key === "Enter") apply(typed.value, false);
                else if (event.key === "Escape") field.current?.blur();
                else return;
                event.preventDefault();
            },
        }),
        div(
            { class: "chips" },
            children,
            error ? span({ id: "filter-error", class: "error-text", role: "alert" }, error) : null,
            chips.map(({ term, at }) =>
                span(
                    { key: `${at} ${term.text}`, class: "chip" },
                    visible(term.text, 60),
                    button(
                        {
                            type: "button",
                            class: "plain",
                            "aria-label": `Remove ${visible(term.text, 60)}`,
                            onClick: () => onChange(without(line, at), { replace: false }),
                        },
                        "✕",
                    ),
                ),
            ),
        ),
    );
});
