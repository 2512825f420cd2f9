/** What every page has around it: the way there, the jump box, the banner, who is signed in, the theme. */
import { useEffect } from "../../vendor/preact/hooks.js";
import { signal, useSignal } from "../../vendor/signals/signals.js";
import { may, signOut } from "../api/session.js";
import { clock, freshness, outage, session, sessionEnded, signingOut } from "../api/state.js";
import { ago, exact, visible } from "../lib/format.js";
import { POLL_INTERVAL } from "../lib/live_state.js";
import { Dialogs, Menu, openDialog, Toasts, toastError } from "./overlay.js";
import { BASE, href, navigate } from "./router.js";
import { component, tags } from "./tags.js";

/** @import { Content } from "../../types/tags.d.ts" */
/** @import { Outage } from "../api/state.js" */

const { a, button, div, header, kbd, li, main, nav, ol, span } = tags;

/** @typedef {{ text: string, to: string }} Crumb */

/** The page's place in the tree, from the outermost on; pages set it. The last one is the page itself. */
export const crumbs = signal(/** @type {Crumb[]} */ ([]));

/** @type {{ text: string, to: string, key: string, permission?: string }[]} */
const SECTIONS = [
    { text: "Home", to: "", key: "h" },
    { text: "Experiments", to: "experiments", key: "e" },
    { text: "Usage", to: "usage", key: "u", permission: "VIEW_CLUSTER_USAGE" },
];

/** The sections that the user may see. */
function sections() {
    return SECTIONS.filter(section => section.permission === undefined || may(section.permission));
}

/** Sets the crumbs and the title of the window, as long as the component is there. */
export function usePageTitle(/** @type {Crumb[]} */ path) {
    const words = path.map(crumb => crumb.text).join("\n");
    useEffect(() => {
        crumbs.value = path;
        const cluster = session.value?.clusterName || "trainmaster";
        document.title = [...path.map(crumb => visible(crumb.text, 60)).reverse(), cluster].join(" · ");
    }, [words, session.value?.clusterName]);
}

export const Shell = component((/** @type {{ children?: Content }} */ { children }) => {
    useEffect(() => globalKeys(), []);
    const asks = sessionEnded.value && !signingOut.value && Boolean(session.value?.user);
    useEffect(() => {
        if (asks) askToSignIn();
    }, [asks]);
    return div(
        { class: "shell" },
        a({ class: "skip", href: "#main", onClick: focusMain }, "Skip to content"),
        TopBar({}),
        Banners({}),
        main({ id: "main", tabIndex: -1 }, children),
        Dialogs({}),
        Toasts({}),
    );
});

const TopBar = component(() => {
    const pageSession = session.value;
    return header(
        { class: "top" },
        a({ class: "brand", href: href("") }, visible(pageSession?.clusterName || "trainmaster", 30)),
        nav(
            { "aria-label": "Sections" },
            pageSession?.user
                ? sections().map(section =>
                      a({ key: section.to, href: href(section.to), ...currentAttributes(section.to) }, section.text),
                  )
                : null,
        ),
        nav(
            { "aria-label": "Place", class: "crumbs" },
            ol(
                null,
                crumbs.value
                    .slice(1)
                    .map((crumb, at) => CrumbItem({ key: at, crumb, last: at === crumbs.value.length - 2 })),
            ),
        ),
        pageSession?.user ? FreshnessBadge({}) : null,
        pageSession?.user
            ? button(
                  { type: "button", class: "jump-button", onClick: showJumpBox },
                  span(null, "Jump to …"),
                  kbd(null, "Ctrl K"),
              )
            : null,
        Menu({ label: "Theme", class: "plain", text: "◐", items: themeItems }),
        pageSession?.user
            ? Menu({
                  label: `Account: ${visible(pageSession.user.username, 24)}`,
                  class: "plain",
                  text: visible(pageSession.user.username, 24),
                  items: accountItems,
              })
            : null,
    );
});

/** Whether the page is live. Not announced to screen readers: a banner is, where it matters. */
const FreshnessBadge = component(() => {
    const current = freshness.value;
    if (!current) return null;
    const { mode, since } = current;
    const seconds = POLL_INTERVAL / 1000;
    const [text, title] = {
        live: ["live", "Changes appear at once"],
        polling: [`every ${seconds} s`, `No live connection to the master: the page polls every ${seconds} s`],
        stale: [`stale since ${exact(since).slice(11, 16)}`, `This data is as of ${exact(since)}`],
    }[mode];
    return span({ class: `freshness ${mode}`, title }, text);
});

