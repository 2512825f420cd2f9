/** Where and with what a trial trains: hyperparameters, image, nodes, variables; as its configuration and jobs say. */

import { visible } from "../lib/format.js";
import { yaml } from "../lib/yaml.js";
import { PartError, useQuery } from "../ui/query.js";
import { LoadingBar } from "../ui/shell.js";
import { SourceText } from "../ui/source_text.js";
import { component, tags } from "../ui/tags.js";

/** @import { TrialView } from "./trial.js" */
/** @import { Content } from "../../types/tags.d.ts" */
/** @typedef {{ [name: string]: any }} Json */

const { code, dd, div, dl, dt, h2, section } = tags;

export const Tab = component((/** @type {{ view: TrialView }} */ { view }) => {
    const { trial, attempts } = view.board;
    const { data, error } = useQuery(`api/v1/experiments/${trial.experimentId}`);
    if (error) return PartError({ error });
    if (!data) return LoadingBar({});
    /** @type {Json} */
    const { config } = /** @type {{ experiment: Json }} */ (data).experiment;
    const environment = config["environment"] ?? {};
    const nodes = [...new Set(attempts.flatMap(attempt => attempt.nodes))];
    const facts = /** @type {[string, Content][]} */ ([
        ["Command", code(null, visible(plain(config["entrypoint"]), 2000))],
        ...Object.entries(environment.image ?? {})
            .filter(([, image]) => image)
            .map(([kind, image]) => [`Image for ${visible(kind, 20)}`, code(null, visible(plain(image), 500))]),
        ["Slots", String(config["resources"]?.slots_per_trial ?? 1)],
        ["Nodes", nodes.length ? visible(nodes.join(", "), 2000) : "none yet"],
        [
            "Jobs",
            attempts
                .map(attempt => attempt.job ?? "–")
                .map(job => visible(job, 60))
                .join(", ") || "none yet",
        ],
        ["Mounts", mounts(config["bind_mounts"]) || "none"],
    ]);
    return div(
        { class: "tab-columns" },
        section(
            { class: "wide" },
            dl(
                { class: "facts" },
                facts.map(([name, text]) => [dt({ key: `${name}-` }, name), dd({ key: name }, text)]),
            ),
        ),
        section(null, h2(null, "Hyperparameters"), SourceText({ text: yaml(trial.hparams), label: "Hyperparameters" })),
        section(
            null,
            h2(null, "Environment variables"),
            SourceText({ text: yaml(environment.environment_variables ?? {}), label: "Environment variables" }),
        ),
    );
});

/** @param {unknown} value */
function plain(value) {
    return typeof value === "string" ? value : JSON.stringify(value ?? "");
}

/** @param {unknown} value */
function mounts(value) {
    if (!Array.isArray(value)) return "";
    return value
        .map(
            mount =>
                `${visible(String(mount.host_path), 200)} at ${visible(String(mount.container_path), 200)}${mount.read_only ? " (read-only)" : ""}`,
        )
        .join(", ");
}
