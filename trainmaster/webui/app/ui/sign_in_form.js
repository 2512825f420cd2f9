/** The form for a name and a password: of the sign-in page, and of the dialog after a session has ended. */
import { useEffect } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { ApiError, sessionEnded } from "../api/http.js";
import { session, signIn } from "../api/session.js";
import { component, tags } from "./tags.js";

const { button, div, form, input, label, p } = tags;

/** Counts down the seconds until another try may work. @param {number} start */
function useCountdown(start) {
    const left = useSignal(start);
    useEffect(() => {
        if (left.value <= 0) return undefined;
        const timer = setTimeout(() => {
            left.value -= 1;
        }, 1000);
        return () => clearTimeout(timer);
    }, [left.value]);
    return left;
}

export const SignInForm = component((/** @type {{ onDone?: () => void }} */ { onDone }) => {
    const said = useSignal("");
    const busy = useSignal(false);
    const left = useCountdown(0);
    const known = session.value?.user?.username ?? "";
    /** @param {SubmitEvent & { currentTarget: HTMLFormElement }} event */
    const sent = async event => {
        event.preventDefault();
        event.stopPropagation();
        const given = new FormData(event.currentTarget);
        busy.value = true;
        said.value = "";
        try {
            await signIn({ username: String(given.get("username")), password: String(given.get("password")) });
            onDone?.();
        } catch (error) {
            said.value = error instanceof ApiError ? error.message : String(error);
            if (error instanceof ApiError) left.value = error.seconds;
        }
        busy.value = false;
    };
    return form(
        { class: "sign-in-form", onSubmit: sent },
        label(
            null,
            "Name",
            input({
                name: "username",
                autocomplete: "username",
                required: true,
                autofocus: !known,
                defaultValue: known,
            }),
        ),
        label(
            null,
            "Password",
            input({ name: "password", type: "password", autocomplete: "current-password", autofocus: known !== "" }),
        ),
        div(
            { role: "alert", class: "said" },
            said.value
                ? p(null, left.value > 0 ? `Too many attempts have failed. Try again in ${left.value} s.` : said.value)
                : null,
        ),
        button({ class: "primary", disabled: busy.value || left.value > 0 }, "Sign in"),
    );
});

/** The form in a dialog, which closes when somebody is signed in again, or nobody is any more. */
export const SignInAgain = component((/** @type {{ close: () => void }} */ { close }) => {
    useEffect(() => {
        if (!sessionEnded.value) close();
    }, [sessionEnded.value]);
    return SignInForm({});
});
