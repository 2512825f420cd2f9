/** What every page has around it: the way there, the jump box, the banner, who is signed in, the theme. */
import { useEffect, useRef } from "../../vendor/preact/hooks.js";
import { signal, useSignal } from "../../vendor/signals/signals.js";
import { away, get, sessionEnded } from "../api/http.js";
import { EVERY, freshness } from "../api/live.js";
import { may, session, signingOut, signOut } from "../api/session.js";
import { ago, exact, visible } from "../lib/format.js";
import { Dialogs, Menu, openDialog, Toasts, toastError } from "./overlay.js";
import { BASE, go, href, loadModule } from "./router.js";
import { component, tags } from "./tags.js";

/** @import { Content } from "../../types/tags.d.ts" */

const { a, button, div, h1, header, kbd, li, main, nav, ol, p, span } = tags;

/** @typedef {{ text: string, to: string }} Crumb */

/** The page's place in the tree, from the outermost on; pages set it. The last one is the page itself. */
export const crumbs = signal(/** @type {Crumb[]} */ ([]));
/** The present time in milliseconds, a few times a minute: for what is told as `5 min ago`. */
export const clock = signal(Date.now());
setInterval(() => {
    clock.value = Date.now();
}, 10_000);

/** @type {{ text: string, to: string, key: string, permission?: string }[]} */
const SECTIONS = [
    { text: "Home", to: "", key: "h" },
    { text: "Experiments", to: "experiments", key: "e" },
    { text: "Usage", to: "usage", key: "u", permission: "VIEW_CLUSTER_USAGE" },
];

/** The sections that the user may see. */
function sections() {
    return SECTIONS.filter(one => one.permission === undefined || may(one.permission));
}

/** Sets the crumbs and the title of the window, as long as the component is there. */
export function usePlace(/** @type {Crumb[]} */ way) {
    const words = way.map(one => one.text).join("\n");
    useEffect(() => {
        crumbs.value = way;
        const cluster = session.value?.clusterName || "trainmaster";
        document.title = [...way.map(one => visible(one.text, 60)).reverse(), cluster].join(" · ");
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
        a({ class: "skip", href: "#main", onClick: toMain }, "Skip to the page"),
        Top({}),
        Banners({}),
        main({ id: "main", tabIndex: -1 }, children),
        Dialogs({}),
        Toasts({}),
    );
});

const Top = component(() => {
    const known = session.value;
    return header(
        { class: "top" },
        a({ class: "brand", href: href("") }, visible(known?.clusterName || "trainmaster", 30)),
        nav(
            { "aria-label": "Sections" },
            known?.user
                ? sections().map(one => a({ key: one.to, href: href(one.to), ...current(one.to) }, one.text))
                : null,
        ),
        nav(
            { "aria-label": "Place", class: "crumbs" },
            ol(
                null,
                crumbs.value.slice(1).map((one, at) => Step({ key: at, one, last: at === crumbs.value.length - 2 })),
            ),
        ),
        known?.user ? Fresh({}) : null,
        known?.user
            ? button({ type: "button", class: "jump", onClick: jump }, span(null, "Jump to …"), kbd(null, "Ctrl K"))
            : null,
        Menu({ label: "Theme", class: "plain", text: "◐", items: themes }),
        known?.user
            ? Menu({
                  label: `Account: ${visible(known.user.username, 24)}`,
                  class: "plain",
                  text: visible(known.user.username, 24),
                  items: account,
              })
            : null,
    );
});

/** How new what is seen is. Not announced to screen readers: a banner does where it matters. */
const Fresh = component(() => {
    const now = freshness.value;
    if (!now) return null;
    const seconds = EVERY / 1000;
    const [words, title] = {
        live: ["live", "Changes show at once"],
        asking: [
            `every ${seconds} s`,
            `There is no live connection to the master: the page asks every ${seconds} s what has changed`,
        ],
        old: [`older since ${exact(now.since).slice(11, 16)}`, `What you see is of ${exact(now.since)}`],
    }[now.how];
    return span({ class: `fresh ${now.how}`, title }, words);
});

const Step = component((/** @type {{ one: Crumb, last: boolean }} */ { one, last }) =>
    li(
        null,
        last
            ? span({ "aria-current": "page", title: one.text }, visible(one.text, 80))
            : a({ href: href(one.to), title: one.text }, visible(one.text, 80)),
    ),
);

/** @param {string} to */
function current(to) {
    const first = crumbs.value[0];
    return first?.to === to ? { "aria-current": /** @type {const} */ ("true") } : {};
}

const Banners = component(() => {
    const message = session.value?.message;
    const absence = away.value;
    const said = [];
    if (absence) {
        const { who, since } = absence;
        const when = since > clock.value ? "now" : ago(since, clock.value).replace(" ago", "");
        said.push(
            div(
                { class: "banner failed", role: "alert" },
                `The ${who} has not answered for ${when === "now" ? "a moment" : when}. ${session.value ? "What you see is older; this" : "This"} page tries again by itself. Jobs go on.`,
            ),
        );
    }
    if (message) said.push(div({ class: "banner", role: "status" }, visible(message, 1000)));
    return div(null, said);
});

