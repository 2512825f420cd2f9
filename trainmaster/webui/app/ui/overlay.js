/** What lies above the page: dialogs, menus and short messages. */
import { useEffect, useLayoutEffect, useRef } from "../../vendor/preact/hooks.js";
import { signal, useSignal } from "../../vendor/signals/signals.js";
import { component, tags } from "./tags.js";

/** @import { Content } from "../../types/tags.d.ts" */

const { button, dialog, div, form, h2, li, p, span, ul } = tags;

/**
 * @typedef {object} Dialog
 * @property {string} title
 * @property {(close: (answer?: string) => void) => Content} body
 * @property {{ text: string, answer: string, dangerous?: boolean, disabled?: () => boolean }[]} [actions] the first is
 *   what Enter does; without any there is only a way out
 * @property {boolean} [wide]
 * @property {boolean} [stays] whether Escape does not close it
 */
/** @typedef {Dialog & { id: number, done: (answer: string) => void }} OpenDialog */

const dialogs = signal(/** @type {OpenDialog[]} */ ([]));
let lastId = 0;

/**
 * Opens a dialog above the page. Gives the answer of the action that was chosen, or an empty text for none.
 * @param {Dialog} wanted
 * @returns {Promise<string>}
 */
export function openDialog(wanted) {
    return new Promise(done => {
        lastId += 1;
        dialogs.value = [...dialogs.value, { ...wanted, id: lastId, done }];
    });
}

/**
 * Asks before something that cannot be undone.
 * @param {{ title: string, text: Content, action: string, dangerous?: boolean }} wanted
 */
export async function confirmed({ title, text, action, dangerous = false }) {
    const body = () => p(null, text);
    return (await openDialog({ title, body, actions: [{ text: action, answer: "yes", dangerous }] })) === "yes";
}

export const Dialogs = component(() =>
    div(
        null,
        dialogs.value.map(one => OneDialog({ key: one.id, one })),
    ),
);

const OneDialog = component((/** @type {{ one: OpenDialog }} */ { one }) => {
    const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
    const answer = useRef("");
    // Before the effects of what it shows, which may close it at once.
    useLayoutEffect(() => element.current?.showModal(), []);
    /** @param {string} [chosen] */
    const close = (chosen = "") => {
        answer.current = chosen;
        element.current?.close();
    };
    const ended = () => {
        dialogs.value = dialogs.value.filter(other => other.id !== one.id);
        one.done(answer.current);
    };
    const titled = `dialog-${one.id}`;
    return dialog(
        {
            ref: element,
            class: one.wide ? "dialog wide" : "dialog",
            "aria-labelledby": titled,
            onClose: ended,
            onCancel: event => {
                if (one.stays) event.preventDefault();
            },
        },
        // A body without actions may bring a form of its own.
        (one.actions ? form : div)(
            {
                class: "dialog-content",
                onSubmit: (/** @type {SubmitEvent} */ event) => {
                    event.preventDefault();
                    const first = one.actions?.[0];
                    if (first && !first.disabled?.()) close(first.answer);
                },
            },
            h2({ id: titled }, one.title),
            div({ class: "dialog-body" }, one.body(close)),
            one.stays && !one.actions
                ? null
                : div(
                      { class: "dialog-actions" },
                      button({ type: "button", onClick: () => close() }, one.actions?.length ? "Cancel" : "Close"),
                      one.actions?.map((action, at) =>
                          button(
                              {
                                  key: action.answer,
                                  type: at === 0 ? "submit" : "button",
                                  class: action.dangerous ? "primary dangerous" : at === 0 ? "primary" : "",
                                  disabled: action.disabled?.() ?? false,
                                  onClick: at === 0 ? undefined : () => close(action.answer),
                              },
                              action.text,
                          ),
                      ),
                  ),
        ),
    );
});

// -- menus ------------------------------------------------------------------------------------------------------------

/**
 * @typedef {object} MenuItem
 * @property {string} text
 * @property {string} [hint] shown small behind it
 * @property {boolean} [checked] for items that are on or off
 * @property {boolean} [disabled]
 * @property {boolean} [dangerous]
 * @property {boolean} [stays] whether the menu stays open, as for several checks in turn
 * @property {() => void} action
 */

/**
 * A button that opens a list of actions; arrows move, Enter chooses, Escape closes.
 */
