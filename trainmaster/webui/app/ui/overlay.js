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
 * @property {boolean} [persistent] whether Escape does not close it
 */
/** @typedef {Dialog & { id: number, done: (answer: string) => void }} OpenDialog */

const dialogs = signal(/** @type {OpenDialog[]} */ ([]));
let lastId = 0;

/**
 * Opens a dialog above the page. Gives the answer of the action that was chosen, or an empty text for none.
 * @param {Dialog} spec
 * @returns {Promise<string>}
 */
export function openDialog(spec) {
    return new Promise(resolve => {
        lastId += 1;
        dialogs.value = [...dialogs.value, { ...spec, id: lastId, done: resolve }];
    });
}

/**
 * Asks before something that cannot be undone.
 * @param {{ title: string, text: Content, action: string, dangerous?: boolean }} wanted
 */
export async function confirmAction({ title, text, action, dangerous = false }) {
    const body = () => p(null, text);
    return (await openDialog({ title, body, actions: [{ text: action, answer: "yes", dangerous }] })) === "yes";
}

export const Dialogs = component(() =>
    div(
        null,
        dialogs.value.map(modal => ModalDialog({ key: modal.id, modal })),
    ),
);

const ModalDialog = component((/** @type {{ modal: OpenDialog }} */ { modal }) => {
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
        dialogs.value = dialogs.value.filter(other => other.id !== modal.id);
        modal.done(answer.current);
    };
    const titled = `dialog-${modal.id}`;
    return dialog(
        {
            ref: element,
            class: modal.wide ? "dialog wide" : "dialog",
            "aria-labelledby": titled,
            onClose: ended,
            onCancel: event => {
                if (modal.persistent) event.preventDefault();
            },
        },
        // A body without actions may bring a form of its own.
        (modal.actions ? form : div)(
            {
                class: "dialog-content",
                onSubmit: (/** @type {SubmitEvent} */ event) => {
                    event.preventDefault();
                    const first = modal.actions?.[0];
                    if (first && !first.disabled?.()) close(first.answer);
                },
            },
            h2({ id: titled }, modal.title),
            div({ class: "dialog-body" }, modal.body(close)),
            modal.persistent && !modal.actions
                ? null
                : div(
                      { class: "dialog-actions" },
                      button({ type: "button", onClick: () => close() }, modal.actions?.length ? "Cancel" : "Close"),
                      modal.actions?.map((action, at) =>
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
 * @property {boolean} [keepOpen] whether the menu stays open, as for several checks in turn
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
            positionBelow(opener.current, list.current);
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
                                          if (!item.keepOpen) shut();
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
    const focused = fromHere ? items.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement)) : 0;
    items[(focused + steps + items.length) % items.length]?.focus();
}

/**
 * Puts a list below its opener, or above where there is no room, inside the window.
 * @param {HTMLElement | null} opener
 * @param {HTMLElement | null} list
 */
export function positionBelow(opener, list) {
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
 * @property {"info" | "error"} kind
 * @property {{ text: string, run: () => void }} [action]
 */

const toasts = signal(/** @type {Toast[]} */ ([]));
const TOAST_LIFE = 6000; // ms; what failed stays until it is closed

/**
 * Says something shortly, at the lower edge.
 * @param {string} text
 * @param {{ kind?: "info" | "error", action?: { text: string, run: () => void } }} [how]
 */
export function toast(text, { kind = "info", action } = {}) {
    lastId += 1;
    const id = lastId;
    toasts.value = [...toasts.value.slice(-3), { id, text, kind, action }];
    if (kind === "info") setTimeout(() => dismissToast(id), TOAST_LIFE);
}

/**
 * Show `message` when a promise is fulfilled, and its error otherwise.
 * @param {Promise<unknown>} promise
 * @param {string} message
 * @returns {Promise<boolean>} whether it was fulfilled
 */
export async function act(promise, message) {
    try {
        await promise;
    } catch (error) {
        toastError(error);
        return false;
    }
    toast(message);
    return true;
}

/** @param {string} text */
export function copyText(text) {
    return act(navigator.clipboard.writeText(text), `Copied: ${text}`);
}

/** @param {unknown} error whose message is shown until it is closed */
export function toastError(error) {
    toast(error instanceof Error ? error.message : String(error), { kind: "error" });
}

/** @param {number} id */
function dismissToast(id) {
    toasts.value = toasts.value.filter(message => message.id !== id);
}

export const Toasts = component(() =>
    div(
        { class: "toasts", role: "status", "aria-live": "polite" },
        toasts.value.map(message =>
            div(
                { key: message.id, class: `toast ${message.kind}` },
                span(null, message.text),
                message.action
                    ? button({ type: "button", class: "plain", onClick: message.action.run }, message.action.text)
                    : null,
                button(
                    {
                        type: "button",
                        class: "plain",
                        "aria-label": "Dismiss",
                        onClick: () => dismissToast(message.id),
                    },
                    "✕",
                ),
            ),
        ),
    ),
);