// -- theme ------------------------------------------------------------------------------------------------------------

const theme = signal(document.documentElement.dataset["theme"] ?? "system");

function themes() {
    return [
        { text: "As the system", word: "system" },
        { text: "Light", word: "light" },
        { text: "Dark", word: "dark" },
    ].map(({ text, word }) => ({ text, checked: theme.value === word, action: () => setTheme(word) }));
}

/** @param {string} word kept in a cookie, so that the next page comes in it */
function setTheme(word) {
    theme.value = word;
    document.documentElement.dataset["theme"] = word;
    const secure = location.protocol === "https:" ? "; Secure" : "";
    // biome-ignore lint/suspicious/noDocumentCookie: the Cookie Store API is missing in browsers that we support
    document.cookie = `trainmaster-theme=${word}; Path=${BASE.pathname}; Max-Age=31536000; SameSite=Strict${secure}`;
    dispatchEvent(new CustomEvent("themechange"));
}

// -- who --------------------------------------------------------------------------------------------------------------

function account() {
    const leave = () => {
        signOut().then(
            () => go(href("")),
            error => toastError(error),
        );
    };
    return [
        { text: `trainmaster ${session.value?.version ?? ""}`, disabled: true, action: () => undefined },
        { text: "API documentation", action: () => open(new URL("../docs", BASE), "_blank", "noopener") },
        { text: "Keys", hint: "?", action: showKeys },
        { text: "Sign out", action: leave },
    ];
}

function askToSignIn() {
    import("./sign_in_form.js").then(({ SignInAgain }) => {
        if (!sessionEnded.value) return;
        openDialog({ title: "Your session has ended", stays: true, body: close => SignInAgain({ close }) });
    }, toastError);
}

// -- keys -------------------------------------------------------------------------------------------------------------

function jump() {
    import("./jump.js").then(module => module.openJump(sections()), toastError);
}

function showKeys() {
    import("./jump.js").then(module => module.showKeys(sections()), toastError);
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
            if (session.value?.user && !document.querySelector("dialog[open]")) jump();
            return;
        }
        if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
        if (!session.value?.user || document.querySelector("dialog[open]")) return;
        if (event.key === "?") showKeys();
        else if (event.key === "g") afterG = event.timeStamp;
        else if (event.timeStamp - afterG < 1500) {
            const section = sections().find(one => one.key === event.key);
            afterG = 0;
            if (section) go(href(section.to));
        }
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
}

/** @param {Event} event */
function toMain(event) {
    event.preventDefault(); // the address would be relative to <base>
    document.getElementById("main")?.focus();
}

/**
 * A module that is loaded for what is shown: null until it is there. What was left before it was there does not come late.
 * @template T
 * @param {string} name of what is shown
 * @param {(() => Promise<T>) | undefined} load
 * @returns {T | null}
 */
export function useModule(name, load) {
    const loaded = useSignal(/** @type {{ name: string, module: T } | null} */ (null));
    useEffect(() => {
        let here = true;
        if (load)
            loadModule(load).then(module => {
                if (here) loaded.value = { name, module };
            }, toastError);
        return () => {
            here = false;
        };
    }, [name]);
    return loaded.value?.name === name ? loaded.value.module : null;
}

/**
 * The answer of a page's call: null until there is one, and the last one while another is asked for. An answer that comes
 * behind that of a later question is dropped.
 * @template T
 * @param {string} address
 */
export function useAnswer(address) {
    const answer = useSignal(/** @type {T | null} */ (null));
    const said = useSignal("");
    const round = useRef(0);
    const asked = useRef(address);
    asked.current = address;
    const read = async () => {
        round.current += 1;
        const mine = round.current;
        try {
            const found = await get(asked.current);
            if (mine !== round.current) return;
            answer.value = found;
            said.value = "";
        } catch (error) {
            if (mine === round.current) said.value = error instanceof Error ? error.message : String(error);
        }
    };
    useEffect(() => {
        void read();
    }, [address]);
    return { answer: answer.value, said: said.value, read };
}

/** In the place of what could not be read. */
export const NotShown = component((/** @type {{ said: string, read: () => unknown }} */ { said, read }) =>
    div(
        { class: "page", role: "alert" },
        h1(null, "Not shown"),
        p(null, visible(said, 1000)),
        button({ type: "button", onClick: read }, "Try again"),
    ),
);

/** A bar at the upper edge while something takes longer than a moment. */
export const Waiting = component(() => {
    const shown = useSignal(false);
    useEffect(() => {
        const timer = setTimeout(() => {
            shown.value = true;
        }, 300);
        return () => clearTimeout(timer);
    }, []);
    return shown.value ? div({ class: "loading", role: "progressbar", "aria-label": "Loading" }) : null;
});