const CrumbItem = component((/** @type {{ crumb: Crumb, last: boolean }} */ { crumb, last }) =>
    li(
        null,
        last
            ? span({ "aria-current": "page", title: crumb.text }, visible(crumb.text, 80))
            : a({ href: href(crumb.to), title: crumb.text }, visible(crumb.text, 80)),
    ),
);

/** @param {string} to */
function currentAttributes(to) {
    const first = crumbs.value[0];
    return first?.to === to ? { "aria-current": /** @type {const} */ ("true") } : {};
}

const Banners = component(() => {
    const message = session.value?.message;
    return div(
        null,
        outage.value ? OutageBanner({ outage: outage.value }) : null,
        message ? div({ class: "banner", role: "status" }, visible(message, 1000)) : null,
    );
});

const OutageBanner = component((/** @type {{ outage: Outage }} */ { outage: { service, since } }) => {
    const age = since > clock.value ? "now" : ago(since, clock.value).replace(" ago", "");
    const stale = session.value ? "This data is stale; the page" : "The page";
    return div(
        { class: "banner failed", role: "alert" },
        `The ${service} has not answered for ${age === "now" ? "a moment" : age}. `,
        `${stale} retries automatically. Jobs continue to run.`,
    );
});

// -- theme ------------------------------------------------------------------------------------------------------------

const theme = signal(document.documentElement.dataset["theme"] ?? "system");

function themeItems() {
    return [
        { text: "System", word: "system" },
        { text: "Light", word: "light" },
        { text: "Dark", word: "dark" },
    ].map(({ text, word }) => ({ text, checked: theme.value === word, action: () => setTheme(word) }));
}

/** @param {string} word kept in a cookie, so that the next page comes in it */
function setTheme(word) {
    theme.value = word;
    document.documentElement.dataset["theme"] = word;
    const secure = window.location.protocol === "https:" ? "; Secure" : "";
    // biome-ignore lint/suspicious/noDocumentCookie: the Cookie Store API is missing in browsers that we support
    document.cookie = `trainmaster-theme=${word}; Path=${BASE.pathname}; Max-Age=31536000; SameSite=Strict${secure}`;
    dispatchEvent(new CustomEvent("themechange"));
}

// -- who --------------------------------------------------------------------------------------------------------------

function accountItems() {
    const leave = () => {
        signOut().then(
            () => navigate(href("")),
            error => toastError(error),
        );
    };
    return [
        { text: `trainmaster ${session.value?.version ?? ""}`, disabled: true, action: () => undefined },
        { text: "Documentation", action: () => open(new URL("../docs/guide/", BASE), "_blank", "noopener") },
        { text: "API documentation", action: () => open(new URL("../docs", BASE), "_blank", "noopener") },
        { text: "Keyboard shortcuts", hint: "?", action: showKeys },
        { text: "Sign out", action: leave },
    ];
}

function askToSignIn() {
    import("./sign_in_form.js").then(({ SignInDialog: SignInAgain }) => {
        if (!sessionEnded.value) return;
        openDialog({ title: "Your session has ended", persistent: true, body: close => SignInAgain({ close }) });
    }, toastError);
}

// -- keys -------------------------------------------------------------------------------------------------------------

function showJumpBox() {
    import("./jump_box.js").then(module => module.openJump(sections()), toastError);
}

function showKeys() {
    import("./jump_box.js").then(module => module.showKeys(sections()), toastError);
}

/** Whether what is typed belongs to a field. @param {EventTarget | null} at */
export function isTyping(at) {
    return at instanceof HTMLElement && (at.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName));
}

function globalKeys() {
    let afterG = 0;
    /** @param {KeyboardEvent} event */
    const pressed = event => {
        if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey)) {
            event.preventDefault();
            if (session.value?.user && !document.querySelector("dialog[open]")) showJumpBox();
            return;
        }
        if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
        if (!session.value?.user || document.querySelector("dialog[open]")) return;
        if (event.key === "?") showKeys();
        else if (event.key === "g") afterG = event.timeStamp;
        else if (event.timeStamp - afterG < 1500) {
            const section = sections().find(candidate => candidate.key === event.key);
            afterG = 0;
            if (section) navigate(href(section.to));
        }
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
}

/** @param {Event} event */
function focusMain(event) {
    event.preventDefault(); // the address would be relative to <base>
    document.getElementById("main")?.focus();
}

/** A bar at the upper edge, shown when loading takes longer than 300 ms. */
export const LoadingBar = component(() => {
    const isSlow = useSignal(false);
    useEffect(() => {
        const timer = setTimeout(() => {
            isSlow.value = true;
        }, 300);
        return () => clearTimeout(timer);
    }, []);
    return isSlow.value ? div({ class: "loading", role: "progressbar", "aria-label": "Loading" }) : null;
});
