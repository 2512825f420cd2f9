/** Starts the page: asks who uses it, shows the shell, and loads the module of the place that the address names. */

import { useEffect } from "../vendor/preact/hooks.js";
import { Component, render } from "../vendor/preact/preact.js";
import { useSignal } from "../vendor/signals/signals.js";
import { away, comebacks } from "./api/http.js";
import { readSession, session } from "./api/session.js";
import { visible } from "./lib/format.js";
import { followLinks, href, loadModule, pageModules, place } from "./ui/router.js";
import { Shell, usePlace, Waiting } from "./ui/shell.js";
import { component, tags } from "./ui/tags.js";

/** @import { ComponentTag, Content } from "../types/tags.d.ts" */

const { a, button, div, h1, p } = tags;

/** @typedef {{ Page: ComponentTag<{}> }} PageModule */

/** The page of the present address, in the shell. */
const Outlet = component(() => {
    const loaded = useSignal(/** @type {{ name: string, Page: ComponentTag<{}> } | null} */ (null));
    const failed = useSignal("");
    const at = place.value;
    const known = session.value;
    const wanted = known === null ? "" : known.user === null ? "sign_in" : (at.route?.page ?? "");
    useEffect(() => {
        if (!wanted) return undefined;
        let here = true; // a page that was left before it was there must not come late
        failed.value = "";
        load(wanted).then(
            module => {
                if (here) loaded.value = { name: wanted, Page: module.Page };
            },
            error => {
                if (here) failed.value = String(error);
            },
        );
        return () => {
            here = false;
        };
    }, [wanted]);
    if (known === null) return away.value === null ? Waiting({}) : null;
    if (!wanted) return NotFound({ path: at.path });
    if (failed.value) return Failed({ sentence: failed.value });
    if (loaded.value?.name !== wanted) return Waiting({});
    // Another thing is another page, with nothing left of the one before; another view of the same thing is not.
    const key = `${wanted} ${at.thing}`;
    return Guarded({ key }, loaded.value.Page({}));
});

/** @param {string} name @returns {Promise<PageModule>} */
function load(name) {
    return loadModule(() => import(`./pages/${name}.js`));
}

/** @extends {Component<{ children?: Content }, { sentence: string }>} */
class Boundary extends Component {
    constructor() {
        super();
        this.state = { sentence: "" };
    }

    /** @param {unknown} error */
    componentDidCatch(error) {
        console.error(error);
        this.setState({ sentence: String(error) });
    }

    render() {
        return this.state.sentence ? Failed({ sentence: this.state.sentence }) : this.props.children;
    }
}
const Guarded = component(/** @type {any} */ (Boundary));

const Failed = component((/** @type {{ sentence: string }} */ { sentence }) =>
    div(
        { class: "page", role: "alert" },
        h1(null, "This page failed"),
        p(null, visible(sentence, 1000)),
        button({ type: "button", onClick: () => location.reload() }, "Load it again"),
    ),
);

const NotFound = component((/** @type {{ path: string }} */ { path }) => {
    usePlace([{ text: "Nothing here", to: path }]);
    return div(
        { class: "page" },
        h1(null, "There is no such page"),
        p(null, visible(path), " leads nowhere. ", a({ href: href("") }, "Home")),
    );
});

const FIRST_LOOK = 2000; // ms for this page, before others are fetched

/** Fetches the other pages' modules, so that they are there when somebody goes to them. */
function fetchTheRest() {
    for (const page of pageModules()) {
        const link = document.createElement("link");
        link.rel = "modulepreload";
        link.href = new URL(`./pages/${page}.js`, import.meta.url).href;
        document.head.append(link);
    }
}

const App = component(() => Shell({}, Outlet({})));

const root = document.getElementById("page");
if (root) {
    followLinks();
    render(App({}), root);
    const read = () => readSession().catch(() => undefined); // the banner says that the master is away
    comebacks.subscribe(read); // at once too
    if ("requestIdleCallback" in window)
        setTimeout(() => requestIdleCallback(fetchTheRest, { timeout: 10_000 }), FIRST_LOOK);
}
