/** To be written. */
import { component, tags } from "../ui/tags.js";

/** @import { ExperimentView } from "./experiment.js" */

export const Tab = component((/** @type {{ view: ExperimentView }} */ { view }) =>
    tags.p(null, String(view.trials.length)),
);
