/** Where one signs in: by name and password, or by the one-time link that `det ui` prints. */
import { useEffect } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { ownerOfLink, session, signIn } from "../api/session.js";
import { visible } from "../lib/format.js";
import { go, href, place } from "../ui/router.js";
import { usePlace } from "../ui/shell.js";
import { SignInForm } from "../ui/sign_in_form.js";
import { component, tags } from "../ui/tags.js";

const { b, button, code, div, h1, p } = tags;

export const Page = component(() => {
    usePlace([{ text: "Sign in", to: "sign-in" }]);
    const known = session.value;
    // The form stands in the place of any page: afterwards that page is there. Only here it is another one.
    const here = place.value.route?.page === "sign_in";
    const onDone = () => (here ? go(href(place.value.query.get("to") ?? ""), { replace: true }) : undefined);
    const ticket = here ? ticketOf(location.hash) : null;
    return div(
        { class: "sign-in" },
        h1(null, visible(known?.clusterName || "trainmaster", 60)),
        p({ class: "muted" }, `trainmaster ${known?.version ?? ""}`),
        ticket ? ByLink({ ticket, onDone }) : SignInForm({ onDone }),
        p(
            { class: "muted" },
            "Signed in on a terminal already? ",
            code(null, "det ui"),
            " prints a link that signs you in.",
        ),
    );
});

/**
 * The ticket of a link. It is in the fragment, which the browser sends to no server.
 * @param {string} hash
 */
function ticketOf(hash) {
    return new URLSearchParams(hash.slice(1)).get("ticket");
}

/** One press, and not by itself: a link from somebody else must not sign anybody in unseen. */
const ByLink = component((/** @type {{ ticket: string, onDone: () => void }} */ { ticket, onDone }) => {
    const said = useSignal("");
    const owner = useSignal("");
    useEffect(() => {
        ownerOfLink(ticket).then(
            name => {
                owner.value = name;
            },
            error => {
                said.value = refusal(error);
            },
        );
    }, [ticket]);
    const enter = async () => {
        try {
            await signIn({ ticket });
            onDone();
        } catch (error) {
            said.value = refusal(error);
        }
    };
    if (said.value) {
        return div(null, p({ role: "alert", class: "said" }, said.value), SignInForm({ onDone }));
    }
    if (!owner.value) return div({ class: "sign-in-form" }, p({ class: "muted" }, "Reading the link …"));
    const name = visible(owner.value, 80);
    const present = session.value?.user?.username;
    return div(
        { class: "sign-in-form" },
        p(null, "This link signs in ", b(null, name), ". It is good once, for a minute."),
        present === owner.value
            ? p(null, "You are signed in as this user already.")
            : present
              ? p({ role: "alert" }, `You are signed in as ${visible(present, 80)}, and would continue as ${name}.`)
              : p({ class: "muted" }, "If that is not you, somebody else has sent you the link: close this page."),
        button({ type: "button", class: "primary", autofocus: true, onClick: enter }, `Sign in as ${name}`),
    );
});

/** @param {unknown} error */
function refusal(error) {
    return `${error instanceof Error ? error.message : error} Ask for another one with det ui.`;
}
