/** What needs its reader, what runs, what waits and why. */
import { href } from "../ui/router.js";
import { usePlace } from "../ui/shell.js";
import { component, tags } from "../ui/tags.js";

const { a, div, h1, p } = tags;

export const Page = component(() => {
    usePlace([{ text: "Home", to: "" }]);
    return div({ class: "page" }, h1(null, "Home"), p(null, a({ href: href("experiments") }, "Experiments")));
});