export const Menu = component(
    (
        /** @type {{ label: string, text: Content, items: () => MenuItem[], class?: string, disabled?: boolean, onOpen?: () => void }} */ props,
    ) => {
        const open = useSignal(false);
        const list = useRef(/** @type {HTMLUListElement | null} */ (null));
        const opener = useRef(/** @type {HTMLButtonElement | null} */ (null));
        useEffect(() => {
            if (!open.value) return undefined;
            placeBelow(opener.current, list.current);
            focusItem(list.current, 0);
            /** @param {Event} event */
            const outside = event => {
                const at = event.target;
                if (at instanceof Node && !list.current?.contains(at) && !opener.current?.contains(at))
                    open.value = false;
            };
            document.addEventListener("pointerdown", outside);
            return () => document.removeEventListener("pointerdown", outside);
        }, [open.value]);
        const shut = () => {
            open.value = false;
            opener.current?.focus();
        };
        /** @param {KeyboardEvent} event */
        const keys = event => {
            const steps = { ArrowDown: 1, ArrowUp: -1 }[event.key];
            if (event.key === "Escape" || event.key === "Tab") {
                shut();
                event.stopPropagation();
            } else if (steps) focusItem(list.current, steps, true);
            else return;
            if (event.key !== "Tab") event.preventDefault();
        };
        const show = () => {
            if (!open.value) props.onOpen?.();
            open.value = !open.value;
        };
        // On the opener too: the list has the focus a moment later.
        return span(
            { class: "menu", onKeyDown: open.value ? keys : undefined },
            button(
                {
                    ref: opener,
                    type: "button",
                    class: props.class ?? "",
                    "aria-haspopup": "menu",
                    "aria-expanded": open.value,
                    "aria-label": props.label,
                    title: props.label,
                    disabled: props.disabled ?? false,
                    onClick: show,
                },
                props.text,
            ),
            open.value
                ? ul(
                      { ref: list, role: "menu", class: "menu-list", "aria-label": props.label },
                      props.items().map(item =>
                          li(
                              { key: item.text, role: "none" },
                              button(
                                  {
                                      type: "button",
                                      role: item.checked === undefined ? "menuitem" : "menuitemcheckbox",
                                      "aria-checked": item.checked,
                                      tabIndex: -1,
                                      disabled: item.disabled ?? false,
                                      class: item.dangerous ? "dangerous" : "",
                                      onClick: () => {
                                          if (!item.stays) shut();
                                          item.action();
                                      },
                                  },
                                  span({ class: "menu-check" }, item.checked ? "✓" : ""),
                                  span({ class: "menu-text" }, item.text),
                                  item.hint ? span({ class: "muted" }, item.hint) : null,
                              ),
                          ),
                      ),
                  )
                : null,
        );
    },
);

/**
 * @param {HTMLElement | null} list
 * @param {number} steps
 * @param {boolean} [fromHere]
 */
function focusItem(list, steps, fromHere = false) {
    const items = [...(list?.querySelectorAll("button") ?? [])].filter(item => !item.disabled);
    const here = fromHere ? items.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement)) : 0;
    items[(here + steps + items.length) % items.length]?.focus();
}

/**
 * Puts a list below its opener, or above where there is no room, inside the window.
 * @param {HTMLElement | null} opener
 * @param {HTMLElement | null} list
 */
export function placeBelow(opener, list) {
    if (!opener || !list) return;
    const at = opener.getBoundingClientRect();
    const size = list.getBoundingClientRect();
    const left = Math.max(4, Math.min(at.left, innerWidth - size.width - 4));
    const below = at.bottom + 2 + size.height <= innerHeight;
    list.style.left = `${left}px`;
    list.style.top = `${below ? at.bottom + 2 : Math.max(4, at.top - size.height - 2)}px`;
}

// -- short messages ---------------------------------------------------------------------------------------------------

/**
 * @typedef {object} Toast
 * @property {number} id
 * @property {string} text
 * @property {"said" | "failed"} kind
 * @property {{ text: string, run: () => void }} [action]
 */

const toasts = signal(/** @type {Toast[]} */ ([]));
const TOAST_LIFE = 6000; // ms; what failed stays until it is closed

/**
 * Says something shortly, at the lower edge.
 * @param {string} text
 * @param {{ kind?: "said" | "failed", action?: { text: string, run: () => void } }} [how]
 */
export function toast(text, { kind = "said", action } = {}) {
    lastId += 1;
    const id = lastId;
    toasts.value = [...toasts.value.slice(-3), { id, text, kind, action }];
    if (kind === "said") setTimeout(() => dropToast(id), TOAST_LIFE);
}

/** @param {unknown} error says what failed, in the API's words */
export function toastError(error) {
    toast(error instanceof Error ? error.message : String(error), { kind: "failed" });
}

/** @param {number} id */
function dropToast(id) {
    toasts.value = toasts.value.filter(one => one.id !== id);
}

export const Toasts = component(() =>
    div(
        { class: "toasts", role: "status", "aria-live": "polite" },
        toasts.value.map(one =>
            div(
                { key: one.id, class: `toast ${one.kind}` },
                span(null, one.text),
                one.action
                    ? button({ type: "button", class: "plain", onClick: one.action.run }, one.action.text)
                    : null,
                button(
                    { type: "button", class: "plain", "aria-label": "Dismiss", onClick: () => dropToast(one.id) },
                    "✕",
                ),
            ),
        ),
    ),
);
