/** Sign-in page: by name and password, or by the one-time link that `det ui` prints. */
import { useEffect } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { ownerOfLink, signIn } from "../api/session.js";
import { session } from "../api/state.js";
import { visible } from "../lib/format.js";
import { href, location, navigate } from "../ui/router.js";
import { usePageTitle } from "../ui/shell.js";
import { SignInForm } from "../ui/sign_in_form.js";
import { component, tags } from "../ui/tags.js";

const { b, button, code, div, h1, p } = tags;

export const Page = component(() => {
    usePageTitle([{ text: "Sign in", to: "sign-in" }]);
    const pageSession = session.value;
    // The form stands in the place of any page: afterwards that page is there. Only here it is another one.
    const onSignInPage = location.value.route?.page === "sign_in";
    const onDone = () =>
        onSignInPage ? navigate(href(location.value.query.get("to") ?? ""), { replace: true }) : undefined;
    const ticket = onSignInPage ? ticketOf(window.location.hash) : null;
    return div(
        { class: "sign-in" },
        h1(null, visible(pageSession?.clusterName || "trainmaster", 60)),
        p({ class: "muted" }, `trainmaster ${pageSession?.version ?? ""}`),
        ticket ? LinkSignIn({ ticket, onDone }) : SignInForm({ onDone }),
        p(
            { class: "muted" },
            "Logged in on a terminal? ",
            code(null, "det ui"),
            " prints a one-time link, valid for a minute.",
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
const LinkSignIn = component((/** @type {{ ticket: string, onDone: () => void }} */ { ticket, onDone }) => {
    const error = useSignal("");
    const owner = useSignal("");
    useEffect(() => {
        ownerOfLink(ticket).then(
            name => {
                owner.value = name;
            },
            failure => {
                error.value = refusalText(failure);
            },
        );
    }, [ticket]);
    const enter = async () => {
        try {
            await signIn({ ticket });
            onDone();
        } catch (failure) {
            error.value = refusalText(failure);
        }
    };
    if (error.value) {
        return div(null, p({ role: "alert", class: "error-text" }, error.value), SignInForm({ onDone }));
    }
    if (!owner.value) return div({ class: "sign-in-form" }, p({ class: "muted" }, "Reading the link …"));
    const name = visible(owner.value, 80);
    const currentUser = session.value?.user?.username;
    return div(
        { class: "sign-in-form" },
        p(null, "This link signs in ", b(null, name), ". It works once, within a minute."),
        currentUser === owner.value
            ? p(null, "You are already signed in as this user.")
            : currentUser
              ? p({ role: "alert" }, `You are signed in as ${visible(currentUser, 80)}, and would switch to ${name}.`)
              : p({ class: "muted" }, "If this is not you, close this page: somebody else has sent you the link."),
        button({ type: "button", class: "primary", autofocus: true, onClick: enter }, `Sign in as ${name}`),
    );
});

/** @param {unknown} error */
function refusalText(error) {
    return `${error instanceof Error ? error.message : error} Get another link with det ui.`;
}
