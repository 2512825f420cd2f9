/** The form for a name and a password: of the sign-in page, and of the dialog after a session has ended. */
import { useEffect } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { ApiError } from "../api/http.js";
import { signIn } from "../api/session.js";
import { session, sessionEnded } from "../api/state.js";
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
    const error = useSignal("");
    const busy = useSignal(false);
    const left = useCountdown(0);
    const username = session.value?.user?.username ?? "";
    /** @param {SubmitEvent & { currentTarget: HTMLFormElement }} event */
    const submit = async event => {
        event.preventDefault();
        event.stopPropagation();
        const fields = new FormData(event.currentTarget);
        busy.value = true;
        error.value = "";
        try {
            await signIn({ username: String(fields.get("username")), password: String(fields.get("password")) });
            onDone?.();
        } catch (failure) {
            error.value = failure instanceof ApiError ? failure.message : String(failure);
            if (failure instanceof ApiError) left.value = failure.seconds;
        }
        busy.value = false;
    };
    return form(
        { class: "sign-in-form", onSubmit: submit },
        label(
            null,
            "Name",
            input({
                name: "username",
                autocomplete: "username",
                required: true,
                autofocus: !username,
                defaultValue: username,
            }),
        ),
        label(
            null,
            "Password",
            input({ name: "password", type: "password", autocomplete: "current-password", autofocus: username !== "" }),
        ),
        div(
            { role: "alert", class: "error-text" },
            error.value
                ? p(null, left.value > 0 ? `Too many failed attempts. Try again in ${left.value} s.` : error.value)
                : null,
        ),
        button({ class: "primary", disabled: busy.value || left.value > 0 }, "Sign in"),
    );
});

/** The form in a dialog, which closes when somebody is signed in again, or nobody is any more. */
export const SignInDialog = component((/** @type {{ close: () => void }} */ { close }) => {
    useEffect(() => {
        if (!sessionEnded.value) close();
    }, [sessionEnded.value]);
    return SignInForm({});
});
