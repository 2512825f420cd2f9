/** The slot-hours of each day, as a chart. */
import { Chart } from "../ui/chart.js";
import { component } from "../ui/tags.js";

/** @import { UsageAnswer } from "../../types/api.d.ts" */

const HOUR = 3600;
const DAY = 86_400;

export const UsageChart = component((/** @type {{ usage: UsageAnswer }} */ { usage }) =>
    Chart({
        data: {
            label: `Slot-hours a day, ${usage.first} to ${usage.last}`,
            xTitle: `days since ${usage.first}`,
            yTitle: "slot-hours",
            x: usage.days.map(day => Math.round((day.day - (usage.days[0]?.day ?? 0)) / DAY)),
            series: [{ name: "slot-hours", y: usage.days.map(day => day.slotSeconds / HOUR) }],
        },
        height: 200,
    }),
);
