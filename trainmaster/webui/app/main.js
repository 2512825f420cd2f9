/** Starts the page: asks who uses it, shows the shell, and loads the module of the page that the address names. */

import { useEffect } from "../vendor/preact/hooks.js";
import { Component, render } from "../vendor/preact/preact.js";
import { useSignal } from "../vendor/signals/signals.js";
import { readSession } from "./api/session.js";
import { outage, reconnects, session } from "./api/state.js";
import { visible } from "./lib/format.js";
import { href, interceptLinks, loadModule, location, pageModules } from "./ui/router.js";
import { LoadingBar, Shell, usePageTitle } from "./ui/shell.js";
import { component, tags } from "./ui/tags.js";

/** @import { ComponentTag, Content } from "../types/tags.d.ts" */

const { a, button, div, h1, p } = tags;

/** @typedef {{ Page: ComponentTag<{}> }} PageModule */

/** The page of the present address, in the shell. */
const Outlet = component(() => {
    const loaded = useSignal(/** @type {{ name: string, Page: ComponentTag<{}> } | null} */ (null));
    const failed = useSignal("");
    const at = location.value;
    const pageSession = session.value;
    const pageName = pageSession === null ? "" : pageSession.user === null ? "sign_in" : (at.route?.page ?? "");
    useEffect(() => {
        if (!pageName) return undefined;
        let mounted = true; // a page that was left before it was there must not replace the present one
        failed.value = "";
        load(pageName).then(
            module => {
                if (mounted) loaded.value = { name: pageName, Page: module.Page };
            },
            error => {
                if (mounted) failed.value = String(error);
            },
        );
        return () => {
            mounted = false;
        };
    }, [pageName]);
    if (pageSession === null) return outage.value === null ? LoadingBar({}) : null;
    if (!pageName) return NotFound({ path: at.path });
    if (failed.value) return PageError({ sentence: failed.value });
    if (loaded.value?.name !== pageName) return LoadingBar({});
    // Another resource gets a new page without the state of the old one; another view of the same resource keeps it.
    const key = `${pageName} ${at.resourceKey}`;
    return ErrorBoundary({ key }, loaded.value.Page({}));
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
        return this.state.sentence ? PageError({ sentence: this.state.sentence }) : this.props.children;
    }
}
const ErrorBoundary = component(/** @type {any} */ (Boundary));

const PageError = component((/** @type {{ sentence: string }} */ { sentence }) =>
    div(
        { class: "page", role: "alert" },
        h1(null, "This page failed"),
        p(null, visible(sentence, 1000)),
        button({ type: "button", onClick: () => window.location.reload() }, "Reload"),
    ),
);

const NotFound = component((/** @type {{ path: string }} */ { path }) => {
    usePageTitle([{ text: "Not found", to: path }]);
    return div(
        { class: "page" },
        h1(null, "Page not found"),
        p(null, "No page at ", visible(path), ". ", a({ href: href("") }, "Home")),
    );
});

const PRELOAD_DELAY = 2000; // ms for this page, before others are fetched

/** Fetches the other pages' modules, so that they open at once. */
function preloadPages() {
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
    interceptLinks();
    render(App({}), root);
    const reload = () => readSession().catch(() => undefined); // the banner says that the master does not answer
    reconnects.subscribe(reload); // at once too
    if ("requestIdleCallback" in window)
        setTimeout(() => requestIdleCallback(preloadPages, { timeout: 10_000 }), PRELOAD_DELAY);
}
