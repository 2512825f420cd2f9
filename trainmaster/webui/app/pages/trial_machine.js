/** What the profiler has measured on a trial's nodes and their GPUs; gaps are times without a job. */
import { useMemo } from "../../vendor/preact/hooks.js";
import { get } from "../api/http.js";
import { plural } from "../lib/format.js";
import { Chart } from "../ui/chart.js";
import { PartError, useLoad } from "../ui/query.js";
import { LoadingBar } from "../ui/shell.js";
import { component, tags } from "../ui/tags.js";

/** @import { TrialView } from "./trial.js" */
/** @import { Machine, MachineSeries } from "../../types/api.d.ts" */

const { code, div, p, pre } = tags;

const UNITS = /** @type {Record<string, string>} */ ({
    gpu_util: "%",
    gpu_free_memory: "bytes",
    simple_cpu_util: "%",
    cpu_util_simple: "%",
    memory_free: "GB",
    free_memory: "GB",
    disk_iops: "operations a second",
    disk_throughput_read: "bytes a second",
    disk_throughput_write: "bytes a second",
    net_throughput_recv: "bytes a second",
    net_throughput_sent: "bytes a second",
});

export const Tab = component((/** @type {{ view: TrialView }} */ { view }) => {
    const { trial } = view.board;
    const { data, error } = useLoad(`${trial.id} ${trial.steps}`, () => get(`api/x1/trials/${trial.id}/machine`));
    const machine = /** @type {Machine | null} */ (data);
    const charts = useMemo(() => chartsOf(machine?.series ?? [], trial), [machine]);
    if (error) return PartError({ error });
    if (!machine) return LoadingBar({});
    if (charts.length === 0) {
        return div(
            { class: "empty" },
            p(null, "No measurements. Enable the profiler in the configuration of the next experiment:"),
            pre(null, code(null, "profiling:\n  enabled: true\n")),
        );
    }
    const { total, series } = machine;
    return div(
        { class: "tab-columns" },
        total > series.length
            ? p(
                  { class: "muted wide" },
                  `The first ${series.length} of ${plural(total, "series", "series")} are shown.`,
              )
            : null,
        charts.map(data => div({ key: data.label }, Chart({ data, cursor: "machine", height: 180 }))),
    );
});

/**
 * A chart for each kind of measurement, a line for each node or GPU, over one time axis.
 * @param {MachineSeries[]} series
 * @param {{ id: number, started: number }} trial
 */
function chartsOf(series, trial) {
    /** @type {Map<string, MachineSeries[]>} */
    const kinds = new Map();
    for (const item of series) kinds.set(item.name, [...(kinds.get(item.name) ?? []), item]);
    return [...kinds].map(([name, members]) => {
        const moments = [...new Set(members.flatMap(member => member.at))].sort((a, b) => a - b);
        const places = new Map(moments.map((at, place) => [at, place]));
        return {
            label: name.replaceAll("_", " "),
            xTitle: "hours since start",
            yTitle: UNITS[name] ?? name,
            x: moments.map(at => (at - trial.started) / 3600),
            series: members.map(member => {
                /** @type {(number | null)[]} */
                const y = new Array(moments.length).fill(null);
                for (const [at, moment] of member.at.entries()) y[places.get(moment) ?? 0] = member.values[at] ?? null;
                return { name: member.gpu ? `${member.node} ${member.gpu}` : member.node, y };
            }),
            source: `trial ${trial.id}`,
        };
    });
}
