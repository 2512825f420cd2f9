/** The way to the page that compares what is marked: a link where 2 to 20 are, and the key `c`. */
import { useLayoutEffect } from "../../vendor/preact/hooks.js";
import { toast } from "./overlay.js";
import { go, href } from "./router.js";
import { isTyping } from "./shell.js";
import { component, tags } from "./tags.js";

const { a } = tags;
const FEWEST = 2;
const MOST = 20;
const AFTER_G = 1500; // ms

/**
 * @typedef {object} CompareLinkProperties
 * @property {"trials" | "experiments"} kind
 * @property {readonly number[]} ids of the marked ones
 */
export const CompareLink = component((/** @type {CompareLinkProperties} */ { kind, ids }) => {
    const to = href("compare", { [kind]: ids.join(",") });
    const fits = ids.length >= FEWEST && ids.length <= MOST;
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
            else toast(`Mark ${FEWEST} to ${MOST} ${kind} to compare them; ${ids.length} are marked`);
        };
        document.addEventListener("keydown", pressed);
        return () => document.removeEventListener("keydown", pressed);
    }, [to, fits]);
    return fits ? a({ class: "button", href: to, title: "c" }, "Compare") : null;
});
