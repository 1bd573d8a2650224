// Numbers and limits, in words.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

// amount is a count: 1,234, and from a million on 1.2M.
export const amount = n => n < 1e6 ? whole.format(n) : compact.format(n);

// bytes is a number of bytes: 12 KiB, 1.5 MiB.
export function bytes(n) {
	const power = n < 1024 ? 0 : Math.min(3, Math.floor(Math.log2(n) / 10));
	return tenth.format(n / 1024 ** power) + " " + ["B", "KiB", "MiB", "GiB"][power];
}

// perSecond is a rate. Small ones have a tenth, so that one a few seconds is not 0.
export function perSecond(n) {
	if (n === null || n === undefined) {
		return "–";
	}
	return n > 0 && n < 0.1 ? "<0.1" : n < 10 ? tenth.format(n) : amount(n);
}

const units = [["day", 86400e3], ["hour", 3600e3], ["minute", 60e3], ["second", 1e3]];

// span is a length of time: 2 h 5 min, 40 s, 120 ms.
export function span(ms) {
	const s = Math.round(ms / 1000);
	if (ms < 1000) {
		return Math.max(0, Math.round(ms)) + " ms";
	}
	if (s < 120) {
		return s + " s";
	}
	const m = Math.round(s / 60);
	if (m < 120) {
		return m + " min";
	}
	const h = Math.floor(m / 60);
	return h < 48 ? h + " h" + (m % 60 ? " " + m % 60 + " min" : "") : Math.floor(h / 24) + " days";
}

// ago is how long ago an instant was.
export function ago(then, now) {
	const ms = now - then;
	return ms < 1500 ? "now" : span(ms) + " ago";
}

// lastUse is when a row was used last, or for how long at least it was not.
export function lastUse(row, now) {
	if (row.last_use) {
		return ago(row.last_use, now);
	}
	return row.quiet_since && now - row.quiet_since > 1500 ? "> " + span(now - row.quiet_since) : "–";
}

// windowWords is the window of a limit such as 1m, 24h, 1m30s or day.
function windowWords(text) {
	const named = { day: "calendar day", week: "calendar week", month: "calendar month" }[text];
	if (named) {
		return "a " + named;
	}
	let ms = 0;
	for (const [, n, unit] of text.matchAll(/([\d.]+)(ms|us|ns|h|m|s)/g)) {
		ms += n * { h: 3600e3, m: 60e3, s: 1e3, ms: 1, us: 1e-3, ns: 1e-6 }[unit];
	}
	for (const [unit, length] of units) {
		if (ms === length) {
			return (unit === "hour" ? "an " : "a ") + unit;
		}
		if (ms > length && ms % length === 0) {
			return "in " + ms / length + " " + unit + "s";
		}
	}
	return "in " + text;
}

// limitWords is the limit of a name in words.
export function limitWords(row) {
	if (row.limits) {
		return row.limits.split(",").map(limit => {
			const [size, window] = limit.split("/");
			return amount(Number(size)) + " " + windowWords(window);
		}).join(", ");
	}
	return {
		lock: "one at a time",
		semaphore: amount(row.size) + " at once",
		barrier: row.size ? amount(row.size) + " together" : "",
	}[row.kind] ?? "";
}

// quota is what is used of what there is, from 0 to 1; null where there is no such thing.
export const quota = row => row.size > 0 && row.kind !== "barrier" ? Math.min(1, row.used / row.size) : null;

export const limiters = ["tokenbucket", "gcra", "fixedwindow", "slidingwindow", "slidinglog", "pace"];
export const holds = ["semaphore", "lock"];
export const kinds = [...limiters, ...holds, "event", "watchdog", "counter", "barrier"];

// link is the address of the view of a name.
export const link = (kind, name) => "#/" + kind + "/" + encodeURIComponent(name);
